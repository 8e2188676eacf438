// vLLM's V0 scheduler, step by step.
#include "tests/unit/policy_test.hpp"

namespace spillway {
namespace {

Overrides prompts_first(Overrides more = {}) {
  more.emplace_back("engine.chunked_prefill", false);
  return more;
}

// 10 blocks, watermark int(0.1) = 0. R1 has 64 tokens (4 blocks), R2 has 80 (5 blocks). Iteration 1 computes both
// prompts and leaves 1 block free. In iteration 2, R1 (65 tokens) takes the last block. R2 (81) cannot append and
// preempts itself, so 5 blocks are free and only R1 decodes. R2 needs ceil(81/16) = 6 blocks, which is LATER until R1
// ends. R1 (20 outputs) ends with iteration 20. R2 restarts in iteration 21 with 81 tokens and emits its second token
// there, its third in iteration 22.
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

// With 1,000 blocks the watermark is 10. A filler holds 891 or 890 blocks, so a prompt of 100 blocks finds 109 free
// (LATER) or 110 (OK). The filler stays for 3 outputs; its first decode fits its last block.
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

// A prompt of 991 blocks is NEVER admitted (1000 - 991 < 10). A prompt of 990 blocks is admitted.
TEST(VllmV0, Watermark_WhenThePromptCanNeverFit_ThenIgnored) {
  for (const std::int64_t prompt_blocks : {991, 990}) {
    const WatchingModel model;
    const Replay run = replay("vllm-v0", prompts_first({{"engine.max_num_batched_tokens", std::int64_t{16000}}}),
                              layout(1000), {request(0, prompt_blocks * 16, 1)}, model);
    EXPECT_EQ(run.of(0).outcome, prompt_blocks == 991 ? Outcome::rejected : Outcome::finished);
  }
}

// Without chunked prefill, a prompt longer than the token budget is ignored. With it, the prompt is computed in pieces.
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

// A new prompt stops the decodes. R1 decodes from iteration 2 on, and R2 arrives during iteration 2. Iteration 3
// computes R2's prompt alone, and both decode from iteration 4 on. So R1 has a gap of two iterations between tokens.
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

// Swap. 10 blocks of 1,000 bytes, copies at 1 ns per byte. As in the first test, R2 must leave in iteration 2, here to
// the host. Its 5 blocks take 5,000 ns before the forward pass of 100 ns. R2 returns when 5 + 1 blocks are free. R1 (17
// outputs) holds 5 blocks up to 80 tokens and ends with iteration 17, in which it computes the 80th. Iteration 18
// copies R2 back and decodes it: R2 emits tokens 2 and 3 in iterations 18 and 19.
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

// With 4 host blocks, R2's 5 blocks do not fit, so R2 is recomputed.
TEST(VllmV0, Swap_WhenTheHostIsFull_ThenRecomputes) {
  const WatchingModel model;
  const Replay run = replay("vllm-v0", prompts_first({{"engine.preemption", std::string("swap")}}), layout(10, 4),
                            {request(0, 64, 17), request(0, 80, 3)}, model);
  EXPECT_EQ(run.of(1).preempted_swap, 0);
  EXPECT_EQ(run.of(1).preempted_recompute, 1);
}

// A swapped request blocks new prompts, even if enough blocks are free.
TEST(VllmV0, Swap_WhenARequestIsOut_ThenNothingNewIsAdmitted) {
  const WatchingModel model(Duration(100));
  const Replay run = replay("vllm-v0", prompts_first({{"engine.preemption", std::string("swap")}}), layout(10, 5),
                            {request(0, 64, 17), request(0, 80, 3), request(5150, 16, 1)}, model);
  // R3 (one block) arrives while 5 blocks are free, but starts only after iteration 18 has copied R2 back.
  EXPECT_GE(run.of(2).first_scheduled, SimTime(1700 + 5000 + 5100));
}

// Block manager v1 demands a free block for every decode. There are 4 blocks. R1 and R2 (17 tokens) hold 2 each after
// iteration 1. No block is free, but the last block of each request still has space. With v2, both decode to the end.
// With v1, R2 is preempted in iteration 2 and readmitted in 3, where its 18 tokens fit the 2 free blocks. R2 is
// preempted again in 4, in which R1 emits its third and last token.
TEST(VllmV0, BlockManagerV1_WhenNoBlockIsSpare_ThenPreempts) {
  for (const std::string manager : {"v1", "v2"}) {
    const WatchingModel model;
    const Replay run = replay("vllm-v0", prompts_first({{"policy.block_manager", manager}}), layout(4),
                              {request(0, 17, 3), request(0, 17, 3)}, model);
    EXPECT_EQ(run.of(1).preempted_recompute, manager == "v1" ? 2 : 0);
  }
}

// Which releases default to block manager v1: 0.2.0, which has no other, and 0.5.3.
TEST(VllmV0, BlockManager_WhenAuto_ThenIsThatOfTheRelease) {
  for (const auto& [version, preemptions] :
       std::vector<std::pair<std::string, std::int64_t>>{{"0.2.0", 2}, {"0.5.3", 2}, {"0.6.3", 0}}) {
    const WatchingModel model;
    const Replay run = replay("vllm-v0", prompts_first({{"policy.version", version}}), layout(4),
                              {request(0, 17, 3), request(0, 17, 3)}, model);
    EXPECT_EQ(run.of(1).preempted_recompute, preemptions) << version;
  }
}

// max_num_batched_tokens of a release: the length of a batch of prompts, or the budget of chunked prefill.
TEST(VllmV0, EngineDefaults_AreThoseOfTheRelease) {
  const PolicyInfo& policy = *PolicyRegistry::instance().find("vllm-v0");
  const auto budget = [&](const std::string& version, bool chunked) {
    const Settings settings =
        oracle::policy_settings(policy, {{"policy.version", version}, {"engine.chunked_prefill", chunked}});
    return policy.engine_defaults(settings).at("engine.max_num_batched_tokens");
  };
  EXPECT_EQ(budget("0.2.0", false), "2560");
  EXPECT_EQ(budget("0.5.3", false), "16384");
  EXPECT_EQ(budget("0.6.3", false), "16384");
  EXPECT_EQ(budget("0.6.3", true), "512");
}

// Chunked prefill with a budget of 3 tokens: a swapped request returns only while tokens of the budget are left. The
// GPU has 38 blocks of 1 token. R1..R3 have prompts of 1 token, so after iteration 12 each holds 12 blocks, and 2 are
// free.
//   13       needs 3 blocks: R3 goes to the host with 12. R1 and R2 grow to 13, which leaves 12 free.
//   14..19   R1 and R2 grow to 19, which leaves none free. (R3 needs 12 + 1 blocks beside the growth of 2.)
//   20       R2 goes to the host with 19. R1 takes its 20th and last token. R4 and R5, which arrived in iteration 19,
//            fill the budget with their prompts of 1 token. At the end 38 - 2 = 36 blocks are free.
//   21       R4 and R5 decode: 1 token is left. R2 and R3 would both fit (2 + 20 + 1 + 13 = 36 blocks), but only R2
//            returns.
//   22       R4 and R5 take their third and last token.
// Copying a block takes 1,000 ns, so R4 ends at 22 * 100 + (12 + 19 + 19) * 1,000 ns.
// Automatic prefix caching came with 0.4.
TEST(VllmV0, PrefixCaching_IsRefusedWhereTheReleaseHasNone) {
  const PolicyInfo& policy = *PolicyRegistry::instance().find("vllm-v0");
  for (const std::string version : {"0.2.0", "0.5.3", "0.6.3"}) {
    Settings settings = oracle::policy_settings(policy, {{"policy.version", version},
                                                         {"engine.chunked_prefill", false},
                                                         {"engine.prefix_caching", std::string("true")}});
    const std::vector<Problem> problems = policy.check(settings);
    ASSERT_EQ(problems.size(), version == "0.2.0" ? 1U : 0U) << version;
    for (const Problem& problem : problems) EXPECT_EQ(problem.where, "engine.prefix_caching");
    const auto defaults = policy.engine_defaults(settings);
    EXPECT_EQ(defaults.contains("engine.prefix_caching"), version == "0.2.0") << version;
  }
}

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
