// Metrics in the tables of several runs.
#pragma once

#include <string>
#include <vector>

#include "sim/cli/grid_arguments.hpp"
#include "sim/core/error.hpp"

namespace spillway::cli {

/// The metrics of --metrics, separated by commas. Appends a Problem for each unknown metric.
[[nodiscard]] std::vector<std::string> parse_metrics(const std::vector<std::string>& texts,
                                                     std::vector<Problem>& problems);

/// The default metrics: latencies, throughput, and the metrics of the grid's SLOs.
[[nodiscard]] std::vector<std::string> standard_metrics(const PointGrid& arguments);

}  // namespace spillway::cli
