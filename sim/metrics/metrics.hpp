// What is measured of a run, and how each figure is defined.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/api/figure.hpp"
#include "sim/api/parameter.hpp"
#include "sim/core/quantile_sketch.hpp"
#include "sim/core/request.hpp"
#include "sim/core/units.hpp"
#include "sim/metrics/conversations.hpp"
#include "sim/metrics/engine_totals.hpp"
#include "sim/metrics/fairness.hpp"
#include "sim/metrics/lending.hpp"
#include "sim/metrics/steady_state.hpp"

namespace spillway {

struct MetricEntry;  // metric_table.hpp

/// What a metric means: printed by `explain NAME` and in result.json.
struct MetricDefinition {
  std::string name;  // without statistic, e.g. "ttft_ms"; of a distribution "p99_ttft_ms" names one figure
  std::string unit;
  std::string definition;
  std::optional<Better> better{};  // empty: neither side is better, as for batch sizes or shares of time
  bool distribution = false;       // has the statistics mean, median, std, min, max and any pNN
  bool series = false;             // a list in result.json, not a figure: no condition can name it
};
/// Every metric, in the order in which results list them: those of the table, then the figures that policies declare.
/// metric_table.hpp says how to add one to the table.
[[nodiscard]] const std::vector<MetricDefinition>& metric_definitions();
/// "p99", "p99.9": how the name of a figure spells a percentile.
[[nodiscard]] std::string percentile_name(double percent);

/// One figure of a result. No value: the figure does not exist for this run (no request finished, say), which is not
/// zero.
struct Metric {
  std::string name;  // <statistic>_<metric>_<unit>
  std::string unit;
  std::optional<double> value;
  std::int64_t n = 0;                                 // samples behind it
  double relative_error = 0.0;                        // of a sketched quantile
  std::optional<double> half_width{};                 // 95% t-interval over replications
  std::vector<std::optional<double>> replications{};  // its value in each replication; empty for a single one
  Merge merge = Merge::mean;
};

/// Comparison of a metric with a limit: "ttft_ms<500", "p99_ttft_ms>800".
struct Condition {
  enum class Op : std::uint8_t { less, less_equal, greater, greater_equal } op = Op::less;
  std::string metric;
  double limit = 0.0;
  std::string text;  // as the user wrote it
  [[nodiscard]] bool holds(double value) const;
};
/// Parses a comma-separated list of conditions. Appends a Problem for each condition that is malformed, names an
/// unknown metric (with the nearest name), or names a latency without a statistic. Such a condition limits single
/// requests: it is allowed only with `per_request`, and never for ITL, whose gaps are not kept per request. The metric
/// of a condition is spelt as in RunStatistics ("p99.90_ttft_ms" becomes "p99.9_ttft_ms").
[[nodiscard]] std::vector<Condition> parse_conditions(const std::string& text, const std::string& where,
                                                      bool per_request, std::vector<Problem>& problems);
/// The name under which RunStatistics lists the metric that `text` names; appends a Problem when there is none.
[[nodiscard]] std::optional<std::string> parse_metric(const std::string& text, const std::string& where,
                                                      std::vector<Problem>& problems);
/// The latency that a per-request condition such as "ttft_ms<500" limits; null when the name has a statistic or is
/// unknown.
[[nodiscard]] const MetricEntry* per_request_latency(const std::string& metric);
/// The percentiles that conditions ask for, in percent, for MetricsConfig::percentiles.
[[nodiscard]] std::vector<double> percentiles_of(const std::vector<Condition>& conditions);

/// Warm-up: a share of the expected requests (to the nearest whole request), a number of requests, or a time. It drops
/// the requests submitted in it: those before the N-th, or those that arrive before that time. The measured span runs
/// from the end of the warm-up (for a share or a number: the arrival of the first measured request; without warm-up: 0)
/// to the last completion, or to `until`.
struct MetricsConfig {
  Span warmup{};
  std::int64_t expected_requests = -1;   // for a warm-up given as a share
  Duration front_end{};                  // part of every TTFT that requests spend before the scheduler's queue
  std::optional<OfferedLoad> offered{};  // to judge whether the run was steady; empty: it is not judged
  std::vector<Condition> goodput{};      // SLOs; those on single requests define goodput, unless one has its own
  std::vector<double> percentiles{};     // in percent, beyond 50, 90, 95 and 99
  std::int64_t exact_limit = 1'000'000;  // finished requests whose latencies are kept; beyond it they are sketched
};

/// Counts of requests by how they ended; measured ones (after warmup) and all.
struct OutcomeCounts {
  std::int64_t submitted = 0;
  std::int64_t finished = 0;
  std::int64_t rejected = 0;
  std::int64_t timed_out = 0;
  std::int64_t unfinished = 0;
  std::int64_t lost = 0;
  [[nodiscard]] std::int64_t ended() const { return finished + rejected + timed_out + unfinished + lost; }
};

/// What was served in the measured span, to any request.
struct Served {
  std::int64_t finished = 0;      // requests that finished in it
  std::int64_t good = 0;          // of these, requests that met every SLO
  std::int64_t first_tokens = 0;  // requests that got their first token in it
  std::int64_t later_tokens = 0;  // output tokens but the first of each request
  Tokens prompts{};               // of the requests that got their first token in it
};

/// What became of one client's requests. Over replications: means over the replications in which the client appears; a
/// latency over those in which it has a value.
struct ClientStatistics {
  std::uint32_t client = 0;
  double submitted = 0.0;  // measured requests, as `finished`
  double finished = 0.0;
  std::optional<double> mean_ttft_ms{};  // of finished measured requests
  std::optional<double> p50_ttft_ms{};   // also without value beyond MetricsConfig::exact_limit
  std::optional<double> p99_ttft_ms{};
  double output_tokens = 0.0;     // of finished measured requests
  double service_tokens = 0.0;    // weighted, in the measured span: see FairnessMeter
  std::int64_t replications = 1;  // in which it appears
};

/// KV that went from prefill to decode replicas, in the whole run.
struct HandoverTotals {
  std::int64_t transfers = 0;  // that ended
  Bytes bytes{};               // of them, per GPU
  double waited = 0.0;         // seconds from the end of a prompt to the start of its transfer, summed
  double moved = 0.0;          // and from there until it has arrived
  void add(const HandoverTotals& other) {
    transfers += other.transfers;
    bytes += other.bytes;
    waited += other.waited;
    moved += other.moved;
  }
};

/// A link that copies share, in the measured span. Copies count as EngineTotals counts them, and KV that is handed over
/// when it has arrived: what a boundary of the span cuts is counted by estimate.
struct LinkUse {
  double capacity = 0.0;  // bytes/s
  double bytes = 0.0;     // that crossed it; over replications the sum
  /// Of what it can carry in so many seconds, at most 1.
  [[nodiscard]] double fraction(double span) const { return std::min(1.0, bytes / capacity / span); }
};

/// What one replica did: of requests in the whole run, of all else in the measured span.
struct ReplicaStatistics {
  std::int32_t pool = 0;  // 1: it generates the answers of what the others compute
  std::int64_t sent = 0;  // requests
  std::int64_t finished = 0;
  std::int64_t lost = 0;  // when it went down
  EngineTotals engine{};
  std::optional<double> jain_index{};                    // as the metric; over replications the least
  std::optional<std::int64_t> max_service_difference{};  // weighted tokens; over replications the largest
  double down_time = 0.0;                                // seconds
  std::int64_t replications = 1;                         // that these sums are of
};

/// Statistics of one replication.
struct RunStatistics {
  bool complete = true;  // false: interrupted
  OutcomeCounts all;
  OutcomeCounts measured;
  Duration span{};
  std::optional<SteadyState> steady{};  // empty: not judged (MetricsConfig::offered)
  EngineTotals engine;
  Blocks gpu_blocks{};
  Blocks host_blocks{};
  std::vector<Metric> metrics;  // every figure, in the order in which it is written
  /// Clients that had a measured request or were served in the measured span, ascending; empty for fewer than two.
  std::vector<ClientStatistics> clients;
  std::vector<ReplicaStatistics> replicas{};  // in order; empty for one
  std::optional<HandoverTotals> handover{};   // only with pools
  std::vector<LinkUse> links{};               // as SimulationConfig::links; with pools as Handover::links
  std::vector<LendingUse> lending{};          // as SimulationConfig::loans
  /// Seconds of the span in which replicas were up, summed over replicas.
  [[nodiscard]] double replica_time() const {
    double time = to_seconds(span) * static_cast<double>(std::max<std::int64_t>(1, std::ssize(replicas)));
    for (const ReplicaStatistics& one : replicas) time -= one.down_time;
    return time;
  }
  std::vector<ConversationSample> conversations{};  // of the whole run; empty: the measured span has none
  [[nodiscard]] const Metric* find(const std::string& name) const;
};

/// What is kept of a finished request, in nanoseconds: latencies are computed from it.
struct FinishedRequest {
  std::int64_t ttft = 0;
  std::int64_t e2e = 0;
  std::int64_t computing = 0;
  std::int32_t output = 0;   // tokens
  std::uint32_t client = 0;  // the collector's number of its client
};
static_assert(sizeof(FinishedRequest) == 32);  // times a million while percentiles are exact

/// Collects one run. O(1) per call; memory O(min(requests, exact_limit)) plus one sketch per latency beyond it, and
/// O(clients).
///
/// Latencies are of finished measured requests; ITL is of every gap that ends in the measured span. Sketches sum whole
/// nanoseconds, so neither the grouping of gaps into calls nor their order matters.
class MetricsCollector {
 public:
  /// Throws ConfigError when the warm-up is a share and the number of requests is not known.
  explicit MetricsCollector(MetricsConfig config);

  /// A request was submitted at `now`; its position is `index`. In order of index.
  void submitted(std::uint64_t index, SimTime now);
  /// A request ended, finished or not. Throws InvariantError when a finished request's times are out of order.
  void ended(const RequestRecord& record) { ended(record, config_.front_end); }
  /// The same when its front end took another time.
  void ended(const RequestRecord& record, Duration front_end);
  /// `tokens` requests emitted a token `gap` after their previous one, at `now`.
  void token_gap(Duration gap, std::int64_t tokens, SimTime now) {
    if (tokens > 0 && now >= begin_) itl_.add(gap.count(), tokens);
  }
  /// The measured span has begun, as another collector of the run says.
  void begin_at(SimTime begin) { begin_ = begin; }
  /// Beginning of the measured span; kNever while it has not begun.
  [[nodiscard]] SimTime begin() const { return begin_; }
  /// `end`: the last completion, or the horizon. Fills metrics, counts and span. Throws InvariantError when the run is
  /// complete and a request that was submitted has not ended.
  [[nodiscard]] RunStatistics finish(SimTime end, const EngineTotals& engine, Blocks gpu_blocks, Blocks host_blocks,
                                     bool complete, const FairnessTotals& fairness = {},
                                     std::vector<ReplicaStatistics> replicas = {},
                                     const std::optional<HandoverTotals>& handover = {});

 private:
  __extension__ using Wide = unsigned __int128;  // exact sums of squared nanoseconds
  /// Measured requests of one client.
  struct ClientRequests {
    std::uint32_t client = 0;
    std::int64_t submitted = 0;
    std::int64_t finished = 0;
    Wide ttft = 0;  // nanoseconds, summed
    Tokens output{};
  };
  /// A sketched latency: quantiles to 0.1%, all else exact.
  struct Sketched {
    QuantileSketch sketch;
    Wide sum = 0;
    Wide sum_squares = 0;
    std::int64_t min = std::numeric_limits<std::int64_t>::max();
    std::int64_t max = 0;
    void add(std::int64_t ns, std::int64_t weight) {
      sketch.add(Duration(ns), weight);
      const Wide weighted = static_cast<Wide>(ns) * static_cast<Wide>(weight);
      sum += weighted;
      sum_squares += weighted * static_cast<Wide>(ns);
      min = std::min(min, ns);
      max = std::max(max, ns);
    }
  };
  struct Summary;

  /// Counts what a request got in the measured span, whenever it was submitted.
  void count_served(const RequestRecord& record);
  [[nodiscard]] bool is_measured(std::uint64_t index, SimTime arrival) const;
  void sketch_rows();  // moves rows_ into the sketches
  [[nodiscard]] bool meets_slos(const FinishedRequest& row, const RequestSlo& own) const;
  [[nodiscard]] Summary summarise(std::size_t latency) const;
  [[nodiscard]] Summary summarise_sketch(const Sketched& sketched) const;
  [[nodiscard]] Summary summarise_exact(std::vector<double> values) const;
  /// Appends the figures of a latency, given by its position in the table.
  void append_latency(std::size_t latency, std::vector<Metric>& metrics) const;
  /// Position in percentiles_ of one that is always there.
  [[nodiscard]] std::size_t position_of(double percent) const;
  [[nodiscard]] std::vector<ClientStatistics> client_statistics(const FairnessTotals& fairness) const;
  void set_client_quantiles(std::vector<ClientStatistics>& clients) const;

  MetricsConfig config_;
  std::vector<double> percentiles_;  // ascending
  std::vector<std::pair<const MetricEntry*, Condition>> slos_;
  std::uint64_t first_measured_ = 0;  // index of the first measured request, when the warm-up counts requests
  SimTime begin_{};
  OutcomeCounts all_;
  OutcomeCounts measured_;
  Served served_;
  LoadSeries load_;
  std::size_t rows_limit_;             // rows kept before they are sketched
  std::vector<FinishedRequest> rows_;  // all of them while exact, else those not sketched yet
  std::vector<Sketched> sketches_;     // one per latency of the table; empty while exact
  Sketched itl_;
  std::int64_t good_ = 0;
  bool requests_have_slos_ = false;
  Tokens output_tokens_{};
  Tokens input_tokens_{};
  Duration front_end_{};  // of finished measured requests, summed
  ClientNumbers client_numbers_;
  std::vector<ClientRequests> clients_;  // in order of their first measured request to end
};

/// Half-width of the 95% confidence interval of the mean of `values` (Student's t); empty for fewer than two. The
/// t-quantile is rounded, which keeps it the same on every machine.
[[nodiscard]] std::optional<double> half_width_95(std::span<const double> values);

/// Merges replications of one configuration into one RunStatistics. Every figure becomes its mean with a 95%
/// t-interval, unless a policy declared its figure a sum or a largest value, which have no interval; `n` is the number
/// of replications in which it has a value. A series is that of the first replication. Counts and span are summed,
/// engine totals merge as EngineTotals::add says, clients are averaged as ClientStatistics says. One replication is
/// returned as it is; `runs` must not be empty.
[[nodiscard]] RunStatistics combine_replications(const std::vector<RunStatistics>& runs);

/// The resource with the largest share of the span, with its share and one sentence that names it.
struct Bottleneck {
  Resource resource = Resource::load;
  double share = 0.0;
  std::string sentence;
  std::string advice;  // what to try next
};
/// The advice names engine.max_num_seqs only if the batch reached `max_num_seqs`, the limit of each instance.
[[nodiscard]] Bottleneck find_bottleneck(const RunStatistics& statistics, std::int64_t max_num_seqs);

/// The side of a figure ("p99_ttft_ms", "iterations") that is better; empty when neither is, or the name is unknown.
[[nodiscard]] std::optional<Better> better_direction(std::string_view figure);

}  // namespace spillway
