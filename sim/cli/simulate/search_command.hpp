// `spillway search`: the limit of a key before an SLO breaks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/cli/grid_arguments.hpp"
#include "sim/config/config.hpp"
#include "sim/core/error.hpp"
#include "sim/study/search.hpp"

namespace spillway::cli {

struct SearchOptions : GridOptions {
  std::string max_key;  // --max KEY, or
  std::string min_key;  // --min KEY
  std::optional<std::string> from;
  std::optional<std::string> to;
  std::string tolerance = "1%";
  std::string attainment = "99%";  // share of requests that must meet the SLOs on single requests
  std::optional<std::string> perturb;
};

/// Parses a fraction between bounds: "1%" or "0.01" -> 0.01. Appends a Problem for any other text.
[[nodiscard]] double parse_fraction(const std::string& text, const std::string& flag, double least, double most,
                                    std::vector<Problem>& problems);
/// The SLOs of a configuration. Appends a Problem if there are none; `what` needs them: "search".
void read_criterion(const ResolvedConfig& config, Criterion& criterion, const std::string& what,
                    std::vector<Problem>& problems);

/// Searches by bisection, with several replications for each value. Throws UserError when nothing ran: no SLO, or a key
/// that is not a number or is already an axis. Exit code `gate` when a search found no value.
[[nodiscard]] ExitCode search(const SearchOptions& options);

}  // namespace spillway::cli
