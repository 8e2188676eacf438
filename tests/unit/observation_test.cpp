#include <gtest/gtest.h>

#include <vector>

#include "sim/cli/arguments.hpp"
#include "sim/study/replicated_run.hpp"

namespace spillway::cli {
namespace {

TEST(Observation, CountsWhatThePassingOfRequestsSays) {
  Assembly assembly = assemble(resolve_arguments(
      {"workload.trace=sharegpt", "workload.requests=80", "workload.rate=60", "engine.max_num_seqs=16"}, {}, {}));
  std::vector<RequestRecord> records;
  std::vector<Observation> seen;
  ReplicationHooks hooks;
  hooks.on_request = [&](std::int64_t, const RequestRecord& record) { records.push_back(record); };
  hooks.on_observation = [&](std::int64_t, const Observation& one) { seen.push_back(one); };
  hooks.observe_every = Duration(100'000'000);
  (void)run_replications(assembly, 1, 1, {}, hooks);
  ASSERT_EQ(records.size(), 80U);
  SimTime last{};
  for (const RequestRecord& record : records) last = std::max(last, record.end);
  // Samples at 0, 0.1 s, ... up to the last request's end.
  ASSERT_EQ(seen.size(), static_cast<std::size_t>(last.ns() / 100'000'000 + 1));
  std::int64_t most_waiting = 0;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const SimTime now(static_cast<std::int64_t>(i) * 100'000'000);
    EXPECT_EQ(seen[i].now, now);
    // No request is preempted here: each waits until it is first scheduled, then runs to its end.
    std::int64_t running = 0;
    std::int64_t waiting = 0;
    for (const RequestRecord& record : records) {
      if (record.arrival > now || record.end <= now) continue;
      (record.first_scheduled <= now ? running : waiting) += 1;
    }
    EXPECT_EQ(seen[i].running, running) << i;
    EXPECT_EQ(seen[i].waiting, waiting) << i;
    EXPECT_EQ(seen[i].gpu_blocks_used > Blocks(0), running > 0) << i;
    most_waiting = std::max(most_waiting, waiting);
  }
  EXPECT_GT(most_waiting, 10) << "the case is no test of the queue";
}

TEST(Observation, CostsTheRunNothingThatIsSeen) {
  const auto statistics = [](bool observed) {
    Assembly assembly = assemble(resolve_arguments({"workload.requests=50", "workload.rate=20"}, {}, {}));
    ReplicationHooks hooks;
    if (observed) hooks.on_observation = [](std::int64_t, const Observation&) {};
    return run_replications(assembly, 1, 1, {}, hooks).statistics;
  };
  const RunStatistics with = statistics(true);
  const RunStatistics without = statistics(false);
  ASSERT_EQ(with.metrics.size(), without.metrics.size());
  for (std::size_t i = 0; i < with.metrics.size(); ++i) EXPECT_EQ(with.metrics[i].value, without.metrics[i].value);
}

}  // namespace
}  // namespace spillway::cli
