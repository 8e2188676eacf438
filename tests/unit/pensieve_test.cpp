// Pensieve: retention values and the orders that they give, swap-out, admission, suspension, swap-in, refusals.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "policies/parts/retention_cost.hpp"
#include "policies/parts/retention_order.hpp"
#include "tests/unit/policy_test.hpp"

namespace spillway {
namespace {

// c = 1 ms and A(l) = 0.2 ms * l / 1024, at powers of two.
RetentionCost cost_of_the_rules() {
  std::vector<RetentionCost::Sample> samples;
  for (std::int64_t context = 32; context <= 4096; context *= 2) {
    samples.push_back({Tokens(context), 1e-3 + 0.2e-3 * static_cast<double>(context) / 1024.0});
  }
  return RetentionCost(std::move(samples));
}

constexpr SimTime kNow{1'000'000'000'000};

/// A chunk of a conversation that has rested for so many seconds.
RetentionCandidate chunk(std::int64_t conversation, std::int64_t context, double rested) {
  return {.cost = cost_of_the_rules().at(Tokens(context)),
          .since = kNow - Duration(static_cast<std::int64_t>(rested * 1e9)),
          .position = context / 32 - 1,
          .owner = conversation};
}

/// All of them in the order in which they go.
std::vector<std::size_t> order_of(const std::vector<RetentionCandidate>& candidates) {
  RetentionOrder order;
  for (std::size_t slot = 0; slot < candidates.size(); ++slot) order.put(slot, candidates[slot]);
  std::vector<std::size_t> slots;
  while (const auto least = order.least(kNow)) {
    slots.push_back(*least);
    order.remove(*least);
  }
  return slots;
}

// cost / T: (1 + 0.2 * 32 / 1024) / 10 = 0.100625 ms/s, and so on.
TEST(Retention, ValuesAreCostOverTime) {
  const auto value = [](const RetentionCandidate& candidate) { return retention_value(candidate, kNow) * 1e12; };
  EXPECT_NEAR(value(chunk(0, 32, 10)), 0.100625, 1e-12);
  EXPECT_NEAR(value(chunk(0, 3072, 10)), 0.160000, 1e-12);
  EXPECT_NEAR(value(chunk(1, 32, 5)), 0.201250, 1e-12);
  EXPECT_NEAR(value(chunk(1, 1536, 5)), 0.260000, 1e-12);
  EXPECT_NEAR(value(chunk(2, 32, 100)), 0.0100625, 1e-12);
  EXPECT_NEAR(value(chunk(2, 4096, 100)), 0.018000, 1e-12);
}

TEST(Retention, TheLeastValuableGoFirst) {
  // X, Y, Z rested for 10, 5 and 100 s.
  EXPECT_EQ(order_of({chunk(0, 32, 10), chunk(0, 3072, 10), chunk(1, 32, 5), chunk(1, 1536, 5), chunk(2, 32, 100),
                      chunk(2, 4096, 100)}),
            (std::vector<std::size_t>{4, 5, 0, 1, 2, 3}));
  // Y rested for 9 s: (1 + 0.3) / 9 = 0.1444 goes before (1 + 0.6) / 10 = 0.16.
  std::vector<RetentionCandidate> later{chunk(0, 32, 10),  chunk(0, 3072, 10), chunk(1, 32, 9),
                                        chunk(1, 1536, 9), chunk(2, 32, 100),  chunk(2, 4096, 100)};
  EXPECT_EQ(order_of(later), (std::vector<std::size_t>{4, 5, 0, 2, 3, 1}));
  // LRU empties X first.
  for (RetentionCandidate& candidate : later) candidate.cost = 1.0;
  EXPECT_EQ(order_of(later), (std::vector<std::size_t>{4, 5, 0, 1, 2, 3}));
}

TEST(Retention, EqualValuesGoByPositionThenOwner) {
  const RetentionCandidate one{.cost = 2.0, .since = SimTime(0), .position = 1, .owner = 1};
  const RetentionCandidate earlier{.cost = 2.0, .since = SimTime(0), .position = 0, .owner = 9};
  const RetentionCandidate older{.cost = 2.0, .since = SimTime(0), .position = 1, .owner = 0};
  EXPECT_EQ(order_of({one, earlier, older}), (std::vector<std::size_t>{1, 2, 0}));
}

TEST(RetentionCost, IsLinearBetweenSamplesAndConstantBelowThem) {
  const RetentionCost cost({{Tokens(32), 1.0}, {Tokens(64), 2.0}, {Tokens(128), 6.0}});
  EXPECT_DOUBLE_EQ(cost.at(Tokens(1)), 1.0);
  EXPECT_DOUBLE_EQ(cost.at(Tokens(32)), 1.0);
  EXPECT_DOUBLE_EQ(cost.at(Tokens(48)), 1.5);
  EXPECT_DOUBLE_EQ(cost.at(Tokens(64)), 2.0);
  EXPECT_DOUBLE_EQ(cost.at(Tokens(96)), 4.0);
  EXPECT_DOUBLE_EQ(cost.at(Tokens(160)), 8.0);  // 6 + 32 * 4 / 64
  const RetentionCost between({{Tokens(10), 1.0}, {Tokens(36), 2.0}, {Tokens(40), 4.0}, {Tokens(60), 5.0}});
  EXPECT_DOUBLE_EQ(between.at(Tokens(36)), 2.0);
  EXPECT_DOUBLE_EQ(between.at(Tokens(38)), 3.0);
  EXPECT_DOUBLE_EQ(between.at(Tokens(50)), 4.5);
  EXPECT_DOUBLE_EQ(between.at(Tokens(80)), 6.0);
}

TEST(RetentionCost, ProfilesWhatTheGpuSpendsOnAChunk) {
  const oracle::WholeModel model;  // 3 layers of 20 + 3 * tokens + context / 8 ns, context with the chunk
  const RetentionCost cost = RetentionCost::profile(model, Tokens(24), Tokens(100));
  const auto expected = [](std::int64_t context) {
    const std::int64_t layer = 20 + 3 * 24 + context / 8;
    return 1e-9 * static_cast<double>(3 * layer);
  };
  EXPECT_DOUBLE_EQ(cost.at(Tokens(5)), expected(32));  // the first power of two that holds a chunk
  EXPECT_DOUBLE_EQ(cost.at(Tokens(64)), expected(64));
  EXPECT_DOUBLE_EQ(cost.at(Tokens(128)), expected(128));
  EXPECT_DOUBLE_EQ(cost.at(Tokens(96)), 0.5 * (expected(64) + expected(128)));
}

// Beside others a chunk pays for its tokens and its context, not for the 20 ns that each of 3 layers takes anyway.
// WholeModel drops fractions of a nanosecond per layer: 3 ns at most.
TEST(RetentionCost, BesideOthersIsWhatAChunkAdds) {
  const oracle::WholeModel model;
  const RetentionCost cost = RetentionCost::profile(model, Tokens(24), Tokens(100), Tokens(40));
  const RetentionCost alone = RetentionCost::profile(model, Tokens(24), Tokens(100));
  EXPECT_NEAR(alone.at(Tokens(64)) - cost.at(Tokens(64)), 3 * 20e-9, 3.1e-9);
  EXPECT_NEAR(cost.at(Tokens(128)) - cost.at(Tokens(64)), 3 * 8e-9, 3.1e-9);
}

// As conversations are evicted: the chunk that goes first makes place for the next one of its conversation, which costs
// a little more, or for a conversation that rests since now. More of them take turns than the front of the order holds,
// and some end meanwhile. The reference looks at all of them.
TEST(RetentionOrder, IsThatOfAFullSortWhileChunksAreEvicted) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    oracle::Dice dice(seed);
    RetentionOrder order;
    std::vector<RetentionCandidate> there;
    SimTime now{0};
    const auto begin = [&](std::size_t slot) {
      there[slot] = {.cost = 1e-3, .since = now, .position = 0, .owner = static_cast<std::int64_t>(slot)};
      order.put(slot, there[slot]);
    };
    for (std::size_t slot = 0; slot < 400; ++slot, now = now + Duration(dice.between(1, 500))) {
      there.emplace_back();
      begin(slot);
    }
    for (int step = 0; step < 6000; ++step) {
      if (dice.chance(25)) now = now + Duration(dice.between(0, 500));
      const auto least = static_cast<std::size_t>(
          std::ranges::min_element(there, [&](const auto& a, const auto& b) { return evicted_before(a, b, now); }) -
          there.begin());
      ASSERT_EQ(order.least(now), least) << "seed " << seed << " step " << step;
      RetentionCandidate& gone = there[least];
      if (gone.position == 40) {
        begin(least);
      } else {
        ++gone.position;
        gone.cost *= 1.01;
        order.put(least, gone);
      }
      if (!dice.chance(5)) continue;
      const auto ended = static_cast<std::size_t>(dice.between(0, 399));
      order.remove(ended);
      begin(ended);
    }
  }
}

// Candidates come, go and change while time goes on; the reference looks at each of them at each step.
TEST(RetentionOrder, IsThatOfAFullSortAtEveryInstant) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    oracle::Dice dice(seed);
    RetentionOrder order;
    std::map<std::size_t, RetentionCandidate> there;
    const std::int64_t slots = dice.between(1, seed % 3 == 0 ? 300 : 12);
    const bool whole = dice.chance(50);  // whole numbers give many equal values
    SimTime now{dice.between(0, 1000)};
    for (int step = 0; step < 1500; ++step) {
      if (dice.chance(40)) now = now + Duration(dice.between(0, dice.chance(20) ? 1'000'000 : 20));
      for (std::int64_t changes = dice.between(0, 3); changes > 0; --changes) {
        const auto slot = static_cast<std::size_t>(dice.between(0, slots - 1));
        if (dice.chance(25)) {
          order.remove(slot);
          there.erase(slot);
          continue;
        }
        const RetentionCandidate candidate{.cost = whole ? static_cast<double>(dice.between(1, 6))
                                                         : 1e-3 + 1e-9 * static_cast<double>(dice.roll() % 999'983),
                                           .since = now - Duration(dice.between(0, 40)),
                                           .position = dice.between(0, 2),
                                           .owner = static_cast<std::int64_t>(slot)};
        order.put(slot, candidate);
        there[slot] = candidate;
      }
      const auto key = [&](const RetentionCandidate& c) {
        const auto time = static_cast<double>((now - c.since).count());
        const double value = time == 0.0 ? std::numeric_limits<double>::infinity() : c.cost / time;
        return std::tuple(value, c.position, c.owner);
      };
      const auto least = std::min_element(there.begin(), there.end(),
                                          [&](const auto& a, const auto& b) { return key(a.second) < key(b.second); });
      const auto found = order.least(now);
      ASSERT_EQ(found.has_value(), least != there.end()) << "seed " << seed << " step " << step;
      if (!found) continue;
      ASSERT_EQ(*found, least->first) << "seed " << seed << " step " << step;
      if (dice.chance(50)) continue;
      std::map<std::size_t, RetentionCandidate> others = there;
      others.erase(*found);
      const auto next = std::min_element(others.begin(), others.end(),
                                         [&](const auto& a, const auto& b) { return key(a.second) < key(b.second); });
      const RetentionCandidate* const other = order.runner_up(now);
      ASSERT_EQ(other == nullptr, others.empty()) << "seed " << seed << " step " << step;
      if (other == nullptr) continue;
      ASSERT_EQ(*other, next->second) << "seed " << seed << " step " << step;
    }
  }
}

/// Blocks of one token and 64 bytes.
KvLayout slots(std::int64_t gpu, std::int64_t host) {
  return KvLayout{Blocks(gpu), Blocks(host), Tokens(1), Bytes(64), 1, false};
}

RequestSpec turn_of(std::int64_t conversation, std::int64_t arrival, std::int64_t input, std::int64_t output) {
  RequestSpec spec = request(arrival, input, output);
  spec.traits.conversation = conversation;
  return spec;
}

double figure(const Replay& replay, const std::string& name) {
  for (const PolicyFigure& figure : replay.result.statistics.engine.figures) {
    if (figure.definition.name == name) return figure.value.value_or(-1.0);
  }
  return -2.0;
}

// 1,000 slots, of which a resting conversation has 700 + 41 - 1 = 740 and a request 8, and one more with each token:
// 252, 251, 250, 249 free in its iterations. Below 250, ceil(1 / 32) = 1 chunk is copied.
TEST(Pensieve, CopiesOutBelowAQuarterFree) {
  const WatchingModel model;
  for (const std::int64_t tokens : {3, 4}) {
    const Replay run =
        replay("pensieve", {}, slots(1000, 1000), {turn_of(1, 0, 700, 41), turn_of(-1, 1'000'000, 8, tokens)}, model);
    EXPECT_EQ(run.result.statistics.engine.moved_d2h, Bytes(tokens == 4 ? 32 * 64 : 0));
    EXPECT_EQ(run.result.statistics.engine.moved_h2d, Bytes(0));
  }
}

// 290 - 200 = 90 slots are no more than a tenth of 1,000: a chunk is copied out first, 32 * 64 ns. 301 - 200 = 101 are.
TEST(Pensieve, AdmissionLeavesATenthToDecodes) {
  const WatchingModel model;
  for (const std::int64_t kept : {710, 699}) {
    const Replay run =
        replay("pensieve", {}, slots(1000, 1000), {turn_of(1, 0, kept, 1), turn_of(-1, 1'000'000, 200, 1)}, model);
    EXPECT_EQ(run.of(1).first_scheduled, SimTime(1'000'000 + (kept == 710 ? 32 * 64 : 0)));
    EXPECT_EQ(run.of(1).outcome, Outcome::finished);
  }
  // What could never leave a tenth free is rejected: 901 > 900.
  const Replay long_one =
      replay("pensieve", {}, slots(1000, 1000), {turn_of(-1, 0, 900, 1), turn_of(-1, 0, 890, 10)}, model);
  EXPECT_EQ(long_one.of(0).outcome, Outcome::rejected);
  EXPECT_EQ(long_one.of(1).outcome, Outcome::finished);
}

// Both hold 12 tokens at first and one more with each token, the second an iteration later: 21 + 2k slots in iteration
// k. The tenth would need 41 of 40, so the younger one goes with its 12 + 7 = 19, and comes back after the other.
TEST(Pensieve, SuspendsTheYoungest) {
  const WatchingModel model;
  const Replay run = replay("pensieve", {}, slots(40, 100), {turn_of(-1, 0, 12, 15), turn_of(-1, 10, 12, 15)}, model);
  EXPECT_EQ(figure(run, "suspensions"), 1.0);
  EXPECT_EQ(run.result.statistics.engine.moved_d2h, Bytes(std::int64_t{19} * 64));
  EXPECT_EQ(run.result.statistics.engine.moved_h2d, Bytes(std::int64_t{19} * 64));
  // 15 iterations of 100 ns, and the copy of 19 blocks that one of them waits for.
  EXPECT_EQ(run.of(0).end, SimTime(15 * 100 + 19 * 64));
  EXPECT_GT(run.of(1).end, run.of(0).end);
  EXPECT_EQ(run.of(1).outcome, Outcome::finished);
}

// A turn finds what is kept and computes the rest alone; with no host and no room, the history is computed again.
TEST(Pensieve, ATurnComputesOnlyWhatIsNew) {
  const WatchingModel model;
  const std::vector<RequestSpec> turns{turn_of(1, 0, 50, 11), turn_of(1, 1'000'000, 70, 1)};
  const Replay kept = replay("pensieve", {}, slots(1000, 1000), turns, model);
  const SeenIteration last{0, 0, {{10, 60}}};  // 50 + 11 - 1 tokens are there
  EXPECT_EQ(model.seen().back(), last);
  EXPECT_EQ(kept.result.statistics.engine.history_asked, Tokens(60));
  EXPECT_EQ(kept.result.statistics.engine.history_on_gpu, Tokens(60));
  // A request of 90 between the turns needs more than 100 - 60 slots; there is no host, so chunks are dropped.
  std::vector<RequestSpec> crowded{turns[0], turn_of(-1, 500'000, 80, 1), turns[1]};
  const WatchingModel other;
  const Replay dropped = replay("pensieve", {{"policy.chunk_tokens", std::int64_t{10}}}, slots(100, 0), crowded, other);
  // 100 - 60 = 40 free, 80 needed and more than 10 left over: 60 have to go, that is all.
  EXPECT_EQ(other.seen().back(), (SeenIteration{0, 0, {{70, 0}}}));
  EXPECT_EQ(dropped.result.statistics.engine.history_on_gpu, Tokens(0));
  EXPECT_EQ(dropped.result.statistics.engine.moved_d2h, Bytes(0));
}

/// 4 layers of 1 ms; a copy of 60 blocks takes `copy`.
class FourLayers final : public ExecutionModel {
 public:
  explicit FourLayers(Duration copy) : copy_(copy) {}
  [[nodiscard]] std::int32_t layers() const override { return 4; }
  [[nodiscard]] IterationTime iteration(const BatchShape&) const override {
    return {Duration(0), Duration(1'000'000), Duration(0), TimeShares{4e-3, 0.0, 0.0, 0.0}};
  }
  [[nodiscard]] CopyTime copy(Stream, std::int64_t, Bytes bytes, CopyMechanism) const override {
    return {Duration(0), Duration(copy_.count() * bytes.count() / (std::int64_t{60} * 64))};
  }

 private:
  Duration copy_;
};

// Layers start once their share has come: at 1.5, 3.0, 4.5 and 6.0 ms, so the iteration ends at 7.0. With 0.5 ms for
// each share compute is the bottleneck: 0.5 + 4 ms.
TEST(Pensieve, SwapInIsPipelinedWithTheLayers) {
  for (const auto& [copy, expected] : {std::pair{6'000'000, 7'000'000}, std::pair{2'000'000, 4'500'000}}) {
    const FourLayers model{Duration(copy)};
    // 62 of 100 slots are kept. The second request grows to 98, so that 60 of them leave the GPU.
    const Replay run = replay(
        "pensieve", {{"policy.chunk_tokens", std::int64_t{1}}, {"policy.decode_reserve", 0.01}}, slots(100, 1000),
        {turn_of(1, 0, 60, 3), turn_of(-1, 100'000'000, 90, 9), turn_of(1, 900'000'000, 63, 1)}, model);
    const EngineTotals& totals = run.result.statistics.engine;
    EXPECT_EQ(totals.history_on_gpu, Tokens(2));
    EXPECT_EQ(totals.history_on_host, Tokens(60));
    EXPECT_EQ(run.of(2).first_scheduled, SimTime(900'000'000));
    EXPECT_EQ(run.of(2).first_token, SimTime(900'000'000 + expected));
  }
}

TEST(Pensieve, Refuses) {
  const PolicyInfo& policy = *PolicyRegistry::instance().find("pensieve");
  const auto where = [&](const Overrides& overrides) {
    const std::vector<Problem> problems = policy.check(oracle::policy_settings(policy, overrides));
    return problems.empty() ? std::string() : problems.front().where;
  };
  EXPECT_EQ(where({}), "");
  EXPECT_EQ(where({{"memory.block_tokens", std::int64_t{16}}}), "");
  EXPECT_EQ(where({{"memory.block_tokens", std::int64_t{12}}}), "policy.chunk_tokens");
  EXPECT_EQ(where({{"policy.swap_out_threshold", 1.0}}), "policy.swap_out_threshold");
  EXPECT_EQ(where({{"policy.decode_reserve", 1.0}}), "policy.decode_reserve");
  EXPECT_EQ(where({{"engine.prefix_caching", std::string("true")}}), "engine.prefix_caching");
  EXPECT_EQ(where({{"engine.preemption", std::string("swap")}}), "engine.preemption");
  EXPECT_EQ(where({{"engine.kv_connector", std::string("none")}}), "");
  for (const char* connector : {"vllm-offloading", "lmcache", "hicache"}) {
    EXPECT_EQ(where({{"engine.kv_connector", std::string(connector)}}), "engine.kv_connector");
  }
  EXPECT_EQ(where({{"memory.disk_cache", Bytes(1'000'000'000)}}), "memory.disk_cache");
  const PolicyInfo& under = *PolicyRegistry::instance().find("pensieve", "vllm");
  EXPECT_TRUE(under.check(oracle::policy_settings(under, {})).empty());
}

// Where the KV of each prompt comes with its request, nothing is left to keep.
TEST(Pensieve, RefusesAnInstanceThatOnlyDecodes) {
  const PolicyRegistry& registry = PolicyRegistry::instance();
  const PolicyInfo& streamed = registry.with_weights(*registry.find("pensieve"), "select-n");
  const auto problems = [&](const char* phase) {
    return streamed.check(oracle::policy_settings(streamed, {{"policy.weights.phase", std::string(phase)}}));
  };
  EXPECT_TRUE(problems("both").empty());
  EXPECT_TRUE(problems("prefill").empty());
  ASSERT_EQ(problems("decode").size(), 1U);
  EXPECT_EQ(problems("decode").front().where, "policy.weights.phase");
}

// 10 blocks of 16 tokens. A and B (64 + 40 tokens) come at 0, C (16 + 1) at 8,000. An iteration takes 100 ns, a block
// 1,000 ns. With iteration 18, at 1,700, A and B want their sixth block, and none is free: B, which came later, leaves
// with 5 blocks, for which the iteration waits 5,000 ns. A has its 40th token with iteration 40, at 40 x 100 + 5,000 =
// 9,000. C would fit from 8,000 on, but B comes first: its 5 blocks are back at 14,000, and the iteration ends at
// 14,100. C shares it, or has an iteration to itself afterwards where prompts do not run beside decodes. B then has 18
// of its 40 tokens: 22 iterations to go.
TEST(PensieveSchedulers, BringBackWhatLeftBeforeNewPrompts) {
  struct Expected {
    const char* scheduler;
    std::int64_t scheduled;
    std::int64_t end;
  };
  for (const auto& [scheduler, scheduled, end] :
       {Expected{"pensieve", 9000, 16300}, Expected{"sarathi", 9000, 16300}, Expected{"tensorrt-llm", 9000, 16300},
        Expected{"vllm", 9000, 16300}, Expected{"vllm-v0", 14100, 16400}, Expected{"swiftllm", 14100, 16400}}) {
    SCOPED_TRACE(scheduler);
    const WatchingModel model(Duration(100));
    const Overrides settings{{"policy.chunk_tokens", std::int64_t{16}},
                             {"policy.decode_reserve", 0.05},
                             {"policy.swap_out_threshold", 0.05},
                             {"policy.eviction", std::string("lru")},  // profiles no chunks
                             {"engine.chunked_prefill", std::string_view(scheduler) != "vllm-v0"}};
    const Replay run = replay(*PolicyRegistry::instance().find("pensieve", scheduler), settings, layout(10, 100),
                              {request(0, 64, 40), request(0, 64, 40), request(8000, 16, 1)}, model);
    EXPECT_EQ(run.of(0).end, SimTime(9000));
    EXPECT_EQ(run.of(2).first_scheduled, SimTime(scheduled));
    EXPECT_EQ(run.of(1).end, SimTime(end));
    std::int64_t computed = 0;
    for (const SeenIteration& seen : model.seen()) {
      for (const auto& [tokens, context] : seen.chunks) computed += tokens;
    }
    EXPECT_EQ(computed, 64 + 64 + 16) << "nothing is computed twice";
  }
}

// 18 blocks of 16 tokens, and no host. A, B and C (16 tokens each) come at 0; a budget of 16 tokens gives each prompt
// an iteration of its own, 1 to 3. Decode d is iteration 3 + d and wants 1 + ceil(d / 16) blocks of each request. At d
// = 81 that is 3 x 7 > 18: C leaves with 97 known tokens, which are dropped. At d = 129 it is 2 x 10 > 18: B leaves
// with 145. A has its 141 tokens with d = 140, iteration 143. B needs 10 blocks and C 7, so both would fit now, but B's
// 145 tokens take more than the budget: they are computed in iteration 144, and C's 97 in iteration 145, beside B's
// decode. B then has 131 of its 140 tokens, and C 82 of its 90.
TEST(PensieveSchedulers, SwiftLlmComputesWhatWasDroppedWithinItsBudget) {
  const WatchingModel model(Duration(100));
  const Overrides settings{{"policy.chunk_tokens", std::int64_t{16}},
                           {"policy.decode_reserve", 0.01},
                           {"policy.swap_out_threshold", 0.01},
                           {"policy.eviction", std::string("lru")},  // profiles no chunks
                           {"engine.max_num_batched_tokens", std::int64_t{16}}};
  const Replay run = replay(*PolicyRegistry::instance().find("pensieve", "swiftllm"), settings, layout(18, 0),
                            {request(0, 16, 141), request(0, 16, 140), request(0, 16, 90)}, model);
  EXPECT_EQ(run.of(0).end, SimTime(14'300));
  EXPECT_EQ(run.of(1).end, SimTime(14'500 + 9 * 100));
  EXPECT_EQ(run.of(2).end, SimTime(14'500 + 8 * 100));
  std::vector<std::int64_t> prompts;
  for (const SeenIteration& seen : model.seen()) {
    for (const auto& [tokens, context] : seen.chunks) prompts.push_back(tokens);
  }
  EXPECT_EQ(prompts, (std::vector<std::int64_t>{16, 16, 16, 145, 97}));
}

/// 10 blocks of 16 tokens. A conversation rests with 79 + 2 - 1 tokens in 5 of them, on the GPU alone; swap-out starts
/// once no block is free. A request comes at 100,000 under fair scheduling, which computes 48 tokens of a prompt at a
/// time, in 100 ns. A block is copied in 1,000 ns.
Replay beside_a_conversation(const RequestSpec& late, const WatchingModel& model) {
  const Overrides settings{{"policy.chunk_tokens", std::int64_t{16}},
                           {"policy.decode_reserve", 0.05},
                           {"policy.swap_out_threshold", 0.05},
                           {"policy.eviction", std::string("lru")},  // profiles no chunks
                           {"engine.max_num_batched_tokens", std::int64_t{48}}};
  return replay(*PolicyRegistry::instance().find("pensieve", "cfs"), settings, layout(10, 100),
                {turn_of(1, 0, 79, 2), late}, model);
}

// 48 tokens take 3 of the 5 free blocks, 96 take 6: one block of the conversation is copied out from 100,100 on. With
// them nothing is free, so another block goes at 101,100, for which the last 16 tokens wait until 102,100.
TEST(PensieveSchedulers, CfsLetsAPromptWaitInTheBatch_WhileConversationsMakeRoom) {
  const WatchingModel model(Duration(100));
  const Replay run = beside_a_conversation(turn_of(-1, 100'000, 112, 1), model);
  EXPECT_EQ(run.of(1).end, SimTime(102'200));
  EXPECT_EQ(figure(run, "suspensions"), 0.0);
  const std::vector<SeenIteration>& seen = model.seen();
  ASSERT_EQ(seen.size(), 6U) << "48 and 31 tokens and a decode of the conversation, 48, 48 and 16 tokens";
  EXPECT_EQ(seen[3], (SeenIteration{0, 0, {{48, 0}}}));
  EXPECT_EQ(seen[4], (SeenIteration{0, 0, {{48, 48}}}));
  EXPECT_EQ(seen[5], (SeenIteration{0, 0, {{16, 96}}}));
}

// 48 and 31 tokens take all 5 free blocks at 100,100, so a block of the conversation is copied out until 101,100. The
// second token, at 100,300, fits in the last block. The third waits for the copy.
TEST(PensieveSchedulers, CfsLetsADecodeThatIsAloneWait_WhileConversationsMakeRoom) {
  const WatchingModel model(Duration(100));
  const Replay run = beside_a_conversation(turn_of(-1, 100'000, 79, 3), model);
  EXPECT_EQ(run.of(1).end, SimTime(101'200));
  EXPECT_EQ(run.of(1).preempted_recompute, 0);
  EXPECT_EQ(figure(run, "suspensions"), 0.0);
  EXPECT_EQ(model.seen().size(), 7U) << "3 iterations of the conversation, 4 of the request";
}

// Orca and VTC never preempt, so they take the blocks of the longest answer at once. 10 blocks of 16 tokens, of which
// more than half a block stays free. A and B (16 + 60 tokens: 5 blocks each) come at 0: with A 5 blocks are free, all
// of which B would take. Each runs alone for 60 iterations of 100 ns. VTC tries to admit after every tenth decode, when
// nothing runs, or both.
TEST(PensieveSchedulers, ReserveTheLongestAnswerIfTheyNeverPreempt) {
  for (const char* scheduler : {"orca", "vtc"}) {
    SCOPED_TRACE(scheduler);
    const WatchingModel model(Duration(100));
    Overrides settings{{"policy.chunk_tokens", std::int64_t{16}},
                       {"policy.decode_reserve", 0.05},
                       {"policy.swap_out_threshold", 0.05},
                       {"engine.chunked_prefill", false}};
    if (std::string_view(scheduler) == "orca") settings.emplace_back("policy.reserve", std::string("max_tokens"));
    const Replay run = replay(*PolicyRegistry::instance().find("pensieve", scheduler), settings, layout(10, 100),
                              {request(0, 16, 60), request(0, 16, 60)}, model);
    EXPECT_EQ(run.of(0).end, SimTime(6000));
    EXPECT_EQ(run.of(1).first_scheduled, SimTime(6000));
    EXPECT_EQ(run.of(1).end, SimTime(12000));
    EXPECT_EQ(run.result.statistics.engine.peak_kv, Blocks(5));
  }
}

}  // namespace
}  // namespace spillway
