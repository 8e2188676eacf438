#include "sim/study/placer/worth.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "sim/core/error.hpp"
#include "sim/core/text.hpp"

namespace spillway::placer {
namespace {

/// The consumers of a placement, equal ones together, in the order of their elements and lenders.
std::vector<ConsumerWorth> situations(const Cluster& cluster, const Placement& placement) {
  const std::vector<std::size_t> elements = cluster.elements();
  // The first lender of a consumer is its lender: only in `compat` may its GPUs have several.
  std::map<std::size_t, std::optional<std::size_t>> lenders;  // of models, by consumer
  for (const LendingPair& pair : placement.pairs) lenders.try_emplace(pair.consumer, pair.producer);
  for (const std::size_t consumer : placement.unmatched) lenders.try_emplace(consumer, std::nullopt);
  std::map<std::pair<std::size_t, std::optional<std::size_t>>, ConsumerWorth> found;
  for (const auto& [consumer, lender] : lenders) {
    const std::size_t element = elements[consumer];
    const std::optional<std::size_t> of = lender ? std::optional(elements[*lender]) : std::nullopt;
    ConsumerWorth& one = found[{element, of}];
    one.element = element;
    one.lender = of;
    ++one.copies;
    if (of) one.lends = *cluster.models[*of].balance;
  }
  std::vector<ConsumerWorth> list;
  list.reserve(found.size());
  for (auto& [key, one] : found) list.push_back(std::move(one));
  return list;
}

}  // namespace

Assignment placed(const std::string& key, const std::string& text) {
  return {key, text, Origin::argument, "place: " + key + "=" + text, {}};
}

void require_success(const PointOutcome& outcome, const std::string& model) {
  if (!outcome.failed()) return;
  std::vector<Problem> problems = outcome.problems;
  for (Problem& problem : problems) problem.what = model + ": " + problem.what;
  throw ConfigError(std::move(problems));
}

std::optional<std::vector<ConsumerWorth>> simulate_worth(const Cluster& cluster, const Placement& placement,
                                                         PointRunner& runner) {
  std::vector<ConsumerWorth> list = situations(cluster, placement);
  std::vector<Point> points;
  std::vector<ConsumerWorth*> simulated;
  for (ConsumerWorth& one : list) {
    const ClusterModel& model = cluster.models[one.element];
    if (!one.lender) {
      one.left_out = "no lender on its server: it pages to host DRAM";
    } else if (!model.has_workload) {
      one.left_out = "no workload to simulate";
    } else {
      Point lent{model.assignments, {}};
      Point host = lent;
      // Each GPU of the consumer borrows its part, at most the memory of one GPU.
      const Bytes each = std::min(Bytes(one.lends.count() / model.gpus), cluster.hardware.gpu.memory);
      lent.assignments.push_back(placed("policy", "aqua"));
      lent.assignments.push_back(placed("memory.peer", format_bytes(each)));
      host.assignments.push_back(placed("policy", "cfs"));
      points.push_back(std::move(lent));
      points.push_back(std::move(host));
      simulated.push_back(&one);
    }
  }
  std::vector<PointOutcome> outcomes = runner.run(points);
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    if (outcomes[i].code == ExitCode::interrupted) return std::nullopt;
    ConsumerWorth& one = *simulated[i / 2];
    require_success(outcomes[i], cluster.models[one.element].name);
    (i % 2 == 0 ? one.lent : one.host) = std::move(outcomes[i].metrics);
  }
  return list;
}

}  // namespace spillway::placer
