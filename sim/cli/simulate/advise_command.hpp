// `spillway advise`: which policy, with which settings, for a model, hardware, traffic and SLOs. `spillway plan`: which
// hardware, and how much of it.
#pragma once

#include <optional>
#include <string>

#include "sim/cli/grid_arguments.hpp"
#include "sim/core/error.hpp"

namespace spillway::cli {

struct AdviseOptions : GridOptions {
  bool quick = false;
  std::optional<std::string> perturb;  // 5% unless quick
  std::string tolerance = "2%";
  std::string attainment = "99%";
};

/// Ranks every policy, or those given, on each of the given hardware. workload.rate, if given, is the rate to serve
/// with as many replicas as it takes. Throws ConfigError for a line without an SLO, a closed loop, and keys that
/// several replicas need. Exit code `gate` when no configuration meets the SLOs.
[[nodiscard]] ExitCode advise(const AdviseOptions& options);

struct PlanOptions : AdviseOptions {};

/// Finds, for each hardware and number of GPUs, the replicas that serve workload.rate under the SLOs, and the Pareto
/// front of cost against latency. The default is every bundled GPU.
[[nodiscard]] ExitCode plan(const PlanOptions& options);

}  // namespace spillway::cli
