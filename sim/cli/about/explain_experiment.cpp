// `spillway explain EXPERIMENT` and `spillway explain CLAIM`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sim/cli/about/explain.hpp"
#include "sim/study/experiments.hpp"

namespace spillway::cli {
namespace {

std::string one_experiment(const Experiment& experiment) {
  std::vector<std::string> ids;
  for (const Claim& claim : experiment.claims) ids.push_back(claim.id);
  std::vector<std::string> runs;
  for (const RunSet& run : experiment.runs) runs.push_back(run.name);
  std::string text = fmt::format("{} (experiment)\n", experiment.name) + explain_field("what", experiment.about) +
                     explain_field("source", experiment.source) +
                     explain_field("claims", fmt::format("{}", fmt::join(ids, ", "))) +
                     explain_field("run sets", fmt::format("{}", fmt::join(runs, ", ")));
  for (const OpenItem& item : experiment.open) {
    text += explain_field("open", fmt::format("{} = {}, else {} or {}: {}. {}", item.name, item.value.dump(),
                                              item.others[0].dump(), item.others[1].dump(), item.what, item.reason));
  }
  return text + explain_field("file", experiment.file);
}

std::string one_claim(const Experiment& experiment, const Claim& claim) {
  std::string text = fmt::format("{} (claim of experiment {})\n", claim.id, experiment.name) +
                     explain_field("what", claim.claim) +
                     explain_field("source", fmt::format("{}; {}", claim.where, experiment.source)) +
                     explain_field("kind", claim.kind) + explain_field("expected", claim.expected.dump()) +
                     explain_field("accepted", claim.accept.dump());
  for (const auto& [name, expression] : claim.values) {
    text += explain_field("value", name.empty() ? expression : name + " = " + expression);
  }
  for (const std::string& rule : claim.rules) text += explain_field("rule", rule);
  return text + explain_field("fitted on", claim.fitted_on.value_or("")) + explain_field("cause", claim.cause) +
         explain_field("file", experiment.place(claim.pointer));
}

}  // namespace

std::string explain_experiment(const std::string& name) {
  std::string text;
  for (const LoadedExperiment& one : bundled_experiments()) {
    if (one.experiment.name == name) text += one_experiment(one.experiment);
    for (const Claim& claim : one.experiment.claims) {
      if (claim.id == name) text += one_claim(one.experiment, claim);
    }
  }
  return text;
}

}  // namespace spillway::cli
