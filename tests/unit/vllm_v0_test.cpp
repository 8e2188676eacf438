// algorithms of vLLM's V0 scheduler, step by step.
#include "tests/unit/policy_test.hpp"

namespace spillway {
namespace {

Overrides prompts_first(Overrides more = {}) {
  more.emplace_back("engine.chunked_prefill", false);
  return more;
}

// 10 blocks, watermark int(0.1) = 0. R1 64 tokens (4 blocks), R2 80 tokens (5). Iteration 1: both prompts, 1 block
// free. Iteration 2: R1 (65 tokens) takes the last block; R2 (81) cannot append and preempts itself: 5 free, only R1
// decodes. R2 needs ceil(81/16) = 6 blocks: LATER until R1 ends. R1 (20 output) ends with iteration 20; R2 restarts in
// 21 with 81 tokens, which emits its second token, and its third in 22.
TEST(VllmV0, Preempts_WhenNoBlockIsFree_ThenTheLatestArrival) {
  const WatchingModel model(Duration(100));
  const Replay run = replay("vllm-v0", prompts_first(), layout(10), {request(0, 64, 20), request(0, 80, 3)}, model);
  const auto& seen = model.seen();
  ASSERT_EQ(seen.size(), 22U);
  EXPECT_EQ(seen[0], (SeenIteration{0, 0, {{64, 0}, {80, 0}}}));
  EXPECT_EQ(seen[1], (SeenIteration{1, 65, {}}));
  EXPECT_EQ(seen[19], (SeenIteration{1, 83, {}}));
  EXPECT_EQ(seen[20], (SeenIteration{0, 0, {{81, 0}}}));
  EXPECT_EQ(seen[21], (SeenIteration{1, 82, {}}));
  EXPECT_EQ(run.of(1).preempted_recompute, 1);
  EXPECT_EQ(run.of(1).end, SimTime(2200));
}

// 1,000 blocks: watermark 10. A filler takes 891 or 890 blocks for a long time; a prompt of 100 blocks then sees 109 or
// 110 free: LATER, respectively OK. (Filler: 891 * 16 - 1 tokens and one output, so it does not grow... it must stay:
// it outputs 3 tokens, the first decode of which fits its last block.)
TEST(VllmV0, Watermark_WhenFreeBlocksMinusPromptFallBelowIt_ThenLater) {
  for (const std::int64_t filler_blocks : {891, 890}) {
    const WatchingModel model(Duration(100));
    (void)replay("vllm-v0", prompts_first({{"engine.max_num_batched_tokens", std::int64_t{16000}}}), layout(1000),
                 {request(0, filler_blocks * 16 - 2, 3), request(10, 1600, 1)}, model);
    // The second request arrives during iteration 1; iteration 2 is its prompt (OK) or the filler's decode (LATER).
    const bool ok = filler_blocks == 890;
    EXPECT_EQ(model.seen()[1].chunks.size(), ok ? 1U : 0U);
  }
}

// A prompt of 991 blocks is NEVER admitted (1000 - 991 < 10); one of 990 is.
TEST(VllmV0, Watermark_WhenThePromptCanNeverFit_ThenIgnored) {
  for (const std::int64_t prompt_blocks : {991, 990}) {
    const WatchingModel model;
    const Replay run = replay("vllm-v0", prompts_first({{"engine.max_num_batched_tokens", std::int64_t{16000}}}),
                              layout(1000), {request(0, prompt_blocks * 16, 1)}, model);
    EXPECT_EQ(run.of(0).outcome, prompt_blocks == 991 ? Outcome::rejected : Outcome::finished);
  }
}

// A prompt longer than the token budget is ignored without chunked prefill, and computed in pieces with it.
TEST(VllmV0, Prompt_WhenLongerThanTheBudget_ThenIgnoredUnlessChunked) {
  for (const bool chunked : {false, true}) {
    const WatchingModel model;
    const Replay run =
        replay("vllm-v0", {{"engine.chunked_prefill", chunked}, {"engine.max_num_batched_tokens", std::int64_t{64}}},
               layout(1000), {request(0, 100, 2)}, model);
    EXPECT_EQ(run.of(0).outcome, chunked ? Outcome::finished : Outcome::rejected);
    if (chunked) {
      EXPECT_EQ(model.seen()[0], (SeenIteration{0, 0, {{64, 0}}}));
      EXPECT_EQ(model.seen()[1], (SeenIteration{0, 0, {{36, 64}}}));
      EXPECT_EQ(model.seen()[2], (SeenIteration{1, 101, {}}));
    }
  }
}

// A new prompt stops the decodes: R1 decodes from iteration 2; R2 arrives during iteration 2, iteration 3 is its prompt
// alone, and both decode from 4 on. R1's gap across the prompt is two iterations.
TEST(VllmV0, Prompt_WhenItArrives_ThenDecodesWait) {
  const WatchingModel model(Duration(100));
  const Replay run = replay("vllm-v0", prompts_first(), layout(100), {request(0, 10, 4), request(150, 10, 2)}, model);
  const auto& seen = model.seen();
  ASSERT_EQ(seen.size(), 5U);
  EXPECT_EQ(seen[1], (SeenIteration{1, 11, {}}));
  EXPECT_EQ(seen[2], (SeenIteration{0, 0, {{10, 0}}}));
  EXPECT_EQ(seen[3], (SeenIteration{2, 12 + 11, {}}));
  EXPECT_EQ(seen[4], (SeenIteration{1, 13, {}}));
  EXPECT_EQ(run.of(0).computing, Duration(400));
  EXPECT_EQ(*run.result.statistics.find("max_itl_ms")->value, 200e-6);
}

// Chunked prefill: the decode comes first, the new prompt gets the rest of the 32-token budget.
TEST(VllmV0, ChunkedPrefill_WhenDecodesRun_ThenThePromptGetsTheRest) {
  const WatchingModel model(Duration(100));
  (void)replay("vllm-v0", {{"engine.chunked_prefill", true}, {"engine.max_num_batched_tokens", std::int64_t{32}}},
               layout(100), {request(0, 20, 6), request(50, 70, 1)}, model);
  const auto& seen = model.seen();
  EXPECT_EQ(seen[1], (SeenIteration{1, 21, {{31, 0}}}));
  EXPECT_EQ(seen[2], (SeenIteration{1, 22, {{31, 31}}}));
  EXPECT_EQ(seen[3], (SeenIteration{1, 23, {{8, 62}}}));
}

// Swap. 10 blocks of 1000 bytes, copies at 1 ns per byte. As in the first test R2 must go in iteration 2, now to the
// host: 5 blocks, 5,000 ns before the forward pass of 100 ns. It comes back when 5 + 1 blocks are free: R1 (64 + 1
// tokens at the end of iteration 2; 17 outputs in all) holds 5 blocks while it has at most 80 tokens, and ends with
// iteration 17 having computed 80. Iteration 18 copies R2 back and decodes it: tokens 2 and 3 in iterations 18 and 19.
TEST(VllmV0, Swap_WhenTheHostHasRoom_ThenKvMovesThereAndBack) {
  const WatchingModel model(Duration(100));
  const Replay run = replay("vllm-v0", prompts_first({{"engine.preemption", std::string("swap")}}), layout(10, 5),
                            {request(0, 64, 17), request(0, 80, 3)}, model);
  const auto& seen = model.seen();
  ASSERT_EQ(seen.size(), 19U);
  EXPECT_EQ(seen[1], (SeenIteration{1, 65, {}}));
  EXPECT_EQ(seen[17], (SeenIteration{1, 81, {}}));
  EXPECT_EQ(run.of(1).preempted_swap, 1);
  EXPECT_EQ(run.of(1).preempted_recompute, 0);
  EXPECT_EQ(run.of(0).end, SimTime(1700 + 5000));
  EXPECT_EQ(run.of(1).end, SimTime(1900 + 2 * 5000));
  EXPECT_EQ(run.result.statistics.engine.moved_d2h, Bytes(5000));
  EXPECT_EQ(run.result.statistics.engine.moved_h2d, Bytes(5000));
}

// The same with 4 host blocks: R2's 5 do not fit, so it is recomputed.
TEST(VllmV0, Swap_WhenTheHostIsFull_ThenRecomputes) {
  const WatchingModel model;
  const Replay run = replay("vllm-v0", prompts_first({{"engine.preemption", std::string("swap")}}), layout(10, 4),
                            {request(0, 64, 17), request(0, 80, 3)}, model);
  EXPECT_EQ(run.of(1).preempted_swap, 0);
  EXPECT_EQ(run.of(1).preempted_recompute, 1);
}

// A swapped request blocks new prompts, although there would be room for them.
TEST(VllmV0, Swap_WhenARequestIsOut_ThenNothingNewIsAdmitted) {
  const WatchingModel model(Duration(100));
  const Replay run = replay("vllm-v0", prompts_first({{"engine.preemption", std::string("swap")}}), layout(10, 5),
                            {request(0, 64, 17), request(0, 80, 3), request(5150, 16, 1)}, model);
  // R3 (one block) arrives while 5 blocks are free, and starts only once R2 is back (iteration 18 copies it in).
  EXPECT_GE(run.of(2).first_scheduled, SimTime(1700 + 5000 + 5100));
}

// The first block manager demands a free block for every decode. 4 blocks; R1 and R2 of 17 tokens hold 2 each after
// iteration 1, and none is free, though both have room in their last block. v2: both decode to the end. v1: R2 is
// preempted in iteration 2, readmitted in 3 (its 18 tokens fit the 2 free blocks), and preempted again in 4, in which
// R1 emits its third and last token.
TEST(VllmV0, BlockManagerV1_WhenNoBlockIsSpare_ThenPreempts) {
  for (const std::string manager : {"v1", "v2"}) {
    const WatchingModel model;
    const Replay run = replay("vllm-v0", prompts_first({{"policy.block_manager", manager}}), layout(4),
                              {request(0, 17, 3), request(0, 17, 3)}, model);
    EXPECT_EQ(run.of(1).preempted_recompute, manager == "v1" ? 2 : 0);
  }
}

// Chunked prefill with a budget of 3 tokens: a swapped request returns only while tokens are left. Blocks of 1 token,
// 38 of them on the GPU. R1..R3 have prompts of 1 token, so after iteration i <= 12 each holds i blocks, and 2 are
// free.
//   13       needs 3 blocks: R3 goes to the host with 12. R1 and R2 grow to 13, and 12 are free.
//   14..19   R1 and R2 grow to 19, and none is free. (R3 needs 12 + 1 blocks beside the growth of 2.)
//   20       R2 goes to the host with 19. R1 takes its 20th and last token. R4 and R5, which arrived in iteration 19,
//            fill the budget with their prompts of 1 token. At the end 38 - 2 = 36 blocks are free.
//   21       R4 and R5 decode: 1 token is left. R2 and R3 would both fit (2 + 20 + 1 + 13 = 36 blocks), but only R2
//            returns.
//   22       R4 and R5 take their third and last token.
// A block is copied in 1,000 ns: R4 ends at 22 * 100 + (12 + 19 + 19) * 1,000 ns.
TEST(VllmV0, Swap_WhenTheTokenBudgetIsSpent_ThenNobodyReturns) {
  const WatchingModel model(Duration(100));
  const KvLayout kv{Blocks(38), Blocks(40), Tokens(1), Bytes(1000), 1, false};
  // Iteration 19 starts at 18 * 100 + 12,000 ns.
  const Replay run = replay(
      "vllm-v0",
      {{"engine.chunked_prefill", true},
       {"engine.max_num_batched_tokens", std::int64_t{3}},
       {"engine.preemption", std::string("swap")}},
      kv, {request(0, 1, 20), request(0, 1, 25), request(0, 1, 25), request(13'850, 1, 3), request(13'850, 1, 3)},
      model);
  EXPECT_EQ(run.of(0).end, SimTime(20 * 100 + (12 + 19) * 1000));
  EXPECT_EQ(run.of(3).end, SimTime(22 * 100 + (12 + 19 + 19) * 1000));
  EXPECT_EQ(run.of(1).preempted_swap, 1);
  EXPECT_GE(run.of(2).preempted_swap, 1);
}

}  // namespace
}  // namespace spillway
