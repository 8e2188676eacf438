// Fiddler, KTransformers, Mixtral offloading and a cache of experts, by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/expert_units.hpp"

namespace spillway {
namespace {

using testing::HasSubstr;

// Test 7: tokens (9, 10, 0, 30, 3), the last two resident. Published constants: 9 tokens take the CPU 63, less than 70;
// 10 take it 70, a tie, which the GPU gets for 70; none costs nothing; residents cost nothing. One after the other:
// 133.
TEST(Fiddler, PublishedConstantsGiveATieToTheGpu) {
  const ExpertModel times = model(1, 0.0, 70.0);
  Deployment deployment = small(1, 5, 2, 0.0, 7.0);
  ExpertBench bench("fiddler", times, deployment,
                    with({{"policy.gpu_experts", std::int64_t{2}},
                          {"policy.constants", std::string("published")},
                          {"policy.pageable", 1.0}}),
                    {{3, 4, 0, 1, 2}});
  bench.routers.used = {{{0, 9}, {1, 10}, {3, 30}, {4, 3}}};
  EXPECT_NEAR(units(bench.iterate()), 133.0, 0.01);
  EXPECT_EQ(bench.copied(Stream::h2d), Bytes(1000));
  EXPECT_EQ(bench.figures().at("expert_hit_fraction"), 0.5);
  EXPECT_EQ(bench.figures().at("expert_cpu_fraction"), 0.25);
}

// Mixtral in bf16 at 16 GB/s: a copy of 352,321,536 bytes takes 22.020 ms and the GPU 1 ms; the CPU 5 ms a token. 4
// tokens take the CPU 20, less than 23.020; 5 take it 25.
TEST(Fiddler, CopiesAnExpertWhenTheCpuWouldTakeLonger) {
  const ExpertModel times = model(1, 0.0, 22.020);
  const auto run = [&](std::int32_t tokens, bool overlap) {
    ExpertBench bench(
        "fiddler", times, small(1, 2, 1, 1.0, 5.0),
        with({{"policy.gpu_experts", std::int64_t{0}}, {"policy.pageable", 1.0}, {"policy.overlap", overlap}}));
    bench.routers.used = {{{0, tokens}, {1, 4}}};
    return units(bench.iterate());
  };
  EXPECT_NEAR(run(4, false), 20.0 + 20.0, 0.01);
  EXPECT_NEAR(run(5, false), 23.020 + 20.0, 0.01);
  EXPECT_NEAR(run(5, true), 23.020, 0.01);  // the CPU's 20 beside the GPU's 23.020
}

// 2 tokens of 0.3 units take the CPU as long as a copy of 0.4 and the GPU's 0.2. The CPU gets a tie, although 2 x 0.3
// is above 0.4 + 0.2 by a rounding error of binary numbers.
TEST(Fiddler, ATieOfTheProfileGoesToTheCpu) {
  const ExpertModel times = model(1, 0.0, 0.4);
  ExpertBench bench("fiddler", times, small(1, 2, 1, 0.2, 0.3),
                    with({{"policy.gpu_experts", std::int64_t{0}}, {"policy.pageable", 1.0}}));
  bench.routers.used = {{{0, 2}}};
  bench.iterate();
  EXPECT_EQ(bench.figures().at("expert_cpu_fraction"), 1.0);
}

// A layer of 5, then experts 0 to 3 with 50 tokens, for which the CPU would take 500: 1 and 3 are on the GPU and take
// 2, 0 and 2 are loaded for 4. Expert 0 4-6, 1 6-8, 2 8-12 and 12-14, 3 14-16 after the layer: 21. The link is idle for
// 5 at first and for 4 between the loads.
TEST(Fiddler, LoadsAndComputesInTurn) {
  const ExpertModel times = model(1, 5.0, 4.0);
  ExpertBench bench("fiddler", times, small(1, 4, 4, 2.0, 10.0),
                    with({{"policy.gpu_experts", std::int64_t{2}}, {"policy.pageable", 1.0}}), {{1, 3, 0, 2}});
  bench.routers.used = {{{0, 50}, {1, 50}, {2, 50}, {3, 50}}};
  EXPECT_NEAR(units(bench.iterate()), 21.0, 0.01);
  EXPECT_NEAR(units(bench.idle(Stream::h2d)), 5.0 + 4.0, 0.01);
  EXPECT_NEAR(units(bench.idle(Stream::compute)), 8.0, 0.01);
  EXPECT_EQ(bench.copied(Stream::h2d), Bytes(2000));
  EXPECT_EQ(bench.figures().at("expert_load_fraction"), 0.5);
}

// 20 experts that are there take the time of their weights, 1, for up to 4 tokens. Expert 13 has 12 tokens and takes 3,
// expert 15 has 8 and takes 2, 19 has 5 and takes 1.25.
TEST(ExpertLayers, FewOfManyTakeLongerThanTheirWeights) {
  Deployment deployment = small(1, 20, 20, 1.0, 1.0);
  deployment.experts->gpu_flops = 2.0 * 4.0 / kUnit;  // 2 for each token, as the expert has one parameter
  const ExpertModel times = model(1, 0.0, 1.0);
  ExpertBench bench("mixtral-offloading", times, deployment, {{"policy.slots", std::int64_t{20}}});
  std::vector<ExpertUse> used(20);
  for (std::int32_t e = 0; e < 20; ++e) {
    used[static_cast<std::size_t>(e)] = {e, e == 13 ? 12 : e == 15 ? 8 : e == 19 ? 5 : 4 - e % 4};
  }
  bench.routers.used = {used};
  EXPECT_NEAR(units(bench.iterate()), 17.0 + 3.0 + 2.0 + 1.25, 0.01);
}

// All four experts of a layer are there and in use. Weights take 1, arithmetic a hundredth for each token: experts of
// 50 tokens take 1, of 300 tokens 3 and of 9,000 tokens 90, which are bound by arithmetic. All that is bound by the
// same is one step, and that of expert 0 comes first: an iteration that is cut at once has started no other one.
TEST(ExpertLayers, StepsBoundByTheSameAreOne) {
  const auto run = [](const std::vector<std::int32_t>& tokens, std::optional<Duration> cut) {
    const ExpertModel times = model(1, 0.0, 5.0);
    Deployment deployment = small(1, 4, 1, 1.0, 1.0);
    deployment.experts->gpu_flops = 2.0 * deployment.experts->parameters / (0.01 * kUnit);
    ExpertBench bench("moe-infinity", times, deployment, {{"policy.gpu_experts", std::int64_t{4}}}, {}, {},
                      {{{0.25, 0.25, 0.25, 0.25}}});
    std::int64_t all = 0;
    std::vector<ExpertUse> used;
    for (const std::int32_t of_one : tokens) {
      used.push_back({static_cast<std::int32_t>(used.size()), of_one});
      all += of_one;
    }
    bench.routers.used = {used};
    const Duration length = bench.iterate(all, 0, cut);
    EXPECT_EQ(bench.routers.known_by_tokens, 1);
    return std::pair(length, bench.arithmetic());
  };
  const std::vector<std::int32_t> first{9'000, 50, 300, 50};
  const std::vector<std::int32_t> later{50, 9'000, 300, 50};
  const auto time = [](double units) { return round_seconds(units * kUnit); };
  const std::pair whole(time(90.0 + 3.0 + 1.0 + 1.0), time(90.0 + 3.0));
  for (const std::vector<std::int32_t>& tokens : {first, later}) EXPECT_EQ(run(tokens, {}), whole);
  EXPECT_EQ(run(first, time(0.5)), std::pair(time(0.5), time(93.0)));
  EXPECT_EQ(run(later, time(0.5)), std::pair(time(0.5), time(0.0)));
}

// Experts 0 and 1 are there, 2 is copied for 1.5 and computed last, each for 1: 3. Where a copy doubles the time of
// what starts beside it, expert 0 takes 2, and 1 starts when the copy has ended: 4.
TEST(ExpertLayers, ACopySlowsDownOnlyTheStepsThatStartBesideIt) {
  const auto length = [](const Slowdown& slowdown) {
    ExpertModel times = model(1, 0.0, 1.5);
    times.compute_slowdown = slowdown;
    ExpertBench bench("expert-cache", times, small(1, 3, 1, 1.0, 1.0),
                      {{"policy.slots", std::int64_t{2}}, {"policy.miss", std::string("wait")}});
    bench.slow_down(slowdown);
    bench.routers.used = {{{0, 1}, {1, 1}, {2, 1}}};
    return units(bench.iterate(3));
  };
  EXPECT_NEAR(length({1, 1}), 3.0, 0.01);
  EXPECT_NEAR(length({2, 1}), 4.0, 0.01);
}

// Each of two layers loads three experts of three matrices, or of one copy each: the model, which says how far its
// measurements were left, is asked for all of them, although they are executed together.
TEST(ExpertLayers, AskTheModelForEveryLoad) {
  const auto asked = [](const std::string& policy, const Overrides& overrides) {
    const ExpertModel times = model(2, 0.0, 1.0);
    ExpertBench bench(policy, times, small(2, 6, 3, 1.0, 50.0), overrides);
    bench.routers.used.assign(2, {{0, 1}, {2, 1}, {4, 1}});
    const std::int64_t before = times.asked(Stream::h2d);
    bench.iterate();
    EXPECT_EQ(bench.copied(Stream::h2d), Bytes(6000)) << policy;
    return times.asked(Stream::h2d) - before;
  };
  EXPECT_EQ(asked("fiddler", with({{"policy.gpu_experts", std::int64_t{0}}, {"policy.pageable", 1.0}})), 18);
  EXPECT_EQ(asked("mixtral-offloading", {{"policy.slots", std::int64_t{1}}, {"policy.prefetch", std::int64_t{0}}}), 6);
}

// Test 10: 3 layers of attention 2; an expert on the GPU takes 1, four on the CPU 4. Without deferral 3 (2 + 4) = 18.
// With one of a token's experts deferred: layers 0 and 1 wait for three, at 2 + 3 and 5 + 2 + 3; the fourth ends at 6
// and at 11; the last layer computes all four from 12 on: 16.
TEST(KTransformers, DeferredExpertsAreComputedBesideTheNextLayer) {
  const ExpertModel times = model(3, 2.0, 0.0);
  const auto run = [&](std::int64_t deferred) {
    ExpertBench bench("ktransformers", times, small(3, 5, 5, 1.0, 1.0),
                      with({{"policy.gpu_experts", std::int64_t{1}}, {"policy.deferred_experts", deferred}}));
    bench.routers.used.assign(3, first_experts(5));
    return units(bench.iterate());
  };
  EXPECT_NEAR(run(0), 18.0, 0.01);
  EXPECT_NEAR(run(1), 16.0, 0.01);
}

// Eight experts of 2 on the CPU, seven of them deferred; each way takes 3. Layer 0: there 0-3, one expert 3-5, its
// output back 5-8, the others computed 5-19. Layer 1 uses one expert: there 8-11, computed 19-21 behind the deferred
// ones, and the outputs of all come back together 21-24.
TEST(KTransformers, DeferredOutputsComeBackWithThoseOfTheNextLayer) {
  Overrides overrides = with({{"policy.gpu_experts", std::int64_t{0}}, {"policy.deferred_experts", std::int64_t{7}}});
  overrides.emplace_back("policy.sync", round_seconds(3 * kUnit));
  const ExpertModel times = model(2, 0.0, 0.0);
  ExpertBench bench("ktransformers", times, small(2, 8, 8, 0.0, 2.0), overrides);
  bench.routers.used = {first_experts(8), first_experts(1)};
  EXPECT_NEAR(units(bench.iterate()), 24.0, 0.01);
}

// Attention takes 20, and expert 0 is on the GPU. Of the seven on the CPU one is immediate and six are deferred: there
// 20-23, computed 23-25 and 25-37, back 25-28. Layer 1 uses expert 0 alone, from 48 on. It sends its hidden state like
// any other layer, 48-51, and gets the deferred outputs 51-54.
TEST(KTransformers, ALayerWithoutExpertsOnTheCpuGetsDeferredOutputs) {
  Overrides overrides = with({{"policy.gpu_experts", std::int64_t{1}}, {"policy.deferred_experts", std::int64_t{7}}});
  overrides.emplace_back("policy.sync", round_seconds(3 * kUnit));
  const ExpertModel times = model(2, 20.0, 0.0);
  ExpertBench bench("ktransformers", times, small(2, 8, 8, 0.0, 2.0), overrides);
  bench.routers.used = {first_experts(8), first_experts(1)};
  EXPECT_NEAR(units(bench.iterate()), 54.0, 0.01);
}

// GPU and CPU work side by side: 4 on the GPU at 3 take 12, 2 on the CPU at 5 take 10, attention 2. A prompt above the
// threshold copies the 2 missing ones of 6 (7 each), then the GPU computes 6 (18).
TEST(KTransformers, TheLongerSideCounts) {
  const ExpertModel times = model(1, 2.0, 7.0);
  ExpertBench bench("ktransformers", times, small(1, 6, 6, 3.0, 5.0),
                    with({{"policy.gpu_experts", std::int64_t{4}}, {"policy.gpu_prefill_threshold", std::int64_t{8}}}));
  bench.routers.used = {first_experts(6)};
  EXPECT_NEAR(units(bench.iterate(8)), 14.0, 0.01);
  EXPECT_EQ(bench.copied(Stream::h2d), Bytes(0));
  EXPECT_NEAR(units(bench.iterate(9)), 2.0 + 14.0 + 18.0, 0.01);
  EXPECT_EQ(bench.copied(Stream::h2d), Bytes(2000));
}

TEST(KTransformers, PlacementsOfExperts) {
  const ExpertModel times = model(2, 0.0, 0.0);
  const auto hits = [&](const std::string& placement, std::vector<std::vector<ExpertUse>> used) {
    ExpertBench bench("ktransformers", times, small(2, 4, 2, 1.0, 1.0),
                      with({{"policy.gpu_experts", std::int64_t{2}}, {"policy.placement", placement}}),
                      {{3, 2, 1, 0}, {1, 3, 0, 2}});
    bench.routers.used = std::move(used);
    bench.iterate();
    return bench.figures().at("expert_hit_fraction");
  };
  EXPECT_EQ(hits("uniform", {{{0, 1}, {1, 1}}, {{0, 1}, {1, 1}}}), 1.0);
  EXPECT_EQ(hits("front-loading", {{{2, 1}, {3, 1}}, {{0, 1}, {1, 1}}}), 0.5);  // all four of layer 0, none of layer 1
  // All are equally popular here, so those of layer 0 come first, by its ranking.
  EXPECT_EQ(hits("frequency", {{{0, 1}, {3, 1}}, {{1, 1}, {3, 1}}}), 0.5);
}

// After a prompt, the slots hold what it used most: 2 and 3 in place of 0 and 1.
TEST(KTransformers, DynamicUpdateKeepsTheMostUsed) {
  const ExpertModel times = model(1, 0.0, 1.0);
  ExpertBench bench("ktransformers", times, small(1, 4, 2, 1.0, 1.0),
                    with({{"policy.gpu_experts", std::int64_t{2}},
                          {"policy.gpu_prefill_threshold", std::int64_t{4}},
                          {"policy.dynamic_update", true}}));
  bench.routers.used = {{{0, 1}, {1, 2}, {2, 4}, {3, 3}}};
  bench.iterate(5);
  bench.routers.used = {{{2, 1}, {3, 1}}};
  bench.iterate();
  EXPECT_EQ(bench.figures().at("expert_cpu_fraction"), 0.0);
}

/// Test 5: 2 layers, one expert a token and one slot a layer; attention 1, an expert 1, a copy 4. Layer 0 holds a = 1,
/// layer 1 holds x = 1; b = 0 and y = 0 are on the host.
class TwoLayersOfOneSlot {
 public:
  TwoLayersOfOneSlot(std::int64_t prefetch, const std::string& variant)
      : bench_("mixtral-offloading", times_, small(2, 2, 1, 1.0, 1.0),
               {{"policy.slots", std::int64_t{1}}, {"policy.prefetch", prefetch}, {"policy.variant", variant}}) {}

  /// A token that uses these experts, whose second one was predicted as `guess`; returns its end.
  double token(std::int32_t first, std::int32_t second, std::int32_t guess) {
    bench_.routers.used = {{{first, 1}}, {{second, 1}}};
    bench_.routers.guesses = {{}, {guess}};
    end_ += units(bench_.iterate());
    return end_;
  }
  [[nodiscard]] Figures figures() const { return bench_.figures(); }

 private:
  ExpertModel times_ = model(2, 1.0, 4.0);
  ExpertBench bench_;
  double end_ = 0.0;
};

constexpr std::int32_t kA = 1;
constexpr std::int32_t kB = 0;
constexpr std::int32_t kX = 1;
constexpr std::int32_t kY = 0;

// Token 1 needs a and y, predicted y: gate 1, y is copied 1-5, a computed 1-2, gate 3, y 5-6. Token 2 needs b and y,
// which is resident now, predicted x: gate 7, b 7-11 and 11-12, x ahead 11-15, y a hit 13-14. Token 3 needs a and x,
// predicted y, which is resident: gate 15, the link is busy to 15, a 15-19 and 19-20, gate 21, x, whose buffer was left
// at 14, 21-25, computed to 26.
TEST(MixtralOffloading, LoadsAheadBesideCompute) {
  TwoLayersOfOneSlot run(1, "paper");
  EXPECT_NEAR(run.token(kA, kY, kY), 6.0, 0.01);
  EXPECT_NEAR(run.token(kB, kY, kX), 14.0, 0.01);
  EXPECT_NEAR(run.token(kA, kX, kY), 26.0, 0.01);
  const Figures figures = run.figures();
  EXPECT_EQ(figures.at("prefetched_expert_bytes"), 2000.0);  // y of token 1, x of token 2
  EXPECT_EQ(figures.at("unused_prefetches"), 1.0);
  EXPECT_NEAR(figures.at("late_prefetch_fraction"), 1.0 / 6.0, 1e-12);
  EXPECT_EQ(figures.at("demanded_expert_bytes"), 3000.0);  // b, a, x
}

TEST(MixtralOffloading, WithoutLoadingAhead) {
  TwoLayersOfOneSlot run(0, "paper");
  EXPECT_NEAR(run.token(kA, kY, kY), 8.0, 0.01);
  EXPECT_NEAR(run.token(kB, kY, kX), 16.0, 0.01);
  EXPECT_NEAR(run.token(kA, kX, kY), 28.0, 0.01);
}

// The public code swaps on the compute stream: y comes in 3-7, x leaves 7-11, y is computed to 12.
TEST(MixtralOffloading, ThePublishedCodeSwaps) {
  TwoLayersOfOneSlot run(1, "published");
  EXPECT_NEAR(run.token(kA, kY, kY), 12.0, 0.01);
  EXPECT_EQ(run.figures().at("prefetched_expert_bytes"), 0.0);
}

// Layer 0 misses 0, so its swap is followed by layer 1. The guess of layer 1 is not resident, and is not loaded.
TEST(MixtralOffloading, ThePublishedCodeLoadsNothingAhead) {
  TwoLayersOfOneSlot run(1, "published");
  EXPECT_NEAR(run.token(kB, kX, kY), 12.0, 0.01);  // gate 1, swap 1-9, computed to 10; gate 11, a hit, 12
  EXPECT_EQ(run.figures().at("prefetched_expert_bytes"), 0.0);
  EXPECT_EQ(run.figures().at("demanded_expert_bytes"), 1000.0);
}

// An expert is one copy: its matrices are stored one after the other. A copy starts in 1 and takes 4. Paper: gate 1,
// the expert comes 1-6, computed to 7. Published: it comes 1-6, another one leaves 6-11, computed to 12.
TEST(MixtralOffloading, AnExpertIsOneCopy) {
  const ExpertModel times(1, round_seconds(kUnit), 1000.0 / (4.0 * kUnit), round_seconds(kUnit));
  for (const auto& [variant, expected] :
       std::vector<std::pair<std::string, double>>{{"paper", 7.0}, {"published", 12.0}}) {
    ExpertBench bench("mixtral-offloading", times, small(1, 2, 1, 1.0, 1.0),
                      {{"policy.slots", std::int64_t{1}}, {"policy.variant", variant}});
    bench.routers.used = {{{0, 1}}};
    EXPECT_NEAR(units(bench.iterate()), expected, 0.01) << variant;
  }
}

// Three slots of four, 1, 2 and 3; 1 is used, so 2 is the least recently used: 0 takes its slot.
TEST(MixtralOffloading, TheLeastRecentlyUsedLeaves) {
  const ExpertModel times = model(1, 0.0, 4.0);
  ExpertBench bench("mixtral-offloading", times, small(1, 4, 1, 1.0, 1.0), {{"policy.slots", std::int64_t{3}}});
  bench.routers.guesses = {{}};
  for (const auto& [expert, expected] :
       std::vector<std::pair<std::int32_t, double>>{{1, 1.0}, {0, 5.0}, {1, 1.0}, {3, 1.0}, {2, 5.0}, {0, 5.0}}) {
    bench.routers.used = {{{expert, 1}}};
    EXPECT_NEAR(units(bench.iterate()), expected, 0.01) << expert;
  }
}

// One slot of four, 3 at first, and two experts for a token. Loads: 0 in 0-4 and 1 in 4-8, computed 4-5 and 8-9; 1 has
// evicted 0. Then 1 is a hit, and 2 comes in 0-4. Swaps of 8 on the compute stream: 8 + 1 each.
TEST(MixtralOffloading, FewerSlotsThanATokenUses_EvictEachOther) {
  const ExpertModel times = model(1, 0.0, 4.0);
  for (const auto& [variant, first, second] :
       std::vector<std::tuple<std::string, double, double>>{{"paper", 9.0, 5.0}, {"published", 18.0, 10.0}}) {
    ExpertBench bench("mixtral-offloading", times, small(1, 4, 2, 1.0, 1.0),
                      {{"policy.slots", std::int64_t{1}}, {"policy.variant", variant}});
    bench.routers.guesses = {{}};
    bench.routers.used = {{{0, 1}, {1, 1}}};
    EXPECT_NEAR(units(bench.iterate()), first, 0.01) << variant;
    bench.routers.used = {{{1, 1}, {2, 1}}};
    EXPECT_NEAR(units(bench.iterate()), second, 0.01) << variant;
  }
}

// Two slots hold 0 and 1 of four. The CPU takes 10 for an expert, a copy 4, the GPU 1. 2 and 3 are missing: the CPU
// computes both, 20. Then 3, with more tokens, is copied to the slot of 1, the least popular, and is a hit.
TEST(ExpertCache, TheCpuComputesMissesWhileOneIsUploaded) {
  const ExpertModel times = model(1, 0.0, 4.0);
  ExpertBench bench("expert-cache", times, small(1, 4, 2, 1.0, 10.0),
                    with({{"policy.slots", std::int64_t{2}}, {"policy.uploads", std::int64_t{1}}}), {{0, 1, 2, 3}});
  bench.routers.used = {{{2, 1}, {3, 2}}};
  EXPECT_NEAR(units(bench.iterate()), 20.0, 0.01);
  bench.routers.used = {{{0, 1}}};
  for (int token = 0; token < 5; ++token) EXPECT_NEAR(units(bench.iterate()), 1.0, 0.01);  // the copy ends
  EXPECT_EQ(bench.copied(Stream::h2d), Bytes(1000));
  bench.routers.used = {{{0, 1}, {3, 1}}};
  EXPECT_NEAR(units(bench.iterate()), 2.0, 0.01);
  bench.routers.used = {{{1, 1}}};
  EXPECT_NEAR(units(bench.iterate()), 10.0, 0.01);
}

// The CPU computes 2 until 10; its copy lasts from 10 to 50. It is used again meanwhile: the CPU computes it until 20,
// and its outputs come back behind the copy, at 50. Nothing new is copied, and then it is a hit.
TEST(ExpertCache, AnExpertOnItsWayIsStillMissing) {
  const ExpertModel times = model(1, 0.0, 40.0);
  ExpertBench bench("expert-cache", times, small(1, 4, 1, 1.0, 10.0), with({{"policy.slots", std::int64_t{2}}}),
                    {{0, 1, 2, 3}});
  bench.routers.used = {{{2, 1}}};
  EXPECT_NEAR(units(bench.iterate()), 10.0, 0.01);
  EXPECT_NEAR(units(bench.iterate()), 40.0, 0.01);
  EXPECT_NEAR(units(bench.iterate()), 1.0, 0.01);
  EXPECT_EQ(bench.copied(Stream::h2d), Bytes(1000));
  EXPECT_NEAR(bench.figures().at("late_prefetch_fraction"), 1.0 / 3.0, 1e-12);
}

// Awaited misses come one after the other: copies 0-4 and 4-8, computed 4-5 and 8-9. The hit is computed first.
TEST(ExpertCache, AwaitedMissesAreComputedAsTheyArrive) {
  const ExpertModel times = model(1, 0.0, 4.0);
  ExpertBench bench("expert-cache", times, small(1, 4, 3, 1.0, 10.0),
                    {{"policy.slots", std::int64_t{3}}, {"policy.miss", std::string("wait")}}, {{0, 1, 2, 3}});
  bench.routers.used = {{{3, 1}}};
  EXPECT_NEAR(units(bench.iterate()), 5.0, 0.01);  // in the slot of 2
  bench.routers.used = {{{0, 1}, {2, 1}, {3, 1}}};
  EXPECT_NEAR(units(bench.iterate()), 5.0, 0.01);  // 0 and 3 during the copy of 2
}

// A curve finds 2 in a slot and misses 3, whatever the slots of 0 and 1 would hold: 2 is computed 0-1, 3 is copied 0-4
// and computed 4-5. The copy changes nothing: the next token misses 3 again.
TEST(ExpertCache, ACurveSaysWhatIsThereWhenMissesAreAwaited) {
  const ExpertModel times = model(1, 0.0, 4.0);
  ExpertBench bench("expert-cache", times, small(1, 4, 2, 1.0, 10.0),
                    {{"policy.slots", std::int64_t{2}}, {"policy.miss", std::string("wait")}}, {{0, 1, 2, 3}});
  bench.routers.used = {{{2, 1}, {3, 1}}};
  bench.routers.hits = {{2}};
  for (int token = 0; token < 2; ++token) EXPECT_NEAR(units(bench.iterate()), 5.0, 0.01);
  EXPECT_EQ(bench.copied(Stream::h2d), Bytes(2000));
  EXPECT_EQ(bench.figures().at("expert_hit_fraction"), 0.5);
}

// The CPU takes 10 for what the curve misses. It is uploaded each time, and is on its way for no later token: with the
// slots of the policy's own, the second token would meet its copy.
TEST(ExpertCache, ACurveSaysWhatIsThereWhenTheCpuComputesMisses) {
  const ExpertModel times = model(1, 0.0, 40.0);
  ExpertBench bench("expert-cache", times, small(1, 4, 1, 1.0, 10.0), with({{"policy.slots", std::int64_t{2}}}),
                    {{0, 1, 2, 3}});
  bench.routers.used = {{{2, 1}}};
  bench.routers.hits = {{}};
  EXPECT_NEAR(units(bench.iterate()), 10.0, 0.01);
  bench.routers.hits = {{2}};
  EXPECT_NEAR(units(bench.iterate()), 1.0, 0.01);
  EXPECT_EQ(bench.figures().at("late_prefetch_fraction"), 0.0);
  EXPECT_EQ(bench.figures().at("demanded_expert_bytes"), 1000.0);
}

// Two layers as in test 5. The curve finds a, and neither b nor y. Token 1 needs a and y, as without a curve: y ahead
// 1-5, end 6. Token 2 needs b and y, which was loaded for token 1 and is not there: gate 7, b 7-11 and 11-12, y ahead
// 11-15, gate 13, y 15-16. Token 3 needs b, and y, which the curve finds: no copy ahead, gate 17, b 17-21 and 21-22, y
// 23-24.
TEST(MixtralOffloading, ACurveSaysWhatIsThere) {
  const ExpertModel times = model(2, 1.0, 4.0);
  ExpertBench bench("mixtral-offloading", times, small(2, 2, 1, 1.0, 1.0),
                    {{"policy.slots", std::int64_t{1}}, {"policy.prefetch", std::int64_t{1}}});
  bench.routers.guesses = {{}, {kY}};
  bench.routers.used = {{{kA, 1}}, {{kY, 1}}};
  bench.routers.hits = {{kA}, {}};
  EXPECT_NEAR(units(bench.iterate()), 6.0, 0.01);
  bench.routers.used = {{{kB, 1}}, {{kY, 1}}};
  bench.routers.hits = {{}, {}};
  EXPECT_NEAR(units(bench.iterate()), 10.0, 0.01);
  bench.routers.hits = {{}, {kY}};
  EXPECT_NEAR(units(bench.iterate()), 8.0, 0.01);
  EXPECT_EQ(bench.figures().at("prefetched_expert_bytes"), 2000.0);
}

// Weights of an expert take 1, arithmetic a hundredth for each token: 50 tokens 1, 300 tokens 3, 9,000 tokens 90 and
// 5,000 tokens 50, the second time as the first.
TEST(ExpertPolicies, AnExpertTakesTheTimeOfItsTokens) {
  const ExpertModel times = model(1, 0.0, 5.0);
  Deployment deployment = small(1, 4, 1, 1.0, 1.0);
  deployment.experts->gpu_flops = 2.0 * deployment.experts->parameters / (0.01 * kUnit);
  ExpertBench bench("mixtral-offloading", times, deployment, with({{"policy.slots", std::int64_t{4}}}));
  for (int iteration = 0; iteration < 2; ++iteration) {
    bench.routers.used = {{{0, 50}, {1, 300}, {2, 9'000}, {3, 5'000}}};
    EXPECT_NEAR(units(bench.iterate(14'350)), 1.0 + 3.0 + 90.0 + 50.0, 0.01);
  }
}

TEST(ExpertPolicies, SlotsBelowTheActiveExpertsAreRefused) {
  const ExpertModel times = model(1, 0.0, 4.0);
  try {
    const ExpertBench bench("expert-cache", times, small(1, 8, 4, 1.0, 1.0), {{"policy.slots", std::int64_t{3}}});
    ADD_FAILURE() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("policy.slots=3, and a token uses 4 experts of a layer"));
  }
  EXPECT_THROW(ExpertBench("mixtral-offloading", times, small(1, 8, 4, 1.0, 1.0), {{"policy.slots", std::int64_t{0}}}),
               ConfigError);
  EXPECT_THROW(ExpertBench("fiddler", times, small(1, 8, 4, 1.0, 1.0), {{"policy.gpu_experts", std::int64_t{9}}}),
               ConfigError);
  EXPECT_THROW(
      ExpertBench("ktransformers", times, small(1, 8, 4, 1.0, 1.0), {{"policy.deferred_experts", std::int64_t{5}}}),
      ConfigError);
}

}  // namespace
}  // namespace spillway
