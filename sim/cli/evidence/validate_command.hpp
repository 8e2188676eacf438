// `spillway validate`: a real engine's request log, simulated against measured.
#pragma once

#include <string>

#include "sim/core/error.hpp"
#include "sim/study/log_replay.hpp"

namespace spillway::cli {

struct ValidateOptions {
  LogReplay replay;
  std::string html;  // output file; empty: none
  bool json = false;
};

/// Prints measured and simulated figures, and writes the page if requested.
[[nodiscard]] ExitCode validate(const ValidateOptions& options);

}  // namespace spillway::cli
