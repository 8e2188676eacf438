#include "sim/study/compute_claim.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

/// Whether one of the run sets names the experiment's folder.
bool names_folder(const std::vector<const RunSet*>& runs) {
  return std::any_of(runs.begin(), runs.end(), [](const RunSet* run) {
    return std::any_of(run->settings.begin(), run->settings.end(), [](const RunSetting& setting) {
      return std::any_of(setting.values.begin(), setting.values.end(), [](const Json& value) {
        const std::vector<std::string> expressions = expressions_in(value);
        return std::ranges::any_of(expressions,
                                   [](const std::string& one) { return names_in(one).contains("folder"); });
      });
    });
  });
}

/// The interval of a claim's values over the seeds. Seeds are paired between run sets.
Json interval_over_seeds(const Experiment& experiment, const Claim& claim, const std::vector<const RunSet*>& runs,
                         const std::vector<const RunSetPoints*>& points, ClaimScript& script) {
  std::size_t seeds = 0;
  for (const RunSetPoints* one : points) seeds = std::max(seeds, one->by_seed.size());
  std::vector<Json> by_seed;
  for (std::size_t seed = 0; seed < seeds; ++seed) {
    for (std::size_t i = 0; i < runs.size(); ++i) {
      if (!points[i]->by_seed.empty()) script.set_points(runs[i]->name, points[i]->by_seed[seed]);
    }
    by_seed.push_back(claim_values(experiment, claim, script));
  }
  return interval_of(by_seed);
}

}  // namespace

ClaimFigures compute_claim(const LoadedExperiment& experiment, const Claim& claim,
                           const std::map<std::string, Json>& others, RunSets& run_sets, bool may_run) {
  ClaimScript script;
  for (const auto& [name, value] : experiment.experiment.constants) script.set(name, value);
  for (const auto& [name, value] : others) script.set(name, value);
  const std::vector<const RunSet*> runs = experiment.experiment.runs_of(claim, run_sets.quick());
  if (names_folder(runs)) script.set("folder", run_sets.folder());
  std::vector<const RunSetPoints*> points;
  try {
    for (const RunSet* run : runs) {
      points.push_back(run_sets.points(*run, script, may_run));
      if (points.back() == nullptr) return {nullptr, nullptr, std::nullopt, "not run (needs --full)"};
      script.set_points(run->name, points.back()->mean);
    }
  } catch (const MissingInput& missing) {
    return {nullptr, nullptr, std::nullopt, missing.what()};
  } catch (const Infeasible& beyond) {
    return {nullptr, nullptr, std::nullopt, beyond.what(), true};
  } catch (const NoValue& none) {
    return {nullptr, nullptr, false, fmt::format("no value for a setting: {}", none.what())};
  }
  ClaimFigures figures = judge_claim(experiment.experiment, claim, script);
  figures.interval = interval_over_seeds(experiment.experiment, claim, runs, points, script);
  return figures;
}

}  // namespace spillway
