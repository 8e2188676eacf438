#include "sim/metrics/metrics.hpp"

#include <fmt/format.h>

#include <cmath>

#include "sim/metrics/metric_table.hpp"

namespace spillway {
namespace {

constexpr double kNsPerMs = 1e6;
constexpr std::size_t kSketchedTogether = 4096;  // rows per pass: one sketch at a time stays in the cache

std::uint64_t requests_of_warmup(const MetricsConfig& config) {
  switch (config.warmup.kind) {
    case Span::Kind::requests:
      return static_cast<std::uint64_t>(config.warmup.requests);
    case Span::Kind::share:
      if (config.expected_requests < 0) {
        throw ConfigError("a warm-up given as a share needs the number of requests, which is not known", "warmup",
                          "give it as a number (500req) or a time (60s)");
      }
      return static_cast<std::uint64_t>(
          std::floor(config.warmup.share * static_cast<double>(config.expected_requests) + 0.5));
    case Span::Kind::none:
    case Span::Kind::time:
      break;
  }
  return 0;
}

void count(OutcomeCounts& counts, Outcome outcome) {
  switch (outcome) {
    case Outcome::finished:
      ++counts.finished;
      break;
    case Outcome::rejected:
      ++counts.rejected;
      break;
    case Outcome::timed_out:
      ++counts.timed_out;
      break;
    case Outcome::unfinished:
      ++counts.unfinished;
      break;
    case Outcome::lost:
      ++counts.lost;
      break;
  }
}

/// numpy's linear interpolation between neighbours, bit for bit.
double interpolate(double low, double high, double fraction) {
  const double difference = high - low;
  return fraction >= 0.5 ? high - difference * (1.0 - fraction) : low + difference * fraction;
}

/// Appends every figure of the table that applies to the run, then those of the policy.
void append_figures(const RunFigures& figures, std::vector<Metric>& metrics) {
  for (const MetricEntry& entry : metric_table()) {
    if (entry.of_run == nullptr || (entry.applies != nullptr && !entry.applies(figures))) continue;
    metrics.push_back({entry.definition.name, entry.definition.unit, entry.of_run(figures), entry.samples(figures)});
  }
  for (const PolicyFigure& figure : figures.run.engine.figures) {
    Metric& metric = metrics.emplace_back();
    metric.name = figure.definition.name;
    metric.unit = figure.definition.unit;
    metric.value = figure.value;
    metric.n = figures.run.engine.iterations;
    metric.merge = figure.definition.merge;
  }
}

}  // namespace

const Metric* RunStatistics::find(const std::string& name) const {
  const auto it = std::find_if(metrics.begin(), metrics.end(), [&](const Metric& m) { return m.name == name; });
  return it == metrics.end() ? nullptr : &*it;
}

/// One latency's figures, in nanoseconds; meaningless when n = 0.
struct MetricsCollector::Summary {
  std::int64_t n = 0;
  double mean = 0.0;
  double std = 0.0;
  double min = 0.0;
  double max = 0.0;
  std::vector<double> quantiles{};  // as percentiles_
  double relative_error = 0.0;      // of the quantiles
};

namespace {

FinishedRequest row_of(const RequestRecord& record, std::uint32_t client) {
  return {(record.first_token - record.arrival).count(), (record.end - record.arrival).count(),
          record.computing.count(), static_cast<std::int32_t>(record.generated.count()), client};
}

}  // namespace

MetricsCollector::MetricsCollector(MetricsConfig config)
    : config_(std::move(config)),
      percentiles_{50.0, 90.0, 95.0, 99.0},
      first_measured_(requests_of_warmup(config_)),
      begin_(config_.warmup.kind == Span::Kind::time ? SimTime{} + config_.warmup.time : SimTime{}),
      rows_limit_(static_cast<std::size_t>(config_.exact_limit)) {
  if (first_measured_ > 0) begin_ = kNever;
  rows_.reserve(static_cast<std::size_t>(std::clamp<std::int64_t>(config_.expected_requests, 0, config_.exact_limit)));
  percentiles_.insert(percentiles_.end(), config_.percentiles.begin(), config_.percentiles.end());
  std::sort(percentiles_.begin(), percentiles_.end());
  percentiles_.erase(std::unique(percentiles_.begin(), percentiles_.end()), percentiles_.end());
  for (const Condition& condition : config_.goodput) {
    if (const MetricEntry* latency = per_request_latency(condition.metric)) slos_.emplace_back(latency, condition);
  }
}

bool MetricsCollector::is_measured(std::uint64_t index, SimTime arrival) const {
  return config_.warmup.kind == Span::Kind::time ? arrival >= begin_ : index >= first_measured_;
}

void MetricsCollector::submitted(std::uint64_t index, SimTime now) {
  ++all_.submitted;
  if (config_.offered) load_.arrived(now);
  if (!is_measured(index, now)) return;
  ++measured_.submitted;
  if (begin_ == kNever) begin_ = now;
}

void MetricsCollector::ended(const RequestRecord& record, Duration front_end) {
  count(all_, record.outcome);
  if (config_.offered) load_.left(record.end);
  count_served(record);
  if (!is_measured(record.index, record.arrival)) return;
  count(measured_, record.outcome);
  const std::size_t number = client_numbers_.of(record.client);
  if (number == clients_.size()) clients_.emplace_back().client = record.client;
  ClientRequests& client = clients_[number];
  ++client.submitted;
  requests_have_slos_ = requests_have_slos_ || record.traits.slo != RequestSlo();
  if (record.outcome != Outcome::finished) return;
  SPILLWAY_CHECK(record.arrival <= record.first_scheduled && record.first_scheduled <= record.first_token &&
                     record.first_token <= record.end && record.generated.count() >= 1,
                 fmt::format("request {} finished with times out of order", record.index));
  input_tokens_ += record.input;
  output_tokens_ += record.generated;
  front_end_ += front_end;
  const FinishedRequest row = row_of(record, static_cast<std::uint32_t>(number));
  ++client.finished;
  client.ttft += static_cast<Wide>(row.ttft);
  client.output += record.generated;
  if (meets_slos(row, record.traits.slo)) ++good_;
  rows_.push_back(row);
  if (rows_.size() <= rows_limit_) return;
  sketch_rows();
  rows_limit_ = kSketchedTogether;
}

void MetricsCollector::count_served(const RequestRecord& record) {
  if (record.first_token != kNever && record.first_token >= begin_) {
    ++served_.first_tokens;
    served_.prompts += record.input;
  }
  if (record.outcome != Outcome::finished || record.end < begin_) return;
  ++served_.finished;
  if (meets_slos(row_of(record, 0), record.traits.slo)) ++served_.good;
}

void MetricsCollector::sketch_rows() {
  const std::span<const MetricEntry> latencies = latency_metrics();
  sketches_.resize(latencies.size());
  for (std::size_t i = 0; i < latencies.size(); ++i) {
    if (!latencies[i].of_request) continue;
    for (const double value : latencies[i].of_request->of_all(rows_)) {
      sketches_[i].add(static_cast<std::int64_t>(std::floor(value + 0.5)), 1);
    }
  }
  rows_.clear();
}

bool MetricsCollector::meets_slos(const FinishedRequest& row, const RequestSlo& own) const {
  const auto own_limit = [&](const MetricEntry& latency) {
    return latency.own_limit != nullptr ? own.*latency.own_limit : Duration(0);
  };
  const bool meets_own = own == RequestSlo{} || std::ranges::all_of(latency_metrics(), [&](const MetricEntry& latency) {
                           const Duration limit = own_limit(latency);
                           if (limit == Duration(0)) return true;
                           const auto value = latency.of_request->of_one(row);
                           return !value || *value < static_cast<double>(limit.count());
                         });
  return meets_own && std::ranges::all_of(slos_, [&](const auto& slo) {
           const auto& [latency, condition] = slo;
           if (own_limit(*latency) > Duration(0)) return true;  // the request's own limit replaces it
           const auto value = latency->of_request->of_one(row);
           return !value || condition.holds(*value / kNsPerMs);
         });
}

MetricsCollector::Summary MetricsCollector::summarise(std::size_t latency) const {
  const std::optional<RequestLatency>& of_request = latency_metrics()[latency].of_request;
  if (!of_request) return summarise_sketch(itl_);
  if (!sketches_.empty()) return summarise_sketch(sketches_[latency]);
  return summarise_exact(of_request->of_all(rows_));
}

MetricsCollector::Summary MetricsCollector::summarise_sketch(const Sketched& sketched) const {
  Summary summary;
  summary.n = sketched.sketch.count();
  if (summary.n == 0) return summary;
  summary.relative_error = QuantileSketch::kRelativeError;
  const auto n = static_cast<Wide>(summary.n);
  // Squares are taken around the whole part of the mean, in integers, so that nothing cancels.
  const Wide whole = sketched.sum / n;
  const double rest = static_cast<double>(sketched.sum % n) / real(summary.n);
  const Wide centred = sketched.sum_squares - 2 * whole * sketched.sum + n * whole * whole;
  summary.mean = static_cast<double>(whole) + rest;
  summary.std = std::sqrt(std::max(0.0, static_cast<double>(centred) / real(summary.n) - rest * rest));
  summary.min = real(sketched.min);
  summary.max = real(sketched.max);
  for (const double percent : percentiles_) {
    summary.quantiles.push_back(std::clamp(sketched.sketch.quantile(percent / 100.0), summary.min, summary.max));
  }
  return summary;
}

MetricsCollector::Summary MetricsCollector::summarise_exact(std::vector<double> values) const {
  Summary summary;
  summary.n = static_cast<std::int64_t>(values.size());
  if (values.empty()) return summary;
  const double n = real(summary.n);
  for (const double value : values) summary.mean += value;
  summary.mean /= n;
  for (const double value : values) summary.std += (value - summary.mean) * (value - summary.mean);
  summary.std = std::sqrt(summary.std / n);
  summary.min = *std::min_element(values.begin(), values.end());
  summary.max = *std::max_element(values.begin(), values.end());
  // Ranks ascend, so each one is selected among the values above the previous one: a full sort costs three times as
  // much.
  auto begin = values.begin();
  const auto select = [&](std::size_t rank) {
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(rank);
    if (at >= begin) {
      if (at == begin) {
        std::iter_swap(at, std::min_element(at, values.end()));
      } else {
        std::nth_element(begin, at, values.end());
      }
      begin = at + 1;
    }
    return *at;
  };
  for (const double percent : percentiles_) {
    const double at = (n - 1.0) * (percent / 100.0);
    const auto low = static_cast<std::size_t>(at);
    const double lower = select(low);
    const double upper = low + 1 < values.size() ? select(low + 1) : lower;
    summary.quantiles.push_back(interpolate(lower, upper, at - std::floor(at)));
  }
  return summary;
}

void MetricsCollector::append_latency(std::size_t latency, std::vector<Metric>& metrics) const {
  const MetricDefinition& definition = latency_metrics()[latency].definition;
  const Summary summary = summarise(latency);
  const auto add = [&](const std::string& statistic, double ns, double relative_error) {
    Metric metric{fmt::format("{}_{}", statistic, definition.name), definition.unit, std::nullopt, summary.n,
                  relative_error};
    if (summary.n > 0) metric.value = ns / kNsPerMs;
    metrics.push_back(std::move(metric));
  };
  const auto quantile = [&](std::size_t i) { return summary.n > 0 ? summary.quantiles[i] : 0.0; };
  add("mean", summary.mean, 0.0);
  add("median", quantile(position_of(50.0)), summary.relative_error);
  add("std", summary.std, 0.0);
  add("min", summary.min, 0.0);
  add("max", summary.max, 0.0);
  for (std::size_t i = 0; i < percentiles_.size(); ++i) {
    add(percentile_name(percentiles_[i]), quantile(i), summary.relative_error);
  }
}

std::size_t MetricsCollector::position_of(double percent) const {
  return static_cast<std::size_t>(std::find(percentiles_.begin(), percentiles_.end(), percent) - percentiles_.begin());
}

std::vector<ClientStatistics> MetricsCollector::client_statistics(const FairnessTotals& fairness) const {
  std::vector<ClientStatistics> clients;
  for (const ClientRequests& requests : clients_) {
    ClientStatistics client{.client = requests.client,
                            .submitted = real(requests.submitted),
                            .finished = real(requests.finished),
                            .output_tokens = real(requests.output.count())};
    if (requests.finished > 0) {
      client.mean_ttft_ms = static_cast<double>(requests.ttft) / real(requests.finished) / kNsPerMs;
    }
    clients.push_back(client);
  }
  if (sketches_.empty() && clients.size() > 1) set_client_quantiles(clients);
  ClientNumbers numbers = client_numbers_;
  for (const ClientService& served : fairness.clients) {
    if (served.service == 0) continue;
    const std::size_t number = numbers.of(served.client);
    if (number == clients.size()) clients.push_back({.client = served.client});  // measured requests: none
    clients[number].service_tokens = real(served.service);
  }
  if (clients.size() < 2) return {};
  std::sort(clients.begin(), clients.end(),
            [](const ClientStatistics& a, const ClientStatistics& b) { return a.client < b.client; });
  return clients;
}

void MetricsCollector::set_client_quantiles(std::vector<ClientStatistics>& clients) const {
  std::vector<std::vector<double>> values(clients.size());
  for (const FinishedRequest& row : rows_) values[row.client].push_back(real(row.ttft));
  for (std::size_t i = 0; i < clients.size(); ++i) {
    const Summary summary = summarise_exact(std::move(values[i]));
    if (summary.n == 0) continue;
    clients[i].p50_ttft_ms = summary.quantiles[position_of(50.0)] / kNsPerMs;
    clients[i].p99_ttft_ms = summary.quantiles[position_of(99.0)] / kNsPerMs;
  }
}

RunStatistics MetricsCollector::finish(SimTime end, const EngineTotals& engine, Blocks gpu_blocks, Blocks host_blocks,
                                       bool complete, const FairnessTotals& fairness,
                                       std::vector<ReplicaStatistics> replicas,
                                       const std::optional<HandoverTotals>& handover) {
  SPILLWAY_CHECK(!complete || all_.ended() == all_.submitted,
                 fmt::format("{} requests submitted, {} ended", all_.submitted, all_.ended()));
  if (!sketches_.empty()) sketch_rows();
  RunStatistics statistics;
  statistics.complete = complete;
  statistics.all = all_;
  statistics.measured = measured_;
  statistics.span = end > begin_ ? end - begin_ : Duration{};
  if (config_.offered) statistics.steady = judge_steady_state(load_, *config_.offered);
  statistics.engine = engine;
  statistics.gpu_blocks = gpu_blocks;
  statistics.host_blocks = host_blocks;
  for (std::size_t i = 0; i < latency_metrics().size(); ++i) append_latency(i, statistics.metrics);
  statistics.clients = client_statistics(fairness);
  statistics.replicas = std::move(replicas);
  statistics.handover = handover;
  const double mean_front_end =
      measured_.finished > 0 ? static_cast<double>(front_end_.count()) / real(measured_.finished) * 1e-9 : 0.0;
  RunFigures figures{.run = statistics,
                     .fairness = fairness,
                     .input = input_tokens_,
                     .output = output_tokens_,
                     .served = served_,
                     .front_end = mean_front_end};
  figures.served.later_tokens = itl_.sketch.count();
  if (!slos_.empty() || requests_have_slos_) figures.good = good_;
  append_figures(figures, statistics.metrics);
  return statistics;
}

std::string percentile_name(double percent) { return fmt::format("p{}", percent); }

}  // namespace spillway
