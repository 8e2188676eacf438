// `spillway compare`: policies, or other settings, on the same traffic.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/cli/grid_arguments.hpp"
#include "sim/core/error.hpp"

namespace spillway::cli {

/// Default replications of compare, search and reproduce: the fewest that published evaluations use for an interval.
inline constexpr int kReplications = 5;

struct CompareOptions : GridOptions {
  std::string baseline;  // "policy=vllm", or only a value; empty: the first
  std::optional<std::string> perturb;
};

/// Runs every configuration on the same traffic and prints the differences. Throws UserError when nothing ran: fewer
/// than two configurations, or axes that change the traffic. A configuration that cannot run is left out and named;
/// then the exit code is `partial`, except for policy=all.
[[nodiscard]] ExitCode compare(const CompareOptions& options);

}  // namespace spillway::cli
