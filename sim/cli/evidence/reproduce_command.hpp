// `spillway reproduce`: published claims, simulated and judged.
#pragma once

#include <string>
#include <vector>

#include "sim/core/error.hpp"

namespace spillway::cli {

struct ReproduceOptions {
  std::vector<std::string> names;  // claims, systems, experiments, folders
  bool all = false;
  bool list = false;
  bool quick = false;  // use the quick settings of each run set
  bool full = false;   // also compute other values of open items, and columns
  bool json = false;
  std::string html;  // --html; empty: no page
  std::string progress = "auto";
  int jobs = 1;
};

/// Runs the simulations that the claims need and prints the claims with verdicts. Exit code 5 when a counted claim
/// fails. Throws ConfigError for unknown names, DataError for an invalid experiment.
[[nodiscard]] ExitCode reproduce(const ReproduceOptions& options);

}  // namespace spillway::cli
