// SwiftLLM's scheduler, step by step, upstream and with piggybacked decodes.
#include "tests/unit/policy_test.hpp"

namespace spillway {
namespace {

Overrides swift(bool piggyback, Overrides more = {}) {
  more.emplace_back("policy.piggyback", piggyback);
  more.emplace_back("engine.chunked_prefill", false);
  more.emplace_back("engine.preemption", std::string("swap"));
  return more;
}

// Upstream a new prompt has the step to itself; NEO's base lets the decodes run along.
// R1 (10 in, 4 out) at 0, R2 (20 in, 2 out) arrives during step 2.
// Upstream: R1's prompt, R1's decode, R2's prompt, both decode (R2 ends), R1's last: 5 steps.
// Piggyback: R1's prompt, R1's decode, R1's decode with R2's prompt, both decode and end: 4 steps.
TEST(SwiftLlm, Prompts_HaveTheStepAlone_UnlessDecodesPiggyback) {
  for (const bool piggyback : {false, true}) {
    const WatchingModel model(Duration(100));
    (void)replay("swiftllm", swift(piggyback), layout(100, 0), {request(0, 10, 4), request(150, 20, 2)}, model);
    const auto& seen = model.seen();
    ASSERT_EQ(seen.size(), piggyback ? 4U : 5U);
    EXPECT_EQ(seen[1], (SeenIteration{1, 11, {}}));
    EXPECT_EQ(seen[2], (piggyback ? SeenIteration{1, 12, {{20, 0}}} : SeenIteration{0, 0, {{20, 0}}}));
    EXPECT_EQ(seen[3], (SeenIteration{2, (piggyback ? 13 : 12) + 21, {}}));
  }
}

// The token limit holds for prompts alone upstream, and for prompts and decodes together with piggyback.
// Limit 30: with R1 decoding, R2 of 30 tokens fits a step of its own but not one that R1 takes a token of: it waits
// until R1 (3 outputs) has ended with step 3. A prompt of 31 can never be computed.
TEST(SwiftLlm, TokenLimit_CountsPiggybackedDecodes) {
  for (const bool piggyback : {false, true}) {
    const WatchingModel model(Duration(100));
    const Replay run = replay("swiftllm", swift(piggyback, {{"engine.max_num_batched_tokens", std::int64_t{30}}}),
                              layout(100, 0), {request(0, 10, 3), request(50, 30, 1), request(60, 31, 1)}, model);
    EXPECT_EQ(run.of(1).first_scheduled, SimTime(piggyback ? 300 : 100));
    EXPECT_EQ(run.of(2).outcome, Outcome::rejected);
  }
}

// There is no watermark: a prompt may use the last block. 10 blocks: R1 of 160 - 1 tokens and one output.
TEST(SwiftLlm, Admission_MayTakeTheLastBlock) {
  const WatchingModel model;
  const Replay run = replay("swiftllm", swift(false), layout(10, 0), {request(0, 159, 1)}, model);
  EXPECT_EQ(run.of(0).outcome, Outcome::finished);
  EXPECT_EQ(run.result.statistics.engine.peak_kv, Blocks(10));
}

// 10 blocks, R1 of 64 tokens (4 blocks, 17 outputs), R2 of 80 (5 blocks, 3 outputs). Step 1: both prompts. Step 2: both
// need one more block and one is free: the last in the batch, R2, is swapped out: 5 blocks, 5,000 ns before the 100 ns
// of the step. It comes back when the blocks of its 81 known tokens fit: 6. R1 holds 5 until token 80 (step 17), then
// needs a sixth only for token 81, which it never computes: it ends with step 17. Step 18 copies R2 back.
TEST(SwiftLlm, Shortage_SwapsOutTheLastOfTheBatch) {
  const WatchingModel model(Duration(100));
  const Replay run = replay("swiftllm", swift(false), layout(10, 5), {request(0, 64, 17), request(0, 80, 3)}, model);
  const auto& seen = model.seen();
  ASSERT_EQ(seen.size(), 19U);
  EXPECT_EQ(seen[1], (SeenIteration{1, 65, {}}));
  EXPECT_EQ(seen[16], (SeenIteration{1, 80, {}}));
  EXPECT_EQ(seen[17], (SeenIteration{1, 81, {}}));
  EXPECT_EQ(run.of(1).preempted_swap, 1);
  EXPECT_EQ(run.of(0).end, SimTime(1700 + 5000));
  EXPECT_EQ(run.of(1).end, SimTime(1900 + 2 * 5000));
}

// 4 blocks: R1 (32 tokens: 2 blocks), R2 (17: 2). Step 2: R1's token 33 needs a third block: R2 leaves with its 2. R1
// ends with step 3 (3 outputs), R2 (4 outputs) comes back in step 4. R3 (1 block), which arrived during step 2 and
// would fit from then on, is not admitted while R2 is out: it starts in step 5.
TEST(SwiftLlm, Swapped_NothingNewIsAdmittedMeanwhile) {
  const WatchingModel model(Duration(100));
  const Replay run = replay("swiftllm", swift(false), layout(4, 4),
                            {request(0, 32, 3), request(0, 17, 4), request(150, 16, 1)}, model);
  // Steps 1 (100), 2 (2,000 out + 100), 3 (100), 4 (2,000 in + 100): R3 is first scheduled after step 4.
  EXPECT_EQ(run.of(1).preempted_swap, 1);
  EXPECT_EQ(run.of(2).first_scheduled, SimTime(100 + 2100 + 100 + 2100));
}

// Swap-in asks for the blocks of the known tokens. 7 blocks of R1 (33 tokens: 3), R2 (17: 2), R3 (17: 2): all 7 are
// taken. Tokens that fit their last block: R1 to 48, R2 and R3 to 32. R2 and R3 need a third block at token 33, in step
// 17; none is free: R3 goes (2 blocks free), R2 takes one. In step 17 R1 computes token 33 + 16 = 49: it needs a fourth
// block too: both fit after R3 has left. R2 (20 outputs) goes on. R3 needs 3
// blocks for its 33 known tokens and 0 are free until R1 (18 outputs) has ended with step 18.
TEST(SwiftLlm, Swapped_ReturnWhenTheirKnownTokensFit) {
  const WatchingModel model(Duration(100));
  const Replay run = replay("swiftllm", swift(false), layout(7, 7),
                            {request(0, 33, 18), request(0, 17, 20), request(0, 17, 20)}, model);
  const auto& seen = model.seen();
  EXPECT_EQ(seen[15], (SeenIteration{3, 48 + 32 + 32, {}}));
  EXPECT_EQ(seen[16], (SeenIteration{2, 49 + 33, {}}));
  EXPECT_EQ(seen[17], (SeenIteration{2, 50 + 34, {}}));
  EXPECT_EQ(seen[18], (SeenIteration{2, 35 + 33, {}}));
  EXPECT_EQ(run.of(2).preempted_swap, 1);
  EXPECT_EQ(run.of(1).preempted_swap, 0);
}

// The host has no room: the victim is computed again, as the first of the queue.
TEST(SwiftLlm, Shortage_WhenTheHostIsFull_ThenRecomputes) {
  const WatchingModel model(Duration(100));
  const Replay run = replay("swiftllm", swift(false), layout(10, 4), {request(0, 64, 17), request(0, 80, 3)}, model);
  EXPECT_EQ(run.of(1).preempted_swap, 0);
  EXPECT_EQ(run.of(1).preempted_recompute, 1);
  EXPECT_EQ(model.seen()[17], (SeenIteration{0, 0, {{81, 0}}}));
}

}  // namespace
}  // namespace spillway
