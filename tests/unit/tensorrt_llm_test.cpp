// TensorRT-LLM's two capacity schedulers, step by step.
#include "tests/unit/policy_test.hpp"

namespace spillway {
namespace {

Overrides under(const std::string& policy, const Overrides& more = {}) {
  Overrides all{{"policy.batch_scheduler_policy", policy}, {"engine.chunked_prefill", false}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// 10 blocks. R1 (60 in, 20 out) and R2 (59 in, 21 out) each end with 80 tokens, which is 5 blocks. Both start, since
// they need 10 blocks in all. R3 (16 + 1 tokens: 2 blocks) would fit now, because R1 and R2 hold 4 blocks each, but not
// if both run to their end. So R3 waits until R1 has ended after step 20. Then R3's whole prompt is computed beside
// R2's last token.
TEST(TensorRtLlm, GuaranteedNoEvict_StartsOnlyWhatIsSureToFinish) {
  const WatchingModel model(Duration(100));
  const Replay run = replay("tensorrt-llm", under("guaranteed_no_evict"), layout(10),
                            {request(0, 60, 20), request(0, 59, 21), request(0, 16, 1)}, model);
  EXPECT_EQ(model.seen()[0], (SeenIteration{0, 0, {{60, 0}, {59, 0}}}));
  EXPECT_EQ(run.of(2).first_scheduled, SimTime(2000));
  EXPECT_EQ(model.seen()[20], (SeenIteration{1, 59 + 20, {{16, 0}}}));
  EXPECT_EQ(run.result.statistics.engine.preempted_recompute, 0);
}

// Requests take blocks as their tokens come and reserve none: R1 and R2 hold 4 blocks each, never 10 in all.
TEST(TensorRtLlm, GuaranteedNoEvict_TakesBlocksAsTokensCome) {
  const WatchingModel model(Duration(100));
  const Replay run =
      replay("tensorrt-llm", under("guaranteed_no_evict"), layout(10), {request(0, 60, 2), request(0, 59, 2)}, model);
  EXPECT_EQ(run.result.statistics.engine.peak_kv, Blocks(8));
}

// The scheduler counts max_new_tokens, not the actual output: with 100, R1 may reach 160 tokens, which is all 10
// blocks.
TEST(TensorRtLlm, GuaranteedNoEvict_CountsMaxNewTokens) {
  const WatchingModel model(Duration(100));
  RequestSpec asks_much = request(0, 60, 2);
  asks_much.max_new_tokens = Tokens(100);
  for (const std::string policy : {"guaranteed_no_evict", "max_utilization"}) {
    const Replay run = replay("tensorrt-llm", under(policy), layout(10), {asks_much, request(0, 16, 1)}, model);
    EXPECT_EQ(run.of(1).first_scheduled, SimTime(policy == "max_utilization" ? 0 : 200));
  }
}

// MAX_UTILIZATION, 10 blocks. In step 1, R1 (64 tokens) takes 4 blocks and R2 (80 tokens) 5. In step 2, R1 (65) takes
// the tenth block and R2 (81) finds none, so R2 is paused. R1 decodes alone, and this step admits nothing. R2 has 81
// known tokens and needs 6 blocks, but 5 are free. It waits until R1 (4 outputs) ends in step 4, and its tokens are
// computed again in step 5.
TEST(TensorRtLlm, MaxUtilization_PausesTheLatestArrival) {
  const WatchingModel model(Duration(100));
  const Replay run =
      replay("tensorrt-llm", under("max_utilization"), layout(10), {request(0, 64, 4), request(0, 80, 3)}, model);
  const auto& seen = model.seen();
  ASSERT_EQ(seen.size(), 6U);
  EXPECT_EQ(seen[0], (SeenIteration{0, 0, {{64, 0}, {80, 0}}}));
  EXPECT_EQ(seen[1], (SeenIteration{1, 65, {}}));
  EXPECT_EQ(seen[3], (SeenIteration{1, 67, {}}));
  EXPECT_EQ(seen[4], (SeenIteration{0, 0, {{81, 0}}}));
  EXPECT_EQ(run.of(1).preempted_recompute, 1);
}

// Under the same load, GUARANTEED_NO_EVICT does not start R2 beside R1: 64 + 4 = 68 and 80 + 3 = 83 tokens need 5 + 6
// blocks.
TEST(TensorRtLlm, GuaranteedNoEvict_WhenBothMayNotFinish_ThenTheSecondWaits) {
  const WatchingModel model(Duration(100));
  const Replay run =
      replay("tensorrt-llm", under("guaranteed_no_evict"), layout(10), {request(0, 64, 4), request(0, 80, 3)}, model);
  EXPECT_EQ(run.of(1).first_scheduled, SimTime(400));
  EXPECT_EQ(run.of(1).preempted_recompute, 0);
}

// The paused R2 heads the queue. R3 (1 block) arrived during step 1 and would fit from step 3 on, but stays behind R2
// until both join in step 5.
TEST(TensorRtLlm, MaxUtilization_APausedRequestHeadsTheQueue) {
  const WatchingModel model(Duration(100));
  const Replay run = replay("tensorrt-llm", under("max_utilization"), layout(10),
                            {request(0, 64, 4), request(0, 80, 3), request(50, 16, 1)}, model);
  EXPECT_EQ(model.seen()[4], (SeenIteration{0, 0, {{81, 0}, {16, 0}}}));
  EXPECT_EQ(run.of(2).first_scheduled, SimTime(400));
}

// max_num_tokens is 100. R1 (60) leaves 40 tokens, so R2 (50) does not fit whole. It waits for step 2, beside R1's
// decode. A prompt of 101 can never be computed and is rejected. With chunked context, nothing is rejected.
TEST(TensorRtLlm, TokenBudget_WhenAPromptDoesNotFitWhole_ThenItWaits) {
  const Overrides budget{{"engine.max_num_batched_tokens", std::int64_t{100}}};
  const WatchingModel model(Duration(100));
  const Replay run = replay("tensorrt-llm", under("max_utilization", budget), layout(100),
                            {request(0, 60, 2), request(0, 50, 1), request(0, 101, 1)}, model);
  EXPECT_EQ(model.seen()[0], (SeenIteration{0, 0, {{60, 0}}}));
  EXPECT_EQ(model.seen()[1], (SeenIteration{1, 61, {{50, 0}}}));
  EXPECT_EQ(run.of(2).outcome, Outcome::rejected);
}

TEST(TensorRtLlm, ChunkedContext_FillsTheTokenBudget) {
  const WatchingModel model(Duration(100));
  const Replay run = replay("tensorrt-llm",
                            under("max_utilization", {{"engine.chunked_prefill", true},
                                                      {"engine.max_num_batched_tokens", std::int64_t{100}}}),
                            layout(100), {request(0, 60, 2), request(0, 50, 1), request(0, 101, 1)}, model);
  // Step 1: 60 tokens of R1 and 40 of R2. Step 2: R1's decode, R2's other 10 and 89 of R3. Step 3: R3's last 12.
  EXPECT_EQ(model.seen()[0], (SeenIteration{0, 0, {{60, 0}, {40, 0}}}));
  EXPECT_EQ(model.seen()[1], (SeenIteration{1, 61, {{10, 40}, {89, 0}}}));
  EXPECT_EQ(model.seen()[2], (SeenIteration{0, 0, {{12, 89}}}));
  EXPECT_EQ(run.of(2).outcome, Outcome::finished);
}

}  // namespace
}  // namespace spillway
