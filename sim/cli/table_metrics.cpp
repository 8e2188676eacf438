#include "sim/cli/table_metrics.hpp"

#include <algorithm>

#include "sim/metrics/metrics.hpp"
#include "sim/study/prices.hpp"

namespace spillway::cli {

std::vector<std::string> parse_metrics(const std::vector<std::string>& texts, std::vector<Problem>& problems) {
  std::vector<std::string> metrics;
  for (const std::string& text : texts) {
    for (std::size_t from = 0; from <= text.size();) {
      const std::size_t to = std::min(text.find(',', from), text.size());
      if (auto metric = parse_metric(text.substr(from, to - from), "--metrics " + text, problems)) {
        metrics.push_back(*std::move(metric));
      }
      from = to + 1;
    }
  }
  return metrics;
}

std::vector<std::string> standard_metrics(const PointGrid& arguments) {
  std::vector<std::string> metrics{"mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "request_throughput_per_s",
                                   "output_throughput_tokens_per_s"};
  const auto add = [&](const std::string& metric) {
    if (std::find(metrics.begin(), metrics.end(), metric) == metrics.end()) metrics.push_back(metric);
  };
  const auto add_slo = [&](const std::string& key, const std::string& text) {
    if (key == "slo.run") {
      std::vector<Problem> ignored;
      for (const Condition& condition : parse_conditions(text, key, false, ignored)) add(condition.metric);
    } else if (key.starts_with("slo.")) {
      add("goodput_requests_per_s");
      add("slo_met_fraction");
    } else if (key == kPriceKey) {
      add(kCostMetric);
    } else if (key == kPowerKey) {
      add(kEnergyMetric);
    }
  };
  for (const Assignment& one : arguments.shared) {
    if (one.text) add_slo(one.key, *one.text);
  }
  for (const Axis& axis : arguments.grid.axes()) {
    for (std::size_t k = 0; k < axis.keys.size(); ++k) add_slo(axis.keys[k], axis.values.front()[k]);
  }
  return metrics;
}

}  // namespace spillway::cli
