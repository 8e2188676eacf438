// Statistics over replications: mean and 95% t-interval of each metric.
#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <map>

#include "sim/metrics/metrics.hpp"

namespace spillway {
namespace {

OutcomeCounts operator+(const OutcomeCounts& a, const OutcomeCounts& b) {
  return {a.submitted + b.submitted, a.finished + b.finished,     a.rejected + b.rejected,
          a.timed_out + b.timed_out, a.unfinished + b.unfinished, a.lost + b.lost};
}

double sum_of(std::span<const double> values) {
  double sum = 0.0;
  for (const double value : values) sum += value;
  return sum;
}

double mean_of(std::span<const double> values) { return sum_of(values) / static_cast<double>(values.size()); }

Metric combine_metric(const Metric& first, const std::vector<RunStatistics>& runs) {
  Metric combined = first;
  std::vector<double> values;
  for (const RunStatistics& run : runs) {
    const Metric* metric = run.find(first.name);
    combined.replications.push_back(metric != nullptr ? metric->value : std::nullopt);
    if (!combined.replications.back()) continue;
    values.push_back(*metric->value);
    combined.relative_error = std::max(combined.relative_error, metric->relative_error);
  }
  combined.n = static_cast<std::int64_t>(values.size());
  combined.value.reset();
  if (values.empty()) return combined;
  switch (first.merge) {
    case Merge::mean:
      combined.value = mean_of(values);
      combined.half_width = half_width_95(values);
      break;
    case Merge::sum:
      combined.value = sum_of(values);
      break;
    case Merge::largest:
      combined.value = *std::max_element(values.begin(), values.end());
      break;
  }
  return combined;
}

/// Sums of one client's figures over the replications in which it appears, and the number of values of each latency.
struct ClientSums {
  ClientStatistics sums{.replications = 0};
  std::array<std::int64_t, 3> values{};
};
using Ttft = std::optional<double> ClientStatistics::*;
constexpr std::array<Ttft, 3> kClientLatencies{&ClientStatistics::mean_ttft_ms, &ClientStatistics::p50_ttft_ms,
                                               &ClientStatistics::p99_ttft_ms};

void add_client(ClientSums& into, const ClientStatistics& client) {
  into.sums.client = client.client;
  into.sums.replications += client.replications;
  into.sums.submitted += client.submitted;
  into.sums.finished += client.finished;
  into.sums.output_tokens += client.output_tokens;
  into.sums.service_tokens += client.service_tokens;
  for (std::size_t i = 0; i < kClientLatencies.size(); ++i) {
    const auto value = client.*kClientLatencies[i];
    if (!value) continue;
    auto& sum = into.sums.*kClientLatencies[i];
    sum = sum.value_or(0.0) + *value;
    ++into.values[i];
  }
}

ClientStatistics mean_of(const ClientSums& client) {
  ClientStatistics mean = client.sums;
  const double n = static_cast<double>(mean.replications);
  for (double* figure : {&mean.submitted, &mean.finished, &mean.output_tokens, &mean.service_tokens}) *figure /= n;
  for (std::size_t i = 0; i < kClientLatencies.size(); ++i) {
    auto& figure = mean.*kClientLatencies[i];
    if (figure) *figure /= static_cast<double>(client.values[i]);
  }
  return mean;
}

std::vector<ClientStatistics> combine_clients(const std::vector<RunStatistics>& runs) {
  std::map<std::uint32_t, ClientSums> sums;
  for (const RunStatistics& run : runs) {
    for (const ClientStatistics& client : run.clients) {
      add_client(sums[client.client], client);
    }
  }
  std::vector<ClientStatistics> clients;
  clients.reserve(sums.size());
  for (const auto& entry : sums) clients.push_back(mean_of(entry.second));
  return clients;
}

/// Sums over the replications.
std::vector<ReplicaStatistics> combine_replicas(const std::vector<RunStatistics>& runs) {
  std::vector<ReplicaStatistics> sums = runs.front().replicas;
  for (std::size_t run = 1; run < runs.size(); ++run) {
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const ReplicaStatistics& more = runs[run].replicas[i];
      sums[i].sent += more.sent;
      sums[i].finished += more.finished;
      sums[i].lost += more.lost;
      sums[i].down_time += more.down_time;
      sums[i].engine.add(more.engine);
      if (more.jain_index) sums[i].jain_index = std::min(sums[i].jain_index.value_or(1.0), *more.jain_index);
      if (more.max_service_difference) {
        sums[i].max_service_difference =
            std::max(sums[i].max_service_difference.value_or(0), *more.max_service_difference);
      }
      sums[i].replications += more.replications;
    }
  }
  return sums;
}

}  // namespace

std::optional<double> half_width_95(std::span<const double> values) {
  if (values.size() < 2) return std::nullopt;
  const double n = static_cast<double>(values.size());
  const double mean = mean_of(values);
  double squares = 0.0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  // The quantile comes from libm, whose last bits differ between machines; a millionth is more precise than needed.
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
    combined.engine.add(run.engine);
  }
  std::vector<SteadyState> steady;
  for (const RunStatistics& run : runs) {
    if (run.steady) steady.push_back(*run.steady);
  }
  if (!steady.empty()) combined.steady = combine_steady_states(steady);
  for (const Metric& metric : runs.front().metrics) combined.metrics.push_back(combine_metric(metric, runs));
  combined.clients = combine_clients(runs);
  combined.conversations = runs.front().conversations;
  combined.replicas = combine_replicas(runs);
  combined.links = runs.front().links;
  for (std::size_t run = 1; run < runs.size(); ++run) {
    for (std::size_t i = 0; i < combined.links.size(); ++i) combined.links[i].bytes += runs[run].links[i].bytes;
  }
  combined.lending = runs.front().lending;
  for (std::size_t run = 1; run < runs.size(); ++run) {
    for (std::size_t i = 0; i < combined.lending.size(); ++i) {
      combined.lending[i].figures.add(runs[run].lending[i].figures);
    }
  }
  combined.handover = runs.front().handover;
  for (std::size_t run = 1; run < runs.size() && combined.handover; ++run) combined.handover->add(*runs[run].handover);
  return combined;
}

}  // namespace spillway
