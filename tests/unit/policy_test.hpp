// Common code of the tests of single policies: a replay of a few requests, iteration by iteration.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/oracle/replay.hpp"

namespace spillway {

using oracle::replay;
using oracle::Replay;
using oracle::request;
using oracle::SeenIteration;
using oracle::WatchingModel;

/// Settings that differ from the policy's defaults.
using Overrides = std::vector<std::pair<std::string, Value>>;

/// Blocks of 16 tokens and 1,000 bytes. WatchingModel copies each block in 1,000 ns.
inline KvLayout layout(std::int64_t gpu, std::int64_t host = 0) {
  return KvLayout{Blocks(gpu), Blocks(host), Tokens(16), Bytes(1000), 1, false};
}

}  // namespace spillway
