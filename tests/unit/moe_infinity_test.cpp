// MoE-Infinity (policies/moe-infinity.cpp), by hand: an eviction, and tokens step by step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policies/parts/expert_matrix.hpp"
#include "sim/core/random.hpp"
#include "tests/unit/expert_units.hpp"

namespace spillway {
namespace {

using testing::HasSubstr;

// Test 6: of (0, A) with a share of .25, (2, B) .75, (3, C) .90 in 4 layers, C goes: .25, .75 * .5 = .375, .90 * .25 =
// .225. At layer 0, (2, y) .8 is loaded before (1, x) .5: .8 * .5 = .4 against .5 * .75 = .375.
TEST(ExpertMatrix, PrioritiesOfThePaper) {
  EXPECT_NEAR(keep_priority(0.25, 0, 4), 0.25, 1e-8);
  EXPECT_NEAR(keep_priority(0.75, 2, 4), 0.375, 1e-8);
  EXPECT_NEAR(keep_priority(0.90, 3, 4), 0.225, 1e-8);
  EXPECT_DOUBLE_EQ(load_priority(0.5, 1, 0, 4), 0.375);
  EXPECT_DOUBLE_EQ(load_priority(0.8, 2, 0, 4), 0.4);

  const std::vector<std::vector<double>> rows{{0.25, 0.4, 0.35}, {0.3, 0.5, 0.2}, {0.1, 0.8, 0.1}, {0.9, 0.05, 0.05}};
  const ExpertShares equal(4, 3, [](std::int32_t, std::int32_t) { return 1.0 / 3.0; });
  const ExpertShares shares(4, 3, [&](std::int32_t layer, std::int32_t expert) {
    return rows[static_cast<std::size_t>(layer)][static_cast<std::size_t>(expert)];
  });
  ExpertMatrix matrix(4, 3, equal);
  for (const LayerExpert& one : {LayerExpert{0, 0}, {2, 1}, {3, 0}}) matrix.add(one);
  matrix.set(shares);                                   // what is present stays
  EXPECT_EQ(matrix.least(1), (LayerExpert{3, 0}));      // .225 of .25, .4, .225
  EXPECT_EQ(matrix.least(3), (LayerExpert{0, 0}));      // never of the running layer
  EXPECT_EQ(matrix.most(0, 0.0), (LayerExpert{1, 1}));  // .375; (2, 1) is present
  matrix.remove({2, 1});
  EXPECT_EQ(matrix.most(0, 0.0), (LayerExpert{2, 1}));  // .4
  EXPECT_EQ(matrix.most(3, 0.0), std::nullopt);         // no later layer
  matrix.remove({3, 0});
  EXPECT_EQ(matrix.most(2, 0.22), (LayerExpert{3, 0}));  // worth keeping .225
  EXPECT_EQ(matrix.most(2, 0.23), std::nullopt);
  matrix.remove({0, 0});
  EXPECT_EQ(matrix.least(1), std::nullopt);
}

// The same questions, answered by looking at every expert. 130 experts fill more than two words of 64 bits. Shares of
// 0.1, 0.2, ... 0.5 are often equal: then the first layer counts, and in a layer the order of the shares.
TEST(ExpertMatrix, AgreesWithALookAtEveryExpert) {
  constexpr std::int32_t kLayers = 3;
  constexpr std::int32_t kExperts = 130;
  RandomStream random(7, 0, "expert-matrix");
  const auto below = [&](std::int32_t end) { return static_cast<std::int32_t>(random.uniform() * end); };
  const auto drawn = [&] {
    std::vector<std::vector<double>> rows(kLayers, std::vector<double>(kExperts));
    for (std::vector<double>& row : rows) {
      for (double& share : row) share = 0.1 * (1 + below(5));
    }
    return rows;
  };
  std::vector<std::vector<double>> rows = drawn();
  const auto shares_of = [&] {
    return ExpertShares(kLayers, kExperts, [&](std::int32_t layer, std::int32_t expert) {
      return rows[static_cast<std::size_t>(layer)][static_cast<std::size_t>(expert)];
    });
  };
  ExpertShares shares = shares_of();
  ExpertMatrix matrix(kLayers, kExperts, shares);
  std::vector<std::vector<bool>> present(kLayers, std::vector<bool>(kExperts));
  const auto share = [&](const LayerExpert& one) {
    return rows[static_cast<std::size_t>(one.layer)][static_cast<std::size_t>(one.expert)];
  };
  int changed_shares = 0;
  for (int step = 0; step < 3000; ++step) {
    const std::int32_t layer = below(kLayers);
    const auto l = static_cast<std::size_t>(layer);
    if (step % 500 == 499) {  // all shares change; before that, a layer is filled or emptied
      for (std::int32_t e = 0; e < kExperts; ++e) {
        const bool fill = step % 1000 == 499;
        if (present[l][static_cast<std::size_t>(e)] == fill) continue;
        present[l][static_cast<std::size_t>(e)] = fill;
        fill ? matrix.add({layer, e}) : matrix.remove({layer, e});
      }
      rows = drawn();
      shares = shares_of();
      matrix.set(shares);
      ++changed_shares;
    } else {
      const LayerExpert one{layer, below(kExperts)};
      const auto e = static_cast<std::size_t>(one.expert);
      present[l][e] = !present[l][e];
      present[l][e] ? matrix.add(one) : matrix.remove(one);
    }
    if (below(2) == 0) continue;  // several changes before a question
    const std::int32_t running = below(kLayers);
    std::optional<LayerExpert> least;
    std::optional<LayerExpert> most;
    double least_worth = 0.0;
    double most_worth = 0.0;
    const double kept = below(2) == 0 ? 0.0 : 0.05 * below(10);
    for (std::int32_t other = 0; other < kLayers; ++other) {
      // Of a layer, the last present one and the first absent one, by share and then by number.
      std::optional<LayerExpert> last;
      std::optional<LayerExpert> first;
      for (std::int32_t e = 0; e < kExperts; ++e) {
        const LayerExpert one{other, e};
        if (present[static_cast<std::size_t>(other)][static_cast<std::size_t>(e)]) {
          if (!last || share(one) <= share(*last)) last = one;
        } else if (!first || share(one) > share(*first)) {
          first = one;
        }
      }
      const double stays = 1.0 - other / 3.0;
      if (last && other != running && (!least || (share(*last) + 1e-9) * stays < least_worth)) {
        least = last;
        least_worth = (share(*last) + 1e-9) * stays;
      }
      const double nearness = 1.0 - (other - running) / 3.0;
      if (first && other > running && (share(*first) + 1e-9) * stays > kept &&
          (!most || share(*first) * nearness > most_worth)) {
        most = first;
        most_worth = share(*first) * nearness;
      }
    }
    ASSERT_EQ(matrix.least(running), least) << step;
    ASSERT_EQ(matrix.most(running, kept), most) << step;
  }
  EXPECT_EQ(changed_shares, 6);
}

using Rows = ScriptedRouters::Rows;

/// Four layers of three experts, of which a token uses one. A layer takes 1, an expert 1, a copy 4.
class FourLayers {
 public:
  FourLayers(std::int64_t slots, std::vector<Rows> kinds, Overrides overrides)
      : bench_("moe-infinity", times_, small(4, 3, 1, 1.0, 1.0), with_slots(slots, std::move(overrides)), {}, {},
               std::move(kinds)) {}

  /// A token that uses these experts; returns its length.
  double token(const std::vector<std::int32_t>& experts) {
    bench_.routers.used.clear();
    for (const std::int32_t expert : experts) bench_.routers.used.push_back({{expert, 1}});
    return units(bench_.iterate());
  }
  [[nodiscard]] Figures figures() const { return bench_.figures(); }

 private:
  static Overrides with_slots(std::int64_t slots, Overrides overrides) {
    overrides.emplace_back("policy.gpu_experts", slots);
    return overrides;
  }
  ExpertModel times_ = model(4, 1.0, 4.0);
  ExpertBench bench_;
};

const Rows kRows{{0.4, 0.5, 0.1}, {0.1, 0.8, 0.1}, {0.2, 0.2, 0.6}, {0.5, 0.3, 0.2}};

// At first (0, 0), (0, 1), (0, 2), (1, 0) are there. Token 1: gate 0 at 1, (0, 1) is computed to 2. Ahead (1, 1), .8 *
// 3/4 = .6, in place of (1, 0), worth .075: 1-5. Gate 1 at 3 waits, computed 5-6. Ahead at 5 (2, 2), .6 * 3/4, in place
// of (0, 2), .1: 5-9. Gate 2 at 7, computed 9-10. At 9 (3, 0) is worth keeping .5 / 4 = .125, less than (0, 0): nothing
// is loaded. Gate 3 at 11: (3, 0) in place of (2, 2), worth .3: 11-15, computed to 16.
// Token 2: gate 0 at 17, computed to 18; ahead (2, 2), .3, in place of (3, 0), .125: 17-21. Gate 1 at 19, a hit to 20.
// Gate 2 at 21, a hit to 22; nothing is worth a slot. Gate 3 at 23: (3, 0) again, 23-27, computed to 28.
TEST(MoeInfinity, LoadsAheadByTheMatrixOfTheRequest) {
  FourLayers run(4, {kRows}, {});
  EXPECT_NEAR(run.token({1, 1, 2, 0}), 16.0, 0.01);
  EXPECT_NEAR(run.token({1, 1, 2, 0}), 12.0, 0.01);
  const Figures figures = run.figures();
  EXPECT_EQ(figures.at("expert_hit_fraction"), 0.5);
  EXPECT_EQ(figures.at("expert_load_fraction"), 0.5);
  EXPECT_EQ(figures.at("late_prefetch_fraction"), 0.25);
  EXPECT_EQ(figures.at("demanded_expert_bytes"), 2000.0);
  EXPECT_EQ(figures.at("prefetched_expert_bytes"), 3000.0);
  EXPECT_EQ(figures.at("unused_prefetches"), 0.0);
  EXPECT_NEAR(figures.at("gpu_expert_seconds"), 8e-6, 1e-8);  // eight experts
}

// (1, 0) is worth keeping .45, so gate 0 at 1 loads nothing. At gate 1, at 3, (3, 0) is the most worth loading, .9
// / 2, but its .225 of keeping are less than the .24 of (0, 0). (2, 0), .5 * 3/4, is worth keeping .25 and is
// loaded, 3-7. Gate 2 at 5 waits, computed 7-8. Gate 3 at 9: (3, 0) in place of (2, 0), 9-13, computed to 14.
TEST(MoeInfinity, AnExpertThatIsNotWorthASlotIsPassedOver) {
  FourLayers run(4, {{{0.24, 0.36, 0.4}, {0.6, 0.2, 0.2}, {0.5, 0.3, 0.2}, {0.9, 0.05, 0.05}}}, {});
  EXPECT_NEAR(run.token({0, 0, 0, 0}), 14.0, 0.01);
  EXPECT_EQ(run.figures().at("prefetched_expert_bytes"), 1000.0);
}

// Matched after two layers. At gate 0 the other kind's (2, 0), .8 / 2, takes the slot of (1, 0): 1-5. Gate 1 at 3:
// (1, 1) takes that of (0, 0), 5-9, computed to 10. At 9 the right (2, 1), .4, takes the slot of (2, 0), now .05:
// 9-13. Gate 2 at 11 needs (2, 0) after all, 13-17, computed to 18, in place of (1, 1), .3; (2, 1) was for nothing
// as well. Gate 3 at 19: (3, 2) in place of (2, 0), 19-23, computed to 24.
TEST(MoeInfinity, AnExpertThatLeavesBeforeItsLayerWasForNothing) {
  const Rows mine{{0.25, 0.35, 0.4}, {0.2, 0.4, 0.4}, {0.1, 0.8, 0.1}, {0.05, 0.05, 0.9}};
  const Rows other{{0.25, 0.35, 0.4}, {0.2, 0.4, 0.4}, {0.8, 0.1, 0.1}, {0.05, 0.05, 0.9}};
  FourLayers run(4, {mine, other}, {{"policy.matched_layers", std::int64_t{2}}});
  EXPECT_NEAR(run.token({0, 1, 0, 2}), 24.0, 0.01);
  EXPECT_EQ(run.figures().at("prefetched_expert_bytes"), 2000.0);
  EXPECT_EQ(run.figures().at("unused_prefetches"), 2.0);
}

// An iteration without tokens, such as one that waits for copies of its requests: its routers choose nothing.
TEST(MoeInfinity, WithoutTokensNothingIsLoaded) {
  const ExpertModel times = model(4, 1.0, 4.0);
  ExpertBench bench("moe-infinity", times, small(4, 3, 1, 1.0, 1.0), {{"policy.gpu_experts", std::int64_t{4}}}, {}, {},
                    {kRows});
  bench.routers.used.assign(4, {});
  EXPECT_NEAR(units(bench.iterate(0)), 4.0, 0.01);
  EXPECT_EQ(bench.figures().at("prefetched_expert_bytes"), 0.0);
}

// Without loading ahead, token 1 waits 4 at each of the layers 1 to 3: (1, 1) takes the slot of (1, 0)? Not of the
// running layer: of (0, 2), .1. (2, 2) that of (1, 0), .075; (3, 0) that of (2, 2), .3. 8 + 3 * 4. Token 2 finds
// (0, 1) and (1, 1): (2, 2) takes the slot of (3, 0), .125; (3, 0) that of (2, 2): 8 + 2 * 4.
TEST(MoeInfinity, WithoutLoadingAheadTheMatrixSaysWhatLeaves) {
  FourLayers run(4, {kRows}, {{"policy.prefetch", false}});
  EXPECT_NEAR(run.token({1, 1, 2, 0}), 20.0, 0.01);
  EXPECT_NEAR(run.token({1, 1, 2, 0}), 16.0, 0.01);
  EXPECT_EQ(run.figures().at("demanded_expert_bytes"), 5000.0);
}

// The public code: (1, 1) takes the slot of (0, 0), unused and the first one by expert, then by layer; (2, 2) that of
// (1, 0); (3, 0) that of (0, 2), as the others have been used once. 8 + 3 * 4. Token 2 finds all four.
TEST(MoeInfinity, ThePublishedCodeReplacesTheLeastUsed) {
  FourLayers run(4, {kRows}, {{"policy.variant", std::string("published")}});
  EXPECT_NEAR(run.token({1, 1, 2, 0}), 20.0, 0.01);
  EXPECT_NEAR(run.token({1, 1, 2, 0}), 8.0, 0.01);
  // (0, 1), (1, 1), (2, 2), (3, 0) have been used twice. (0, 2) takes the slot of (3, 0): expert 0 comes first.
  EXPECT_NEAR(run.token({2, 1, 2, 0}), 16.0, 0.01);
  // (0, 2) and (3, 0) have been used once since they were loaded, (3, 0) by taking the slot of (0, 2).
  EXPECT_EQ(run.figures().at("demanded_expert_bytes"), 5000.0);
  // (3, 0) has been used once, the others three and four times. It is of the running layer, but not in use: (3, 2)
  // takes its slot.
  EXPECT_NEAR(run.token({1, 1, 2, 2}), 12.0, 0.01);
  EXPECT_NEAR(run.token({1, 1, 2, 2}), 8.0, 0.01);
}

// Requests of two kinds; this one uses expert 0 everywhere. Six slots: layers 0 and 1 are there.
// Matched at once: gate 0 at 1, ahead (2, 0), .35, in place of (1, 2), .075: 1-5. Gate 1 at 3, a hit to 4. At 5 ahead
// (3, 0), kept .175, in place of (0, 2), .1: 5-9; gate 2 at 5 hits, to 6. Gate 3 at 7, computed 9-10.
// Matched after three layers: at gate 0 the other kind's (2, 2) in place of (1, 0): 1-5. Gate 1 at 3: (1, 0), in place
// of (0, 0), 5-9, computed to 10. At 9 (3, 2) would be kept .175, less than (0, 1), .2. Gate 2 at 11, now right: (2, 2)
// was for nothing; (2, 0) in place of (1, 2), 11-15, computed to 16. At 15 (3, 0) in place of (0, 2), 15-19. Gate 3 at
// 17, computed 19-20.
TEST(MoeInfinity, BeforeItIsMatched_ARequestIsTakenForAnother) {
  const Rows mine(4, {0.7, 0.2, 0.1});
  const Rows other(4, {0.1, 0.2, 0.7});
  FourLayers right(6, {mine, other}, {{"policy.matched_layers", std::int64_t{1}}});
  EXPECT_NEAR(right.token({0, 0, 0, 0}), 10.0, 0.01);
  EXPECT_EQ(right.figures().at("unused_prefetches"), 0.0);
  FourLayers late(6, {mine, other}, {{"policy.matched_layers", std::int64_t{3}}});
  EXPECT_NEAR(late.token({0, 0, 0, 0}), 20.0, 0.01);
  EXPECT_EQ(late.figures().at("unused_prefetches"), 1.0);
  EXPECT_EQ(late.figures().at("prefetched_expert_bytes"), 2000.0);
}

// A prompt may use all three experts of a layer while one of another is on its way.
TEST(MoeInfinity, NeedsASlotForEachExpertOfALayer) {
  const ExpertModel times = model(4, 1.0, 4.0);
  const auto problem = [&](std::int64_t slots) -> std::string {
    try {
      static_cast<void>(ExpertBench("moe-infinity", times, small(4, 3, 1, 1.0, 1.0), {{"policy.gpu_experts", slots}},
                                    {}, {}, {kRows}));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(problem(4), "");
  EXPECT_THAT(problem(3), HasSubstr("policy.gpu_experts=3, and a prompt may use all 3 experts of a layer"));
  EXPECT_THAT(problem(13), HasSubstr("there are 12"));
}

}  // namespace
}  // namespace spillway
