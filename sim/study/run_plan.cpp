#include "sim/study/run_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "sim/study/perturb.hpp"
#include "sim/study/what_if.hpp"

namespace spillway {
namespace {

std::vector<Variant> variants_of(const RunPlan& plan) {
  std::vector<Variant> variants;
  for (const OpScales& scales : perturbed_scales(plan.perturbation)) variants.push_back({.scales = scales});
  variants.front().scales = plan.scales;
  for (const double times : plan.locality_times) variants.push_back({.scales = plan.scales, .locality_times = times});
  return variants;
}

std::int64_t replications_of(const Assembly& assembly) {
  return assembly.config.settings.get<std::int64_t>("replications");
}

}  // namespace

void plan_localities(const Assembly& assembly, RunPlan& plan) {
  std::vector<ExpertLocality> assumed;
  const auto add = [&](const Setup& setup) {
    if (setup.expert_locality) assumed.push_back(*setup.expert_locality);
  };
  if (assembly.kinds.empty()) add(assembly.setup);
  for (const AssembledKind& kind : assembly.kinds) add(kind.assembly.setup);
  if (assumed.empty()) return;
  plan.locality.emplace();
  if (may_matter(assumed)) {
    plan.locality_times.assign(kLocalityTimes.begin(), kLocalityTimes.end());
  } else {
    std::set<std::string> reasons;
    for (const ExpertLocality& one : assumed) reasons.insert(one.no_effect);
    plan.locality->not_run = fmt::format("{}", fmt::join(reasons, "; "));
  }
}

std::int64_t planned_simulations(const Assembly& assembly, const RunPlan& plan) {
  return replications_of(assembly) * std::ssize(variants_of(plan));
}

std::vector<ReplicationResults> simulate_plan(Assembly& assembly, const RunPlan& plan, int jobs,
                                              const std::vector<double>& percentiles, const ReplicationHooks& hooks) {
  return run_variants(assembly, variants_of(plan), replications_of(assembly), jobs, percentiles, hooks);
}

Result planned_result(const Assembly& assembly, const RunPlan& plan, std::vector<ReplicationResults> runs) {
  const bool complete =
      std::all_of(runs.begin(), runs.end(), [](const ReplicationResults& one) { return one.complete; });
  std::optional<Robustness> perturbation;
  if (plan.perturbation && complete) perturbation = robustness_of(*plan.perturbation, runs);
  std::optional<LocalityCheck> localities = complete ? plan.locality : std::nullopt;
  for (std::size_t i = 0; localities && i < plan.locality_times.size(); ++i) {
    const std::size_t run = runs.size() - plan.locality_times.size() + i;
    localities->runs.push_back(
        locality_run(plan.locality_times[i], assembly.setup.expert_locality, runs[run].statistics.metrics));
  }
  Result result = run_result(assembly, std::move(runs.front()));
  result.scales = plan.scales;
  result.complete = complete;
  result.perturbation = std::move(perturbation);
  result.locality = std::move(localities);
  return result;
}

}  // namespace spillway
