#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "sim/report/report.hpp"

namespace spillway {
namespace {

struct Name {
  std::string_view ours;
  std::string_view vllm;
};
constexpr std::array<Name, 7> kTotals{{{"duration_s", "duration"},
                                       {"input_tokens", "total_input_tokens"},
                                       {"output_tokens", "total_output_tokens"},
                                       {"request_throughput_per_s", "request_throughput"},
                                       {"goodput_requests_per_s", "request_goodput"},
                                       {"output_throughput_tokens_per_s", "output_throughput"},
                                       {"total_throughput_tokens_per_s", "total_token_throughput"}}};
constexpr std::array<Name, 4> kLatencyNames{
    {{"_ttft_ms", "_ttft_ms"}, {"_tpot_ms", "_tpot_ms"}, {"_itl_ms", "_itl_ms"}, {"_e2e_ms", "_e2el_ms"}}};

}  // namespace

std::string to_vllm(const Result& result) {
  const RunStatistics& run = result.statistics;
  const bool one_run = result.config.settings.get<std::int64_t>("replications") == 1;  // otherwise the counts are means
  nlohmann::ordered_json json;
  json["completed"] = run.measured.finished;
  json["failed"] = run.measured.submitted - run.measured.finished;
  for (const Name& name : kTotals) {
    const Metric* metric = run.find(std::string(name.ours));
    if (metric == nullptr || !metric->value) continue;
    const double value = *metric->value;
    auto& slot = json[std::string(name.vllm)];
    if (one_run && name.ours.ends_with("put_tokens") && value == std::floor(value)) {
      slot = static_cast<std::int64_t>(value);
    } else {
      slot = value;
    }
  }
  for (const Metric& metric : run.metrics) {
    for (const Name& name : kLatencyNames) {
      if (!metric.value || !metric.name.ends_with(name.ours)) continue;
      const std::string statistic = metric.name.substr(0, metric.name.size() - name.ours.size());
      if (statistic.find('_') != std::string::npos) continue;  // covers only some requests, such as worst_client_p99
      if (statistic != "min" && statistic != "max") json[statistic + std::string(name.vllm)] = *metric.value;
    }
  }
  return json.dump() + "\n";
}

}  // namespace spillway
