// `spillway validate`: a real engine's request log, simulated against measured.
#pragma once

#include <string>

#include "sim/core/error.hpp"
#include "sim/study/log_replay.hpp"

namespace spillway::cli {

struct ValidateOptions {
  LogReplay replay;
  std::string html;  // file; empty: none
  bool json = false;
};

/// Prints both sides, and writes the page if one is asked for.
[[nodiscard]] ExitCode validate(const ValidateOptions& options);

}  // namespace spillway::cli
