// vLLM's V1 scheduler, step by step.
#include "tests/unit/policy_test.hpp"

namespace spillway {
namespace {

KvLayout blocks(std::int64_t gpu) { return KvLayout{Blocks(gpu), Blocks(0), Tokens(16), Bytes(16), 1, false}; }

// 10 blocks of 16, budget 64. R1: 80 input, 40 output; R2: 48 input, 40 output; both at 0.
// Step 1: R1 computes 64 tokens (4 blocks). Step 2: R1 computes 16 (5 blocks) and emits. R2 computes 48 (3 blocks) and
// emits. Together these are 64 tokens.
// From step 3 on both decode. R1 computes token 81 (6th block), R2 token 49 (4th block), so 10 blocks are in use.
// In step 3 + k, R1 computes token 81 + k and R2 token 49 + k. At k = 16 (step 19), R1 needs its 7th block for token 97
// and R2 its 5th for token 65. R1 comes first, and no block is free. So R2, the last request, is preempted, and R1 goes
// on with 97 tokens in 7 blocks. R2 then has 48 + 17 = 65 known tokens (it emitted in steps 2..18) and needs 5 blocks,
// but 10 - 7 = 3 are free.
// R1 emits its 40th token in step 2 + 39 = 41. R1 holds up to 8 blocks (120 tokens), so R2 stays out until then.
// Step 42: R2 computes 64 of its 65 tokens. Step 43: R2 computes the last one and emits token 18. The other 22 tokens
// follow in steps 44..65.
TEST(Vllm, SharesOneTokenBudgetAndPreemptsTheLast) {
  const WatchingModel model(Duration(100));
  const Replay run = replay("vllm", {{"engine.max_num_batched_tokens", std::int64_t{64}}}, blocks(10),
                            {request(0, 80, 40), request(0, 48, 40)}, model);
  const auto& seen = model.seen();
  ASSERT_EQ(seen.size(), 65U);
  EXPECT_EQ(seen[0], (SeenIteration{0, 0, {{64, 0}}}));
  EXPECT_EQ(seen[1], (SeenIteration{0, 0, {{16, 64}, {48, 0}}}));
  EXPECT_EQ(seen[2], (SeenIteration{2, 81 + 49, {}}));
  EXPECT_EQ(seen[17], (SeenIteration{2, 96 + 64, {}}));
  EXPECT_EQ(seen[18], (SeenIteration{1, 97, {}}));
  EXPECT_EQ(seen[40], (SeenIteration{1, 119, {}}));
  EXPECT_EQ(seen[41], (SeenIteration{0, 0, {{64, 0}}}));
  EXPECT_EQ(seen[42], (SeenIteration{0, 0, {{1, 64}}}));
  EXPECT_EQ(seen[43], (SeenIteration{1, 66, {}}));
  EXPECT_EQ(run.of(0).first_token, SimTime(200));
  EXPECT_EQ(run.of(0).end, SimTime(4100));
  EXPECT_EQ(run.of(0).preempted_recompute, 0);
  EXPECT_EQ(run.of(1).first_token, SimTime(200));
  EXPECT_EQ(run.of(1).end, SimTime(6500));
  EXPECT_EQ(run.of(1).preempted_recompute, 1);
  // R2 took part in steps 2..18 and 42..65: 17 + 24 iterations.
  EXPECT_EQ(run.of(1).computing, Duration(4100));
}

// With reserve_full_input, the 100-token request (7 blocks) waits until 7 blocks are free. Without it, its first piece
// of 64 - 1 tokens enters in the step after R1's prompt: R1 holds 5 blocks, and the piece takes 4 of the other 5. R1
// has 64 input tokens (4 blocks) and 5 output tokens; there are 10 blocks. Step 1: R1's 64 tokens spend the budget.
// Step 2: R1 decodes (5th block), so 63 tokens of the budget are left.
TEST(Vllm, ReserveFullInput_WhenBlocksAreShort_ThenWaits) {
  for (const bool reserve : {true, false}) {
    const WatchingModel model;
    (void)replay("vllm", {{"engine.max_num_batched_tokens", std::int64_t{64}}, {"policy.reserve_full_input", reserve}},
                 blocks(10), {request(0, 64, 5), request(0, 100, 2)}, model);
    const SeenIteration alone{1, 65, {}};
    const SeenIteration shared{1, 65, {{63, 0}}};
    EXPECT_EQ(model.seen()[1], reserve ? alone : shared);
  }
}

// Three requests, at most two in the batch: the third starts when the first has ended.
TEST(Vllm, MaxNumSeqs_WhenReached_ThenTheNextWaits) {
  const WatchingModel model(Duration(10));
  const Replay run = replay("vllm", {{"engine.max_num_seqs", std::int64_t{2}}}, blocks(100),
                            {request(0, 10, 3), request(0, 10, 9), request(0, 10, 1)}, model);
  EXPECT_EQ(run.of(0).end, SimTime(30));  // prompt, then two decodes
  EXPECT_EQ(run.of(2).first_scheduled, SimTime(30));
  EXPECT_EQ(run.of(2).end, SimTime(40));
}

// The budget is smaller than the batch, so in each step the first `budget` decodes in order of admission run. The
// budget is 2; three requests have one prompt token and 3 outputs. Step 1: A and B compute their prompts and emit. Step
// 2: A and B decode. Step 3: A and B decode and end. Steps 4, 5 and 6: C runs alone.
TEST(Vllm, Budget_WhenSmallerThanTheBatch_ThenTheFirstRun) {
  const WatchingModel model(Duration(10));
  const Replay run = replay("vllm", {{"engine.max_num_batched_tokens", std::int64_t{2}}}, blocks(100),
                            {request(0, 1, 3), request(0, 1, 3), request(0, 1, 3)}, model);
  EXPECT_EQ(run.of(0).end, SimTime(30));
  EXPECT_EQ(run.of(1).end, SimTime(30));
  EXPECT_EQ(run.of(2).first_scheduled, SimTime(30));
  EXPECT_EQ(run.of(2).end, SimTime(60));
}

// Prefix caching. Two requests have the same 3 blocks of ids and 48 + 2 input tokens. The second request arrives when
// the first one has its first token. It finds 3 whole blocks (48 tokens) and computes 2 tokens. With exactly 48 input
// tokens it may not use the last block, because one token must be computed. Then 2 blocks (32 tokens) hit, and 16 are
// computed.
TEST(Vllm, PrefixCache_WhenBlocksAreThere_ThenOnlyTheRestIsComputed) {
  for (const std::int64_t input : {50, 48}) {
    const WatchingModel model(Duration(10));
    KvLayout kv = blocks(100);
    kv.prefix_caching = true;
    std::vector<RequestSpec> requests{request(0, input, 4), request(15, input, 4)};
    for (RequestSpec& r : requests) r.prefix_ids = {11, 22, 33};
    const Replay run = replay("vllm", {}, kv, requests, model);
    const std::int64_t hit = input == 50 ? 48 : 32;
    EXPECT_EQ(run.of(1).cached, Tokens(hit));
    EXPECT_EQ(model.seen()[2].chunks, (std::vector<std::pair<std::int64_t, std::int64_t>>{{input - hit, hit}}));
  }
}

// Free blocks keep their content until they are reused; the end of a sequence is reused first. There are 4 blocks. A
// has 33 tokens: it fills 2 blocks with ids 1 and 2, starts a third, and ends. Its blocks return in reverse order, so
// the free list is [3, 2, 1, 0] in the order of A's table (block 3 was never used). B (17 tokens, id 9) takes 2 blocks:
// 3 and A's partial third block. So C (33 tokens, ids 1 and 2) still finds both of A's full blocks.
TEST(Vllm, PrefixCache_WhenBlocksAreReused_ThenTheLeastRecentlyFreedGoFirst) {
  const WatchingModel model(Duration(10));
  KvLayout kv = blocks(4);
  kv.prefix_caching = true;
  std::vector<RequestSpec> requests{request(0, 33, 1), request(20, 17, 1), request(40, 33, 1)};
  requests[0].prefix_ids = {1, 2};
  requests[1].prefix_ids = {9};
  requests[2].prefix_ids = {1, 2};
  const Replay run = replay("vllm", {}, kv, requests, model);
  EXPECT_EQ(run.of(1).cached, Tokens(0));
  EXPECT_EQ(run.of(2).cached, Tokens(32));
}

TEST(Vllm, Check_WhenSwapIsAsked_ThenRefuses) {
  const PolicyInfo& info = *PolicyRegistry::instance().find("vllm");
  EXPECT_EQ(info.check(oracle::policy_settings(info, {{"engine.preemption", std::string("swap")}})).size(), 1U);
  EXPECT_TRUE(info.check(oracle::policy_settings(info, {})).empty());
}

}  // namespace
}  // namespace spillway
