// The simulations behind the result of one configuration.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/api/op_scales.hpp"
#include "sim/study/assemble.hpp"
#include "sim/study/replicated_run.hpp"
#include "sim/study/result.hpp"

namespace spillway {

/// What is simulated besides the configuration itself.
struct RunPlan {
  OpScales scales{};                        // of the model's times; runs of `perturbation` have their own
  std::optional<double> perturbation{};     // of the model's times, as a fraction: 30 more runs
  std::optional<LocalityCheck> locality{};  // to fill with the runs of `locality_times`
  std::vector<double> locality_times{};     // of the localities, to run
};

/// Half and twice of experts.locality, if a policy places experts and the result can depend on it. Instances of several
/// kinds change together, each by its own.
void plan_localities(const Assembly& assembly, RunPlan& plan);

/// The number of simulations, each of all requests of a replication.
[[nodiscard]] std::int64_t planned_simulations(const Assembly& assembly, const RunPlan& plan);

/// Runs all simulations of the plan, the configuration itself first. See run_variants.
[[nodiscard]] std::vector<ReplicationResults> simulate_plan(Assembly& assembly, const RunPlan& plan, int jobs,
                                                            const std::vector<double>& percentiles,
                                                            const ReplicationHooks& hooks);

/// The result of these simulations. An interrupted one is not complete, and tells only of the configuration itself.
[[nodiscard]] Result planned_result(const Assembly& assembly, const RunPlan& plan,
                                    std::vector<ReplicationResults> runs);

}  // namespace spillway
