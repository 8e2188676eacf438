#include "sim/study/validation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace spillway {
namespace {

/// A latency of a request, if the request has it.
using LatencyOf = std::optional<double> (*)(const RequestLatencies&);
struct LatencyKind {
  const char* name;
  LatencyOf of;
};
constexpr std::array<LatencyKind, 3> kKinds{
    {{"ttft_ms", [](const RequestLatencies& r) -> std::optional<double> { return r.ttft_ms; }},
     {"tpot_ms", [](const RequestLatencies& r) { return r.tpot_ms; }},
     {"e2e_ms", [](const RequestLatencies& r) -> std::optional<double> { return r.e2e_ms; }}}};

double mean_of(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

/// Requires sorted values.
double percentile(const std::vector<double>& sorted, double percent) {
  const double at = (static_cast<double>(sorted.size()) - 1.0) * percent / 100.0;
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

ComparedFigure compared(std::string name, std::string unit, double measured, double simulated) {
  return {std::move(name), std::move(unit), measured, simulated, relative_error(measured, simulated)};
}

void compare_latency(const LatencyKind& kind, Validation& validation) {
  std::vector<double> measured;
  std::vector<double> simulated;
  std::vector<std::pair<double, const RequestPair*>> errors;
  double bias = 0.0;
  for (const RequestPair& pair : validation.requests) {
    const auto before = kind.of(pair.measured);
    const auto after = kind.of(pair.simulated);
    if (!before || !after) continue;
    measured.push_back(*before);
    simulated.push_back(*after);
    const auto error = relative_error(*before, *after);
    if (!error) continue;
    bias += *error;
    errors.emplace_back(std::abs(*error), &pair);
  }
  if (measured.empty()) return;
  std::vector<ComparedFigure>& rows = validation.latencies;
  rows.push_back(compared(fmt::format("mean_{}", kind.name), "ms", mean_of(measured), mean_of(simulated)));
  std::sort(measured.begin(), measured.end());
  std::sort(simulated.begin(), simulated.end());
  for (const double percent : {50.0, 90.0, 95.0, 99.0}) {
    rows.push_back(compared(fmt::format("p{}_{}", percent, kind.name), "ms", percentile(measured, percent),
                            percentile(simulated, percent)));
  }
  if (errors.empty()) return;
  std::stable_sort(errors.begin(), errors.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<double> sizes;
  sizes.reserve(errors.size());
  for (const auto& [size, pair] : errors) sizes.push_back(size);
  validation.per_request.push_back({.metric = kind.name,
                                    .n = static_cast<std::int64_t>(sizes.size()),
                                    .median = percentile(sizes, 50.0),
                                    .p90 = percentile(sizes, 90.0),
                                    .p95 = percentile(sizes, 95.0),
                                    .largest = sizes.back(),
                                    .bias = bias / static_cast<double>(sizes.size()),
                                    .worst = errors.back().second->id});
}

using LoadOf = std::optional<double> (*)(const LoadPoint&);

/// Mean over time of a series, each value valid until the next, and the maximum. Empty if a point lacks the value.
std::optional<std::pair<double, double>> mean_and_peak(const std::vector<LoadPoint>& series, LoadOf of) {
  double area = 0.0;
  double peak = 0.0;
  for (std::size_t i = 0; i < series.size(); ++i) {
    const auto value = of(series[i]);
    if (!value) return std::nullopt;
    peak = std::max(peak, *value);
    if (i + 1 < series.size()) area += *value * (series[i + 1].seconds - series[i].seconds);
  }
  const double span = series.empty() ? 0.0 : series.back().seconds - series.front().seconds;
  if (span <= 0.0) return std::nullopt;
  return std::pair(area / span, peak);
}

void compare_load(const char* what, const char* unit, LoadOf of, Validation& validation) {
  const auto measured = mean_and_peak(validation.measured_load, of);
  const auto simulated = mean_and_peak(validation.simulated_load, of);
  if (!measured || !simulated) return;
  validation.load.push_back(compared(fmt::format("mean_{}", what), unit, measured->first, simulated->first));
  validation.load.push_back(compared(fmt::format("peak_{}", what), unit, measured->second, simulated->second));
}

}  // namespace

std::optional<double> relative_error(double measured, double simulated) {
  if (measured == 0.0) return simulated == 0.0 ? std::optional(0.0) : std::nullopt;
  return simulated / measured - 1.0;
}

const ComparedFigure* find_figure(const std::vector<ComparedFigure>& figures, std::string_view name) {
  const auto it = std::find_if(figures.begin(), figures.end(), [&](const ComparedFigure& f) { return f.name == name; });
  return it == figures.end() ? nullptr : &*it;
}

void compare(Validation& validation) {
  for (const LatencyKind& kind : kKinds) compare_latency(kind, validation);
  compare_load(
      "running_requests", "requests", [](const LoadPoint& p) -> std::optional<double> { return p.running; },
      validation);
  compare_load(
      "waiting_requests", "requests", [](const LoadPoint& p) -> std::optional<double> { return p.waiting; },
      validation);
  compare_load(
      "gpu_kv_fraction", "fraction", [](const LoadPoint& p) { return p.kv_fraction; }, validation);
}

std::vector<LoadPoint> load_from_spans(std::span<const RequestSpan> spans) {
  struct Change {
    double seconds;
    double running;
    double waiting;
  };
  std::vector<Change> changes;
  for (const RequestSpan& span : spans) {
    changes.push_back({span.queued, 0.0, 1.0});
    changes.push_back({span.scheduled, 1.0, -1.0});
    changes.push_back({span.ended, -1.0, 0.0});
  }
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return a.seconds < b.seconds; });
  std::vector<LoadPoint> points;
  if (changes.empty()) return points;
  constexpr double kMostPoints = 100'000.0;
  const double step = std::ceil(std::max(1.0, changes.back().seconds / kMostPoints));
  const double end = changes.back().seconds + step;
  LoadPoint now;
  std::size_t next = 0;
  for (now.seconds = 0.0; now.seconds < end; now.seconds += step) {
    for (; next < changes.size() && changes[next].seconds <= now.seconds; ++next) {
      now.running += changes[next].running;
      now.waiting += changes[next].waiting;
    }
    points.push_back(now);
  }
  return points;
}

}  // namespace spillway
