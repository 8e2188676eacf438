// Completely fair scheduling, slice by slice.
#include <array>

#include "tests/unit/policy_test.hpp"

namespace spillway {
namespace {

/// A slice of k iterations, seats for `seats` requests, b tokens in an iteration.
Overrides slices(std::int64_t k, std::int64_t seats, std::int64_t budget, Overrides more = {}) {
  more.emplace_back("policy.slice", k);
  more.emplace_back("engine.max_num_seqs", seats);
  more.emplace_back("engine.max_num_batched_tokens", budget);
  return more;
}

// A schedule like that of AQUA, Fig. 6: capacity 3 prompts, an iteration takes 1, a prompt takes one iteration
// and gives the first token, swaps are free, k = 2. (arrival, outputs): A(0, 6) B(0, 8) C(2, 6) D(2, 4) E(3, 3).
//
// Here an iteration takes 1 ms and a block moves in 1 ns, so that times in whole ms are those of the rule. The prompts
// have 1,000, 2,000, 4,000, 8,000 and 16,000 tokens: the thousands of the context tell who decodes, and the prompts who
// begins. Fewest tokens first, then the earlier arrival:
//   t=0  AB  first tokens of A and B                 t=6  ADE  D 2, E 2, then A, B, C 4: A came first
//   t=1  AB                                          t=7  BCD  E has ended: D 3, B and C 4, A 5
//   t=2  ACD new slice; C and D have none, A 2, B 2  t=8  ABC  D has ended: 5 each
//   t=3  ACD                                         t=9  B    A and C have ended
//   t=4  BCE E none; B and C and D 2, A 4            t=10 B
//   t=5  BCE
constexpr std::int64_t kMs = 1'000'000;

std::vector<RequestSpec> five_requests() {
  return {request(0, 1000, 6), request(0, 2000, 8), request(2 * kMs, 4000, 6), request(2 * kMs, 8000, 4),
          request(3 * kMs, 16000, 3)};
}

/// Who takes part in an iteration: a letter for each.
std::string members(const SeenIteration& seen) {
  std::int64_t thousands = seen.decode_context / 1000;
  for (const auto& [tokens, context] : seen.chunks) thousands += (tokens + context) / 1000;
  std::string letters;
  for (int i = 0; i < 5; ++i) {
    if (thousands >> i & 1) letters += static_cast<char>('A' + i);
  }
  return letters;
}

std::vector<std::string> members_of_all(const WatchingModel& model) {
  std::vector<std::string> all;
  for (const SeenIteration& seen : model.seen()) all.push_back(members(seen));
  return all;
}

std::int64_t whole_ms(Duration time) { return (time.count() + kMs / 2) / kMs; }

KvLayout small_blocks() {
  KvLayout kv = layout(10'000, 10'000);
  kv.block_bytes = Bytes(1);
  return kv;
}

TEST(Cfs, Slices_AreThoseOfTheExample) {
  const WatchingModel model{Duration(kMs)};
  const Replay run = replay("cfs", slices(2, 3, 100'000), small_blocks(), five_requests(), model);
  EXPECT_EQ(members_of_all(model),
            (std::vector<std::string>{"AB", "AB", "ACD", "ACD", "BCE", "BCE", "ADE", "BCD", "ABC", "B", "B"}));
  const std::array<std::int64_t, 5> first{1, 1, 1, 1, 2};
  const std::array<std::int64_t, 5> whole{9, 11, 7, 6, 4};
  for (std::size_t i = 0; i < 5; ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(whole_ms(run.of(i).first_token - run.of(i).arrival), first[i]);
    EXPECT_EQ(whole_ms(run.of(i).end - run.of(i).arrival), whole[i]);
    EXPECT_EQ(run.of(i).preempted_swap, 0);  // the end of a slice is no preemption
  }
}

// The same requests, first come, first served: AB, AB, ABC x 4, BCD, BCD, DE, DE, E.
TEST(Cfs, FirstComeFirstServed_IsTheOtherHalfOfTheExample) {
  const WatchingModel model{Duration(kMs)};
  const Replay run = replay(
      "vllm", {{"engine.max_num_seqs", std::int64_t{3}}, {"engine.max_num_batched_tokens", std::int64_t{100'000}}},
      small_blocks(), five_requests(), model);
  EXPECT_EQ(members_of_all(model),
            (std::vector<std::string>{"AB", "AB", "ABC", "ABC", "ABC", "ABC", "BCD", "BCD", "DE", "DE", "E"}));
  const std::array<std::int64_t, 5> first{1, 1, 1, 5, 6};
  const std::array<std::int64_t, 5> whole{6, 8, 6, 8, 8};
  for (std::size_t i = 0; i < 5; ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(whole_ms(run.of(i).first_token - run.of(i).arrival), first[i]);
    EXPECT_EQ(whole_ms(run.of(i).end - run.of(i).arrival), whole[i]);
  }
}

/// Memory in which any 40 decodes fit, and everything else does: only tokens are divided.
class RoomForForty final : public OffloadPolicy {
 public:
  [[nodiscard]] Fit admits(const RequestView&, Tokens) const override { return Fit::now; }
  [[nodiscard]] Fit grows(const RequestView&, Tokens) const override { return Fit::now; }
  [[nodiscard]] Fit decodes(std::int64_t) const override { return Fit::now; }
  [[nodiscard]] Fit resumes(const RequestView&, Tokens) const override { return Fit::now; }
  [[nodiscard]] Leave preempts(const RequestView&) const override { return Leave::preempt_swap; }
  [[nodiscard]] std::int64_t together(const View&, const std::function<RequestId()>& next) const override {
    std::int64_t some = 0;
    while (some < 40 && next().valid()) ++some;
    return some;
  }
};

PolicyInfo with_room_for_forty() {
  PolicyInfo info = *PolicyRegistry::instance().find("cfs");
  info.make = [make_scheduler = info.make_scheduler](const PolicyContext& context) {
    return Policy{make_scheduler(context), std::make_unique<RoomForForty>()};
  };
  return info;
}

std::vector<RequestSpec> prompts_of_one(std::int64_t count) {
  return std::vector<RequestSpec>(static_cast<std::size_t>(count), request(0, 1, 50));
}

// AQUA, section 7: b = 512, memory for 40 decodes: d = 40, p = 472. 25 decodes are ready: they use 25 tokens, and
// prompts get the other 487. Waiting: X(1000) and Y(300), of which nothing is computed, and Z(700), of which 512 is:
// the order is X, Y, Z, so X gets all.
//
// Iteration 0: Z is alone: 512 tokens. Iteration 1: 25 prompts of one token, and one of 487 that ends with its first
// token. They fill the budget, and Z leaves for the host, because it gets nothing. X and Y arrive in it. Iteration 2:
// as above.
TEST(Cfs, TokensThatDecodesDoNotUse_GoToPrompts) {
  std::vector<RequestSpec> requests{request(0, 700, 2)};  // Z
  for (int i = 0; i < 25; ++i) requests.push_back(request(50, 1, 50));
  requests.push_back(request(50, 487, 1));
  requests.push_back(request(150, 1000, 2));  // X
  requests.push_back(request(150, 300, 2));   // Y
  const WatchingModel model(Duration(100));
  (void)replay(with_room_for_forty(), slices(6, 512, 512), layout(1000, 1000), requests, model);
  ASSERT_GT(model.seen().size(), 3U);
  EXPECT_EQ(model.seen()[0], (SeenIteration{0, 0, {{512, 0}}}));
  EXPECT_EQ(model.seen()[1].chunks.back(), (std::pair<std::int64_t, std::int64_t>{487, 0}));
  EXPECT_EQ(model.seen()[2], (SeenIteration{25, 50, {{487, 0}}}));  // each attends to 2 tokens
}

// The same with 60 decodes ready: the 40 least served decode, and X gets 512 - 40 = 472 tokens. All have one token, so
// the first 40 are those that arrived first. They have two then, and the other 20 come before them in the next slice.
TEST(Cfs, DecodesThatDoNotFitTogether_LeaveTheirTokensToPrompts) {
  std::vector<RequestSpec> requests = prompts_of_one(60);
  requests.push_back(request(50, 1000, 2));  // X
  const WatchingModel model(Duration(100));
  (void)replay(with_room_for_forty(), slices(1, 512, 512), layout(1000, 1000), requests, model);
  ASSERT_GT(model.seen().size(), 3U);
  EXPECT_EQ(model.seen()[1], (SeenIteration{40, 80, {{472, 0}}}));
  // 20 attend to 2 tokens, and 20 of the 40 to 3: 40 + 60. X goes on with 472.
  EXPECT_EQ(model.seen()[2], (SeenIteration{40, 100, {{472, 472}}}));
}

// Page-out first, then page-in. Blocks of 16 tokens, 2 on the GPU, a block moves in 1,000 ns, an iteration takes 100
// ns, k = 1. A and B (10 tokens, 3 outputs) arrive at 0, C (10 tokens, 1 output) at 50.
//   0      A and B compute their prompts.
//   100    C is new and comes first, then A (1 token, the earlier arrival). B leaves: 1,000 ns, then C's prompt and A's
//          second token: until 1,200. C has ended.
//   1,200  B has 1 token and A has 2: both fit. B comes back in 1,000 ns: until 2,300.
//   2,300  A has ended with its third. B decodes: until 2,400.
TEST(Cfs, ARequestThatWasPagedOut_WaitsForItsKv) {
  const WatchingModel model(Duration(100));
  const Replay run =
      replay("cfs", slices(1, 8, 512), layout(2, 2), {request(0, 10, 3), request(0, 10, 3), request(50, 10, 1)}, model);
  EXPECT_EQ(run.of(2).end, SimTime(1200));
  EXPECT_EQ(run.of(0).end, SimTime(2300));
  EXPECT_EQ(run.of(1).end, SimTime(2400));
  EXPECT_EQ(run.result.statistics.engine.moved_d2h, Bytes(1000));
  EXPECT_EQ(run.result.statistics.engine.moved_h2d, Bytes(1000));
}

// When one leaves for another that comes back, the second waits for the first: 1,000 + 1,000 ns, although the links
// carry both directions at once. One block on the GPU, k = 2, A and B (10 tokens, 4 outputs) at 0.
//   0      A's prompt. B does not fit.
//   100    A decodes (its slice of 2 ends): A has 2 tokens.
//   200    B has none: A leaves (1,000 ns), B's prompt, then a decode: until 1,400.
//   1,400  A and B have 2, A came first: B leaves (1,000), then A comes back (1,000). A decodes twice and ends with 4:
//          until 3,600.
//   3,600  B comes back (1,000) and decodes twice: until 4,800.
TEST(Cfs, WhoComesBack_WaitsUntilOthersHaveLeft) {
  const WatchingModel model(Duration(100));
  const Replay run = replay("cfs", slices(2, 8, 512), layout(1, 4), {request(0, 10, 4), request(0, 10, 4)}, model);
  EXPECT_EQ(run.of(1).first_token, SimTime(1300));
  EXPECT_EQ(run.of(0).end, SimTime(3600));
  EXPECT_EQ(run.of(1).end, SimTime(4800));
}

// Copies may stay on the host. Blocks of 4 tokens, 3 of them on the GPU, k = 1, A and B (9 tokens, 3 outputs) at 0: a
// context of 9, 10 or 11 tokens has two full blocks and a third one that changes. The slices are A, B, A, B, A, B:
// first the prompts, then of equals the one that arrived first, and the other one has a token less. So A and B leave
// twice each, the first time with 3 blocks. When copies stay, only the third block leaves the second time. Each comes
// back twice, with 3 blocks.
TEST(Cfs, CopiesThatStay_SaveTheBlocksThatHaveNotChanged) {
  for (const bool stay : {false, true}) {
    KvLayout kv = layout(3, 12);
    kv.block_tokens = Tokens(4);
    const WatchingModel model(Duration(100));
    const Overrides keys = slices(1, 8, 512, {{"policy.incremental_swap_out", std::string(stay ? "true" : "false")}});
    const Replay run = replay("cfs", keys, kv, {request(0, 9, 3), request(0, 9, 3)}, model);
    SCOPED_TRACE(stay);
    EXPECT_EQ(run.result.statistics.engine.moved_d2h, Bytes(stay ? 8000 : 12'000));
    EXPECT_EQ(run.result.statistics.engine.moved_h2d, Bytes(12'000));
  }
}

// Without room elsewhere nobody leaves. One block on the GPU, none on the host: A runs to its end, then B.
TEST(Cfs, WithoutASwapTier_RequestsAreServedInOrderOfArrival) {
  const WatchingModel model(Duration(100));
  const Replay run = replay("cfs", slices(1, 8, 512), layout(1, 0), {request(0, 10, 4), request(0, 10, 4)}, model);
  EXPECT_EQ(run.of(0).end, SimTime(400));
  EXPECT_EQ(run.of(1).end, SimTime(800));
  EXPECT_EQ(run.of(0).preempted_recompute + run.of(1).preempted_recompute, 0);
}

/// The same tiers as layout(), and blocks that another GPU lends.
KvLayout with_lender(KvLayout kv, std::int64_t blocks) {
  const TierId peer{2};
  kv.further = {{{kPeerTier, Blocks(blocks), Blocks(blocks)}},
                {{peer, kGpuTier, Stream::peer_in, 1}, {kGpuTier, peer, Stream::peer_out, 1}}};
  return kv;
}

// WhoComesBack over lent memory: the same times, and the same bytes on the links between GPUs. A lender of 0 blocks
// leaves it to the host.
TEST(Aqua, RequestsGoToLentMemory_OrToTheHostWhenItIsFull) {
  for (const std::int64_t lent : {4, 0}) {
    SCOPED_TRACE(lent);
    const WatchingModel model(Duration(100));
    const Replay run = replay("aqua", slices(2, 8, 512), with_lender(layout(1, 4), lent),
                              {request(0, 10, 4), request(0, 10, 4)}, model);
    EXPECT_EQ(run.of(0).end, SimTime(3600));
    EXPECT_EQ(run.of(1).end, SimTime(4800));
    const EngineTotals& totals = run.result.statistics.engine;
    EXPECT_EQ(totals.moved_peer_out, Bytes(lent > 0 ? 2000 : 0));
    EXPECT_EQ(totals.moved_peer_in, Bytes(lent > 0 ? 2000 : 0));
    EXPECT_EQ(totals.moved_d2h, Bytes(lent > 0 ? 0 : 2000));
  }
}

// With the fallback nobody leaves for the host: A runs to its end, then B. Lent memory is used as ever.
TEST(Aqua, Fallback_ServesInOrderOfArrival_WhileNothingIsLent) {
  for (const std::int64_t lent : {4, 0}) {
    SCOPED_TRACE(lent);
    const WatchingModel model(Duration(100));
    Overrides settings = slices(2, 8, 512);
    settings.emplace_back("policy.fallback", std::string("fcfs"));
    const Replay run =
        replay("aqua", settings, with_lender(layout(1, 4), lent), {request(0, 10, 4), request(0, 10, 4)}, model);
    EXPECT_EQ(run.of(0).end, SimTime(lent > 0 ? 3600 : 400));
    EXPECT_EQ(run.of(1).end, SimTime(lent > 0 ? 4800 : 800));
    EXPECT_EQ(run.result.statistics.engine.moved_d2h, Bytes(0));
  }
}

TEST(Aqua, Fallback_IsForThePapersRulesAndLentMemory) {
  const auto problems = [](const std::string& policy, Overrides settings) {
    settings.emplace_back("policy.fallback", std::string("fcfs"));
    const PolicyInfo& info = *PolicyRegistry::instance().find(policy);
    std::string all;
    for (const Problem& problem : info.check(oracle::policy_settings(info, settings))) all += problem.what + "; ";
    return all;
  };
  EXPECT_EQ(problems("aqua", {{"engine.chunked_prefill", true}}), "");
  EXPECT_THAT(problems("cfs", {{"engine.chunked_prefill", true}}), testing::HasSubstr("page to the host"));
  EXPECT_THAT(problems("aqua", {{"engine.chunked_prefill", false}, {"policy.rules", std::string("code")}}),
              testing::HasSubstr("has no fallback"));
}

// The public code: prompts come first, and a slice counts decodes only. 2 blocks of 16 tokens, k = 2, host of 4.
// A (10 tokens, 5 outputs) at 0, B (10 tokens, 5 outputs) at 150. A block to spare per decode: one decode at a time.
//   0      A's prompt. 100: A decodes: 2 tokens at 200.
//   200    B is new and fits beside A (1 of 2 blocks is free; the watermark of 1% is 0 blocks). Its prompt has the
//          iteration to itself: until 300. Now A and B run, and nothing is free: the decodes lack a spare block.
//   300    chosen anew: B has 1 token and needs 1 + 1 blocks, so A does not fit. A leaves: 1,000; B decodes: 1,400,
//          1,500. B has 3 tokens.
//   1,500  A (2) comes, B (3) leaves: 2,000, then two decodes: 3,700. A has 4.
//   3,700  B (3) comes, A leaves: B ends with 5 at 5,900.
//   5,900  A comes back and decodes: 7,000.
// The copies stay, but the one block of each has changed every time.
TEST(Cfs, PublicCode_TakesPromptsFirstAndSlicesDecodes) {
  const WatchingModel model(Duration(100));
  const Replay run =
      replay("cfs", slices(2, 8, 4096, {{"policy.rules", std::string("code")}, {"engine.chunked_prefill", false}}),
             layout(2, 4), {request(0, 10, 5), request(150, 10, 5)}, model);
  EXPECT_EQ(run.of(1).first_token, SimTime(300));
  EXPECT_EQ(run.of(1).end, SimTime(5900));
  EXPECT_EQ(run.of(0).end, SimTime(7000));
}

}  // namespace
}  // namespace spillway
