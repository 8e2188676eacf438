#include "sim/metrics/metrics.hpp"

#include <fmt/format.h>

#include <cmath>

namespace spillway {
namespace {

constexpr double kNsPerMs = 1e6;
constexpr std::size_t kLayerMetrics = 11;
constexpr std::size_t kFairnessMetrics = 4;
constexpr std::size_t kSketchedTogether = 4096;  // rows per pass: one sketch at a time stays in the cache

std::uint64_t requests_of_warmup(const MetricsConfig& config) {
  switch (config.warmup.kind) {
    case Span::Kind::requests:
      return static_cast<std::uint64_t>(config.warmup.requests);
    case Span::Kind::share:
      if (config.expected_requests < 0) {
        throw ConfigError("a warm-up that is a share needs to know how many requests there will be", "warmup",
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
  }
}

/// numpy's linear interpolation between neighbours, bit for bit.
double interpolate(double low, double high, double fraction) {
  const double difference = high - low;
  return fraction >= 0.5 ? high - difference * (1.0 - fraction) : low + difference * fraction;
}

/// numerator / denominator, or no value when there is nothing to divide by.
std::optional<double> ratio(double numerator, double denominator) {
  if (denominator > 0.0) return numerator / denominator;
  return std::nullopt;
}
double real(std::int64_t count) { return static_cast<double>(count); }

/// The figures that come from the engine's sums and the counts; `good` is negative without SLOs.
class Totals {
 public:
  Totals(const RunStatistics& statistics, Tokens input, Tokens output, std::int64_t good)
      : statistics_(statistics), span_(to_seconds(statistics.span)), input_(input), output_(output), good_(good) {}

  /// In the order of metric_definitions(), after the latencies.
  [[nodiscard]] std::vector<Metric> metrics() const {
    std::vector<Metric> metrics;
    std::vector<std::optional<double>> values = requests();
    append(values, engine());
    append(values, time_fractions());
    const auto& definitions = metric_definitions();
    SPILLWAY_CHECK(values.size() + kLatencies + kLayerMetrics + kFairnessMetrics == definitions.size(),
                   "metrics and their definitions differ");
    for (std::size_t i = 0; i < values.size(); ++i) {
      const MetricDefinition& definition = definitions[i + kLatencies];
      const bool needs_slo = i == kGoodput || i == kSloMet;
      if (needs_slo && good_ < 0) continue;
      const bool of_requests = i < kFirstOfEngine;
      const std::int64_t n = !of_requests   ? statistics_.engine.iterations
                             : i == kSloMet ? statistics_.measured.submitted
                                            : statistics_.measured.finished;
      metrics.push_back({definition.name, definition.unit, values[i], n});
    }
    return metrics;
  }

 private:
  using Values = std::vector<std::optional<double>>;
  static constexpr std::size_t kGoodput = 6;
  static constexpr std::size_t kSloMet = 7;
  static constexpr std::size_t kFirstOfEngine = 8;

  static void append(Values& values, const Values& more) { values.insert(values.end(), more.begin(), more.end()); }

  [[nodiscard]] Values requests() const {
    const double input = real(input_.count());
    const double output = real(output_.count());
    return {span_,
            ratio(real(statistics_.measured.finished), span_),
            ratio(output, span_),
            ratio(input + output, span_),
            input,
            output,
            ratio(real(good_), span_),
            ratio(real(good_), real(statistics_.measured.submitted))};
  }

  [[nodiscard]] Values engine() const {
    const EngineTotals& e = statistics_.engine;
    const double gpu = real(statistics_.gpu_blocks.count());
    const double host = real(statistics_.host_blocks.count());
    return {real(e.iterations),
            ratio(e.batch_time, e.busy_time),
            real(e.peak_batch),
            ratio(e.waiting_time, span_),
            real(e.peak_waiting),
            ratio(e.kv_time, e.layers ? e.layers->capacity_time : span_ * gpu),
            e.layers ? std::optional(e.peak_kv_fraction) : ratio(real(e.peak_kv.count()), gpu),
            ratio(e.host_kv_time, span_ * host),
            ratio(real(e.peak_host_kv.count()), host),
            real(e.preempted_recompute),
            real(e.preempted_swap),
            real(e.moved_h2d.count()),
            real(e.moved_d2h.count()),
            ratio(real(e.prefix_hit.count()), real(e.prefix_asked.count())),
            ratio(real(e.prefix_hit_host.count()), real(e.prefix_asked.count()))};
  }

  [[nodiscard]] Values time_fractions() const {
    Values values;
    for (const double seconds : statistics_.engine.resource_time) values.push_back(ratio(seconds, span_));
    return values;
  }

  const RunStatistics& statistics_;
  double span_;
  Tokens input_;
  Tokens output_;
  std::int64_t good_;
};

/// Those before the last ones of metric_definitions(); none for a policy that streams no layers.
void append_layers(RunStatistics& statistics) {
  if (!statistics.engine.layers) return;
  const EngineTotals& engine = statistics.engine;
  const LayerTotals& layers = *engine.layers;
  std::size_t next = metric_definitions().size() - kFairnessMetrics - kLayerMetrics;
  const auto add = [&](std::optional<double> value) {
    const MetricDefinition& definition = metric_definitions()[next++];
    statistics.metrics.push_back({definition.name, definition.unit, value, engine.iterations});
  };
  const double span = to_seconds(statistics.span);
  const auto milliseconds = [](std::optional<double> seconds) {
    return seconds ? std::optional(*seconds * 1e3) : std::nullopt;
  };
  add(ratio(layers.capacity_time, span * layers.resident_blocks));
  add(ratio(real(layers.peak_capacity.count()), layers.resident_blocks));
  add(ratio(real(layers.last_capacity.count()), layers.resident_blocks));
  add(layers.figures.interval);
  add(layers.figures.slo_risk);
  add(ratio(layers.stall_time, engine.busy_time));
  add(ratio(to_seconds(layers.h2d_busy), span));
  add(ratio(to_seconds(layers.d2h_busy), span));
  add(milliseconds(layers.figures.mean_dwell_s));
  add(milliseconds(layers.figures.max_dwell_s));
  add(layers.figures.peak_host ? std::optional(real(layers.figures.peak_host->count())) : std::nullopt);
}

/// The last of metric_definitions().
void append_fairness(const FairnessTotals& fairness, RunStatistics& statistics) {
  std::size_t next = metric_definitions().size() - kFairnessMetrics;
  const auto add = [&](std::optional<double> value, std::int64_t n) {
    const MetricDefinition& definition = metric_definitions()[next++];
    statistics.metrics.push_back({definition.name, definition.unit, value, n});
  };
  const auto add_worst = [&](std::optional<double> ClientStatistics::*figure) {
    std::optional<double> worst;
    std::int64_t n = 0;
    for (const ClientStatistics& client : statistics.clients) {
      if (!(client.*figure)) continue;
      worst = std::max(worst, client.*figure);  // no value is less than any
      ++n;
    }
    add(worst, n);
  };
  const auto active = [](const ClientService& client) { return client.active.count() > 0; };
  add(jain_index(fairness), std::count_if(fairness.clients.begin(), fairness.clients.end(), active));
  std::optional<double> difference;
  if (fairness.max_service_difference) difference = real(*fairness.max_service_difference);
  add(difference, fairness.observations);
  add_worst(&ClientStatistics::mean_ttft_ms);
  add_worst(&ClientStatistics::p99_ttft_ms);
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
    if (const auto latency = per_request_latency(condition.metric)) slos_.emplace_back(*latency, condition);
  }
}

bool MetricsCollector::is_measured(std::uint64_t index, SimTime arrival) const {
  return config_.warmup.kind == Span::Kind::time ? arrival >= begin_ : index >= first_measured_;
}

void MetricsCollector::submitted(std::uint64_t index, SimTime now) {
  ++all_.submitted;
  if (!is_measured(index, now)) return;
  ++measured_.submitted;
  if (begin_ == kNever) begin_ = now;
}

void MetricsCollector::ended(const RequestRecord& record) {
  count(all_, record.outcome);
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
  const Row row{(record.first_token - record.arrival).count(), (record.end - record.arrival).count(),
                record.computing.count(), static_cast<std::int32_t>(record.generated.count()),
                static_cast<std::uint32_t>(number)};
  ++client.finished;
  client.ttft += static_cast<Wide>(row.ttft);
  client.output += record.generated;
  if (meets_slos(row, record.traits.slo)) ++good_;
  rows_.push_back(row);
  if (rows_.size() <= rows_limit_) return;
  sketch_rows();
  rows_limit_ = kSketchedTogether;
}

std::optional<double> MetricsCollector::latency_ns(const Row& row, Latency which) {
  switch (which) {
    case Latency::ttft:
      return real(row.ttft);
    case Latency::tpot:
      if (row.output < 2) return std::nullopt;
      return real(row.e2e - row.ttft) / real(row.output - 1);
    case Latency::e2e:
      return real(row.e2e);
    case Latency::normalised:
      return real(row.e2e) / real(row.output);
    case Latency::queueing_per_token:
      return real(row.e2e - row.computing) / real(row.output);
    case Latency::compute_per_token:
      return real(row.computing) / real(row.output);
    case Latency::itl:
      break;  // not a figure of one request
  }
  return std::nullopt;
}

void MetricsCollector::sketch_rows() {
  sketches_.resize(kLatencies);
  for (int i = 0; i < kLatencies; ++i) {
    Sketched& sketched = sketches_[static_cast<std::size_t>(i)];
    for (const Row& row : rows_) {
      const auto value = latency_ns(row, static_cast<Latency>(i));
      if (value) sketched.add(static_cast<std::int64_t>(std::floor(*value + 0.5)), 1);
    }
  }
  rows_.clear();
}

bool MetricsCollector::meets_slos(const Row& row, const RequestSlo& own) const {
  const std::array<std::pair<Latency, Duration>, 3> limits{
      {{Latency::ttft, own.ttft}, {Latency::tpot, own.tpot}, {Latency::e2e, own.e2e}}};
  const auto limited = [&](Latency which) {
    return std::any_of(limits.begin(), limits.end(),
                       [&](const auto& limit) { return limit.first == which && limit.second > Duration(0); });
  };
  for (const auto& [which, limit] : limits) {
    if (limit == Duration(0)) continue;
    const auto value = latency_ns(row, which);
    if (value && !(*value < static_cast<double>(limit.count()))) return false;
  }
  return std::all_of(slos_.begin(), slos_.end(), [&](const auto& slo) {
    if (limited(slo.first)) return true;
    const auto value = latency_ns(row, slo.first);
    return !value || slo.second.holds(*value / kNsPerMs);
  });
}

MetricsCollector::Summary MetricsCollector::summarise(Latency which) const {
  if (which == Latency::itl) return summarise_sketch(itl_);
  if (!sketches_.empty()) return summarise_sketch(sketches_[static_cast<std::size_t>(which)]);
  std::vector<double> values;
  values.reserve(rows_.size());
  for (const Row& row : rows_) {
    if (const auto value = latency_ns(row, which)) values.push_back(*value);
  }
  return summarise_exact(std::move(values));
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
  // Ranks in ascending order, each selected within what lies above the one before: a full sort costs three times as
  // much.
  auto begin = values.begin();
  const auto select = [&](std::size_t rank) {
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(rank);
    if (at >= begin) {
      std::nth_element(begin, at, values.end());
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

void MetricsCollector::append_latency(Latency which, std::vector<Metric>& metrics) const {
  const MetricDefinition& definition = metric_definitions()[static_cast<std::size_t>(which)];
  const Summary summary = summarise(which);
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
  for (const Row& row : rows_) values[row.client].push_back(real(row.ttft));
  for (std::size_t i = 0; i < clients.size(); ++i) {
    const Summary summary = summarise_exact(std::move(values[i]));
    if (summary.n == 0) continue;
    clients[i].p50_ttft_ms = summary.quantiles[position_of(50.0)] / kNsPerMs;
    clients[i].p99_ttft_ms = summary.quantiles[position_of(99.0)] / kNsPerMs;
  }
}

RunStatistics MetricsCollector::finish(SimTime end, const EngineTotals& engine, Blocks gpu_blocks, Blocks host_blocks,
                                       bool complete, const FairnessTotals& fairness) {
  const std::int64_t ended = all_.finished + all_.rejected + all_.timed_out + all_.unfinished;
  SPILLWAY_CHECK(!complete || ended == all_.submitted,
                 fmt::format("{} requests submitted, {} ended", all_.submitted, ended));
  if (!sketches_.empty()) sketch_rows();
  RunStatistics statistics;
  statistics.complete = complete;
  statistics.all = all_;
  statistics.measured = measured_;
  statistics.span = end > begin_ ? end - begin_ : Duration{};
  statistics.engine = engine;
  statistics.gpu_blocks = gpu_blocks;
  statistics.host_blocks = host_blocks;
  for (int i = 0; i < kLatencies; ++i) append_latency(static_cast<Latency>(i), statistics.metrics);
  const Totals totals(statistics, input_tokens_, output_tokens_, slos_.empty() && !requests_have_slos_ ? -1 : good_);
  for (Metric& metric : totals.metrics()) statistics.metrics.push_back(std::move(metric));
  append_layers(statistics);
  statistics.clients = client_statistics(fairness);
  append_fairness(fairness, statistics);
  return statistics;
}

}  // namespace spillway
