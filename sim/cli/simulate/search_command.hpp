// `spillway search`: how far a key can be driven before an SLO breaks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/core/error.hpp"

namespace spillway::cli {

struct SearchOptions {
  std::vector<std::string> arguments;  // as for sweep: with axes, one search for each combination
  std::vector<std::string> slos;
  std::vector<std::string> zips;
  std::vector<std::string> metrics;
  std::string format = "table";
  std::string directory;  // -o; empty: nothing is kept
  std::string max_key;    // --max or
  std::string min_key;    // --min
  std::optional<std::string> from;
  std::optional<std::string> to;
  std::string tolerance = "1%";
  std::string attainment = "99%";  // of requests that must meet the SLOs on single requests
  std::optional<std::string> perturb;
  std::string progress = "auto";
  int jobs = 1;
  bool dry_run = false;
  std::vector<Problem> problems;  // found before
};

/// Searches by bisection, several replications a value. Throws UserError when nothing was run: no SLO, a key that is no
/// number or already an axis. Code `gate` when some search found no value at all.
[[nodiscard]] ExitCode search(const SearchOptions& options);

}  // namespace spillway::cli
