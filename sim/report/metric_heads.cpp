#include "sim/report/metric_heads.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace spillway {
namespace {

using ShortHead = std::pair<std::string_view, std::string_view>;

/// Figures of a run.
constexpr auto kFigureHeads = std::to_array<ShortHead>({{"request_throughput_per_s", "req/s"},
                                                        {"output_throughput_tokens_per_s", "output\ntok/s"},
                                                        {"total_throughput_tokens_per_s", "total\ntok/s"},
                                                        {"goodput_requests_per_s", "good req/s"},
                                                        {"slo_met_fraction", "SLO met"},
                                                        {"cost_per_million_output_tokens", "cost per\nMtok"},
                                                        {"energy_kwh_per_million_output_tokens", "kWh per\nMtok"}});
/// Distributions, after their statistic.
constexpr auto kLatencyHeads = std::to_array<ShortHead>({{"ttft_ms", "TTFT\nms"},
                                                         {"tpot_ms", "TPOT\nms"},
                                                         {"itl_ms", "ITL\nms"},
                                                         {"e2e_ms", "E2E\nms"},
                                                         {"normalised_ms_per_token", "norm.\nms/tok"},
                                                         {"queueing_ms_per_token", "queue\nms/tok"},
                                                         {"compute_ms_per_token", "comp.\nms/tok"}});

std::string_view head_in(const auto& heads, std::string_view name) {
  const auto* const it = std::ranges::find(heads, name, &ShortHead::first);
  return it == heads.end() ? std::string_view() : it->second;
}

}  // namespace

std::string metric_head(const std::string& metric) {
  if (const std::string_view head = head_in(kFigureHeads, metric); !head.empty()) return std::string(head);
  const std::size_t at = metric.find('_');
  if (at == std::string::npos) return metric;
  const std::string_view latency = head_in(kLatencyHeads, std::string_view(metric).substr(at + 1));
  return latency.empty() ? metric : metric.substr(0, at) + " " + std::string(latency);
}

}  // namespace spillway
