// Time series: a run by hand, the joining of bins, and sums that agree with the engine's books.
#include "sim/report/time_series.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "sim/cli/arguments.hpp"
#include "sim/engine/iteration_runner.hpp"
#include "sim/study/replicated_run.hpp"
#include "tests/unit/policy_test.hpp"

namespace spillway {
namespace {

using testing::DoubleEq;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::StartsWith;

/// The values of an instance by column.
std::map<std::string, std::vector<double>> by_column(const TimeSeries& series, std::size_t instance = 0) {
  std::map<std::string, std::vector<double>> columns;
  const std::vector<SeriesColumn> names = series.columns();
  const std::vector<std::vector<double>> values = series.values(instance);
  for (std::size_t i = 0; i < names.size(); ++i) columns[names[i].name] = values[i];
  return columns;
}

const std::vector<std::string> kTiers{"gpu", "host"};

// Bins of 1 ms; the run ends at 2.5 ms. In [0, 1.5 ms) 4 requests run and 2 wait, and 30 of 40 blocks are in use; in
// [1.5 ms, 2.5 ms) 1, 0 and 10. An iteration in [0.5 ms, 2 ms) computes 300 tokens of prompts and 3 decodes: 100 and 1
// in [0.5, 1), 200 and 2 in [1, 2). A copy of 4,000 bytes in [0.75 ms, 1.75 ms): 1,000 and 3,000 bytes. The GPU waits
// for it from 1.25 ms to 1.75 ms.
TEST(TimeSeries, ByHand) {
  TimeSeries series;
  InstanceObserver& observer = *series.observer(0);
  observer.begins(kTiers, SimTime(0));
  const std::vector<TierLevel> full{{Blocks(40), Blocks(30)}, {Blocks(0), Blocks(0)}};
  const std::vector<TierLevel> less{{Blocks(40), Blocks(10)}, {Blocks(0), Blocks(0)}};
  observer.sub_batch({.decodes = 1, .prompt = Tokens(300)});
  observer.sub_batch({.decodes = 2});
  observer.executed(ExecutedIteration{.start = SimTime(500'000), .end = SimTime(2'000'000)});
  observer.copied({.stream = Stream::h2d, .bytes = Bytes(4000)}, SimTime(750'000), SimTime(1'750'000));
  observer.waited(Wait::requests, SimTime(1'250'000), SimTime(1'750'000));
  observer.lasted(SimTime(0), SimTime(1'500'000), {4, 2, full});
  observer.lasted(SimTime(1'500'000), SimTime(2'500'000), {1, 0, less});
  series.finish();

  EXPECT_EQ(series.width(), Duration(1'000'000));
  ASSERT_EQ(series.bins(), 3U);
  auto of = by_column(series);
  EXPECT_THAT(of["running_requests"], ElementsAre(4.0, 2.5, 1.0));
  EXPECT_THAT(of["waiting_requests"], ElementsAre(2.0, 1.0, 0.0));
  EXPECT_THAT(of["gpu_kv_blocks"], ElementsAre(30.0, 20.0, 10.0));
  EXPECT_THAT(of["gpu_kv_fraction"], ElementsAre(0.75, 0.5, 0.25));
  EXPECT_TRUE(std::isnan(of["host_kv_fraction"][0])) << "a tier without blocks has no share of them";
  EXPECT_THAT(of["busy_fraction"], ElementsAre(0.5, 1.0, 0.0));
  EXPECT_THAT(of["prefill_tokens_per_s"], ElementsAre(DoubleEq(100e3), DoubleEq(200e3), 0.0));
  EXPECT_THAT(of["decode_tokens_per_s"], ElementsAre(DoubleEq(1e3), DoubleEq(2e3), 0.0));
  EXPECT_THAT(of["h2d_busy_fraction"], ElementsAre(0.25, 0.75, 0.0));
  EXPECT_THAT(of["h2d_bytes_per_s"], ElementsAre(DoubleEq(1e6), DoubleEq(3e6), 0.0));
  EXPECT_THAT(of["d2h_busy_fraction"], ElementsAre(0.0, 0.0, 0.0));
  EXPECT_THAT(of["waits_for_kv_fraction"], ElementsAre(0.0, 0.5, 0.0));

  // A row for each bin: the last one is half as long. No value is empty, which is not 0.
  const std::string csv = series.csv();
  EXPECT_THAT(csv, StartsWith("instance,begin_s,end_s,running_requests,waiting_requests,busy_fraction,"));
  EXPECT_THAT(csv, testing::HasSubstr("\n0,0.002,0.0025,1,0,0,0,0,"));
  EXPECT_THAT(csv, testing::EndsWith(",10,0.25,0,\n"));

  // Joined in twos, then in fives: one bin of 2.5 ms.
  series.coarsen(2);
  EXPECT_EQ(series.width(), Duration(2'000'000));
  EXPECT_THAT(by_column(series)["running_requests"], ElementsAre(3.25, 1.0));
  series.coarsen(1);
  EXPECT_EQ(series.width(), Duration(10'000'000));
  EXPECT_THAT(by_column(series)["running_requests"], ElementsAre((4 * 1.5 + 1 * 1.0) / 2.5));
  EXPECT_THAT(by_column(series)["prefill_tokens_per_s"], ElementsAre(DoubleNear(300 / 2.5e-3, 1e-6)));
}

// What was executed ahead does not happen after a stop: of 100 tokens in [0, 1 ms) a quarter by 0.25 ms. A copy that
// is under way then is known later: of 10 bytes in [0, 0.5 ms) half.
TEST(TimeSeries, Stop_CutsWhatLiesBeyond) {
  TimeSeries series;
  InstanceObserver& observer = *series.observer(0);
  observer.begins(kTiers, SimTime(0));
  observer.sub_batch({.prompt = Tokens(100)});
  observer.executed(ExecutedIteration{.start = SimTime(0), .end = SimTime(1'000'000)});
  const std::vector<TierLevel> tiers(2);
  observer.lasted(SimTime(0), SimTime(250'000), {1, 0, tiers});
  observer.stopped(SimTime(250'000));
  observer.copied({.stream = Stream::d2h, .bytes = Bytes(10)}, SimTime(0), SimTime(500'000));
  series.finish();
  EXPECT_EQ(series.end(), SimTime(250'000));
  EXPECT_THAT(by_column(series)["prefill_tokens_per_s"], ElementsAre(DoubleEq(25 / 0.25e-3)));
  EXPECT_THAT(by_column(series)["d2h_bytes_per_s"], ElementsAre(DoubleEq(5 / 0.25e-3)));
}

// However long the run, the rows are bounded, and the sums stay.
TEST(TimeSeries, LongRun_JoinsBins) {
  TimeSeries series;
  InstanceObserver& observer = *series.observer(0);
  observer.begins(kTiers, SimTime(0));
  const std::vector<TierLevel> tiers(2);
  constexpr std::int64_t kStep = 700'000'000;
  for (std::int64_t i = 0; i < 5000; ++i) {
    observer.lasted(SimTime(i * kStep), SimTime((i + 1) * kStep), {i % 2, 3, tiers});
  }
  series.finish();
  // 3,500 s: 1,750 bins of 2 s.
  EXPECT_EQ(series.width(), Duration(2'000'000'000));
  EXPECT_EQ(series.bins(), 1750U);
  auto of = by_column(series);
  double sum = 0.0;
  for (const double running : of["running_requests"]) sum += running / 1750.0;
  EXPECT_NEAR(sum, 0.5, 1e-9);
  EXPECT_THAT(of["waiting_requests"], testing::Each(3.0));
}

// A real run: the means over all bins are the metrics, and tokens and bytes are those of the books.
TEST(TimeSeries, AgreesWithTheMetrics) {
  const std::vector<std::string> run{"policy=pie",        "model=llama-3.1-8b",    "hardware=a10-24gb",
                                     "workload.rate=3",   "workload.requests=100", "workload.trace=sharegpt",
                                     "policy.expansion=2"};
  Assembly assembly = assemble(cli::resolve_arguments(run, {}, {}));
  TimeSeries series;
  ReplicationHooks hooks;
  hooks.observer = [&](std::size_t replica) { return series.observer(replica); };
  const RunStatistics statistics = run_replications(assembly, 1, 1, {}, hooks).statistics;
  series.finish();
  auto of = by_column(series);
  const auto integral = [&](const std::string& column) {
    double sum = 0.0;
    for (std::size_t bin = 0; bin < series.bins(); ++bin) {
      sum += of[column][bin] * to_seconds(series.end_of(bin) - series.begin_of(bin));
    }
    return sum;
  };
  const EngineTotals& engine = statistics.engine;
  EXPECT_NEAR(integral("running_requests"), engine.batch_time, 1e-6 * engine.batch_time);
  EXPECT_NEAR(integral("waiting_requests"), engine.waiting_time, 1e-6 * engine.waiting_time + 1e-9);
  EXPECT_NEAR(integral("gpu_kv_blocks"), engine.kv_time, 1e-6 * engine.kv_time);
  EXPECT_NEAR(integral("busy_fraction"), engine.busy_time, 1e-6 * engine.busy_time);
  ASSERT_TRUE(engine.layers);
  EXPECT_GT(engine.moved_h2d, Bytes(0));
  // Bytes count for an iteration when they are issued, in the series while they are under way.
  EXPECT_NEAR(integral("h2d_bytes_per_s"), static_cast<double>(engine.moved_h2d.count()),
              1e-3 * static_cast<double>(engine.moved_h2d.count()));
  EXPECT_NEAR(integral("waits_for_layers_fraction"), engine.layers->stall_time,
              1e-6 * engine.layers->stall_time + 1e-9);
  EXPECT_NEAR(integral("h2d_busy_fraction"), to_seconds(engine.layers->h2d_busy), 1e-3 * engine.busy_time);
}

}  // namespace
}  // namespace spillway
