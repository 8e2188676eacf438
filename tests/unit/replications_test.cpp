// Means over replications and the sentence that names the bottleneck.
#include <gtest/gtest.h>

#include <cmath>

#include "sim/metrics/metrics.hpp"

namespace spillway {
namespace {

constexpr std::int64_t kMs = 1'000'000;

double value_of(const RunStatistics& statistics, const std::string& name) {
  const Metric* metric = statistics.find(name);
  EXPECT_NE(metric, nullptr) << name;
  if (metric == nullptr || !metric->value) return std::nan("");
  return *metric->value;
}

/// One request that ends at `end`; its answer has one token when its first comes at 30 ms, else two. Milliseconds.
RunStatistics replication(std::int64_t ttft, std::int64_t end) {
  MetricsCollector collector(MetricsConfig{});
  RequestRecord record;
  record.outcome = Outcome::finished;
  record.first_scheduled = SimTime{};
  record.first_token = SimTime(ttft * kMs);
  record.end = SimTime(end * kMs);
  record.generated = Tokens(ttft == 30 ? 1 : 2);
  collector.submitted(0, SimTime{});
  collector.ended(record);
  EngineTotals engine;
  engine.iterations = 2;
  engine.peak_batch = ttft;
  return collector.finish(SimTime(end * kMs), engine, Blocks(100), Blocks(0), true);
}

// 1, nothing and 4: their mean is 2.5, their sum 5, the largest 4. Only a mean has an interval.
TEST(Replications, FiguresOfAPolicy_MergeAsItDeclares) {
  const auto run = [](std::optional<double> value) {
    EngineTotals engine;
    engine.figures = {{{"a", "x", "", {}, Merge::mean}, value},
                      {{"b", "x", "", {}, Merge::sum}, value},
                      {{"c", "x", "", {}, Merge::largest}, value}};
    return MetricsCollector(MetricsConfig{}).finish(SimTime{}, engine, Blocks(1), Blocks(0), true);
  };
  const RunStatistics s = combine_replications({run(1.0), run(std::nullopt), run(4.0)});
  EXPECT_EQ(value_of(s, "a"), 2.5);
  EXPECT_TRUE(s.find("a")->half_width.has_value());
  EXPECT_EQ(value_of(s, "b"), 5.0);
  EXPECT_EQ(value_of(s, "c"), 4.0);
  EXPECT_FALSE(s.find("b")->half_width.has_value());
  EXPECT_FALSE(s.find("c")->half_width.has_value());
  EXPECT_EQ(s.find("c")->n, 2);
  EXPECT_FALSE(combine_replications({run(std::nullopt), run(std::nullopt)}).find("b")->value.has_value());
}

TEST(Replications, Combined_AreMeansWithTIntervals) {
  // TTFT 10, 20, 30: mean 20, sample std 10, t(0.975, 2) = 4.302653, half-width 4.302653 * 10 / sqrt(3).
  // TPOT 90, 80 and none (the third answer has one token): mean 85, std sqrt(50), t(0.975, 1) = 12.706205.
  const RunStatistics s = combine_replications({replication(10, 100), replication(20, 100), replication(30, 100)});
  EXPECT_EQ(value_of(s, "mean_ttft_ms"), 20.0);
  EXPECT_EQ(s.find("mean_ttft_ms")->n, 3);
  EXPECT_DOUBLE_EQ(s.find("mean_ttft_ms")->half_width.value(), 4.302653 * 10.0 / std::sqrt(3.0));
  EXPECT_EQ(value_of(s, "mean_tpot_ms"), 85.0);
  EXPECT_EQ(s.find("mean_tpot_ms")->n, 2);
  EXPECT_DOUBLE_EQ(s.find("mean_tpot_ms")->half_width.value(), 12.706205 * std::sqrt(50.0) / std::sqrt(2.0));
  EXPECT_EQ(s.find("mean_e2e_ms")->half_width, 0.0);
  EXPECT_FALSE(s.find("mean_itl_ms")->value.has_value());
  EXPECT_FALSE(s.find("mean_itl_ms")->half_width.has_value());
  EXPECT_EQ(s.all.finished, 3);
  EXPECT_EQ(s.engine.iterations, 6);
  EXPECT_EQ(s.engine.peak_batch, 30);
  EXPECT_EQ(s.span, Duration(300 * kMs));
}

// Client 1 appears in both runs, client 2 in the first, where it finishes nothing, client 3 in the second.
TEST(Replications, Clients_AreAveragedOverTheRunsInWhichTheyAppear) {
  RunStatistics first;
  first.clients = {{.client = 1, .submitted = 4, .finished = 4, .mean_ttft_ms = 10.0, .service_tokens = 100},
                   {.client = 2, .submitted = 2, .finished = 0, .service_tokens = 30}};
  RunStatistics second;
  second.clients = {{.client = 1, .submitted = 7, .finished = 6, .service_tokens = 50},
                    {.client = 3, .submitted = 1, .finished = 1, .mean_ttft_ms = 8.0, .p99_ttft_ms = 9.0}};
  const RunStatistics s = combine_replications({first, second});
  ASSERT_EQ(s.clients.size(), 3U);
  EXPECT_EQ(s.clients[0].client, 1U);
  EXPECT_EQ(s.clients[0].replications, 2);
  EXPECT_EQ(s.clients[0].submitted, 5.5);
  EXPECT_EQ(s.clients[0].finished, 5.0);
  EXPECT_EQ(s.clients[0].mean_ttft_ms, 10.0) << "one run has a value";
  EXPECT_EQ(s.clients[0].service_tokens, 75.0);
  EXPECT_EQ(s.clients[1].submitted, 2.0);
  EXPECT_EQ(s.clients[1].replications, 1);
  EXPECT_FALSE(s.clients[1].mean_ttft_ms.has_value());
  EXPECT_EQ(s.clients[2].p99_ttft_ms, 9.0);
}

// Sums of layers add and peaks are the largest; the changes of the capacity are those of the first replication.
TEST(Replications, LayersOfEachRun_AreAddedAndTheSeriesIsTheFirst) {
  RunStatistics first;
  first.engine.layers.emplace();
  first.engine.layers->stall_time = 1.0;
  first.engine.layers->peak_capacity = Blocks(30);
  first.engine.layers->changes = {{SimTime{}, Blocks(20)}, {SimTime(5), Blocks(30)}};
  RunStatistics second = first;
  second.engine.layers->peak_capacity = Blocks(25);
  second.engine.layers->changes = {{SimTime{}, Blocks(25)}};
  const RunStatistics s = combine_replications({first, second});
  ASSERT_TRUE(s.engine.layers.has_value());
  EXPECT_EQ(s.engine.layers->stall_time, 2.0);
  EXPECT_EQ(s.engine.layers->peak_capacity, Blocks(30));
  ASSERT_EQ(s.engine.layers->changes.size(), 2U);
  EXPECT_EQ(s.engine.layers->changes[1].capacity, Blocks(30));
}

TEST(Replications, OfOne_IsTheRunItself) {
  const RunStatistics s = combine_replications({replication(10, 100)});
  EXPECT_EQ(value_of(s, "mean_ttft_ms"), 10.0);
  EXPECT_EQ(s.find("mean_ttft_ms")->n, 1);
  EXPECT_FALSE(s.find("mean_ttft_ms")->half_width.has_value());
  EXPECT_THROW(static_cast<void>(combine_replications({})), InvariantError);
}

TEST(Bottleneck, LargestShare_IsNamedWithItsPercentageAndAdvice) {
  const std::array<std::string, kResources> keys{
      "workload.rate", "memory.gpu_kv", "tensor_parallel", "engine.max_num_seqs",       "tensor_parallel",
      "memory.gpu_kv", "memory.gpu_kv", "engine=none",     "policy.cpu_attention=false"};
  for (std::size_t i = 0; i < kResources; ++i) {
    RunStatistics s;
    s.span = Duration(10'000 * kMs);
    s.engine.peak_batch = 1;
    s.engine.resource_time.fill(0.5);
    s.engine.resource_time[i] = 6.5;
    const Bottleneck b = find_bottleneck(s, 1);
    EXPECT_EQ(b.resource, static_cast<Resource>(i));
    EXPECT_EQ(b.share, 0.65);
    EXPECT_FALSE(resource_name(b.resource).empty());
    EXPECT_NE(b.sentence.find("65%"), std::string::npos) << b.sentence;
    EXPECT_NE(b.advice.find(keys[i]), std::string::npos) << b.advice;
  }
}

// KV memory limits 6 of 10 s. In 4 of them the GPU reads its memory, in 2 it computes: 67%.
TEST(Bottleneck, ShortOfKv_TheStreamOfTheBatchesIsNamed) {
  RunStatistics s;
  s.span = Duration(10'000 * kMs);
  s.engine.resource_time[static_cast<std::size_t>(Resource::kv_capacity)] = 6.0;
  s.engine.time_short_of_kv[static_cast<std::size_t>(Resource::memory)] = 4.0;
  s.engine.time_short_of_kv[static_cast<std::size_t>(Resource::compute)] = 2.0;
  EXPECT_EQ(find_bottleneck(s, 1).sentence,
            "KV capacity limits: for 60% of the time requests waited because the GPU's KV memory was full. 67% of that "
            "time went to the GPU's memory bandwidth.");
}

TEST(Bottleneck, AdviceNamesTheBatchLimitOnlyWhereItBound) {
  RunStatistics s;
  s.span = Duration(10'000 * kMs);
  for (const Resource resource : {Resource::memory, Resource::host}) {
    s.engine.resource_time.fill(0.0);
    s.engine.resource_time[static_cast<std::size_t>(resource)] = 6.0;
    s.engine.peak_batch = 20;
    EXPECT_NE(find_bottleneck(s, 20).advice.find("engine.max_num_seqs"), std::string::npos);
    EXPECT_EQ(find_bottleneck(s, 256).advice.find("engine.max_num_seqs"), std::string::npos);
  }
}

// 1% of 200 are 2.
TEST(Bottleneck, RejectionsOfMoreThanOnePercentComeFirst) {
  RunStatistics s;
  s.span = Duration(10'000 * kMs);
  s.measured = {.submitted = 200, .finished = 198, .rejected = 2};
  EXPECT_EQ(find_bottleneck(s, 1).sentence.find("rejected"), std::string::npos);
  s.measured = {.submitted = 200, .finished = 197, .rejected = 3};
  EXPECT_EQ(find_bottleneck(s, 1).sentence.find("3 of 200 requests were rejected"), 0U);
}

TEST(Bottleneck, WithoutAnyTime_SaysSo) {
  const Bottleneck b = find_bottleneck(RunStatistics{}, 1);
  EXPECT_EQ(b.share, 0.0);
  EXPECT_NE(b.sentence.find("no time"), std::string::npos);
}

}  // namespace
}  // namespace spillway
