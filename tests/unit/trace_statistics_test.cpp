#include "traces/trace_statistics.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "sim/core/error.hpp"
#include "tests/unit/trace_test_files.hpp"
#include "traces/generators/quantile_table.hpp"

namespace spillway::traces {
namespace {

TraceRow row_of(std::int64_t input, std::int64_t output) {
  TraceRow row;
  row.input = Tokens(input);
  row.output = row.max_new_tokens = Tokens(output);
  return row;
}

TEST(TraceStatistics, Lengths) {
  TraceStatistics statistics;
  for (std::int64_t i = 1; i <= 101; ++i) statistics.add(row_of(i, 1000));
  statistics.finish();
  EXPECT_EQ(statistics.rows(), 101);
  EXPECT_EQ(statistics.input().mean(), 51.0);
  EXPECT_EQ(statistics.input().quantile(0.5), 51.0);  // exact below 512
  EXPECT_EQ(statistics.input().quantile(0.9), 91.0);
  EXPECT_EQ(statistics.input().max(), 101);
  EXPECT_EQ(statistics.output().quantile(0.5), 1000.0) << "a quantile never exceeds the maximum";
  // Bins: 1, 2-3, 4-7, 8-15, 16-31, 32-63 and 64-101.
  const std::vector<std::int64_t> expected{1, 2, 4, 8, 16, 32, 38};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(statistics.input_histogram()[i], expected[i]) << i;
  EXPECT_EQ(statistics.output_histogram()[9], 101);
  EXPECT_FALSE(statistics.mean_rate()) << "no row has a time";
  EXPECT_FALSE(statistics.gap_cv());
}

TEST(TraceStatistics, GapsAreThoseOfArrivalsInOrderOfTime) {
  // Arrivals at 0, 1, 1.5 and 4 s; the file swaps the middle two. The gaps are 1, 0.5 and 2.5 s. Their mean is 4/3,
  // their variance (1 + 0.25 + 6.25) / 3 - 16/9 = 13/18.
  TraceStatistics statistics;
  for (const std::int64_t ms : {0, 1500, 1000, 4000}) {
    TraceRow row = row_of(1, 1);
    row.arrival = SimTime(ms * 1'000'000);
    statistics.add(row);
  }
  statistics.add(row_of(1, 1));  // without a time
  statistics.finish();
  EXPECT_EQ(statistics.timed_rows(), 4);
  EXPECT_EQ(statistics.first(), SimTime(0));
  EXPECT_EQ(statistics.last(), SimTime(4'000'000'000));
  EXPECT_DOUBLE_EQ(*statistics.mean_rate(), 0.75);
  EXPECT_NEAR(*statistics.gap_cv(), std::sqrt(13.0 / 18.0) / (4.0 / 3.0), 1e-12);
}

TEST(TraceStatistics, ConversationsClientsAndClasses) {
  TraceStatistics statistics;
  // Conversation 7 has three rows, 8 has two and 9 has one. One row belongs to no conversation.
  for (const std::uint64_t conversation : {7U, 8U, 7U, 9U, 8U, 7U}) {
    TraceRow row = row_of(1, 1);
    row.conversation = conversation;
    row.client = static_cast<std::uint32_t>(conversation % 2);
    row.service_class = conversation == 9 ? 2 : 1;
    if (conversation == 7) row.think = Duration(2'000'000'000);
    statistics.add(row);
  }
  statistics.add(row_of(1, 1));
  statistics.finish();
  EXPECT_EQ(statistics.conversations(), 3);
  EXPECT_EQ(statistics.conversation_rows(), 6);
  EXPECT_EQ(statistics.turns(), (std::map<std::int64_t, std::int64_t>{{1, 1}, {2, 1}, {3, 1}}));
  EXPECT_EQ(quantile_of(statistics.turns(), 0.5), 2.0);
  EXPECT_DOUBLE_EQ(quantile_of(statistics.turns(), 0.9), 2.8);
  EXPECT_FALSE(statistics.conversations_cut());
  EXPECT_EQ(statistics.think().count(), 3);
  EXPECT_EQ(statistics.think().quantile(0.5), 2e9);
  EXPECT_EQ(statistics.clients(), 2U);
  EXPECT_EQ(statistics.classes(), (std::map<std::uint32_t, std::int64_t>{{0, 1}, {1, 5}, {2, 1}}));
}

TEST(TraceStatistics, ReuseCountsBlocksThatAnEarlierPromptBeganWith) {
  TraceStatistics statistics;
  const auto add = [&](std::int64_t input, std::vector<std::uint64_t> ids) {
    TraceRow row = row_of(input, 1);
    row.prefix_ids = std::move(ids);
    row.prefix_id_tokens = 32;
    statistics.add(row);
  };
  add(100, {1, 2, 3});  // 6 whole blocks, all with ids: an id of 32 tokens covers two blocks
  add(100, {1, 2, 9});  // 4 of 6 were seen before
  add(100, {5, 2, 3});  // 0 of 6: ids after a different beginning do not match
  add(80, {});          // 5 blocks without ids
  add(40, {1});         // 2 of 2
  statistics.finish();
  EXPECT_EQ(statistics.prompt_blocks(), 6 + 6 + 6 + 5 + 2);
  EXPECT_EQ(statistics.named_blocks(), 6 + 6 + 6 + 2);
  EXPECT_EQ(statistics.reused_blocks(), 4 + 2);
  EXPECT_EQ(statistics.reuse_rows(), 5);
}

TEST(IdSet, TakesEachIdOnce) {
  IdSet ids;
  for (std::uint64_t i = 0; i < 10'000; ++i) EXPECT_TRUE(ids.insert(i * 1024)) << i;
  for (std::uint64_t i = 0; i < 10'000; ++i) EXPECT_FALSE(ids.insert(i * 1024)) << i;
  EXPECT_EQ(ids.size(), 10'000U);
  EXPECT_FALSE(ids.full());
}

TEST(QuantileOf, InterpolatesBetweenRanks) {
  const std::map<std::int64_t, std::int64_t> counts{{1, 3}, {10, 1}};  // 1 1 1 10
  EXPECT_EQ(quantile_of(counts, 0.0), 1.0);
  EXPECT_EQ(quantile_of(counts, 0.5), 1.0);
  EXPECT_DOUBLE_EQ(quantile_of(counts, 0.75), 1.0 + 9.0 * 0.25);
  EXPECT_EQ(quantile_of(counts, 1.0), 10.0);
}

}  // namespace
}  // namespace spillway::traces
