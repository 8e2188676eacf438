// What the page of a run shows beyond result.json: distributions of latencies, and time series.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sim/metrics/metrics.hpp"
#include "sim/report/time_series.hpp"

namespace spillway {

/// Points of the distribution of a latency: (percent, value).
struct LatencyCurve {
  std::string metric;  // ttft_ms
  std::string unit;
  std::vector<std::pair<double, double>> points{};
};

/// Percentiles, in percent, that a curve needs beyond the standard ones and `known`: for MetricsConfig::percentiles.
[[nodiscard]] std::vector<double> curve_percentiles(const std::vector<double>& known);
/// The curves of the metrics that have any value.
[[nodiscard]] std::vector<LatencyCurve> latency_curves(const std::vector<Metric>& metrics);
/// Takes the figures of these percentiles out of the metrics again.
void remove_percentiles(const std::vector<double>& percentiles, std::vector<Metric>& metrics);

/// charts.json: {schema_version, result_sha256, replications, latency: [{metric, unit, points}], series: {width_s,
/// end_s, omitted_instances, instances: [{name, columns: {NAME: [values]}}]}}. Joins bins of the series until there are
/// at most 400. `result`: the result.json that it belongs to.
[[nodiscard]] std::string to_charts_json(const std::vector<LatencyCurve>& curves, TimeSeries& series,
                                         const std::vector<std::string>& names, std::int64_t replications,
                                         const std::string& result);
/// Whether this charts.json belongs to this result.json.
[[nodiscard]] bool belongs_to(const std::string& charts, const std::string& result);

}  // namespace spillway
