// algorithms of VTC on S-LoRA's engine: counters, admission, and the scheduler step by step.
#include <algorithm>

#include "policies/parts/token_counters.hpp"
#include "policies/parts/token_pool.hpp"
#include "tests/unit/policy_test.hpp"

namespace spillway {
namespace {

using oracle::Dice;

/// A view of an instance in which every request is alive.
class PlainView final : public View {
 public:
  PlainView(std::int64_t gpu_blocks, std::int64_t block_tokens) {
    tiers_[0] = TierState{Blocks(gpu_blocks), Blocks(gpu_blocks)};
    block_tokens_ = Tokens(block_tokens);
  }
  [[nodiscard]] RequestView request(RequestId) const override { return {}; }
  [[nodiscard]] bool alive(RequestId) const override { return true; }
  [[nodiscard]] RequestId last_joined() const override { return kNoRequest; }
  [[nodiscard]] RequestId last_decoding() const override { return kNoRequest; }
  [[nodiscard]] Blocks decode_growth(std::int64_t) const override { return {}; }
  [[nodiscard]] bool grows_next(RequestId) const override { return false; }
  [[nodiscard]] CachedPrefix cached_prefix(RequestId) const override { return {}; }
};

RequestView waiting(std::uint32_t id, std::uint32_t client, std::int64_t input, std::int64_t max_new = 100) {
  RequestView view;
  view.id = RequestId{id, id};
  view.client = client;
  view.input = Tokens(input);
  view.max_new_tokens = Tokens(max_new);
  return view;
}

/// The request goes from its client's queue into the batch.
void admit(TokenCounters& counters, const RequestView& request) {
  counters.pop(request.client);
  counters.joined(request);
}

// Lift and charges by hand: u1 has paid 100 and has exactly one request of 10 tokens queued, none running;
// u2, which has paid nothing, arrives and is lifted to 100. Both admit a prompt of 10: 110 and 110. Five decode steps
// at 2 per running request: 120 and 120.
TEST(TokenCounters, LiftAdmitAndDecode) {
  const PlainView view(1000, 1);
  TokenCounters counters(Prices{}, false);
  const RequestView before = waiting(0, 1, 100);
  counters.arrived(before);
  admit(counters, before);
  counters.left(before.id, 1);
  EXPECT_EQ(counters.paid(1), 100.0);

  const RequestView first = waiting(1, 1, 10);
  const RequestView second = waiting(2, 2, 10);
  counters.arrived(first);
  counters.arrived(second);
  EXPECT_EQ(counters.paid(2), 100.0);
  admit(counters, first);
  admit(counters, second);
  EXPECT_EQ(counters.paid(1), 110.0);
  EXPECT_EQ(counters.paid(2), 110.0);
  for (int step = 0; step < 5; ++step) counters.decoded();
  EXPECT_EQ(counters.paid(1), 120.0);
  EXPECT_EQ(counters.paid(2), 120.0);
}

// A lift is to the smallest counter of those that wait, and never lowers one's own.
TEST(TokenCounters, Lift_IsToThePoorestThatWaits) {
  const PlainView view(1000, 1);
  TokenCounters counters(Prices{}, false);
  std::uint32_t id = 0;
  for (const auto& [client, paid] : std::vector<std::pair<std::uint32_t, std::int64_t>>{{1, 50}, {2, 30}, {3, 40}}) {
    const RequestView request = waiting(id++, client, paid);
    // Each one arrives while nobody waits, so none is lifted.
    counters.arrived(request);
    admit(counters, request);
    counters.left(request.id, client);
  }
  counters.arrived(waiting(10, 1, 5));  // nobody waits: stays at 50
  EXPECT_EQ(counters.paid(1), 50.0);
  counters.arrived(waiting(11, 4, 5));  // only client 1 waits, at 50
  EXPECT_EQ(counters.paid(4), 50.0);
  counters.arrived(waiting(12, 2, 5));  // at 30, clients 1 and 4 wait at 50
  EXPECT_EQ(counters.paid(2), 50.0);
  EXPECT_EQ(counters.paid(3), 40.0);    // it does not wait
  counters.arrived(waiting(13, 2, 5));  // its queue is not empty: no second lift
  EXPECT_EQ(counters.paid(2), 50.0);
}

// When nobody waits the code leaves the counter, the paper lifts it to that of the client whose queue became empty
// last.
TEST(TokenCounters, Lift_WhenNobodyWaits) {
  for (const bool paper : {false, true}) {
    const PlainView view(1000, 1);
    TokenCounters counters(Prices{}, paper);
    const RequestView first = waiting(0, 1, 70);
    counters.arrived(first);
    admit(counters, first);
    counters.decoded();
    counters.arrived(waiting(1, 2, 5));
    EXPECT_EQ(counters.paid(2), paper ? 72.0 : 0.0);
  }
}

// The next request is the first one of the poorest client that waits; of equals, of the client that was seen first.
TEST(TokenCounters, Next_IsOfThePoorestClient) {
  const PlainView view(1000, 1);
  TokenCounters counters(Prices{}, false);
  const RequestView a1 = waiting(0, 7, 10);
  const RequestView a2 = waiting(1, 7, 10);
  const RequestView b = waiting(2, 3, 4);
  for (const RequestView& request : {a1, a2, b}) counters.arrived(request);
  EXPECT_EQ(counters.next(view), a1.id);  // both at 0: client 7 came first
  admit(counters, a1);                    // 10 and 0
  EXPECT_EQ(counters.next(view), b.id);
  admit(counters, b);  // 10 and 4, but client 3 has nothing left
  EXPECT_EQ(counters.next(view), a2.id);
  admit(counters, a2);
  EXPECT_EQ(counters.next(view), kNoRequest);
}

// The profile: h(p,q) = 0.21001891p + 0.10075395q + 0.0039868pq + 0.00324733q^2 + 1.14601454. A prompt of 10 pays
// h(10,0) = 2.1001891 + 1.14601454 = 3.24620364. Its prefill gives token 1; the first decode step gives token 2 and
// pays h(10,2) - h(10,1) = 0.10075395 + 0.039868 + 0.00324733 * 3 = 0.15036394; the next, token 3, 0.00324733 * 2 more.
TEST(TokenCounters, Profile_PaysWhatTokensAdd) {
  const PlainView view(1000, 1);
  TokenCounters counters(Prices{true}, false);
  const RequestView request = waiting(0, 1, 10);
  counters.arrived(request);
  admit(counters, request);
  EXPECT_NEAR(counters.paid(1), 3.24620364, 1e-12);
  counters.decoded();
  EXPECT_NEAR(counters.paid(1), 3.24620364 + 0.15036394, 1e-12);
  counters.decoded();
  EXPECT_NEAR(counters.paid(1), 3.24620364 + 0.15036394 + 0.1568586, 1e-12);
}

TEST(TokenCounters, PayAgain_ChargesTheLastStepTwice) {
  const PlainView view(1000, 1);
  TokenCounters counters(Prices{}, false);
  for (const RequestView& request : {waiting(0, 1, 10), waiting(1, 1, 10), waiting(2, 2, 10)}) {
    counters.arrived(request);
    admit(counters, request);
  }
  counters.decoded();
  counters.pay_again();
  EXPECT_EQ(counters.paid(1), 20.0 + 2 * 4.0);
  EXPECT_EQ(counters.paid(2), 10.0 + 2 * 2.0);
}

/// Tokens in the pool when it is fullest, if every request generates to its maximum: step by step. A request has `now`
/// tokens and `left` to go; after t steps it has now + t, and it leaves after `left` steps.
std::int64_t fullest(const std::vector<std::pair<std::int64_t, std::int64_t>>& requests) {
  std::int64_t longest = 0;
  for (const auto& [now, left] : requests) longest = std::max(longest, left);
  std::int64_t most = 0;
  for (std::int64_t t = 0; t <= longest; ++t) {
    std::int64_t tokens = 0;
    for (const auto& [now, left] : requests) tokens += t <= left ? now + t : 0;
    most = std::max(most, tokens);
  }
  return most;
}

// Against that simulation: pools of a size at which the next request just fits, and just does not.
TEST(TokenPool, Admits_WhenTheFullestInstantFits) {
  Dice dice(7);
  for (int round = 0; round < 3000; ++round) {
    std::vector<RequestView> requests;
    const std::int64_t count = dice.between(1, 8);
    for (std::int64_t i = 0; i < count; ++i) {
      requests.push_back(waiting(static_cast<std::uint32_t>(i), 0, dice.between(1, 30), dice.between(1, 30)));
    }
    const std::int64_t steps = dice.between(0, 40);
    // All but the last join one by one, with decode steps between; each has its first token when its prompt is
    // computed.
    std::vector<std::pair<std::int64_t, std::int64_t>> running;
    std::vector<std::int64_t> at;
    for (std::int64_t i = 0; i + 1 < count; ++i) at.push_back(dice.between(0, steps));
    std::sort(at.begin(), at.end());
    for (const std::int64_t slack : {0, 1}) {
      running.clear();
      const PlainView roomy(100000, 1);
      std::int64_t pool_tokens = 0;
      {
        std::vector<std::pair<std::int64_t, std::int64_t>> all;
        for (std::size_t i = 0; i < at.size(); ++i) {
          const std::int64_t generated = 1 + steps - at[i];
          const std::int64_t left = requests[i].max_new_tokens.count() - generated - 1;
          if (left < 0) continue;  // it has ended
          all.emplace_back(requests[i].input.count() + generated, left);
        }
        all.emplace_back(requests.back().input.count() + 1, requests.back().max_new_tokens.count() - 1);
        pool_tokens = fullest(all) + slack;
      }
      const PlainView view(pool_tokens, 1);
      TokenPool pool(view);
      std::int64_t now = 0;
      for (std::size_t i = 0; i < at.size(); ++i) {
        for (; now < at[i]; ++now) pool.decoded();
        pool.joined(requests[i]);
        pool.prefilled();
      }
      for (; now < steps; ++now) pool.decoded();
      for (std::size_t i = 0; i < at.size(); ++i) {
        if (requests[i].max_new_tokens.count() - (1 + steps - at[i]) - 1 < 0) pool.left(requests[i].id);
      }
      // Less than the pool, not as much as the pool: one token more makes the difference.
      const Fit fit = pool.admits(requests.back(), Tokens(0));
      ASSERT_EQ(fit == Fit::now, slack == 1) << round;
    }
  }
}

// A request that could never fit alone: 30 + 70 tokens want a pool of 101.
TEST(TokenPool, Admits_WhenThePoolIsTooSmall_ThenNever) {
  EXPECT_EQ(TokenPool(PlainView(100, 1)).admits(waiting(0, 0, 30, 70), Tokens(30)), Fit::never);
  EXPECT_EQ(TokenPool(PlainView(101, 1)).admits(waiting(0, 0, 30, 70), Tokens(30)), Fit::now);
}

// --- the scheduler

Overrides vtc(Overrides more = {}) {
  more.emplace_back("engine.chunked_prefill", false);
  return more;
}
KvLayout tokens(std::int64_t count) { return KvLayout{Blocks(count), Blocks(0), Tokens(1), Bytes(1000), 1, false}; }
RequestSpec of(std::uint32_t client, std::int64_t arrival, std::int64_t input, std::int64_t output) {
  RequestSpec spec = request(arrival, input, output);
  spec.client = client;
  return spec;
}

// A batch decodes ten times before new prompts are tried. R1 (20 outputs) at 0; R2 arrives during the prompt of R1.
// Step 1: R1's prompt. Steps 2..11: ten decodes. Step 12: R2's prompt alone. Then both decode.
TEST(Vtc, Prompts_WaitForTenDecodeSteps) {
  const WatchingModel model(Duration(100));
  const Replay run = replay("vtc", vtc(), tokens(1000), {of(0, 0, 10, 20), of(1, 50, 10, 3)}, model);
  const auto& seen = model.seen();
  EXPECT_EQ(seen[10], (SeenIteration{1, 20, {}}));
  EXPECT_EQ(seen[11], (SeenIteration{0, 0, {{10, 0}}}));
  EXPECT_EQ(seen[12], (SeenIteration{2, 21 + 11, {}}));
  EXPECT_EQ(run.of(1).first_scheduled, SimTime(1100));
}

// When the tenth step has passed and the head does not fit, it is tried at every step. Pool 60: R1 10 + 30 tokens, R2
// 10 + 30. Beside R1 after s decode steps (it has 11 + s and 28 - s to go; R2 11 and 29): the pool is fullest when R1
// ends, at 11 + 28 + 11 + 28 - s = 78 - s, or when R2 does, at 40. 78 - s < 60 first holds at s = 19: R2's prompt is
// step 1 + 19 + 1.
TEST(Vtc, Admission_WhenTheWorstCaseDoesNotFit_ThenTriedEveryStep) {
  const WatchingModel model(Duration(100));
  const Replay run = replay("vtc", vtc(), tokens(60), {of(0, 0, 10, 30), of(1, 50, 10, 30)}, model);
  EXPECT_EQ(run.of(1).first_scheduled, SimTime(2000));
  EXPECT_EQ(run.result.statistics.engine.preempted_recompute, 0);
}

// One client floods, another comes later: with VTC its request is next, with S-LoRA's own order it queues behind all.
// max_num_seqs 1: one request (4 outputs: 1 prompt step + 3 decodes) at a time. Client 0 sends five at 0, client 1 one
// at 50. VTC: client 0's first is admitted at 0 (it pays 10). Client 1, lifted to 10 on arrival, ties with client 0,
// which was seen first; but R1's decodes (2 each) put client 0 at 16 when the seat is free at 400: client 1 is next.
TEST(Vtc, Order_TheClientThatPaidLeastComesNext) {
  for (const std::string order : {"vtc", "fcfs"}) {
    const WatchingModel model(Duration(100));
    std::vector<RequestSpec> requests(5, of(0, 0, 10, 4));
    requests.push_back(of(1, 50, 10, 4));
    const Replay run = replay("vtc", vtc({{"policy.order", order}, {"engine.max_num_seqs", std::int64_t{1}}}),
                              tokens(1000), requests, model);
    EXPECT_EQ(run.of(5).first_scheduled, SimTime(order == "vtc" ? 400 : 2000));
  }
}

// A mini-batch holds at most max_num_batched_tokens prompt tokens, whoever they are of; a longer prompt can never be
// computed and is rejected.
TEST(Vtc, MiniBatch_IsLimitedInTokens) {
  const WatchingModel model(Duration(100));
  const Replay run = replay("vtc", vtc({{"engine.max_num_batched_tokens", std::int64_t{25}}}), tokens(1000),
                            {of(0, 0, 10, 1), of(1, 0, 10, 1), of(2, 0, 10, 1), of(3, 0, 26, 1)}, model);
  EXPECT_EQ(model.seen()[0], (SeenIteration{0, 0, {{10, 0}, {10, 0}}}));
  EXPECT_EQ(model.seen()[1], (SeenIteration{0, 0, {{10, 0}}}));
  EXPECT_EQ(run.of(3).outcome, Outcome::rejected);
}

// The quirk: a step in which a request finishes is charged twice. One seat, so requests run one by one, and each
// finishes in its last decode step. Client 0's (4 input, 2 output: one decode) cost 6, with the quirk 8; client 1's (6
// input, 7 output: six decodes) 18, with the quirk 20. Counters after each request:
//   plain  client 0: 6, client 1: 18, client 0: 12, client 0: 18; a tie, and client 0 was seen first
//   quirk  client 0: 8, client 1: 20, client 0: 16, client 0: 24; client 1 is next
// The first four requests take 2 + 7 + 2 + 2 = 13 steps.
TEST(Vtc, DoubleCharge_PaysForStepsInWhichRequestsFinishTwice) {
  for (const bool quirk : {false, true}) {
    const WatchingModel model(Duration(100));
    std::vector<RequestSpec> requests(5, of(0, 0, 4, 2));
    requests.push_back(of(1, 0, 6, 7));
    requests.push_back(of(1, 0, 6, 7));
    const Replay run = replay("vtc", vtc({{"policy.double_charge", quirk}, {"engine.max_num_seqs", std::int64_t{1}}}),
                              tokens(1000), requests, model);
    EXPECT_EQ(run.of(3).first_scheduled == SimTime(1300), !quirk);
    EXPECT_EQ(run.of(6).first_scheduled == SimTime(1300), quirk);
  }
}

// The quirk charges a step once more, however many requests finish in it. Two seats. A1, A2 and A3 of client 0 have 4 +
// 2 tokens, so A1 and A2 run in iteration 1 (prompts) and 2 (the last token of both). B1 (9 tokens) and B2 of client 1
// arrive in iteration 1 and are lifted to client 0's 4 + 4 = 8.
//   after iteration 2  client 0 has paid 8 + 2 * 2 for the step, and 2 * 2 for the step again: 16. (Charged for each
//                      request that finishes, it would pay 2 more for A2: 18.)
//   decision 3         client 1 (8) is poorest: B1 joins and pays 9, which makes 17. Client 0 (16) is next: A3.
TEST(Vtc, DoubleCharge_IsOnceAStep) {
  const WatchingModel model(Duration(100));
  const std::vector<RequestSpec> requests{of(0, 0, 4, 2), of(0, 0, 4, 2), of(0, 0, 4, 2), of(1, 50, 9, 2),
                                          of(1, 50, 9, 2)};
  const Replay run = replay("vtc", vtc({{"policy.double_charge", true}, {"engine.max_num_seqs", std::int64_t{2}}}),
                            tokens(1000), requests, model);
  EXPECT_EQ(run.of(0).end, SimTime(200));
  EXPECT_EQ(run.of(1).end, SimTime(200));
  EXPECT_EQ(run.of(3).first_scheduled, SimTime(200));
  EXPECT_EQ(run.of(2).first_scheduled, SimTime(200));
  EXPECT_GT(run.of(4).first_scheduled, SimTime(200));
}

// VTC's promise (Theorem 4.4): of two clients that wait all the time, neither gets ahead by more than
// 2 max(input weight * longest input, output weight * tokens in the pool). First come, first served has no such bound:
// client 0 floods at 0, client 1 sends as much over time.
TEST(Vtc, Fairness_ServiceOfBackloggedClientsStaysClose) {
  for (const std::string order : {"vtc", "fcfs"}) {
    const WatchingModel model(Duration(100));
    std::vector<RequestSpec> requests(300, of(0, 0, 20, 20));
    for (int i = 0; i < 300; ++i) requests.push_back(of(1, 1 + i, 20, 20));
    const Replay run = replay("vtc", vtc({{"policy.order", order}}), tokens(400), requests, model);
    const double bound = 2.0 * std::max(20.0, 2.0 * 400.0);
    const Metric* difference = run.result.statistics.find("max_service_difference_tokens");
    ASSERT_TRUE(difference != nullptr && difference->value);
    EXPECT_EQ(*difference->value <= bound, order == "vtc") << *difference->value;
  }
}

}  // namespace
}  // namespace spillway
