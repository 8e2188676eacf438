#include "sim/report/run_charts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "sim/core/text.hpp"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kChartsVersion = 1;
constexpr std::size_t kMostBins = 400;
constexpr std::size_t kMostInstances = 4;
constexpr std::array<std::string_view, 4> kCurves{"ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"};
constexpr std::array<double, 4> kStandard{50.0, 90.0, 95.0, 99.0};

/// All points of a curve but the least and the largest value.
std::vector<double> curve_points() {
  std::vector<double> percents;
  for (int percent = 1; percent < 100; ++percent) percents.push_back(percent);
  percents.push_back(99.5);
  percents.push_back(99.9);
  return percents;
}

const Metric* find(const std::vector<Metric>& metrics, const std::string& name) {
  const auto found = std::ranges::find(metrics, name, &Metric::name);
  return found == metrics.end() ? nullptr : &*found;
}

/// Six digits: a page does not show more.
Json rounded(double value) {
  if (std::isnan(value)) return nullptr;
  return std::strtod(fmt::format("{:.6g}", value).c_str(), nullptr);
}

}  // namespace

std::vector<double> curve_percentiles(const std::vector<double>& known) {
  std::vector<double> percents = curve_points();
  std::erase_if(percents, [&](double percent) {
    return std::ranges::count(kStandard, percent) > 0 || std::ranges::count(known, percent) > 0;
  });
  return percents;
}

std::vector<LatencyCurve> latency_curves(const std::vector<Metric>& metrics) {
  std::vector<LatencyCurve> curves;
  for (const std::string_view latency : kCurves) {
    LatencyCurve curve{.metric = std::string(latency), .unit = "ms"};
    const auto add = [&](double percent, const std::string& statistic) {
      const Metric* const metric = find(metrics, fmt::format("{}_{}", statistic, latency));
      if (metric != nullptr && metric->value) curve.points.emplace_back(percent, *metric->value);
    };
    add(0.0, "min");
    for (const double percent : curve_points()) add(percent, percentile_name(percent));
    add(100.0, "max");
    if (!curve.points.empty()) curves.push_back(std::move(curve));
  }
  return curves;
}

void remove_percentiles(const std::vector<double>& percentiles, std::vector<Metric>& metrics) {
  std::vector<std::string> prefixes;
  for (const double percent : percentiles) prefixes.push_back(percentile_name(percent) + "_");
  std::ranges::sort(prefixes);
  std::erase_if(metrics, [&](const Metric& metric) {
    const std::string prefix = metric.name.substr(0, metric.name.find('_') + 1);
    return std::ranges::binary_search(prefixes, prefix);
  });
}

std::string to_charts_json(const std::vector<LatencyCurve>& curves, TimeSeries& series,
                           const std::vector<std::string>& names, std::int64_t replications,
                           const std::string& result) {
  series.coarsen(kMostBins);
  Json json{{"schema_version", kChartsVersion},
            {"result_sha256", sha256_hex(result)},
            {"replications", replications},
            {"latency", Json::array()}};
  for (const LatencyCurve& curve : curves) {
    Json points = Json::array();
    for (const auto& [percent, value] : curve.points) points.push_back({percent, rounded(value)});
    json["latency"].push_back({{"metric", curve.metric}, {"unit", curve.unit}, {"points", std::move(points)}});
  }
  const std::size_t shown = std::min(kMostInstances, series.instances());
  Json& over_time = json["series"];
  over_time = {{"width_s", to_seconds(series.width())},
               {"end_s", to_seconds(series.end())},
               {"omitted_instances", series.instances() - shown},
               {"instances", Json::array()}};
  const std::vector<SeriesColumn> columns = series.columns();
  for (std::size_t i = 0; i < shown; ++i) {
    const std::vector<std::vector<double>> values = series.values(i);
    Json of_instance = Json::object();
    for (std::size_t c = 0; c < columns.size(); ++c) {
      Json& list = of_instance[columns[c].name];
      list = Json::array();
      for (const double value : values[c]) list.push_back(rounded(value));
    }
    over_time["instances"].push_back(
        {{"name", i < names.size() ? names[i] : fmt::format("instance {}", i)}, {"columns", std::move(of_instance)}});
  }
  return json.dump() + "\n";
}

bool belongs_to(const std::string& charts, const std::string& result) {
  const Json json = Json::parse(charts, nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.value("schema_version", 0) == kChartsVersion &&
         json.value("result_sha256", "") == sha256_hex(result);
}

}  // namespace spillway
