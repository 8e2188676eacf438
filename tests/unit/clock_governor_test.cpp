// A clock that falls, by hand: a window of 1 s, a share of 0.5, two layers.
#include "sim/engine/clock_governor.hpp"

#include <gtest/gtest.h>

namespace spillway {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

/// An iteration of `compute` seconds of compute-bound work that starts at `at` seconds.
IterationTime run(ClockGovernor& governor, double at, double compute) {
  IterationTime time;
  time.layer = Duration(kSecond);
  time.shares = {.compute = compute, .memory = 0.25};
  governor.start(SimTime(static_cast<std::int64_t>(at * kSecond)));
  governor.slow(time, 2);
  return time;
}

TEST(ClockGovernor, LowersTheClockOnceTheShareIsTooHigh) {
  ClockGovernor governor(SustainedClock{.share = 0.5, .slowdown = 1.5, .window = Duration(kSecond)});
  EXPECT_EQ(run(governor, 0.0, 0.6).layer, Duration(kSecond));
  // (0 + 0.6) / (1 + 1) = 0.3
  EXPECT_EQ(run(governor, 1.0, 0.7).layer, Duration(kSecond));
  // (0.3 + 0.7) / (1 + 1) = 0.5: not above the share
  EXPECT_EQ(run(governor, 2.0, 0.7).layer, Duration(kSecond));
  // (0.5 + 0.7) / (1 + 1) = 0.6: half of 0.4 s longer, in two layers
  const IterationTime slow = run(governor, 3.0, 0.4);
  EXPECT_EQ(slow.layer, Duration(kSecond + kSecond / 10));
  EXPECT_DOUBLE_EQ(slow.shares.compute, 0.6);
  EXPECT_DOUBLE_EQ(slow.shares.memory, 0.25);
  // (0.6 + 0.6) / (1 + 1) = 0.6, so what was added counts
  EXPECT_EQ(run(governor, 4.0, 0.4).layer, Duration(kSecond + kSecond / 10));
  // (0.6 + 0.6) / (1 + 3) = 0.3 after a rest
  EXPECT_EQ(run(governor, 7.0, 0.4).layer, Duration(kSecond));
}

TEST(ClockGovernor, AddsUpTheSubBatchesOfAnIteration) {
  ClockGovernor governor(SustainedClock{.share = 0.5, .slowdown = 2.0, .window = Duration(kSecond)});
  IterationTime part{.layer = Duration(10), .shares = {.compute = 0.8}};
  governor.start(SimTime(0));
  governor.slow(part, 1);
  governor.slow(part, 1);
  EXPECT_EQ(part.layer, Duration(10));
  // 1.6 / (1 + 1) = 0.8; each alone would give 0.4.
  EXPECT_EQ(run(governor, 1.0, 0.2).layer, Duration(kSecond + kSecond / 10));
}

TEST(ClockGovernor, WithoutAFigure_ChangesNothing) {
  ClockGovernor governor(std::nullopt);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(run(governor, i, 1.0).layer, Duration(kSecond));
}

}  // namespace
}  // namespace spillway
