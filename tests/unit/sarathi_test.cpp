// Sarathi-Serve's scheduler, step by step.
#include "sim/config/config.hpp"
#include "tests/unit/policy_test.hpp"

namespace spillway {
namespace {

Overrides chunk(std::int64_t tokens, Overrides more = {}) {
  more.emplace_back("engine.max_num_batched_tokens", tokens);
  return more;
}

// Chunk 64. R1 (100 tokens) and R2 (50) at 0. Step 1: R1 64. Step 2: R1's other 36 (it emits), and R2 gets the 28 that
// are left. Step 3: R1 decodes token 101, R2 its last 22 (it emits). Step 4: both decode, R1 at 102, R2 at 51.
TEST(Sarathi, Chunk_IsFilledByUnfinishedThenNewPrompts) {
  const WatchingModel model(Duration(100));
  const Replay run = replay("sarathi", chunk(64), layout(100), {request(0, 100, 3), request(0, 50, 2)}, model);
  const auto& seen = model.seen();
  ASSERT_EQ(seen.size(), 4U);
  EXPECT_EQ(seen[0], (SeenIteration{0, 0, {{64, 0}}}));
  EXPECT_EQ(seen[1], (SeenIteration{0, 0, {{36, 64}, {28, 0}}}));
  EXPECT_EQ(seen[2], (SeenIteration{1, 101, {{22, 28}}}));
  EXPECT_EQ(seen[3], (SeenIteration{2, 102 + 51, {}}));
  EXPECT_EQ(run.of(0).first_token, SimTime(200));
  EXPECT_EQ(run.of(1).first_token, SimTime(300));
}

// Decodes are never held back by the chunk: with a chunk of 2 and three decodes all three go on, and the prompt that
// waits gets nothing until one of them has ended.
// R1..R3 of one token each: step 1 admits R1 and R2 (2 tokens), step 2 decodes both: no token is left for R3.
// R1 has 2 outputs and ends with step 2; R2 has 4. Step 3: R2 decodes, R3 gets 1 token. Step 4: both.
TEST(Sarathi, Chunk_DoesNotLimitDecodes) {
  const WatchingModel model;
  (void)replay("sarathi", chunk(2), layout(100), {request(0, 1, 2), request(0, 1, 4), request(0, 1, 2)}, model);
  const auto& seen = model.seen();
  ASSERT_EQ(seen.size(), 4U);
  EXPECT_EQ(seen[0], (SeenIteration{0, 0, {{1, 0}, {1, 0}}}));
  EXPECT_EQ(seen[1], (SeenIteration{2, 2 + 2, {}}));
  EXPECT_EQ(seen[2], (SeenIteration{1, 3, {{1, 0}}}));
  EXPECT_EQ(seen[3], (SeenIteration{2, 4 + 2, {}}));
}

// The whole prompt's blocks are taken at admission, though only a chunk is computed. 10 blocks, chunk 16: R1 (96
// tokens) takes 6 at once; R2 (80 tokens = 5 blocks) would find 9 free if only the first chunk's block were taken, but
// finds 4. R1 computes one chunk a step for 6 steps, emits its only token with the sixth and ends: R2 enters in step 7.
TEST(Sarathi, Admission_TakesTheBlocksOfTheWholePrompt) {
  const WatchingModel model(Duration(100));
  const Replay run = replay("sarathi", chunk(16), layout(10), {request(0, 96, 1), request(0, 80, 1)}, model);
  EXPECT_EQ(run.of(0).end, SimTime(600));
  EXPECT_EQ(run.of(1).first_scheduled, SimTime(600));
}

// Watermark int(0.01 * 1000) = 10 blocks. A filler of 890 or 891 blocks runs; a prompt of 100 blocks finds 110 or 109
// free: it needs 100 + 10. (The filler's prompt ends 2 tokens short of its last block, so its decodes take no block.)
TEST(Sarathi, Watermark_StaysFreeAtAdmission) {
  for (const std::int64_t filler : {890, 891}) {
    const WatchingModel model(Duration(100));
    const Replay run =
        replay("sarathi", chunk(16000), layout(1000), {request(0, filler * 16 - 2, 3), request(10, 1600, 1)}, model);
    EXPECT_EQ(run.of(1).first_scheduled, SimTime(filler == 890 ? 100 : 300));
  }
}

// A decode goes on only while a block is free, even when its last one has room (can_append_slot). 4 blocks: R1 and R2
// of 17 tokens hold 2 each after step 1. Step 2: R1 finds no free block; the last arrival, R2, is preempted, which
// frees 2: R1 goes on without taking one. R2 (18 known tokens) needs 2 blocks and 2 are free: it is admitted again in
// the same step, and emits its second token. Step 3: the same; both end.
TEST(Sarathi, Decode_NeedsAFreeBlock_EvenWithRoomInItsLast) {
  const WatchingModel model(Duration(100));
  const Replay run = replay("sarathi", chunk(512), layout(4), {request(0, 17, 3), request(0, 17, 3)}, model);
  const auto& seen = model.seen();
  ASSERT_EQ(seen.size(), 3U);
  EXPECT_EQ(seen[1], (SeenIteration{1, 18, {{18, 0}}}));
  EXPECT_EQ(seen[2], (SeenIteration{1, 19, {{19, 0}}}));
  EXPECT_EQ(run.of(0).preempted_recompute, 0);
  EXPECT_EQ(run.of(1).preempted_recompute, 2);
}

// Decreasing chunks: numpy.linspace(32, 128, 4) backwards = 128, 96, 64, 32; 200 schedule tokens in 4 stages = 50 each.
// A prompt of 400: 128 tokens (stage 0); computed 128 is stage 2: 64; 192 is stage 3: 32, and so it stays.
TEST(Sarathi, DynamicChunks_DecreaseOverThePrompt) {
  const WatchingModel model;
  (void)replay("sarathi",
               chunk(512, {{"policy.dynamic_chunks", true},
                           {"policy.low_chunk", std::int64_t{32}},
                           {"policy.high_chunk", std::int64_t{128}},
                           {"policy.chunk_stages", std::int64_t{4}},
                           {"policy.chunk_schedule_tokens", std::int64_t{200}}}),
               layout(100), {request(0, 400, 1)}, model);
  const auto& seen = model.seen();
  ASSERT_EQ(seen.size(), 9U);
  EXPECT_EQ(seen[0], (SeenIteration{0, 0, {{128, 0}}}));
  EXPECT_EQ(seen[1], (SeenIteration{0, 0, {{64, 128}}}));
  EXPECT_EQ(seen[2], (SeenIteration{0, 0, {{32, 192}}}));
  EXPECT_EQ(seen[7], (SeenIteration{0, 0, {{32, 352}}}));
  EXPECT_EQ(seen[8], (SeenIteration{0, 0, {{16, 384}}}));
}

// Sizes are rounded to multiples of min(32, low), half to even: linspace(16, 96, 3) backwards = 96, 56, 16; multiples
// of 16: 96, round(3.5) = 4 -> 64, 16. Stages of ceil(100 / 3) = 34 tokens: 96 tokens bring the prompt to stage 2 (96 /
// 34). A second prompt that starts in the same iteration is in stage 0 and shares its 96. R1 (97 tokens) needs one
// more.
TEST(Sarathi, DynamicChunks_AreOfThePromptThatTheyServe) {
  const WatchingModel model;
  (void)replay("sarathi",
               chunk(512, {{"policy.dynamic_chunks", true},
                           {"policy.low_chunk", std::int64_t{16}},
                           {"policy.high_chunk", std::int64_t{96}},
                           {"policy.chunk_stages", std::int64_t{3}},
                           {"policy.chunk_schedule_tokens", std::int64_t{100}}}),
               layout(100), {request(0, 130, 1), request(0, 40, 1), request(0, 200, 1)}, model);
  const auto& seen = model.seen();
  // Step 1: R1 96. Step 2: R1 is in stage 2: min(34, 16) = 16; new prompts are in stage 0: 96 - 16 = 80 tokens: R2 40,
  // R3 40. Step 3: R1 16, R3 (40 computed: stage 1) min(160, 64 - 16) = 48.
  EXPECT_EQ(seen[0], (SeenIteration{0, 0, {{96, 0}}}));
  EXPECT_EQ(seen[1], (SeenIteration{0, 0, {{16, 96}, {40, 0}, {40, 0}}}));
  EXPECT_EQ(seen[2], (SeenIteration{0, 0, {{16, 112}, {48, 40}}}));
}

// linspace(16, 64, 3) backwards = 64, 40, 16; in multiples of 16: 64, round(2.5) = 2 -> 32 (half to even), 16. A prompt
// of 100 gets 64 tokens in stage 0; with 64 computed it is in stage 1 (64 / 34) and gets 32, then the last 4.
TEST(Sarathi, DynamicChunks_RoundHalfToEven) {
  const WatchingModel model;
  (void)replay("sarathi",
               chunk(512, {{"policy.dynamic_chunks", true},
                           {"policy.low_chunk", std::int64_t{16}},
                           {"policy.high_chunk", std::int64_t{64}},
                           {"policy.chunk_stages", std::int64_t{3}},
                           {"policy.chunk_schedule_tokens", std::int64_t{100}}}),
               layout(100), {request(0, 100, 1)}, model);
  const auto& seen = model.seen();
  ASSERT_EQ(seen.size(), 3U);
  EXPECT_EQ(seen[0], (SeenIteration{0, 0, {{64, 0}}}));
  EXPECT_EQ(seen[1], (SeenIteration{0, 0, {{32, 64}}}));
  EXPECT_EQ(seen[2], (SeenIteration{0, 0, {{4, 96}}}));
}

// Stages have ceil(100 / 3) = 34 tokens. R1 computes its 63 tokens, which leaves 96 - 63 = 33 to R2. With 33 computed
// R2 is still in stage 0, so it gets the other 90 of its 123 tokens. (With stages of 33 tokens it would get 64.)
TEST(Sarathi, DynamicChunks_RoundStagesUp) {
  const WatchingModel model;
  (void)replay("sarathi",
               chunk(512, {{"policy.dynamic_chunks", true},
                           {"policy.low_chunk", std::int64_t{16}},
                           {"policy.high_chunk", std::int64_t{96}},
                           {"policy.chunk_stages", std::int64_t{3}},
                           {"policy.chunk_schedule_tokens", std::int64_t{100}}}),
               layout(100), {request(0, 63, 1), request(0, 123, 1)}, model);
  const auto& seen = model.seen();
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0], (SeenIteration{0, 0, {{63, 0}, {33, 0}}}));
  EXPECT_EQ(seen[1], (SeenIteration{0, 0, {{90, 33}}}));
}

// 8 tokens in 16 stages: ceil(8 / 16) = 1 token each. The chunks go from 512 to 128: 512 tokens first, then the last
// stage.
TEST(Sarathi, DynamicChunks_WithMoreStagesThanTokens) {
  const WatchingModel model;
  (void)replay("sarathi",
               chunk(512, {{"policy.dynamic_chunks", true}, {"policy.chunk_schedule_tokens", std::int64_t{8}}}),
               layout(100), {request(0, 700, 1)}, model);
  const auto& seen = model.seen();
  ASSERT_EQ(seen.size(), 3U);
  EXPECT_EQ(seen[0], (SeenIteration{0, 0, {{512, 0}}}));
  EXPECT_EQ(seen[1], (SeenIteration{0, 0, {{128, 512}}}));
  EXPECT_EQ(seen[2], (SeenIteration{0, 0, {{60, 640}}}));
}

// A schedule needs at least one token and one stage.
TEST(Sarathi, DynamicChunks_NeedTokensAndStages) {
  int found = 0;
  for (const Parameter& parameter : PolicyRegistry::instance().find("sarathi")->parameters) {
    if (parameter.name != "policy.chunk_schedule_tokens" && parameter.name != "policy.chunk_stages") continue;
    std::vector<Problem> problems;
    EXPECT_FALSE(parse_value(parameter, "0", parameter.name, problems)) << parameter.name;
    EXPECT_EQ(problems.size(), 1U) << parameter.name;
    EXPECT_TRUE(parse_value(parameter, "1", parameter.name, problems)) << parameter.name;
    ++found;
  }
  EXPECT_EQ(found, 2);
}

}  // namespace
}  // namespace spillway
