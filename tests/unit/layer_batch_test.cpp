#include "hwmodels/models/layer_batch.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "hwmodels/models/latent_attention.hpp"

namespace spillway::hwmodels {
namespace {

PrefillChunk chunk(std::int64_t fresh, std::int64_t context = 0) { return {Tokens(fresh), Tokens(context)}; }

// Chunks of 100, 60, 50, 40 and 30 tokens go to groups 0, 1, 1 (60 < 100), 0 (100 < 110) and 1 (110 < 140): 140 tokens
// each, and the first group counts. 10 decodes are 5 each, with half of 1,005 tokens, rounded up.
TEST(FullestGroup, TwoGroups_ShareDecodesEvenlyAndEachChunkGoesToTheEmptier) {
  const std::array<PrefillChunk, 5> chunks{chunk(100), chunk(60), chunk(50), chunk(40), chunk(30)};
  const BatchShape shape{.decode_sequences = 10,
                         .decode_context = Tokens(1'005),
                         .decode_longest = Tokens(300),
                         .chunks = chunks,
                         .sampled_sequences = 11};
  std::vector<PrefillChunk> kept;
  const BatchShape own = fullest_group(shape, 2, kept);
  EXPECT_EQ(own.decode_sequences, 5);
  EXPECT_EQ(own.decode_context, Tokens(503));
  EXPECT_EQ(own.decode_longest, Tokens(300));
  EXPECT_EQ(own.sampled_sequences, 6);
  ASSERT_EQ(own.chunks.size(), 2U);
  EXPECT_EQ(own.chunks[0].new_tokens, Tokens(100));
  EXPECT_EQ(own.chunks[1].new_tokens, Tokens(40));
}

TEST(FullestGroup, OneChunk_IsComputedByOneGroup) {
  const std::array<PrefillChunk, 1> chunks{chunk(512, 1024)};
  std::vector<PrefillChunk> kept;
  const BatchShape own = fullest_group({.chunks = chunks, .sampled_sequences = 1}, 8, kept);
  ASSERT_EQ(own.chunks.size(), 1U);
  EXPECT_EQ(own.chunks[0].context, Tokens(1024));
  EXPECT_EQ(own.sampled_sequences, 1);
}

// Token i of 5 after 2 earlier ones sees min(2 + i, 4) tokens: 3, 4, 4, 4, 4. Without a window 3, 4, 5, 6, 7.
TEST(AttendedPairs, Window_LimitsWhatATokenSees) {
  EXPECT_EQ(attended_pairs(chunk(5, 2), 4), 19.0);
  EXPECT_EQ(attended_pairs(chunk(5, 2), 0), 25.0);
  EXPECT_EQ(attended_pairs(chunk(5, 2), 7), 25.0);
  EXPECT_EQ(attended_pairs(chunk(5, 10), 4), 20.0);
  const std::array<PrefillChunk, 2> both{chunk(5, 2), chunk(5, 10)};
  // Of 25 + 65 pairs, 19 + 20.
  EXPECT_DOUBLE_EQ(window_share(both, 4), 39.0 / 90.0);
  EXPECT_EQ(window_share(both, 0), 1.0);
}

TEST(DecodeReach, Window_LimitsTheMeanAndTheLongest) {
  const BatchShape shape{.decode_sequences = 4, .decode_context = Tokens(400), .decode_longest = Tokens(250)};
  EXPECT_EQ(decode_reach(shape, 0).context, 400.0);
  EXPECT_EQ(decode_reach(shape, 0).longest, 250.0);
  EXPECT_EQ(decode_reach(shape, 64).context, 256.0);
  EXPECT_EQ(decode_reach(shape, 64).longest, 64.0);
  EXPECT_EQ(decode_reach(shape, 200).context, 400.0);  // the mean sequence is shorter
}

// 2 heads, a latent vector of 4, a rotated key of 2, keys of 3 more, values of 5; 1 TFLOP/s, 100 GB/s, 1 us a call.
// Decode, per token: 6 elements of 2 B, 0.12 ns; 2 * 2 * (8 + 2) FLOP, 0.04 ns.
// Prefill of 10 tokens after 20: 255 pairs of 2 * 2 * (5 + 5) FLOP, 10.2 ns, and 20 tokens expanded by
// 2 * 4 * 2 * (3 + 5) FLOP, 2.56 ns: 12.76 ns against 30 * 0.12 = 3.6 ns of reading.
TEST(LatentAttentionTime, Calls_EqualTheHandDerivation) {
  const LatentAttention latent{.query_rank = 7, .kv_rank = 4, .rotated = 2, .unrotated = 3, .value = 5};
  const LatentAttentionTime time({1e12, 1e11, 1e-6}, latent, 2, 2);
  const KernelTime decode = time.decode({.sequences = 3.0, .context = 100.0, .longest = 50.0});
  EXPECT_NEAR(decode.seconds, 1e-6 + 12e-9, 1e-18);
  EXPECT_FALSE(decode.compute_bound);
  const std::array<PrefillChunk, 1> chunks{chunk(10, 20)};
  EXPECT_NEAR(time.prefill(chunks).seconds, 1e-6 + 12.76e-9, 1e-18);
  // 64 heads read the same vectors: 32 times the arithmetic, 1.28 ns per token.
  const LatentAttentionTime many({1e12, 1e11, 1e-6}, latent, 64, 2);
  EXPECT_TRUE(many.decode({.sequences = 1.0, .context = 1e6, .longest = 1e6}).compute_bound);
  EXPECT_NEAR(many.decode({.sequences = 1.0, .context = 100.0, .longest = 100.0}).seconds, 1e-6 + 128e-9, 1e-18);
}

}  // namespace
}  // namespace spillway::hwmodels
