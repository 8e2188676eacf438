// Which figures the tables of several runs show.
#pragma once

#include <string>
#include <vector>

#include "sim/cli/grid_arguments.hpp"
#include "sim/core/error.hpp"

namespace spillway::cli {

/// The metrics that --metrics names, in lists with commas. Appends a Problem for each that there is not.
[[nodiscard]] std::vector<std::string> parse_metrics(const std::vector<std::string>& texts,
                                                     std::vector<Problem>& problems);

/// What is shown when nothing is said: latencies, throughput, and what the grid's SLOs speak of.
[[nodiscard]] std::vector<std::string> standard_metrics(const PointGrid& arguments);

}  // namespace spillway::cli
