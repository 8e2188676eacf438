// VTC on S-LoRA's engine: counters, admission, and the scheduler step by step.
#include <algorithm>

#include "policies/parts/token_counters.hpp"
#include "policies/parts/token_pool.hpp"
#include "tests/support/empty_view.hpp"
#include "tests/unit/policy_test.hpp"

namespace spillway {
namespace {

using oracle::Dice;

/// A view of an instance in which every request is alive.
class PlainView final : public EmptyView {
 public:
  PlainView(std::int64_t gpu_blocks, std::int64_t block_tokens) {
    tiers_ = {&gpu_, 1};
    gpu_ = TierState{Blocks(gpu_blocks), Blocks(gpu_blocks), Blocks(gpu_blocks)};
    block_tokens_ = Tokens(block_tokens);
  }
  [[nodiscard]] bool alive(RequestId) const override { return true; }

 private:
  TierState gpu_;
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

// Lift and charges by hand: client 1 has paid 100 and has one request of 10 tokens queued, none running. Client 2 has
// paid nothing, arrives and is lifted to 100. A prompt of 10 of each client is admitted: both have paid 110. After five
// decode steps at 2 per running request, both have paid 120.
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

// A lift raises a client to the smallest counter among the waiting clients. It never lowers a counter.
TEST(TokenCounters, Lift_IsToThePoorestThatWaits) {
  const PlainView view(1000, 1);
  TokenCounters counters(Prices{}, false);
  std::uint32_t id = 0;
  for (const auto& [client, paid] : std::vector<std::pair<std::uint32_t, std::int64_t>>{{1, 50}, {2, 30}, {3, 40}}) {
    const RequestView request = waiting(id++, client, paid);
    // Each request arrives while nobody waits, so no client is lifted.
    counters.arrived(request);
    admit(counters, request);
    counters.left(request.id, client);
  }
  counters.arrived(waiting(10, 1, 5));  // nobody waits: client 1 stays at 50
  EXPECT_EQ(counters.paid(1), 50.0);
  counters.arrived(waiting(11, 4, 5));  // only client 1 waits, at 50
  EXPECT_EQ(counters.paid(4), 50.0);
  counters.arrived(waiting(12, 2, 5));  // client 2 is at 30; clients 1 and 4 wait at 50
  EXPECT_EQ(counters.paid(2), 50.0);
  EXPECT_EQ(counters.paid(3), 40.0);    // client 3 does not wait
  counters.arrived(waiting(13, 2, 5));  // client 2's queue is not empty: no second lift
  EXPECT_EQ(counters.paid(2), 50.0);
}

// When nobody waits, the code leaves the counter. The paper lifts it to the counter of the client whose queue became
// empty last.
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

// A client whose queue was the last to become empty counts only while nobody waits: client 2 waits at 20, client 1 left
// at 70.
TEST(TokenCounters, Lift_WhenSomebodyWaits_IsToThePoorestInEitherForm) {
  for (const bool paper : {false, true}) {
    const PlainView view(1000, 1);
    TokenCounters counters(Prices{}, paper);
    const RequestView poor = waiting(0, 2, 20);
    counters.arrived(poor);
    admit(counters, poor);
    counters.left(poor.id, 2);
    counters.arrived(waiting(1, 2, 5));
    const RequestView rich = waiting(2, 1, 50);
    counters.arrived(rich);
    admit(counters, rich);
    EXPECT_EQ(counters.paid(1), 70.0);
    counters.arrived(waiting(3, 3, 5));
    EXPECT_EQ(counters.paid(3), 20.0) << paper;
    counters.arrived(waiting(4, 1, 5));
    EXPECT_EQ(counters.paid(1), 70.0) << "a lift never lowers";
  }
}

// The next request is the first request of the waiting client that has paid least. Ties go to the client seen first.
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
// h(10,0) = 2.1001891 + 1.14601454 = 3.24620364. Its prefill gives token 1. The first decode step gives token 2 and
// pays h(10,2) - h(10,1) = 0.10075395 + 0.039868 + 0.00324733 * 3 = 0.15036394. The step for token 3 pays 0.00324733 *
// 2 more than the step for token 2.
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

/// Tokens in the pool when it is fullest, counted step by step, if every request generates its maximum. A request has
/// `now` tokens and `left` to go. After t steps it has now + t tokens; after `left` steps it leaves.
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

// Compares the pool with fullest(), at sizes at which the next request just fits and just does not fit.
TEST(TokenPool, Admits_WhenTheFullestInstantFits) {
  Dice dice(7);
  for (int round = 0; round < 3000; ++round) {
    std::vector<RequestView> requests;
    const std::int64_t count = dice.between(1, 8);
    for (std::int64_t i = 0; i < count; ++i) {
      requests.push_back(waiting(static_cast<std::uint32_t>(i), 0, dice.between(1, 30), dice.between(1, 30)));
    }
    const std::int64_t steps = dice.between(0, 40);
    // All requests but the last join one by one, with decode steps between them. Each gets its first token from its
    // prompt.
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
      // The tokens must be fewer than the pool's, not equal to them: one more token in the pool makes the difference.
      const Fit fit = pool.admits(requests.back(), Tokens(0));
      ASSERT_EQ(fit == Fit::now, slack == 1) << round;
    }
  }
}

// A request of 30 + 70 tokens needs a pool of 101 even if it is alone.
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

// A batch decodes ten times before new prompts are tried. R1 (20 outputs) arrives at 0, R2 during R1's prompt. Step 1:
// R1's prompt. Steps 2..11: ten decodes. Step 12: R2's prompt alone. Then both decode.
TEST(Vtc, Prompts_WaitForTenDecodeSteps) {
  const WatchingModel model(Duration(100));
  const Replay run = replay("vtc", vtc(), tokens(1000), {of(0, 0, 10, 20), of(1, 50, 10, 3)}, model);
  const auto& seen = model.seen();
  EXPECT_EQ(seen[10], (SeenIteration{1, 20, {}}));
  EXPECT_EQ(seen[11], (SeenIteration{0, 0, {{10, 0}}}));
  EXPECT_EQ(seen[12], (SeenIteration{2, 21 + 11, {}}));
  EXPECT_EQ(run.of(1).first_scheduled, SimTime(1100));
}

// If the head of the queue does not fit after the tenth step, it is tried at every step. The pool has 60 tokens; R1 and
// R2 have 10 + 30 each. After s decode steps R1 has 11 + s tokens and 28 - s to go; R2 would have 11 and 29 to go. The
// pool is fullest when R1 ends, with 11 + 28 + 11 + 28 - s = 78 - s tokens, or when R2 ends, with 40. s = 19 is the
// first with 78 - s < 60, so R2's prompt is step 1 + 19 + 1.
TEST(Vtc, Admission_WhenTheWorstCaseDoesNotFit_ThenTriedEveryStep) {
  const WatchingModel model(Duration(100));
  const Replay run = replay("vtc", vtc(), tokens(60), {of(0, 0, 10, 30), of(1, 50, 10, 30)}, model);
  EXPECT_EQ(run.of(1).first_scheduled, SimTime(2000));
  EXPECT_EQ(run.result.statistics.engine.preempted_recompute, 0);
}

// One client floods and another client comes later. With VTC, the later client's request is next. With S-LoRA's own
// order it queues behind all. max_num_seqs is 1, so one request runs at a time (4 outputs: 1 prompt step + 3 decodes).
// Client 0 sends five requests at 0, client 1 one at 50. With VTC, client 0's first request is admitted at 0 and
// pays 10. Client 1 is lifted to 10 on arrival and ties with client 0, which was seen first. But R1's decodes (2 each)
// bring client 0 to 16 by 400, when the next request can run, so client 1 is next.
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

// A mini-batch contains at most max_num_batched_tokens prompt tokens, whichever clients sent them. A longer prompt can
// never be computed and is rejected.
TEST(Vtc, MiniBatch_IsLimitedInTokens) {
  const WatchingModel model(Duration(100));
  const Replay run = replay("vtc", vtc({{"engine.max_num_batched_tokens", std::int64_t{25}}}), tokens(1000),
                            {of(0, 0, 10, 1), of(1, 0, 10, 1), of(2, 0, 10, 1), of(3, 0, 26, 1)}, model);
  EXPECT_EQ(model.seen()[0], (SeenIteration{0, 0, {{10, 0}, {10, 0}}}));
  EXPECT_EQ(model.seen()[1], (SeenIteration{0, 0, {{10, 0}}}));
  EXPECT_EQ(run.of(3).outcome, Outcome::rejected);
}

// The quirk: a step in which a request finishes is charged twice. max_num_seqs is 1, so requests run one by one, and
// each finishes in its last decode step. A request of client 0 (4 in, 2 out: one decode) costs 6, with the quirk 8. A
// request of client 1 (6 in, 7 out: six decodes) costs 18, with the quirk 20. Counters after each request:
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

// The quirk charges a step once more, however many requests finish in it. max_num_seqs is 2. A1, A2 and A3 of client 0
// have 4 + 2 tokens, so A1 and A2 run in iterations 1 (prompts) and 2 (last tokens). B1 (9 tokens) and B2 of client 1
// arrive in iteration 1 and are lifted to client 0's 4 + 4 = 8.
//   after iteration 2  client 0 has paid 8 + 2 * 2 for the step and 2 * 2 for the step again, in all 16. (A charge for
//                      each request that finishes would be 2 more for A2, in all 18.)
//   decision 3         client 1 (8) has paid least: B1 joins and pays 9, in all 17. Client 0 (16) is next: A3.
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

// VTC's promise (Theorem 4.4): if two clients always have requests waiting, neither gets ahead of the other by more
// than 2 max(input weight * longest input, output weight * tokens in the pool). First come, first served has no such
// bound. Client 0 sends all its requests at 0; client 1 sends as many over time.
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
