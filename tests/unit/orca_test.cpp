// Orca's scheduler, step by step.
#include "policies/parts/buddy_allocator.hpp"
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

// 11 blocks are chunks of 8, 2 and 1 at 0, 8 and 10. 3 blocks take half of the 8, at 0; 2 blocks the chunk of 2, at 8;
// 1 block the chunk of 1, at 10; the next one half of a half of the 4 at 4. 4 blocks then fit nowhere, though 3 + 2 are
// free at 5 and 6.
TEST(BuddyAllocator, ChunksAreHalvedAndMerged) {
  BuddyAllocator memory(Blocks(11));
  EXPECT_EQ(memory.take(Blocks(3)), 0);
  EXPECT_EQ(memory.take(Blocks(2)), 8);
  EXPECT_EQ(memory.take(Blocks(1)), 10);
  EXPECT_EQ(memory.take(Blocks(1)), 4);
  EXPECT_FALSE(memory.fits(Blocks(3)));
  EXPECT_TRUE(memory.fits(Blocks(2)));
  EXPECT_EQ(memory.take(Blocks(1)), 5) << "the smallest chunk, not the first";
  EXPECT_EQ(memory.take(Blocks(2)), 6);
  EXPECT_FALSE(memory.fits(Blocks(1)));
  memory.give_back(5, Blocks(1));
  EXPECT_FALSE(memory.fits(Blocks(2)));
  memory.give_back(10, Blocks(1));
  EXPECT_FALSE(memory.fits(Blocks(2))) << "8 to 9 and 10 are no buddies";
  memory.give_back(4, Blocks(1));
  memory.give_back(6, Blocks(2));
  EXPECT_TRUE(memory.fits(Blocks(4)));
  memory.give_back(0, Blocks(3));
  EXPECT_TRUE(memory.fits(Blocks(8)));
  EXPECT_FALSE(memory.fits(Blocks(9)));
  EXPECT_EQ(memory.take(Blocks(1)), 10) << "the chunk of 1 again";
}

// Eight chunks of 1. Free are 6, then 2: two chunks of 1 that are no buddies, and the lower one is taken first. Then
// all but 3 come back, so that 3 merges with 2, both with 0 to 1, and all with 4 to 7.
TEST(BuddyAllocator, TheLowestChunkIsTaken_AndOneBlockMayMergeAll) {
  BuddyAllocator memory(Blocks(8));
  for (std::int64_t block = 0; block < 8; ++block) EXPECT_EQ(memory.take(Blocks(1)), block);
  memory.give_back(6, Blocks(1));
  memory.give_back(2, Blocks(1));
  EXPECT_EQ(memory.take(Blocks(1)), 2);
  EXPECT_EQ(memory.take(Blocks(1)), 6);
  for (const std::int64_t block : {0, 1, 2, 4, 5, 6, 7}) memory.give_back(block, Blocks(1));
  EXPECT_FALSE(memory.fits(Blocks(5)));
  memory.give_back(3, Blocks(1));
  EXPECT_TRUE(memory.fits(Blocks(8)));
}

TEST(BuddyAllocator, ChunksArePowersOfTwo) {
  for (const auto& [needed, chunk] : {std::pair(1, 1), {2, 2}, {3, 4}, {4, 4}, {5, 8}, {128, 128}, {129, 256}}) {
    EXPECT_EQ(BuddyAllocator::chunk_of(Blocks(needed)), Blocks(chunk));
  }
}

// 10 blocks are chunks of 8 and 2. R1 needs 60 + 20 = 80 tokens, 5 blocks: the chunk of 8. R2 needs 17 tokens, 2
// blocks: the chunk of 2. R3 needs 1 block, and waits until R2 ends with step 1; with exact blocks it joins at once.
TEST(Orca, Allocator_WhenBuddy_ThenRoundingCostsMemory) {
  for (const std::string allocator : {"exact", "buddy"}) {
    const WatchingModel model(Duration(100));
    const Replay run = replay("orca", reserve("max_tokens", {{"policy.allocator", allocator}}), ten_blocks(),
                              {request(0, 60, 20), request(0, 16, 1), request(0, 10, 1)}, model);
    EXPECT_EQ(run.of(1).first_scheduled, SimTime(0));
    EXPECT_EQ(run.of(2).first_scheduled, SimTime(allocator == "buddy" ? 100 : 0)) << allocator;
    EXPECT_EQ(run.result.statistics.engine.peak_kv, Blocks(allocator == "buddy" ? 10 : 8)) << allocator;
  }
}

// Four requests of 1 block take the chunk of 2 and the first half of a 4. R2 at 9, R3 at 0 and R4 at 1 go on; R1, at 8,
// ends after step 1. R5 needs 8 of the 10 blocks, of which 7 are free: never while R3 is at 0. R6 stays behind it.
TEST(Orca, Allocator_WhenFreeBlocksLieApart_ThenARequestWaits) {
  const WatchingModel model(Duration(100));
  const Replay run = replay("orca", reserve("max_tokens", {{"policy.allocator", std::string("buddy")}}), ten_blocks(),
                            {request(0, 10, 1), request(0, 10, 2), request(0, 10, 3), request(0, 10, 4),
                             request(0, 100, 20), request(0, 10, 1)},
                            model);
  EXPECT_EQ(run.of(3).first_scheduled, SimTime(0));
  EXPECT_EQ(run.of(4).first_scheduled, SimTime(400));
  EXPECT_EQ(run.of(5).first_scheduled, SimTime(400)) << "in the chunk of 2";
}

}  // namespace
}  // namespace spillway
