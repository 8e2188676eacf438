// Plain engines in two pools, one of prompts and one of answers, as an oracle of hand-overs. It follows the rules of
// sim/engine/handover.hpp: every request is a list of facts, every transfer an entry of a list whose shares are
// computed anew at every change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "sim/core/request.hpp"
#include "tests/oracle/naive_cluster.hpp"
#include "tests/oracle/naive_engine.hpp"
#include "tests/oracle/naive_router.hpp"

namespace spillway::oracle {

/// How KV gets from one engine to another.
struct NaiveWay {
  Duration launch{};
  double bytes_per_second = 0.0;
  struct Crossing {
    std::size_t link = 0;
    double share = 1.0;  // of the bytes
  };
  std::vector<Crossing> crossings{};
};

/// What the engines of one pool have of their own, where the policy's layout depends on the phase.
struct NaivePool {
  Settings settings;
  Layout layout;
};

struct NaivePoolsConfig {
  /// Of every engine, without phases. Its requests, front end, time-out and horizon are those of all.
  NaiveConfig engine;
  std::vector<Blocks> gpu_blocks{};  // of each engine: first those of prompts, then those of answers
  std::vector<NaivePool> of_pool{};  // of prompts and of answers; empty: both have the engine's
  std::size_t prefill = 1;
  NaiveRouting prompts{};
  NaiveRouting answers{};
  bool by_layers = false;
  bool first_token_at_prefill = false;
  std::int64_t gpus = 1;                                          // of an engine, each with its share of every block
  std::vector<double> links{};                                    // bytes/s
  std::function<NaiveWay(std::size_t from, std::size_t to)> way;  // by numbers within the pools
  std::vector<NaiveFailure> failures{};                           // in order of time
  bool retry = true;
};

struct NaivePoolsResult {
  std::vector<RequestRecord> records;  // in order of ending
  std::vector<NaiveResult> engines;    // without failures only
  // Of each engine:
  std::vector<std::int64_t> sent;
  std::vector<std::int64_t> finished;
  std::vector<std::int64_t> lost;
  // Hand-overs that moved something:
  std::int64_t transfers = 0;
  Bytes bytes{};
  Duration waited{};               // from the end of the prompt to the begin of the transfer
  Duration moved{};                // from the begin of the transfer to its end
  std::vector<double> link_bytes;  // of transfers that ended, parts of KV included
};

NaivePoolsResult run_naive_pools(const NaivePoolsConfig& config);

}  // namespace spillway::oracle
