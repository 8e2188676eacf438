// Orca's scheduler, step by step.
#include "tests/unit/policy_test.hpp"

namespace spillway {
namespace {

/// max_model_len is the capacity of the blocks: 160 tokens.
KvLayout ten_blocks() { return layout(10); }

Overrides reserve(const std::string& what, Overrides more = {}) {
  more.emplace_back("policy.reserve", what);
  more.emplace_back("engine.chunked_prefill", false);
  return more;
}

// Reserving max_model_len = 160 tokens = all 10 blocks, one request runs at a time, however short.
// R1 (10 in, 3 out) ends with step 3, R2 (10 in, 2 out) runs in steps 4 and 5.
TEST(Orca, Reserve_WhenMaxModelLen_ThenOneFillsTheMemory) {
  const WatchingModel model(Duration(100));
  const Replay run =
      replay("orca", reserve("max_model_len"), ten_blocks(), {request(0, 10, 3), request(0, 10, 2)}, model);
  const auto& seen = model.seen();
  ASSERT_EQ(seen.size(), 5U);
  EXPECT_EQ(seen[0], (SeenIteration{0, 0, {{10, 0}}}));
  EXPECT_EQ(seen[2], (SeenIteration{1, 12, {}}));
  EXPECT_EQ(seen[3], (SeenIteration{0, 0, {{10, 0}}}));
  EXPECT_EQ(run.of(1).first_scheduled, SimTime(300));
  EXPECT_EQ(run.result.statistics.engine.peak_kv, Blocks(10));
}

// Reserving each request's own maximum: R1 60 + 20 = 80 tokens = 5 blocks, R2 the same, R3 waits although only 118 of
// 160 tokens are used. R1 ends with step 20 and R3 joins in step 21, whole, beside R2's decode (R2 has 22 outputs).
TEST(Orca, Reserve_WhenMaxTokens_ThenUnusedMemoryStaysReserved) {
  const WatchingModel model(Duration(100));
  const Replay run = replay("orca", reserve("max_tokens"), ten_blocks(),
                            {request(0, 60, 20), request(0, 58, 22), request(0, 16, 1)}, model);
  EXPECT_EQ(model.seen()[0], (SeenIteration{0, 0, {{60, 0}, {58, 0}}}));
  EXPECT_EQ(run.of(2).first_scheduled, SimTime(2000));
  EXPECT_EQ(model.seen()[20], (SeenIteration{1, 58 + 20, {{16, 0}}}));
  EXPECT_EQ(run.of(0).preempted_recompute + run.of(1).preempted_recompute, 0);
}

// The reserved memory depends on the requested length, not on the generated one: max_new_tokens 100 needs 160 tokens.
TEST(Orca, Reserve_FollowsMaxNewTokens) {
  const WatchingModel model(Duration(100));
  RequestSpec asks_much = request(0, 60, 2);
  asks_much.max_new_tokens = Tokens(100);
  const Replay run = replay("orca", reserve("max_tokens"), ten_blocks(), {asks_much, request(0, 16, 1)}, model);
  EXPECT_EQ(run.of(1).first_scheduled, SimTime(200));
}

// Strictly first come, first served: R2 does not fit beside R1, and R3, which would fit, stays behind R2.
TEST(Orca, Queue_WhenTheHeadDoesNotFit_ThenNobodyPassesIt) {
  const WatchingModel model(Duration(100));
  const Replay run = replay("orca", reserve("max_tokens"), ten_blocks(),
                            {request(0, 90, 6), request(0, 64, 5), request(0, 16, 1)}, model);
  EXPECT_EQ(run.of(1).first_scheduled, SimTime(600));
  EXPECT_EQ(run.of(2).first_scheduled, SimTime(600));
}

// At most max_num_seqs in a batch; the third prompt joins when the first request has left.
TEST(Orca, Batch_IsLimitedBySeats) {
  const WatchingModel model(Duration(100));
  const Replay run = replay("orca", reserve("max_tokens", {{"engine.max_num_seqs", std::int64_t{2}}}), ten_blocks(),
                            {request(0, 10, 2), request(0, 10, 5), request(0, 10, 1)}, model);
  EXPECT_EQ(run.of(2).first_scheduled, SimTime(200));
  EXPECT_EQ(model.seen()[2], (SeenIteration{1, 12, {{10, 0}}}));
}

// Request-level batching: R3 arrives during step 1 and waits until R1 and R2 (5 outputs) are both gone, after step 5.
TEST(Orca, Batching_WhenByRequest_ThenNobodyJoinsARunningBatch) {
  for (const std::string batching : {"iteration", "request"}) {
    const WatchingModel model(Duration(100));
    const Replay run = replay("orca", reserve("max_tokens", {{"policy.batching", batching}}), ten_blocks(),
                              {request(0, 10, 2), request(0, 10, 5), request(50, 10, 1)}, model);
    EXPECT_EQ(run.of(2).first_scheduled, SimTime(batching == "request" ? 500 : 100));
  }
}

}  // namespace
}  // namespace spillway
