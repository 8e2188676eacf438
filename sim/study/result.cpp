#include "sim/study/result.hpp"

#include <algorithm>

namespace spillway {

std::int64_t planned_runs(const Result& result) {
  const std::size_t perturbed = result.perturbation ? perturbations(result.perturbation->fraction).size() : 0;
  const bool localities = result.locality && result.locality->not_run.empty();
  return result.config.settings.get<std::int64_t>("replications") *
         static_cast<std::int64_t>(1 + perturbed + (localities ? kLocalityTimes.size() : 0));
}

std::vector<ClientStatistics> worst_clients(const RunStatistics& statistics, std::size_t most) {
  std::vector<ClientStatistics> clients = statistics.clients;
  const auto end = clients.begin() + static_cast<std::ptrdiff_t>(std::min(most, clients.size()));
  std::partial_sort(clients.begin(), end, clients.end(), [](const ClientStatistics& a, const ClientStatistics& b) {
    if (a.mean_ttft_ms != b.mean_ttft_ms)
      return a.mean_ttft_ms > b.mean_ttft_ms;  // an empty optional is less than any value
    return a.client < b.client;
  });
  clients.erase(end, clients.end());
  return clients;
}

const Metric* find_metric(const std::vector<Metric>& metrics, std::string_view name) {
  const auto it = std::find_if(metrics.begin(), metrics.end(), [&](const Metric& m) { return m.name == name; });
  return it == metrics.end() ? nullptr : &*it;
}

const Metric& metric_or_none(const std::vector<Metric>& metrics, std::string_view name) {
  static const Metric kNone{};
  const Metric* metric = find_metric(metrics, name);
  return metric != nullptr ? *metric : kNone;
}

Verdict judge(const Condition& condition, const RunStatistics& statistics) {
  Verdict verdict{.condition = condition};
  const Metric* metric = statistics.find(condition.metric);
  if (metric != nullptr) verdict.value = metric->value;
  verdict.met = verdict.value && condition.holds(*verdict.value);
  return verdict;
}

}  // namespace spillway
