#include "policies/parts/expansion_controller.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace spillway {
namespace {

// Compute of 10 layers of 10 us takes 100 us, of which a layer may be away for 90 us. Memory of 100 blocks without
// expansion. The dwell of a layer is 30 us for each layer on the host: 3 layers do not wait.
//
//   m   blocks   dwell   wait   of the time   brings (1 - blocks(m - 1) / blocks(m))
//   1      110      30      0                                                  9.1%
//   2      120      60      0                                                  8.3%
//   3      130      90      0                                                  7.7%
//   4      150      98      8          7.4%                                   13.3%
//   5      160     120     30         23.1%                                    6.3%
std::vector<ExpansionLevel> six_levels() {
  return {{Blocks(100), Duration(0)},      {Blocks(110), Duration(30'000)}, {Blocks(120), Duration(60'000)},
          {Blocks(130), Duration(90'000)}, {Blocks(150), Duration(98'000)}, {Blocks(160), Duration(120'000)}};
}

/// An iteration without prompts, in which memory was full.
LayerReport full(Duration stall = Duration(0)) {
  return {
      .length = Duration(100'000) + stall, .layer = Duration(10'000), .stall = stall, .tokens = 1, .free_share = 0.05};
}
LayerReport with_free(double free_share) {
  LayerReport report = full();
  report.free_share = free_share;
  return report;
}

/// A controller to which every iteration looks settled.
class Told {
 public:
  explicit Told(std::vector<ExpansionLevel> levels = six_levels()) : controller_(std::move(levels)) {}

  /// The level after `count` iterations.
  std::int32_t after(int count, const LayerReport& report) {
    for (int i = 0; i < count; ++i) controller_.iteration_ended(report, true);
    return controller_.level();
  }
  /// The iterations up to the next change of the level, at most `most`.
  int until_change(const LayerReport& report, int most = 100'000) {
    const std::int32_t before = controller_.level();
    for (int i = 1; i <= most; ++i) {
      if (after(1, report) != before) return i;
    }
    return -1;
  }
  void unsettled(const LayerReport& report) { controller_.iteration_ended(report, false); }
  void hold(std::int32_t level) { controller_.hold(level); }
  [[nodiscard]] std::int32_t level() const { return controller_.level(); }

 private:
  ExpansionController controller_;
};

/// At level 4, memory full, with a window just over: 8 us of 108 are waits, as planned.
Told at_level_4() {
  Told told;
  EXPECT_EQ(told.after(8, full()), 3);
  EXPECT_EQ(told.after(8, full()), 4);
  EXPECT_EQ(told.after(8, full(Duration(8'000))), 4);
  return told;
}

TEST(ExpansionController, Raises_WhenMemoryIsFull_ByAllLayersThatDoNotWait_ThenByOneAWindow) {
  Told told;
  EXPECT_EQ(told.after(7, full()), 0) << "the first 8 iterations";
  EXPECT_EQ(told.after(1, full()), 3);
  EXPECT_EQ(told.after(7, full()), 3) << "level 4 costs waits: a window of 8 iterations comes first";
  EXPECT_EQ(told.after(1, full()), 4);
  EXPECT_EQ(told.until_change(full(), 1000), -1) << "level 5 costs more than it brings: 160 / 150 * 100 < 130";
}

// Level 1 has a dwell of 30 us. One wait of 1 us says that it is 101 - 10 = 91 us, so level 2 would not pay in the
// window. It is forgotten 8 iterations later, but compute has waited at this level: the next raise is by one layer, at
// the end of the second window. Nothing has waited at level 2.
TEST(ExpansionController, Raises_ByOneLayerAWindow_WhereComputeHasWaited) {
  Told told;
  told.hold(1);
  EXPECT_EQ(told.after(1, full(Duration(1'000))), 1);
  EXPECT_EQ(told.until_change(full()), 15);
  EXPECT_EQ(told.level(), 2);
  EXPECT_EQ(told.after(1, full()), 3);
}

TEST(ExpansionController, DoesNotRaise_WhenATenthOfTheBlocksIsFree) {
  Told told;
  EXPECT_EQ(told.after(100, with_free(0.1)), 0);
  EXPECT_EQ(told.after(1, with_free(0.0999)), 3) << "full in one of the last 8";
}

TEST(ExpansionController, DoesNotRaise_WhenMemoryWasFullMoreThan8IterationsAgo) {
  Told told;
  for (int i = 0; i < 8; ++i) told.unsettled(with_free(0.5));
  told.unsettled(full());
  for (int i = 0; i < 6; ++i) told.unsettled(with_free(0.5));
  Told later = told;
  EXPECT_EQ(told.after(1, with_free(0.5)), 3) << "it is the first of the last 8";
  later.unsettled(with_free(0.5));
  EXPECT_EQ(later.after(100, with_free(0.5)), 0);
}

TEST(ExpansionController, DoesNothing_WhileSlotsChangeTheirSize) {
  Told told;
  for (int i = 0; i < 100; ++i) told.unsettled(full(Duration(50'000)));
  EXPECT_EQ(told.level(), 0);
  EXPECT_EQ(told.after(1, full()), 3) << "but the iterations count for the compute";
}

// Level 4 takes 8 of 108 us and brings 13.3% of the capacity; waits of 16 of 116 us (13.8%) are more than that, waits
// of 15 of 115 us (13.04%) are not.
TEST(ExpansionController, Lowers_WhenWaitsTakeMoreThanTheLayerBrings) {
  Told keeps = at_level_4();
  EXPECT_EQ(keeps.until_change(full(Duration(15'000)), 100), -1);
  Told lowers = at_level_4();
  EXPECT_EQ(lowers.until_change(full(Duration(16'000))), 8);
  EXPECT_EQ(lowers.level(), 3);
}

// What counts are the waits of the window in sum: 4 * 32 of 928 us are the 13.8% of above, 4 * 30 of 920 us the 13.04%.
TEST(ExpansionController, Lowers_ByTheWaitsOfTheWholeWindow) {
  Told keeps = at_level_4();
  for (int i = 0; i < 4; ++i) {
    keeps.after(1, full(Duration(30'000)));
    keeps.after(1, full());
  }
  EXPECT_EQ(keeps.level(), 4);
  Told lowers = at_level_4();
  for (int i = 0; i < 4; ++i) {
    lowers.after(1, full(Duration(32'000)));
    lowers.after(1, full());
  }
  EXPECT_EQ(lowers.level(), 3);
}

// Level 3 brings 7.7%, and 5 of 105 us are 4.8%. The raise has made memory plenty: whether it is needed shows in the
// second window.
TEST(ExpansionController, NeedsWhatItHasJustRaised_ForAWindow) {
  Told told;
  EXPECT_EQ(told.after(8, full()), 3);
  LayerReport idle = with_free(0.5);
  idle.stall = Duration(5'000);
  idle.length = Duration(105'000);
  EXPECT_EQ(told.until_change(idle), 16);
  EXPECT_EQ(told.level(), 2);
}

/// 100 to 190 blocks, and a dwell of 10 us per layer: level 9 does not wait by plan. From there k layers bring k / 19
/// of the blocks: 5.3%, 10.5%, 15.8%, 21.1%.
Told raised_by_9_layers() {
  std::vector<ExpansionLevel> levels{{Blocks(100), Duration(0)}};
  for (std::int64_t m = 1; m <= 9; ++m) levels.push_back({Blocks(100 + 10 * m), Duration(10'000 * m)});
  Told told(levels);
  EXPECT_EQ(told.after(8, full()), 9);
  return told;
}

TEST(ExpansionController, TakesBackUpToHalfOfARaise_AsManyLayersAsTheWaitsOutweigh) {
  Told none = raised_by_9_layers();
  EXPECT_EQ(none.until_change(full(Duration(5'000)), 100), -1) << "5 of 105 are 4.8%";
  Told two = raised_by_9_layers();
  EXPECT_EQ(two.until_change(full(Duration(12'000))), 8);
  EXPECT_EQ(two.level(), 7) << "12 of 112 are 10.7%";
  Told four = raised_by_9_layers();
  const LayerReport waits = full(Duration(30'000));
  EXPECT_EQ(four.until_change(waits), 8);
  EXPECT_EQ(four.level(), 5) << "30 of 130 are 23.1%, which five layers would bring, too";
  // From 150 blocks two layers bring 13.3%, and from 130 one brings 7.7%.
  EXPECT_EQ(four.until_change(waits), 8);
  EXPECT_EQ(four.level(), 3);
  EXPECT_EQ(four.until_change(waits), 8);
  EXPECT_EQ(four.level(), 2);
  // A raise that has stood a window fails by one layer.
  Told later = raised_by_9_layers();
  EXPECT_EQ(later.after(8, full()), 9);
  EXPECT_EQ(later.until_change(waits), 8);
  EXPECT_EQ(later.level(), 8);
}

// 1 of 100 us is 1%, and not more. At 99 us of compute it is.
TEST(ExpansionController, ToleratesOnePerCent_WhileMemoryIsNotNeeded) {
  LayerReport idle = with_free(0.15);
  idle.stall = Duration(1'000);
  idle.length = Duration(100'000);
  Told keeps = at_level_4();
  EXPECT_EQ(keeps.until_change(idle, 100), -1);
  idle.length = Duration(99'999);
  Told lowers = at_level_4();
  EXPECT_EQ(lowers.until_change(idle), 8);
  // A request that is kept out needs memory. It is not kept out by an iteration that computes prompts.
  idle.waiting = 1;
  Told needed = at_level_4();
  EXPECT_EQ(needed.until_change(idle, 100), -1);
  idle.prefills = true;
  Told admitted = at_level_4();
  EXPECT_EQ(admitted.until_change(idle), 8);
}

// A level that failed is tried again 512 iterations later, if it fails again after 1024 more, and so on. A level below
// may rise at once.
TEST(ExpansionController, PausesAfterAFailure_TwiceAsLongEachTime) {
  Told told = at_level_4();
  const LayerReport waits = full(Duration(20'000));
  EXPECT_EQ(told.until_change(waits), 8);
  // The pause ends within a window, at the end of which the raise comes: 512 = 64 * 8.
  EXPECT_EQ(told.until_change(full()), 512);
  EXPECT_EQ(told.level(), 4);
  EXPECT_EQ(told.until_change(waits), 8);
  EXPECT_EQ(told.until_change(full()), 1024);
  EXPECT_EQ(told.until_change(waits), 8);
  EXPECT_EQ(told.until_change(waits), 8) << "level 3 has failed too: the pause of its own is 512";
  EXPECT_EQ(told.level(), 2);
  EXPECT_EQ(told.until_change(full()), 512);
  EXPECT_EQ(told.level(), 3);
}

// Level 4 fails. After 512 iterations without need for level 3, level 2 follows, and the way up to level 4 is free
// again.
TEST(ExpansionController, ForgetsAFailure_OnceLoadHasFallen) {
  Told told = at_level_4();
  EXPECT_EQ(told.until_change(full(Duration(20'000))), 8);
  EXPECT_EQ(told.after(512, with_free(0.9)), 2);
  EXPECT_EQ(told.after(1, full()), 3);
  EXPECT_EQ(told.until_change(full()), 8);
  EXPECT_EQ(told.level(), 4);
  EXPECT_EQ(told.until_change(full(Duration(20'000))), 8);
  EXPECT_EQ(told.until_change(full()), 512) << "not 1024: the earlier failure is forgotten too";
}

Told at_level_3() {
  Told told;
  EXPECT_EQ(told.after(8, full()), 3);
  return told;
}

// Level 3 has 130 blocks, level 2 has 120: a fifth of 120 is free when 96 are in use, 34 of 130 being free.
TEST(ExpansionController, ProbesDown_WhenAFifthOfTheSmallerMemoryWouldBeFree) {
  Told keeps = at_level_3();
  EXPECT_EQ(keeps.until_change(with_free(33.9 / 130.0), 2000), -1);
  Told lowers = at_level_3();
  EXPECT_EQ(lowers.until_change(with_free(34.1 / 130.0)), 512);
  EXPECT_EQ(lowers.level(), 2);
}

TEST(ExpansionController, ProbesDown_WhenNoRequestIsKeptOut) {
  Told kept_out = at_level_3();
  LayerReport waiting = with_free(0.9);
  waiting.waiting = 1;
  EXPECT_EQ(kept_out.until_change(waiting, 800), -1);
  waiting.prefills = true;
  EXPECT_EQ(kept_out.until_change(waiting), 512) << "requests that have just arrived are not kept out";
}

TEST(ExpansionController, ProbesDown_512IterationsAfterTheLastNeed) {
  Told told = at_level_3();
  EXPECT_EQ(told.after(511, with_free(0.9)), 3);
  EXPECT_EQ(told.after(1, with_free(0.2)), 3) << "in use in one iteration of the window";
  EXPECT_EQ(told.until_change(with_free(0.9)), 512);
  // One layer a window from here on.
  EXPECT_EQ(told.until_change(with_free(0.9)), 8);
  EXPECT_EQ(told.level(), 1);
  // A raise is a need.
  EXPECT_EQ(told.after(1, full()), 3);
  EXPECT_EQ(told.until_change(with_free(0.9)), 512);
}

TEST(ExpansionController, ComesDownToNoLayer_OneAWindow) {
  Told told = at_level_4();
  EXPECT_EQ(told.after(512, with_free(1.0)), 3);
  EXPECT_EQ(told.after(3 * 8 - 1, with_free(1.0)), 1);
  EXPECT_EQ(told.after(1, with_free(1.0)), 0);
  EXPECT_EQ(told.after(1000, with_free(1.0)), 0);
}

// With other traffic a layer is away for twice as long: level 2 for 120 us, level 3 for 180. Level 3 waits 90 of 190 us
// and brings a third, so it is taken back. Level 2 waits 30 of 130 us and brings a quarter. That wait tells a dwell of
// 120 us, so the one of level 3 is 180 still: after the pause of 512 iterations, 300 / 200 * 100 < 100 + 90, although
// the plan has no wait for level 3.
TEST(ExpansionController, LearnsTheDwellFromWaits) {
  Told told({{Blocks(100), Duration(0)},
             {Blocks(150), Duration(30'000)},
             {Blocks(200), Duration(60'000)},
             {Blocks(300), Duration(90'000)}});
  EXPECT_EQ(told.after(8, full()), 3);
  EXPECT_EQ(told.until_change(full(Duration(90'000))), 8);
  EXPECT_EQ(told.level(), 2);
  EXPECT_EQ(told.until_change(full(Duration(30'000)), 600), -1);
  // The traffic ends. The last wait is forgotten after 8 iterations, in which nothing waits.
  EXPECT_EQ(told.until_change(full()), 8);
  EXPECT_EQ(told.level(), 3);
}

TEST(ExpansionController, KeepsALevelThatARequestNeeds_UntilNoKvIsLive) {
  Told told;
  told.hold(5);
  EXPECT_EQ(told.level(), 5);
  EXPECT_EQ(told.after(100, full(Duration(90'000))), 5);
  EXPECT_EQ(told.after(1000, with_free(0.99)), 5);
  EXPECT_EQ(told.after(512, with_free(1.0)), 4);
}

TEST(ExpansionController, StaysWithinItsLevels) {
  Told told({{Blocks(100), Duration(0)}});
  EXPECT_EQ(told.after(100, full()), 0);
  EXPECT_EQ(told.after(100, with_free(1.0)), 0);
}

}  // namespace
}  // namespace spillway
