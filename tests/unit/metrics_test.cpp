// Metrics against values computed by hand.
#include "sim/metrics/metrics.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "sim/api/registry.hpp"

namespace spillway {
namespace {

constexpr std::int64_t kMs = 1'000'000;
constexpr SimTime at_ms(std::int64_t ms) { return SimTime(ms * kMs); }

/// A finished request; times in milliseconds.
RequestRecord finished(std::uint64_t index, std::int64_t arrival, std::int64_t first_token, std::int64_t end,
                       std::int64_t output, std::int64_t computing = 0) {
  RequestRecord record;
  record.index = index;
  record.outcome = Outcome::finished;
  record.arrival = at_ms(arrival);
  record.first_scheduled = at_ms(arrival);
  record.first_token = at_ms(first_token);
  record.end = at_ms(end);
  record.computing = Duration(computing * kMs);
  record.input = Tokens(100);
  record.output = Tokens(output);
  record.generated = Tokens(output);
  return record;
}

void feed(MetricsCollector& collector, const RequestRecord& record) {
  collector.submitted(record.index, record.arrival);
  // All tokens but the first, at the end.
  collector.token_gap(Duration(kMs), record.generated.count() - 1, record.end);
  collector.ended(record);
}

RunStatistics finish(MetricsCollector collector, std::int64_t end_ms, const EngineTotals& engine = {}) {
  return collector.finish(at_ms(end_ms), engine, Blocks(100), Blocks(0), true);
}

double value_of(const RunStatistics& statistics, const std::string& name) {
  const Metric* metric = statistics.find(name);
  EXPECT_NE(metric, nullptr) << name;
  if (metric == nullptr || !metric->value) return std::nan("");
  return *metric->value;
}

TEST(Metrics, Latencies_OfOneRequest_FollowTheirDefinitions) {
  // Arrives at 10 ms, first of 5 tokens at 40 ms, last at 110 ms, computed for 75 ms.
  MetricsCollector collector(MetricsConfig{});
  feed(collector, finished(0, 10, 40, 110, 5, 75));
  const RunStatistics s = finish(collector, 110);
  EXPECT_EQ(value_of(s, "mean_ttft_ms"), 30.0);                  // 40 - 10
  EXPECT_EQ(value_of(s, "mean_e2e_ms"), 100.0);                  // 110 - 10
  EXPECT_EQ(value_of(s, "mean_tpot_ms"), 17.5);                  // (100 - 30) / 4
  EXPECT_EQ(value_of(s, "mean_normalised_ms_per_token"), 20.0);  // 100 / 5
  EXPECT_EQ(value_of(s, "mean_queueing_ms_per_token"), 5.0);     // (100 - 75) / 5
  EXPECT_EQ(value_of(s, "mean_compute_ms_per_token"), 15.0);     // 75 / 5
  EXPECT_EQ(value_of(s, "duration_s"), 0.11);                    // from 0, without warm-up
  EXPECT_DOUBLE_EQ(value_of(s, "request_throughput_per_s"), 1.0 / 0.11);
  EXPECT_DOUBLE_EQ(value_of(s, "output_throughput_tokens_per_s"), 5.0 / 0.11);
  EXPECT_DOUBLE_EQ(value_of(s, "total_throughput_tokens_per_s"), 105.0 / 0.11);
}

TEST(Metrics, Quantiles_AreThoseOfNumpy) {
  // TTFT 10, 20, 30, 40 ms, n = 4, so rank = 3 q. p50: 1.5 -> 25; p90: 2.7 -> 37; p95: 2.85 -> 38.5; p99: 2.97 -> 39.7.
  // mean 25; deviations -15 -5 5 15, squares 225 25 25 225, /4 = 125: std (population, as numpy) sqrt(125).
  MetricsConfig config;
  config.percentiles = {25.0, 99.9, 50.0};  // 25: rank 0.75 -> 17.5; 99.9: rank 2.997 -> 39.97
  MetricsCollector collector(config);
  std::uint64_t index = 0;
  for (const std::int64_t ttft : {30, 10, 40, 20}) feed(collector, finished(index++, 0, ttft, 100, 2));
  const RunStatistics s = finish(collector, 100);
  EXPECT_DOUBLE_EQ(value_of(s, "median_ttft_ms"), 25.0);
  EXPECT_DOUBLE_EQ(value_of(s, "p50_ttft_ms"), 25.0);
  EXPECT_DOUBLE_EQ(value_of(s, "p90_ttft_ms"), 37.0);
  EXPECT_DOUBLE_EQ(value_of(s, "p95_ttft_ms"), 38.5);
  EXPECT_DOUBLE_EQ(value_of(s, "p99_ttft_ms"), 39.7);
  EXPECT_DOUBLE_EQ(value_of(s, "p25_ttft_ms"), 17.5);
  EXPECT_DOUBLE_EQ(value_of(s, "p99.9_ttft_ms"), 39.97);
  EXPECT_DOUBLE_EQ(value_of(s, "std_ttft_ms"), std::sqrt(125.0));
  EXPECT_EQ(value_of(s, "min_ttft_ms"), 10.0);
  EXPECT_EQ(value_of(s, "max_ttft_ms"), 40.0);
  EXPECT_EQ(s.find("p99_ttft_ms")->n, 4);
  EXPECT_EQ(s.find("p99_ttft_ms")->relative_error, 0.0);
}

TEST(Metrics, Tpot_OfAOneTokenAnswer_IsNullAndNotCounted) {
  MetricsCollector only_short(MetricsConfig{});
  feed(only_short, finished(0, 0, 10, 10, 1));
  const RunStatistics none = finish(only_short, 10);
  EXPECT_FALSE(none.find("mean_tpot_ms")->value.has_value());
  EXPECT_FALSE(none.find("p99_tpot_ms")->value.has_value());
  EXPECT_EQ(none.find("mean_tpot_ms")->n, 0);
  EXPECT_EQ(value_of(none, "mean_ttft_ms"), 10.0);

  MetricsCollector both(MetricsConfig{});
  feed(both, finished(0, 0, 10, 10, 1));
  feed(both, finished(1, 0, 10, 30, 3));  // (30 - 10) / 2
  const RunStatistics one = finish(both, 30);
  EXPECT_EQ(value_of(one, "mean_tpot_ms"), 10.0);
  EXPECT_EQ(one.find("mean_tpot_ms")->n, 1);
  EXPECT_EQ(one.find("mean_ttft_ms")->n, 2);
}

TEST(Metrics, OnlyFinishedRequests_EnterLatencies) {
  MetricsCollector collector(MetricsConfig{});
  feed(collector, finished(0, 0, 10, 20, 2));
  std::uint64_t index = 1;
  for (const Outcome outcome : {Outcome::rejected, Outcome::timed_out, Outcome::unfinished}) {
    RequestRecord record = finished(index++, 0, 500, 900, 9);
    record.outcome = outcome;
    feed(collector, record);
  }
  const RunStatistics s = finish(collector, 1000);
  EXPECT_EQ(s.all.submitted, 4);
  EXPECT_EQ(s.all.finished, 1);
  EXPECT_EQ(s.all.rejected, 1);
  EXPECT_EQ(s.all.timed_out, 1);
  EXPECT_EQ(s.all.unfinished, 1);
  EXPECT_EQ(value_of(s, "max_e2e_ms"), 20.0);
  EXPECT_EQ(value_of(s, "output_tokens"), 2.0);
  EXPECT_EQ(value_of(s, "request_throughput_per_s"), 1.0);
}

TEST(Metrics, EmptyRun_HasNoLatenciesAndNoThroughput) {
  const RunStatistics s = finish(MetricsCollector(MetricsConfig{}), 0);
  EXPECT_FALSE(s.find("mean_ttft_ms")->value.has_value());
  EXPECT_FALSE(s.find("request_throughput_per_s")->value.has_value());
  EXPECT_FALSE(s.find("prefix_cache_hit_fraction")->value.has_value());
  EXPECT_EQ(value_of(s, "duration_s"), 0.0);
  EXPECT_EQ(value_of(s, "iterations"), 0.0);
}

TEST(Metrics, Itl_IsWeightedByTokens) {
  // 3 gaps of 10 ms and 1 of 30 ms: mean 60 / 4 = 15; squares 3 * 25 + 225 = 300, / 4 = 75. p99: rank 2.97 -> 10 + 0.97
  // * 20.
  MetricsCollector collector(MetricsConfig{});
  collector.token_gap(Duration(10 * kMs), 3, at_ms(20));
  collector.token_gap(Duration(30 * kMs), 1, at_ms(50));
  collector.token_gap(Duration(99 * kMs), 0, at_ms(99));  // nobody emitted
  const RunStatistics s = finish(collector, 100);
  EXPECT_EQ(s.find("mean_itl_ms")->n, 4);
  EXPECT_EQ(value_of(s, "mean_itl_ms"), 15.0);
  EXPECT_DOUBLE_EQ(value_of(s, "std_itl_ms"), std::sqrt(75.0));
  EXPECT_EQ(value_of(s, "min_itl_ms"), 10.0);
  EXPECT_EQ(value_of(s, "max_itl_ms"), 30.0);
  EXPECT_NEAR(value_of(s, "p99_itl_ms"), 29.4, 0.001 * 29.4);
  EXPECT_EQ(s.find("p99_itl_ms")->relative_error, QuantileSketch::kRelativeError);
  EXPECT_EQ(s.find("mean_itl_ms")->relative_error, 0.0);
}

TEST(Metrics, Itl_OfEqualGaps_HasNoSpread) {
  MetricsCollector collector(MetricsConfig{});
  for (int i = 1; i <= 1000; ++i) collector.token_gap(Duration(23'456'789), 256, SimTime(i * 23'456'789LL));
  const RunStatistics s = finish(collector, 100'000);
  EXPECT_EQ(value_of(s, "std_itl_ms"), 0.0);
  EXPECT_EQ(value_of(s, "mean_itl_ms"), 23.456789);
  EXPECT_EQ(value_of(s, "p99_itl_ms"), 23.456789);  // a quantile never leaves [min, max]
}

TEST(Metrics, BeyondTheExactLimit_OnlyQuantilesAreApproximate) {
  MetricsConfig sketched;
  sketched.exact_limit = 100;
  MetricsCollector exact(MetricsConfig{});
  MetricsCollector approximate(sketched);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const auto k = static_cast<std::int64_t>(i);
    const RequestRecord record = finished(i, k, k + 5 + (k * 37) % 400, k + 500 + (k * 91) % 3000, 1 + k % 50, 400);
    feed(exact, record);
    feed(approximate, record);
  }
  const RunStatistics a = finish(exact, 5000);
  const RunStatistics b = finish(approximate, 5000);
  ASSERT_EQ(a.metrics.size(), b.metrics.size());
  for (std::size_t i = 0; i < a.metrics.size(); ++i) {
    ASSERT_EQ(a.metrics[i].name, b.metrics[i].name);
    ASSERT_EQ(a.metrics[i].n, b.metrics[i].n);
    ASSERT_EQ(a.metrics[i].value.has_value(), b.metrics[i].value.has_value());
    if (!a.metrics[i].value) continue;
    const double tolerance = b.metrics[i].relative_error > 0.0 ? 0.001 : 1e-7;  // sums of whole nanoseconds
    EXPECT_NEAR(*b.metrics[i].value, *a.metrics[i].value, tolerance * *a.metrics[i].value) << a.metrics[i].name;
  }
  EXPECT_EQ(a.find("p99_ttft_ms")->relative_error, 0.0);
  EXPECT_EQ(b.find("p99_ttft_ms")->relative_error, 0.001);
}

TEST(Metrics, ExactLimit_ItselfIsStillExact) {
  MetricsConfig config;
  config.exact_limit = 2;
  MetricsCollector collector(config);
  feed(collector, finished(0, 0, 10, 20, 2));
  feed(collector, finished(1, 0, 10, 20, 2));
  EXPECT_EQ(finish(collector, 20).find("p99_ttft_ms")->relative_error, 0.0);
  feed(collector, finished(2, 0, 10, 20, 2));
  EXPECT_GT(finish(collector, 20).find("p99_ttft_ms")->relative_error, 0.0);
}

TEST(Metrics, WarmupOfRequests_StartsAtTheFirstMeasuredArrival) {
  MetricsConfig config;
  config.warmup.kind = Span::Kind::requests;
  config.warmup.requests = 2;
  MetricsCollector collector(config);
  EXPECT_EQ(collector.begin(), kNever);
  collector.submitted(0, at_ms(0));
  collector.submitted(1, at_ms(100));
  collector.token_gap(Duration(kMs), 1, at_ms(150));  // before the span
  EXPECT_EQ(collector.begin(), kNever);
  collector.submitted(2, at_ms(200));
  EXPECT_EQ(collector.begin(), at_ms(200));
  collector.submitted(3, at_ms(300));
  collector.token_gap(Duration(kMs), 1, at_ms(250));
  // Request 1 ends inside the span but was submitted before it.
  collector.ended(finished(0, 0, 10, 50, 2));
  collector.ended(finished(1, 100, 900, 1000, 2));
  collector.ended(finished(2, 200, 210, 1000, 2));
  collector.ended(finished(3, 300, 330, 1200, 2));
  const RunStatistics s = finish(collector, 1200);
  EXPECT_EQ(s.all.finished, 4);
  EXPECT_EQ(s.measured.submitted, 2);
  EXPECT_EQ(s.measured.finished, 2);
  EXPECT_EQ(value_of(s, "duration_s"), 1.0);  // 1200 - 200 ms
  EXPECT_EQ(value_of(s, "mean_ttft_ms"), 20.0);
  EXPECT_EQ(s.find("mean_itl_ms")->n, 1);
}

// The span from 200 to 1200 ms serves what came before it, too. Of request 0, which ends in the warm-up, it serves
// nothing; of request 1 the last two of three tokens; of request 2 all three; of request 3, whose client gave up, one.
TEST(Metrics, Throughput_CountsWhatTheSpanServesToAnyRequest) {
  MetricsConfig config;
  config.warmup.kind = Span::Kind::requests;
  config.warmup.requests = 2;
  MetricsCollector collector(config);
  collector.submitted(0, at_ms(0));
  collector.submitted(1, at_ms(100));
  collector.token_gap(Duration(kMs), 2, at_ms(50));
  collector.ended(finished(0, 0, 10, 50, 3));
  collector.submitted(2, at_ms(200));
  collector.submitted(3, at_ms(300));
  collector.token_gap(Duration(kMs), 1, at_ms(200));
  collector.token_gap(Duration(kMs), 1, at_ms(1000));
  collector.ended(finished(1, 100, 150, 1000, 3));
  RequestRecord late = finished(3, 300, 400, 1100, 1);
  late.outcome = Outcome::timed_out;
  collector.ended(late);
  collector.token_gap(Duration(kMs), 2, at_ms(1200));
  collector.ended(finished(2, 200, 210, 1200, 3));
  const RunStatistics s = finish(collector, 1200);
  EXPECT_EQ(value_of(s, "duration_s"), 1.0);
  EXPECT_EQ(value_of(s, "request_throughput_per_s"), 2.0);         // 1 and 2
  EXPECT_EQ(value_of(s, "output_throughput_tokens_per_s"), 6.0);   // 2 + 3 + 1
  EXPECT_EQ(value_of(s, "total_throughput_tokens_per_s"), 206.0);  // prompts of 2 and 3
  EXPECT_EQ(value_of(s, "output_tokens"), 3.0) << "of finished measured requests, as latencies";
}

TEST(Metrics, WarmupOfAShare_RoundsToWholeRequests) {
  // 7% of 100 is 7.000000000000001 in doubles; it must drop 7 requests, not 8.
  MetricsConfig config;
  config.warmup.kind = Span::Kind::share;
  config.warmup.share = 0.07;
  config.expected_requests = 100;
  MetricsCollector collector(config);
  for (std::uint64_t i = 0; i < 100; ++i) feed(collector, finished(i, static_cast<std::int64_t>(i), 200, 300, 2));
  EXPECT_EQ(finish(collector, 300).measured.submitted, 93);
  EXPECT_EQ(collector.begin(), at_ms(7));
  config.expected_requests = -1;
  EXPECT_THROW(MetricsCollector{config}, ConfigError);
}

TEST(Metrics, WarmupOfTime_DropsWhatArrivesInIt) {
  MetricsConfig config;
  config.warmup.kind = Span::Kind::time;
  config.warmup.time = Duration(100 * kMs);
  MetricsCollector collector(config);
  EXPECT_EQ(collector.begin(), at_ms(100));
  feed(collector, finished(0, 99, 150, 200, 2));
  feed(collector, finished(1, 100, 160, 300, 2));
  const RunStatistics s = finish(collector, 300);
  EXPECT_EQ(s.measured.finished, 1);
  EXPECT_EQ(value_of(s, "duration_s"), 0.2);
  EXPECT_EQ(value_of(s, "mean_ttft_ms"), 60.0);
}

TEST(Metrics, WarmupLongerThanTheRun_LeavesAnEmptySpan) {
  MetricsConfig config;
  config.warmup.kind = Span::Kind::requests;
  config.warmup.requests = 10;
  MetricsCollector collector(config);
  feed(collector, finished(0, 0, 10, 20, 2));
  const RunStatistics s = finish(collector, 20);
  EXPECT_EQ(s.span, Duration(0));
  EXPECT_EQ(s.all.finished, 1);
  EXPECT_EQ(s.measured.submitted, 0);
  EXPECT_FALSE(s.find("request_throughput_per_s")->value.has_value());
}

TEST(Metrics, Goodput_CountsRequestsThatMeetEverySlo) {
  std::vector<Problem> problems;
  MetricsConfig config;
  config.goodput = parse_conditions("ttft_ms<50,tpot_ms<=10,p99_ttft_ms<1", "--slo", true, problems);
  MetricsCollector collector(config);
  feed(collector, finished(0, 0, 49, 69, 3));  // TTFT 49, TPOT 10: good; the run-level SLO does not count
  feed(collector, finished(1, 0, 50, 60, 3));  // TTFT at its limit: not good
  feed(collector, finished(2, 0, 10, 33, 3));  // TPOT 11.5: not good
  feed(collector, finished(3, 0, 10, 10, 1));  // one token, no TPOT: good
  RequestRecord rejected = finished(4, 0, 1, 2, 2);
  rejected.outcome = Outcome::rejected;
  feed(collector, rejected);
  const RunStatistics s = finish(collector, 500);
  EXPECT_EQ(value_of(s, "goodput_requests_per_s"), 4.0);  // 2 / 0.5 s
  EXPECT_EQ(value_of(s, "slo_met_fraction"), 0.4);        // 2 of 5 submitted
  EXPECT_EQ(s.find("slo_met_fraction")->n, 5);
}

// A value must be below its limit, from the run or from the request; a value at the limit misses it.
TEST(Metrics, Goodput_TakesARequestsOwnLimitInPlaceOfTheRuns) {
  std::vector<Problem> problems;
  MetricsConfig config;
  config.goodput = parse_conditions("ttft_ms<5", "--slo", true, problems);
  // TTFT 10 ms, TPOT (30 - 10) / 2 = 10 ms, end to end 30 ms.
  const auto good = [&](const RequestSlo& own) {
    MetricsCollector collector(config);
    RequestRecord record = finished(0, 0, 10, 30, 3);
    record.traits.slo = own;
    feed(collector, record);
    return value_of(finish(collector, 1000), "goodput_requests_per_s");
  };
  const auto ms = [](std::int64_t count) { return Duration(count * kMs); };
  EXPECT_EQ(good({}), 0.0) << "the run's limit is 5 ms";
  EXPECT_EQ(good({.ttft = ms(11)}), 1.0);
  EXPECT_EQ(good({.ttft = ms(10)}), 0.0);
  EXPECT_EQ(good({.ttft = ms(11), .tpot = ms(10)}), 0.0);
  EXPECT_EQ(good({.ttft = ms(11), .tpot = ms(11)}), 1.0);
  EXPECT_EQ(good({.ttft = ms(11), .e2e = ms(30)}), 0.0);
  EXPECT_EQ(good({.ttft = ms(11), .e2e = ms(31)}), 1.0);
}

TEST(Metrics, Goodput_OfNobody_IsZeroAndWithoutSlosAbsent) {
  std::vector<Problem> problems;
  MetricsConfig config;
  config.goodput = parse_conditions("ttft_ms<5", "--slo", true, problems);
  MetricsCollector collector(config);
  feed(collector, finished(0, 0, 10, 20, 2));
  EXPECT_EQ(value_of(finish(collector, 20), "goodput_requests_per_s"), 0.0);
  EXPECT_EQ(finish(MetricsCollector(MetricsConfig{}), 20).find("goodput_requests_per_s"), nullptr);
}

TEST(Metrics, EngineSums_BecomeMeansAndFractions) {
  EngineTotals engine;
  engine.iterations = 7;
  engine.batch_time = 12.0;  // / 4 s busy = 3 requests
  engine.busy_time = 4.0;
  engine.waiting_time = 20.0;  // / 10 s span = 2 requests
  engine.kv_time = 250.0;      // / (10 s * 100 blocks) = 0.25
  engine.peak_kv_fraction = 0.8;
  engine.peak_batch = 5;
  engine.peak_waiting = 6;
  engine.preempted_recompute = 1;
  engine.preempted_swap = 2;
  engine.moved_h2d = Bytes(3);
  engine.moved_d2h = Bytes(4);
  engine.prefix_hit = Tokens(30);
  engine.prefix_asked = Tokens(120);
  engine.resource_time[static_cast<std::size_t>(Resource::load)] = 6.0;
  engine.resource_time[static_cast<std::size_t>(Resource::memory)] = 3.0;
  engine.resource_time[static_cast<std::size_t>(Resource::cpu_attention)] = 1.0;
  const RunStatistics s = finish(MetricsCollector(MetricsConfig{}), 10'000, engine);
  EXPECT_EQ(value_of(s, "iterations"), 7.0);
  EXPECT_EQ(value_of(s, "mean_batch_requests"), 3.0);
  EXPECT_EQ(value_of(s, "peak_batch_requests"), 5.0);
  EXPECT_EQ(value_of(s, "mean_waiting_requests"), 2.0);
  EXPECT_EQ(value_of(s, "peak_waiting_requests"), 6.0);
  EXPECT_EQ(value_of(s, "mean_gpu_kv_fraction"), 0.25);
  EXPECT_EQ(value_of(s, "peak_gpu_kv_fraction"), 0.8);
  EXPECT_FALSE(s.find("mean_host_kv_fraction")->value.has_value());  // there is no host tier
  EXPECT_EQ(value_of(s, "recompute_preemptions"), 1.0);
  EXPECT_EQ(value_of(s, "swap_preemptions"), 2.0);
  EXPECT_EQ(value_of(s, "moved_h2d_bytes"), 3.0);
  EXPECT_EQ(value_of(s, "moved_d2h_bytes"), 4.0);
  EXPECT_EQ(value_of(s, "prefix_cache_hit_fraction"), 0.25);
  EXPECT_EQ(value_of(s, "load_time_fraction"), 0.6);
  EXPECT_EQ(value_of(s, "memory_time_fraction"), 0.3);
  EXPECT_EQ(value_of(s, "cpu_attention_time_fraction"), 0.1);
  EXPECT_EQ(value_of(s, "network_time_fraction"), 0.0);
}

// Two replicas over 10 s, of which the second was down for 2 s: 18 s in all. The first ran for 4 s, the second for 2.
TEST(Metrics, ReplicasAreMeansOrSums) {
  EngineTotals engine;
  engine.iterations = 7;
  engine.busy_time = 6.0;
  engine.batch_time = 12.0;    // / 6 s busy = 2 requests
  engine.waiting_time = 36.0;  // / 18 s = 2 requests
  engine.kv_time = 250.0;      // / (10 s * 100 blocks of both)
  engine.peak_kv_fraction = 0.5;
  engine.resource_time[static_cast<std::size_t>(Resource::load)] = 12.0;
  engine.resource_time[static_cast<std::size_t>(Resource::memory)] = 6.0;
  std::vector<ReplicaStatistics> replicas(2);
  replicas[0].engine.busy_time = 4.0;
  replicas[1].engine.busy_time = 2.0;
  replicas[1].down_time = 2.0;
  MetricsCollector collector{MetricsConfig{}};
  const RunStatistics s = collector.finish(at_ms(10'000), engine, Blocks(100), Blocks(0), true, {}, replicas);
  EXPECT_EQ(s.replica_time(), 18.0);
  EXPECT_EQ(value_of(s, "mean_batch_requests"), 2.0);
  EXPECT_EQ(value_of(s, "mean_waiting_requests"), 2.0);
  EXPECT_EQ(value_of(s, "peak_gpu_kv_fraction"), 0.5);
  EXPECT_DOUBLE_EQ(value_of(s, "load_time_fraction"), 12.0 / 18.0);
  EXPECT_DOUBLE_EQ(value_of(s, "memory_time_fraction"), 6.0 / 18.0);
  EXPECT_DOUBLE_EQ(value_of(s, "replica_imbalance"), 4.0 / 3.0);
  EXPECT_EQ(s.find("decode_replica_imbalance"), nullptr);
  EXPECT_DOUBLE_EQ(find_bottleneck(s, 256).share, 12.0 / 18.0);
}

// Pools of two and one: 4 s over a mean of 3, and 5 s over itself. Three transfers.
TEST(Metrics, PoolsCountApart) {
  std::vector<ReplicaStatistics> replicas(3);
  for (std::size_t i = 0; i < 3; ++i) replicas[i].engine.busy_time = std::array{4.0, 2.0, 5.0}[i];
  replicas[2].pool = 1;
  const HandoverTotals handover{.transfers = 3, .bytes = Bytes(700), .waited = 0.006, .moved = 0.0015};
  MetricsCollector collector{MetricsConfig{}};
  const RunStatistics s = collector.finish(at_ms(10'000), {}, Blocks(1), Blocks(0), true, {}, replicas, handover);
  EXPECT_DOUBLE_EQ(value_of(s, "replica_imbalance"), 4.0 / 3.0);
  EXPECT_DOUBLE_EQ(value_of(s, "decode_replica_imbalance"), 1.0);
  EXPECT_EQ(value_of(s, "handed_over_bytes"), 700.0);
  EXPECT_DOUBLE_EQ(value_of(s, "mean_handover_wait_ms"), 2.0);
  EXPECT_DOUBLE_EQ(value_of(s, "mean_handover_ms"), 0.5);
  const RunStatistics both = combine_replications({s, s});
  EXPECT_EQ(both.handover->transfers, 6);
  EXPECT_EQ(both.handover->bytes, Bytes(1400));
  EXPECT_EQ(both.replicas[2].replications, 2);
}

// Client 4: TTFT 10 and 30 ms, mean 20, p99 at rank 0.99: 10 + 0.99 * 20. Client 2: 50 ms. Client 9 finished nothing.
TEST(Metrics, Clients_AreListedInOrderWithTheirOwnLatencies) {
  MetricsCollector collector(MetricsConfig{});
  std::uint64_t index = 0;
  for (const auto& [client, ttft] : {std::pair{4U, 10}, std::pair{2U, 50}, std::pair{4U, 30}, std::pair{9U, 70}}) {
    RequestRecord record = finished(index++, 0, ttft, 100, 5);
    record.client = client;
    if (client == 9) record.outcome = Outcome::timed_out;
    feed(collector, record);
  }
  const FairnessTotals fairness{
      .max_service_difference = 12, .observations = 3, .clients = {{4, 60, Duration(2)}, {11, 30, Duration(1)}}};
  const RunStatistics s = collector.finish(at_ms(100), {}, Blocks(1), Blocks(0), true, fairness);
  ASSERT_EQ(s.clients.size(), 4U);
  EXPECT_EQ(s.clients[0].client, 2U);
  EXPECT_EQ(s.clients[0].p99_ttft_ms, 50.0);
  EXPECT_EQ(s.clients[0].service_tokens, 0.0);
  EXPECT_EQ(s.clients[1].client, 4U);
  EXPECT_EQ(s.clients[1].submitted, 2.0);
  EXPECT_EQ(s.clients[1].mean_ttft_ms, 20.0);
  EXPECT_EQ(s.clients[1].p50_ttft_ms, 20.0);
  EXPECT_DOUBLE_EQ(s.clients[1].p99_ttft_ms.value(), 29.8);
  EXPECT_EQ(s.clients[1].output_tokens, 10.0);
  EXPECT_EQ(s.clients[1].service_tokens, 60.0);
  EXPECT_EQ(s.clients[2].client, 9U);
  EXPECT_EQ(s.clients[2].submitted, 1.0);
  EXPECT_EQ(s.clients[2].finished, 0.0);
  EXPECT_FALSE(s.clients[2].mean_ttft_ms.has_value());
  EXPECT_EQ(s.clients[3].client, 11U) << "served in the span, its request was submitted in the warm-up";
  EXPECT_EQ(s.clients[3].submitted, 0.0);
  EXPECT_EQ(value_of(s, "worst_client_mean_ttft_ms"), 50.0);
  EXPECT_EQ(value_of(s, "worst_client_p99_ttft_ms"), 50.0);
  EXPECT_EQ(s.find("worst_client_mean_ttft_ms")->n, 2);
  EXPECT_EQ(value_of(s, "jain_index"), 1.0);
  EXPECT_EQ(value_of(s, "max_service_difference_tokens"), 12.0);
  EXPECT_EQ(s.find("max_service_difference_tokens")->n, 3);
}

TEST(Metrics, ClientsBeyondTheExactLimit_HaveMeansAndNoQuantiles) {
  MetricsConfig config;
  config.exact_limit = 3;
  MetricsCollector collector(config);
  for (std::uint64_t i = 0; i < 4; ++i) {
    RequestRecord record = finished(i, 0, 10 + 10 * static_cast<std::int64_t>(i), 100, 5);
    record.client = static_cast<std::uint32_t>(i % 2);
    feed(collector, record);
  }
  const RunStatistics s = finish(collector, 100);
  ASSERT_EQ(s.clients.size(), 2U);
  EXPECT_EQ(s.clients[1].mean_ttft_ms, 30.0);  // 20 and 40
  EXPECT_FALSE(s.clients[1].p50_ttft_ms.has_value());
  EXPECT_EQ(value_of(s, "worst_client_mean_ttft_ms"), 30.0);
  EXPECT_FALSE(s.find("worst_client_p99_ttft_ms")->value.has_value());
}

TEST(Metrics, Names_AreUniqueAndDefined) {
  std::vector<Problem> problems;
  MetricsConfig config;
  config.goodput = parse_conditions("ttft_ms<5", "--slo", true, problems);
  EngineTotals engine;
  engine.layers.emplace();  // of a policy that streams layers, and one that attends on the CPU: it has them all
  engine.on_cpu.emplace();
  for (const FigureDefinition& figure : PolicyRegistry::instance().figures()) engine.figures.push_back({figure, 1.0});
  // Of two pools, too.
  const RunStatistics s = MetricsCollector(config).finish(SimTime(0), engine, Blocks(100), Blocks(0), true, {},
                                                          std::vector<ReplicaStatistics>(2), HandoverTotals());
  std::size_t expected = 0;
  for (const MetricDefinition& d : metric_definitions()) expected += d.distribution ? 9 : d.series ? 0 : 1;
  EXPECT_EQ(s.metrics.size(), expected - 2) << "cost and energy, which follow from prices (sim/study/prices.hpp)";
  for (const Metric& metric : s.metrics) EXPECT_EQ(s.find(metric.name), &metric);
  EXPECT_EQ(s.find("ttft_ms"), nullptr);
}

// One sum of each kind that a policy with streamed layers adds, in seconds, blocks and bytes.
TEST(Metrics, LayerSums_BecomeRatiosAndFractions) {
  EngineTotals engine;
  engine.busy_time = 5.0;
  LayerTotals& layers = engine.layers.emplace();
  layers.capacity_time = 300.0;   // / 10 s = 30 blocks on average
  layers.resident_blocks = 20.0;  // expansion 30 / 20
  layers.peak_capacity = Blocks(40);
  layers.last_capacity = Blocks(25);
  layers.stall_time = 1.0;                 // of 5 s
  layers.h2d_busy = Duration(4000 * kMs);  // of 10 s
  layers.d2h_busy = Duration(2000 * kMs);
  const RunStatistics s = finish(MetricsCollector(MetricsConfig{}), 10'000, engine);
  EXPECT_EQ(value_of(s, "mean_expansion_ratio"), 1.5);
  EXPECT_EQ(value_of(s, "peak_expansion_ratio"), 2.0);
  EXPECT_EQ(value_of(s, "final_expansion_ratio"), 1.25);
  EXPECT_EQ(value_of(s, "layer_stall_fraction"), 0.2);
  EXPECT_EQ(value_of(s, "h2d_link_fraction"), 0.4);
  EXPECT_EQ(value_of(s, "d2h_link_fraction"), 0.2);
  EXPECT_EQ(finish(MetricsCollector(MetricsConfig{}), 10'000).find("h2d_link_fraction"), nullptr);
}

// A policy's own figures come last, with its units; one without a value is null. Nothing else is known of them.
TEST(Metrics, FiguresOfAPolicy_AreListedAsItDeclaresThem) {
  EngineTotals engine;
  engine.iterations = 7;
  engine.figures = {{{"mean_naps_s", "s", "Naps."}, 2.5}, {{"max_naps_s", "s", "Longest nap."}, std::nullopt}};
  const RunStatistics s = finish(MetricsCollector(MetricsConfig{}), 10'000, engine);
  ASSERT_GE(s.metrics.size(), 2U);
  const Metric& mean = s.metrics[s.metrics.size() - 2];
  EXPECT_EQ(mean.name, "mean_naps_s");
  EXPECT_EQ(mean.unit, "s");
  EXPECT_EQ(mean.value, 2.5);
  EXPECT_EQ(mean.n, 7);
  EXPECT_EQ(s.metrics.back().name, "max_naps_s");
  EXPECT_FALSE(s.metrics.back().value.has_value());
}

TEST(Metrics, LostRequests_AreABrokenInvariant) {
  MetricsCollector collector(MetricsConfig{});
  collector.submitted(0, at_ms(0));
  EXPECT_THROW(static_cast<void>(finish(collector, 10)), InvariantError);
  EXPECT_NO_THROW(static_cast<void>(collector.finish(at_ms(10), {}, Blocks(1), Blocks(0), false)));
  EXPECT_THROW(collector.ended(finished(0, 20, 10, 30, 2)), InvariantError);  // a first token before the arrival
}

}  // namespace
}  // namespace spillway
