// `spillway compare`: policies, or other settings, on the same traffic.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/cli/grid_arguments.hpp"
#include "sim/core/error.hpp"

namespace spillway::cli {

/// Replications of compare, search and reproduce unless the user says otherwise: as few as published evaluations take
/// to state an interval.
inline constexpr int kReplications = 5;

struct CompareOptions : GridOptions {
  std::string baseline;  // "policy=vllm", or a value alone; empty: the first
  std::optional<std::string> perturb;
};

/// Runs every configuration on the same traffic and prints what differs. Throws UserError when nothing was run: fewer
/// than two configurations, or axes that change the traffic. A configuration that cannot run is left out and named; the
/// code is then `partial`, but for policy=all.
[[nodiscard]] ExitCode compare(const CompareOptions& options);

}  // namespace spillway::cli
