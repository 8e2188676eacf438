// The inputs of the attention kernels, and the reference for their results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "cuda_calibrate/cuda/attention_plan.hpp"
#include "cuda_calibrate/cuda/attention_reference.hpp"

namespace spillway::calibrate::gpu {
namespace {

using testing::ElementsAre;
using testing::FloatNear;
using testing::Pointwise;

TEST(CudaAttentionPlan, DecodeLengths_EqualWithoutSkew) {
  // The context and the new token.
  EXPECT_THAT(decode_lengths(3, 128, 1.0), ElementsAre(129, 129, 129));
}

TEST(CudaAttentionPlan, DecodeLengths_TheLongestTakesItsShareOfTheSameTotal) {
  // 5 x 100 = 500 tokens of context: 2.5 x 100 for the longest, 250 / 4 = 62.5 for the others.
  EXPECT_THAT(decode_lengths(5, 100, 2.5), ElementsAre(251, 64, 64, 63, 63));
}

TEST(CudaAttentionPlan, DecodeLengths_LeaveAtLeastOneTokenToEach) {
  // Nine times the mean exceeds the total of all four: the longest gets 40 - 3.
  EXPECT_THAT(decode_lengths(4, 10, 9.0), ElementsAre(38, 2, 2, 2));
  EXPECT_THAT(decode_lengths(1, 10, 9.0), ElementsAre(11));
}

TEST(CudaAttentionPlan, Sequences_OfMixedBatchesHaveThePrefillFirst) {
  MixedAttention point;
  point.chunk = 512;
  point.chunk_context = 100;
  point.decodes = 2;
  point.decode_context = 30;
  const Sequences both = sequences_of(point);
  EXPECT_THAT(both.query_tokens, ElementsAre(512, 1, 1));
  EXPECT_THAT(both.kv_tokens, ElementsAre(612, 31, 31));
  point.chunk = 0;
  EXPECT_THAT(sequences_of(point).query_tokens, ElementsAre(1, 1));
}

TEST(CudaAttentionPlan, PageTable_GivesEveryPageOnce) {
  // 1, 2 and 3 pages of 16 tokens, twice.
  const PageTable table = page_table(std::vector<std::int64_t>{16, 17, 48}, 2, 7);
  EXPECT_THAT(table.first, ElementsAre(0, 1, 3, 6, 7, 9, 12));
  std::vector<std::int32_t> pages = table.pages;
  EXPECT_FALSE(std::is_sorted(pages.begin(), pages.end()));
  std::sort(pages.begin(), pages.end());
  std::vector<std::int32_t> all(12);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(pages, all);
}

/// Each token of every decoding sequence is in exactly one item, items begin at pages, and the combined results are the
/// partial ones.
void expect_complete(const AttentionPlan& plan, const Sequences& sequences) {
  std::map<std::int32_t, std::int32_t> end;  // by sequence
  std::map<std::int32_t, std::vector<std::int32_t>> partials;
  for (const DecodeItem& item : plan.decode) {
    EXPECT_EQ(item.begin, end[item.sequence]);
    EXPECT_EQ(item.begin % kPageSize, 0);
    EXPECT_LT(item.begin, item.end);
    end[item.sequence] = item.end;
    partials[item.sequence].push_back(item.partial);
  }
  for (const auto& [sequence, last] : end) {
    EXPECT_EQ(sequences.query_tokens[static_cast<std::size_t>(sequence)], 1);
    EXPECT_EQ(last, sequences.kv_tokens[static_cast<std::size_t>(sequence)]);
  }
  std::int32_t next = 0;
  for (const CombineItem& item : plan.combine) {
    EXPECT_EQ(item.first, next);
    EXPECT_GT(item.count, 1);
    std::vector<std::int32_t> expected(static_cast<std::size_t>(item.count));
    std::iota(expected.begin(), expected.end(), item.first);
    EXPECT_EQ(partials[item.sequence], expected);
    partials.erase(item.sequence);
    next += item.count;
  }
  EXPECT_EQ(next, plan.partials);
  for (const auto& [sequence, parts] : partials) EXPECT_THAT(parts, ElementsAre(-1)) << sequence;
}

TEST(CudaAttentionPlan, Decode_OneLongSequenceIsSplitOverTheGpu) {
  // 8 KV heads, 10 SMs, 40 thread blocks: 5 runs of 8001 / 5 = 1600.2 tokens, rounded up to four pages.
  const Sequences one{{1}, {8001}};
  const AttentionPlan plan = plan_attention(one, Heads{32, 8, 128}, 10);
  expect_complete(plan, one);
  ASSERT_EQ(plan.decode.size(), 5U);
  EXPECT_EQ(plan.decode[0].end, 1664);
  EXPECT_EQ(plan.decode[4].end, 8001);
  EXPECT_EQ(plan.partials, 5);
}

TEST(CudaAttentionPlan, Decode_ShortSequencesStayWhole) {
  const Sequences many{std::vector<std::int64_t>(3, 1), {128, 1, 100}};
  const AttentionPlan plan = plan_attention(many, Heads{32, 8, 128}, 132);
  expect_complete(plan, many);
  EXPECT_EQ(plan.decode.size(), 3U);
  EXPECT_TRUE(plan.combine.empty());
}

TEST(CudaAttentionPlan, Decode_SkewedBatchSplitsTheLongOne) {
  // 4 x (1001 + 101 + 101) / 16 = 300.75: runs of about 320 tokens. 1001 tokens are nearest to three runs of 333.7,
  // rounded up to four pages.
  const Sequences skewed{{1, 1, 1}, {1001, 101, 101}};
  const AttentionPlan plan = plan_attention(skewed, Heads{8, 4, 128}, 4);
  expect_complete(plan, skewed);
  ASSERT_EQ(plan.combine.size(), 1U);
  EXPECT_EQ(plan.combine[0].sequence, 0);
  EXPECT_EQ(plan.combine[0].count, 3);
  EXPECT_EQ(plan.decode[0].end, 384);
}

TEST(CudaAttentionPlan, Decode_ATokenMoreThanARunStaysInIt) {
  // 64 x 1025 x 8 / 528 = 993.9: runs of about 1024 tokens, so 1025 tokens are one run.
  const Sequences many{std::vector<std::int64_t>(64, 1), std::vector<std::int64_t>(64, 1025)};
  const AttentionPlan plan = plan_attention(many, Heads{32, 8, 128}, 132);
  expect_complete(plan, many);
  EXPECT_EQ(plan.decode.size(), 64U);
}

TEST(CudaAttentionPlan, Decode_MoreQueryHeadsThanRowsTakeMoreThreadBlocks) {
  // 32 query heads of one KV head are two tiles of 16 rows: 2 x 2048 / 16 = 256 tokens per thread block.
  const Sequences one{{1}, {2048}};
  const AttentionPlan plan = plan_attention(one, Heads{32, 1, 128}, 4);
  expect_complete(plan, one);
  EXPECT_EQ(plan.decode.size(), 8U);
}

TEST(CudaAttentionPlan, Prefill_TilesCoverAllRowsAndTheLongestComeFirst) {
  // 40 tokens of 4 query heads to a KV head are 160 rows: tiles of 64 from 128, 64 and 0 on.
  const Sequences mixed{{40, 1}, {60, 30}};
  const AttentionPlan plan = plan_attention(mixed, Heads{32, 8, 128}, 132);
  expect_complete(plan, mixed);
  ASSERT_EQ(plan.prefill.size(), 3U);
  EXPECT_EQ(plan.prefill[0].first_row, 128);
  EXPECT_EQ(plan.prefill[1].first_row, 64);
  EXPECT_EQ(plan.prefill[2].first_row, 0);
  EXPECT_EQ(plan.prefill[0].sequence, 0);
  ASSERT_EQ(plan.decode.size(), 1U);
  EXPECT_EQ(plan.decode[0].sequence, 1);
}

TEST(CudaAttentionReference, Numbers_OfBits) {
  EXPECT_EQ(number_of_bf16(0x3F80), 1.0F);
  EXPECT_EQ(number_of_bf16(0xC040), -3.0F);  // 1.5 x 2
  EXPECT_EQ(number_of_fp16(0x3C00), 1.0F);
  EXPECT_EQ(number_of_fp16(0xC200), -3.0F);
  EXPECT_EQ(number_of_fp16(0x7BFF), 65504.0F);  // the largest
  EXPECT_EQ(number_of_fp16(0x0001), 0x1p-24F);  // the smallest
  EXPECT_EQ(number_of_fp16(0xFC00), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(number_of_fp16(0x7C01)));
  EXPECT_EQ(number_of_fp8(0x38), 1.0F);
  EXPECT_EQ(number_of_fp8(0xC4), -3.0F);
  EXPECT_EQ(number_of_fp8(0x7E), 448.0F);   // the largest
  EXPECT_EQ(number_of_fp8(0x01), 0x1p-9F);  // the smallest
  EXPECT_TRUE(std::isnan(number_of_fp8(0xFF)));
}

/// A cache of two pages, the sequence's first 16 tokens in page 1, for one KV head of size 2.
struct SmallCache {
  std::vector<float> keys = std::vector<float>(std::size_t{2} * 16 * 2, 0.0F);
  std::vector<float> values = std::vector<float>(std::size_t{2} * 16 * 2, 0.0F);
  PageTable table{{0, 2}, {1, 0}};
  /// Index of a token's numbers.
  static std::size_t at(std::size_t token) { return (token < 16 ? 16 + token : token - 16) * 2; }
};

TEST(CudaAttentionReference, EqualScores_GiveTheMeanOfTheValuesSeen) {
  SmallCache cache;
  for (std::size_t token = 0; token < 20; ++token) {
    cache.values[SmallCache::at(token)] = static_cast<float>(token);
    cache.values[SmallCache::at(token) + 1] = 1.0F;
  }
  // Three new tokens after 15: they see 16, 17 and 18 tokens. The mean of 0 .. n - 1 is (n - 1) / 2.
  const auto results = reference_attention(Heads{1, 1, 2}, {{3}, {18}}, cache.table, std::vector<float>(6, 0.5F),
                                           cache.keys, cache.values);
  EXPECT_THAT(results, Pointwise(FloatNear(1e-6F), std::vector<float>{7.5F, 1.0F, 8.0F, 1.0F, 8.5F, 1.0F}));
}

TEST(CudaAttentionReference, Scores_AreDividedByTheRootOfTheSize) {
  SmallCache cache;
  // Two tokens; query (1, 1) and keys (0, 0) and (a, a): with 2 a / sqrt(2) = ln 3 the weights are 1 and 3.
  const auto a = static_cast<float>(std::log(3.0) / std::sqrt(2.0));
  cache.keys[SmallCache::at(1)] = a;
  cache.keys[SmallCache::at(1) + 1] = a;
  cache.values[SmallCache::at(0)] = 4.0F;
  cache.values[SmallCache::at(1) + 1] = 8.0F;
  const auto results = reference_attention(Heads{1, 1, 2}, {{1}, {2}}, cache.table, std::vector<float>{1.0F, 1.0F},
                                           cache.keys, cache.values);
  // 4 / 4 and 3 x 8 / 4.
  EXPECT_THAT(results, Pointwise(FloatNear(1e-5F), std::vector<float>{1.0F, 6.0F}));
}

TEST(CudaAttentionReference, QueryHeads_ShareTheirKvHead) {
  // Two KV heads of size 1 in one page: values 10 and 20 at token 0. Query heads 0 and 1 read the first one.
  std::vector<float> values(std::size_t{2} * 16, 0.0F);
  values[0] = 10.0F;
  values[16] = 20.0F;
  const auto results =
      reference_attention(Heads{4, 2, 1}, {{1}, {1}}, PageTable{{0, 1}, {0}}, std::vector<float>(4, 1.0F),
                          std::vector<float>(std::size_t{2} * 16, 1.0F), values);
  EXPECT_THAT(results, ElementsAre(10.0F, 10.0F, 20.0F, 20.0F));
}

}  // namespace
}  // namespace spillway::calibrate::gpu
