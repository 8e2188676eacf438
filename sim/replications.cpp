// Statistics over replications: mean and 95% t-interval of each metric.
#include <boost/math/distributions/students_t.hpp>
#include <cmath>

#include "sim/metrics.hpp"

namespace spillway {
namespace {

OutcomeCounts operator+(const OutcomeCounts& a, const OutcomeCounts& b) {
  return {a.submitted + b.submitted, a.finished + b.finished, a.rejected + b.rejected, a.timed_out + b.timed_out,
          a.unfinished + b.unfinished};
}

void add_engine(EngineTotals& sum, const EngineTotals& run) {
  sum.iterations += run.iterations;
  sum.preempted_recompute += run.preempted_recompute;
  sum.preempted_swap += run.preempted_swap;
  sum.moved_h2d += run.moved_h2d;
  sum.moved_d2h += run.moved_d2h;
  sum.prefix_hit += run.prefix_hit;
  sum.prefix_hit_host += run.prefix_hit_host;
  sum.prefix_asked += run.prefix_asked;
  sum.batch_time += run.batch_time;
  sum.busy_time += run.busy_time;
  sum.waiting_time += run.waiting_time;
  sum.kv_time += run.kv_time;
  sum.host_kv_time += run.host_kv_time;
  sum.peak_batch = std::max(sum.peak_batch, run.peak_batch);
  sum.peak_waiting = std::max(sum.peak_waiting, run.peak_waiting);
  sum.peak_kv = std::max(sum.peak_kv, run.peak_kv);
  sum.peak_host_kv = std::max(sum.peak_host_kv, run.peak_host_kv);
  for (std::size_t i = 0; i < sum.resource_time.size(); ++i) sum.resource_time[i] += run.resource_time[i];
}

double mean_of(std::span<const double> values) {
  double sum = 0.0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

Metric combine_metric(const Metric& first, const std::vector<RunStatistics>& runs) {
  Metric combined = first;
  std::vector<double> values;
  for (const RunStatistics& run : runs) {
    const Metric* metric = run.find(first.name);
    if (metric == nullptr || !metric->value) continue;
    values.push_back(*metric->value);
    combined.relative_error = std::max(combined.relative_error, metric->relative_error);
  }
  combined.n = static_cast<std::int64_t>(values.size());
  combined.value = values.empty() ? std::nullopt : std::optional(mean_of(values));
  combined.half_width = half_width_95(values);
  return combined;
}

}  // namespace

std::optional<double> half_width_95(std::span<const double> values) {
  if (values.size() < 2) return std::nullopt;
  const double n = static_cast<double>(values.size());
  const double mean = mean_of(values);
  double squares = 0.0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  // The quantile goes through libm, whose last bits differ between machines; a millionth is far beyond what it needs.
  const double t = boost::math::quantile(boost::math::students_t(n - 1.0), 0.975);
  return std::floor(t * 1e6 + 0.5) / 1e6 * std::sqrt(squares / (n - 1.0) / n);
}

RunStatistics combine_replications(const std::vector<RunStatistics>& runs) {
  SPILLWAY_CHECK(!runs.empty(), "no replication to combine");
  if (runs.size() == 1) return runs.front();
  RunStatistics combined;
  combined.gpu_blocks = runs.front().gpu_blocks;
  combined.host_blocks = runs.front().host_blocks;
  for (const RunStatistics& run : runs) {
    combined.complete = combined.complete && run.complete;
    combined.all = combined.all + run.all;
    combined.measured = combined.measured + run.measured;
    combined.span += run.span;
    add_engine(combined.engine, run.engine);
  }
  for (const Metric& metric : runs.front().metrics) combined.metrics.push_back(combine_metric(metric, runs));
  return combined;
}

}  // namespace spillway
