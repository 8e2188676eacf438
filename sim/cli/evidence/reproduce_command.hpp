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
  bool quick = false;  // what each run set says of quick runs
  bool full = false;   // other values of open items, and columns, as well
  bool json = false;
  std::string progress = "auto";
  int jobs = 1;
};

/// Runs what the claims need and prints them with their verdicts; exit 5 when one that counts fails. Throws ConfigError
/// for unknown names, DataError for an experiment that is wrong.
[[nodiscard]] ExitCode reproduce(const ReproduceOptions& options);

}  // namespace spillway::cli
