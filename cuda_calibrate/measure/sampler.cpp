#include "cuda_calibrate/measure/sampler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cuda_calibrate/measure/statistics.hpp"

namespace spillway::calibrate {
namespace {

std::vector<double> timing(Case& one, std::size_t rows, std::int64_t calls) {
  std::vector<double> seconds = one.sample(calls);
  if (seconds.size() != rows) {
    throw Unsupported(fmt::format("a sample returned {} times, not {}", seconds.size(), rows));
  }
  for (const double each : seconds) {
    if (!std::isfinite(each) || each <= 0.0) {
      throw Unsupported(fmt::format("the clock of a call gave {} s, so it cannot resolve the call", each));
    }
  }
  return seconds;
}

}  // namespace

std::int64_t calls_per_timing(double seconds, std::int64_t most_calls, const SamplingRule& rule) {
  // Compare as doubles: for a call of 1 ns the number of calls would exceed an integer's range.
  const double wanted = std::ceil(rule.timing_seconds / seconds);
  const std::int64_t most = std::max<std::int64_t>(most_calls, 1);
  if (wanted >= static_cast<double>(most)) return most;
  return std::max<std::int64_t>(static_cast<std::int64_t>(wanted), 1);
}

Timings sample(Case& one, std::size_t rows, const SamplingRule& rule, const Clock& clock,
               const std::atomic<bool>& stop) {
  Timings result;
  const double begin = clock();
  std::vector<double> quickest;
  quickest.reserve(static_cast<std::size_t>(rule.warm_up));
  for (std::int64_t i = 0; i < rule.warm_up; ++i) {
    result.interrupted = stop.load();
    if (result.interrupted) return result;
    const std::vector<double> seconds = timing(one, rows, 1);
    quickest.push_back(*std::min_element(seconds.begin(), seconds.end()));
  }
  // Use the median, because the first call may load a kernel or map memory.
  if (!quickest.empty()) result.calls = calls_per_timing(spread_of(quickest).median, one.most_calls(), rule);
  result.series.resize(rows);
  double measured = 0.0;
  for (std::int64_t n = 0; n < rule.least_timings || measured < rule.least_seconds; ++n) {
    if (n >= kFewestTimings && clock() - begin >= rule.most_seconds) break;
    result.interrupted = stop.load();
    if (result.interrupted) return result;
    const std::vector<double> seconds = timing(one, rows, result.calls);
    for (std::size_t row = 0; row < rows; ++row) result.series[row].push_back(seconds[row]);
    measured += *std::max_element(seconds.begin(), seconds.end()) * static_cast<double>(result.calls);
  }
  return result;
}

}  // namespace spillway::calibrate
