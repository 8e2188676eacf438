// `spillway search`: how far a key can be driven before an SLO breaks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/cli/grid_arguments.hpp"
#include "sim/core/error.hpp"

namespace spillway::cli {

struct SearchOptions : GridOptions {
  std::string max_key;  // --max or
  std::string min_key;  // --min
  std::optional<std::string> from;
  std::optional<std::string> to;
  std::string tolerance = "1%";
  std::string attainment = "99%";  // of requests that must meet the SLOs on single requests
  std::optional<std::string> perturb;
};

/// Searches by bisection, several replications a value. Throws UserError when nothing was run: no SLO, a key that is no
/// number or already an axis. Code `gate` when some search found no value at all.
[[nodiscard]] ExitCode search(const SearchOptions& options);

}  // namespace spillway::cli
