// What is measured of a run, and how each figure is defined.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sim/api/layer_policy.hpp"
#include "sim/api/parameter.hpp"
#include "sim/core/quantile_sketch.hpp"
#include "sim/core/request.hpp"
#include "sim/core/units.hpp"
#include "sim/metrics/fairness.hpp"

namespace spillway {

/// The latencies of a request; every one is a time.
enum class Latency : std::uint8_t { ttft, tpot, itl, e2e, normalised, queueing_per_token, compute_per_token };
inline constexpr int kLatencies = 7;

/// What the run's time went to. Shares of the measured span sum to 1.
enum class Resource : std::uint8_t { load, kv_capacity, compute, memory, network, h2d, d2h, host };
inline constexpr int kResources = 8;

/// A name, what it means and its unit: printed by `explain NAME` and in result.json.
struct MetricDefinition {
  std::string name;  // base name, e.g. "ttft_ms"; statistics stand in front of it ("p99_ttft_ms")
  std::string unit;
  std::string definition;
  bool distribution = false;  // has mean, median, std, min, max and any pNN in front
};
/// Every metric, in the order in which results list them.
[[nodiscard]] const std::vector<MetricDefinition>& metric_definitions();
/// "p99", "p99.9": how a percentile stands in a metric's name.
[[nodiscard]] std::string percentile_name(double percent);

/// One figure of a result. No value: it does not exist for this run (no request finished, say), which is not zero.
struct Metric {
  std::string name;  // <statistic>_<metric>_<unit>
  std::string unit;
  std::optional<double> value;
  std::int64_t n = 0;                                 // samples behind it
  double relative_error = 0.0;                        // of a sketched quantile
  std::optional<double> half_width{};                 // 95% t-interval over replications
  std::vector<std::optional<double>> replications{};  // its value in each of them; empty when there is but one
};

/// Comparison of a metric with a limit: "ttft_ms<500", "p99_ttft_ms>800".
struct Condition {
  enum class Op : std::uint8_t { less, less_equal, greater, greater_equal } op = Op::less;
  std::string metric;
  double limit = 0.0;
  std::string text;  // as the user wrote it
  [[nodiscard]] bool holds(double value) const;
};
/// Parses a comma-separated list of conditions. Appends a Problem for each one that is not well-formed, names an
/// unknown metric (with the nearest name), or names a latency without a statistic: that speaks of single requests,
/// which is allowed only with `per_request` and never for ITL, whose gaps are not kept per request. The metric of a
/// condition is spelt as in RunStatistics ("p99.90_ttft_ms" becomes "p99.9_ttft_ms").
[[nodiscard]] std::vector<Condition> parse_conditions(const std::string& text, const std::string& where,
                                                      bool per_request, std::vector<Problem>& problems);
/// The name under which RunStatistics lists the metric that `text` names; appends a Problem when there is none.
[[nodiscard]] std::optional<std::string> parse_metric(const std::string& text, const std::string& where,
                                                      std::vector<Problem>& problems);
/// The latency that a per-request condition such as "ttft_ms<500" speaks of; empty when it has a statistic or is
/// unknown.
[[nodiscard]] std::optional<Latency> per_request_latency(const std::string& metric);
/// The percentiles that conditions ask for, in percent, for MetricsConfig::percentiles.
[[nodiscard]] std::vector<double> percentiles_of(const std::vector<Condition>& conditions);

/// Warm-up: a share of the expected requests (to the nearest whole request), a number of requests, or a time. Requests
/// submitted in it are dropped: those before the N-th, or those that arrive before that time. The measured span runs
/// from the end of the warm-up (for a share or a number: the arrival of the first measured request; without warm-up: 0)
/// to the last completion, or to `until`.
struct MetricsConfig {
  Span warmup{};
  std::int64_t expected_requests = -1;   // for a warm-up given as a share
  std::vector<Condition> goodput{};      // SLOs; those on single requests define goodput, unless one has its own
  std::vector<double> percentiles{};     // in percent, beyond 50, 90, 95 and 99
  std::int64_t exact_limit = 1'000'000;  // finished requests whose latencies are kept; beyond it they are sketched
};

/// Of a policy that streams layers between host and GPU.
struct LayerTotals {
  double capacity_time = 0.0;  // integral of the GPU tier's blocks, block-seconds
  Blocks peak_capacity{};
  Blocks last_capacity{};
  double resident_blocks = 0.0;  // that the GPU would offer if every layer's weights and KV were on it
  double stall_time = 0.0;       // seconds in which compute waited for a copy
  Duration h2d_busy{};
  Duration d2h_busy{};
  LayerFigures figures{};  // of the whole run
  /// How many blocks the GPU tier offered from when on, in the whole run: at its start, and at each of the first
  /// kMostChanges changes.
  struct Change {
    SimTime at{};
    Blocks capacity{};
  };
  static constexpr std::size_t kMostChanges = 4096;
  std::vector<Change> changes{};
};

/// Sums over one run that the engine keeps per iteration; all of the measured span.
struct EngineTotals {
  std::int64_t iterations = 0;
  std::int64_t preempted_recompute = 0;
  std::int64_t preempted_swap = 0;
  Bytes moved_h2d{};
  Bytes moved_d2h{};
  Tokens prefix_hit{};        // prompt tokens taken from the prefix cache, its host tier included
  Tokens prefix_hit_host{};   // of these, the ones copied back from the host
  Tokens prefix_asked{};      // prompt tokens of admissions with prefix caching on
  double batch_time = 0.0;    // integral of running requests over busy time, request-seconds
  double busy_time = 0.0;     // seconds in which an iteration ran
  double waiting_time = 0.0;  // integral of waiting requests, request-seconds
  double kv_time = 0.0;       // integral of used GPU blocks, block-seconds
  double host_kv_time = 0.0;  // same for the host tier
  std::int64_t peak_batch = 0;
  std::int64_t peak_waiting = 0;
  Blocks peak_kv{};
  double peak_kv_fraction = 0.0;  // of what there was at the time
  Blocks peak_host_kv{};
  std::optional<LayerTotals> layers{};
  std::array<double, kResources> resource_time{};  // seconds by what they were spent on
};

/// Counts of requests by how they ended; measured ones (after warmup) and all.
struct OutcomeCounts {
  std::int64_t submitted = 0;
  std::int64_t finished = 0;
  std::int64_t rejected = 0;
  std::int64_t timed_out = 0;
  std::int64_t unfinished = 0;
};

/// What became of one client's requests. Over replications: means over those in which the client appears, a latency
/// over those in which it has a value.
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

/// Statistics of one replication.
struct RunStatistics {
  bool complete = true;  // false: interrupted
  OutcomeCounts all;
  OutcomeCounts measured;
  Duration span{};
  EngineTotals engine;
  Blocks gpu_blocks{};
  Blocks host_blocks{};
  std::vector<Metric> metrics;  // every figure, in the order in which it is written
  /// Clients that had a measured request or were served in the measured span, ascending; empty for fewer than two.
  std::vector<ClientStatistics> clients;
  [[nodiscard]] const Metric* find(const std::string& name) const;
};

/// Collects one run. O(1) per call; memory O(min(requests, exact_limit)) plus one sketch per latency beyond it, and
/// O(clients).
///
/// Latencies are those of finished measured requests; ITL is of every gap that ends in the measured span. What is
/// sketched is summed in whole nanoseconds: neither how gaps are grouped into calls nor their order matters.
class MetricsCollector {
 public:
  /// Throws ConfigError when the warm-up is a share and the number of requests is not known.
  explicit MetricsCollector(MetricsConfig config);

  /// A request was submitted at `now`; its position is `index`. In order of index.
  void submitted(std::uint64_t index, SimTime now);
  /// A request ended, finished or not. Throws InvariantError when a finished request's times are out of order.
  void ended(const RequestRecord& record);
  /// `tokens` requests emitted a token `gap` after their previous one, at `now`.
  void token_gap(Duration gap, std::int64_t tokens, SimTime now) {
    if (tokens > 0 && now >= begin_) itl_.add(gap.count(), tokens);
  }
  /// Beginning of the measured span; kNever while it has not begun.
  [[nodiscard]] SimTime begin() const { return begin_; }
  /// `end`: the last completion, or the horizon. Fills metrics, counts and span. Throws InvariantError when the run is
  /// complete and a request that was submitted has not ended.
  [[nodiscard]] RunStatistics finish(SimTime end, const EngineTotals& engine, Blocks gpu_blocks, Blocks host_blocks,
                                     bool complete, const FairnessTotals& fairness = {});

 private:
  /// What is kept of one finished request, in nanoseconds.
  struct Row {
    std::int64_t ttft = 0;
    std::int64_t e2e = 0;
    std::int64_t computing = 0;
    std::int32_t output = 0;   // tokens
    std::uint32_t client = 0;  // position in clients_
  };
  static_assert(sizeof(Row) == 32);              // times a million while percentiles are exact
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

  [[nodiscard]] bool is_measured(std::uint64_t index, SimTime arrival) const;
  [[nodiscard]] static std::optional<double> latency_ns(const Row& row, Latency which);
  void sketch_rows();  // moves rows_ into the sketches
  [[nodiscard]] bool meets_slos(const Row& row, const RequestSlo& own) const;
  [[nodiscard]] Summary summarise(Latency which) const;
  [[nodiscard]] Summary summarise_sketch(const Sketched& sketched) const;
  [[nodiscard]] Summary summarise_exact(std::vector<double> values) const;
  void append_latency(Latency which, std::vector<Metric>& metrics) const;
  /// Position in percentiles_ of one that is always there.
  [[nodiscard]] std::size_t position_of(double percent) const;
  [[nodiscard]] std::vector<ClientStatistics> client_statistics(const FairnessTotals& fairness) const;
  void set_client_quantiles(std::vector<ClientStatistics>& clients) const;

  MetricsConfig config_;
  std::vector<double> percentiles_;  // ascending
  std::vector<std::pair<Latency, Condition>> slos_;
  std::uint64_t first_measured_ = 0;  // index of the first measured request, when the warm-up counts requests
  SimTime begin_{};
  OutcomeCounts all_;
  OutcomeCounts measured_;
  std::size_t rows_limit_;          // rows kept before they are sketched
  std::vector<Row> rows_;           // all of them while exact, else those not sketched yet
  std::vector<Sketched> sketches_;  // one per latency; empty while exact
  Sketched itl_;
  std::int64_t good_ = 0;
  bool requests_have_slos_ = false;
  Tokens output_tokens_{};
  Tokens input_tokens_{};
  ClientNumbers client_numbers_;
  std::vector<ClientRequests> clients_;  // in order of their first measured request to end
};

/// Half-width of the 95% confidence interval of the mean of `values` (Student's t); empty for fewer than two. The
/// t-quantile is rounded, which keeps it the same on every machine.
[[nodiscard]] std::optional<double> half_width_95(std::span<const double> values);

/// Mean and 95% t-interval of each metric over replications of the same configuration, as one RunStatistics; `n` is the
/// number of replications in which the metric has a value. Counts, engine totals and span are summed, peaks are the
/// largest; clients are averaged as ClientStatistics says. One replication is returned as it is; `runs` must not be
/// empty.
[[nodiscard]] RunStatistics combine_replications(const std::vector<RunStatistics>& runs);

/// The resource with the largest share of the span, with its share and one sentence that names it.
struct Bottleneck {
  Resource resource = Resource::load;
  double share = 0.0;
  std::string sentence;
  std::string advice;  // what to try next
};
[[nodiscard]] Bottleneck find_bottleneck(const RunStatistics& statistics);

}  // namespace spillway
