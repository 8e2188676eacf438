// Queues whose load is known, and the verdict on them.
#include "sim/metrics/steady_state.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/oracle/random_case.hpp"

namespace spillway {
namespace {

using Verdict = SteadyState::Verdict;

/// One server, first come first served (Lindley): Poisson arrivals at 100/s, service of `load` / 100 s, fixed or
/// exponential.
SteadyState queue(double load, std::int64_t requests, std::uint64_t seed, bool fixed) {
  oracle::Dice dice(seed);
  const auto exponential = [&] { return -std::log((static_cast<double>(dice.between(1, 1'000'000'000))) / 1e9); };
  struct Event {
    double time = 0.0;
    bool arrives = false;
  };
  std::vector<Event> events;
  double arrival = 0.0;
  double free = 0.0;
  for (std::int64_t i = 0; i < requests; ++i) {
    arrival += 0.01 * exponential();
    free = std::max(free, arrival) + 0.01 * load * (fixed ? 1.0 : exponential());
    events.push_back({arrival, true});
    events.push_back({free, false});
  }
  std::ranges::stable_sort(events, {}, &Event::time);
  LoadSeries series;
  for (const Event& event : events) {
    const SimTime now = SimTime{} + round_seconds(event.time);
    event.arrives ? series.arrived(now) : series.left(now);
  }
  return judge_steady_state(series, {.rate = 100.0, .requests = requests});
}

int of_100(Verdict verdict, double load, std::int64_t requests, bool fixed) {
  int count = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    count += queue(load, requests, seed, fixed).verdict == verdict ? 1 : 0;
  }
  return count;
}

TEST(SteadyState, BelowSaturation_IsSteady) {
  EXPECT_GE(of_100(Verdict::steady, 0.5, 5000, true), 95);
  EXPECT_GE(of_100(Verdict::steady, 0.5, 5000, false), 95);
  EXPECT_GE(of_100(Verdict::steady, 0.8, 10'000, true), 95);
  EXPECT_GE(of_100(Verdict::steady, 0.8, 20'000, false), 90);
  EXPECT_EQ(of_100(Verdict::saturated, 0.5, 5000, true), 0);
  EXPECT_LE(of_100(Verdict::saturated, 0.8, 5000, false), 2);
}

TEST(SteadyState, BeyondSaturation_IsSaturated) {
  EXPECT_GE(of_100(Verdict::saturated, 1.5, 1000, true), 99);
  EXPECT_GE(of_100(Verdict::saturated, 1.2, 2000, true), 95);
  EXPECT_GE(of_100(Verdict::saturated, 1.05, 20'000, true), 90);
  EXPECT_EQ(of_100(Verdict::steady, 1.05, 20'000, true), 0);
  EXPECT_EQ(of_100(Verdict::steady, 1.2, 2000, false), 0);
}

TEST(SteadyState, FiguresAreThoseOfTheQueue) {
  // Of what is offered, 1 - 1 / 1.5 stays behind.
  const SteadyState state = queue(1.5, 20'000, 7, true);
  EXPECT_NEAR(state.growth, 1.0 / 3.0, 0.03);
  EXPECT_NEAR(state.served_per_s, 100.0 / 1.5, 0.1);
  EXPECT_NEAR(state.offered_per_s, 100.0, 3.0);
}

TEST(SteadyState, WhenRequestsDoNotComeAsAskedFor_IsUnsteady) {
  // One request a second, where ten were asked for: 10,000 of them over 1000 s, by the rate.
  LoadSeries series;
  for (std::int64_t i = 0; i < 10'000; ++i) {
    series.arrived(SimTime(i * 1'000'000'000));
    series.left(SimTime(i * 1'000'000'000 + 500'000'000));
  }
  const SteadyState state = judge_steady_state(series, {.rate = 10.0, .requests = 10'000});
  EXPECT_EQ(state.verdict, Verdict::unsteady);
  EXPECT_EQ(state.sentence.find("requests came at "), 0U) << state.sentence;
}

// A hundred requests a second that stay 10 s each: the number in the system rises to 1000 in 10 s, and stays there.
TEST(SteadyState, TheInitialTransient_IsLeftOut) {
  LoadSeries series;
  for (std::int64_t i = 0; i < 10'000; ++i) {
    if (i >= 1000) series.left(SimTime(i * 10'000'000));
    series.arrived(SimTime(i * 10'000'000));
  }
  const SteadyState state = judge_steady_state(series, {.rate = 100.0, .variation = 0.0, .requests = 10'000});
  EXPECT_EQ(state.verdict, Verdict::steady) << state.sentence;
  EXPECT_GE(state.transient_s, 9.5);
  EXPECT_LE(state.transient_s, 12.0);
  EXPECT_NEAR(state.growth, 0.0, 1e-3);
}

// Nothing is served: the queue grows by all that comes, even if less comes than was asked for.
TEST(SteadyState, AQueueThatGrowsFast_IsSaturatedAtAnyRate) {
  LoadSeries series;
  for (std::int64_t i = 0; i < 10'000; ++i) series.arrived(SimTime(i * 1'000'000'000));
  const SteadyState state = judge_steady_state(series, {.rate = 10.0, .requests = 10'000});
  EXPECT_EQ(state.verdict, Verdict::saturated);
  EXPECT_NEAR(state.growth, 1.0, 2e-3);
}

TEST(SteadyState, AShortRun_SaysSo) {
  LoadSeries series;
  series.arrived(SimTime(0));
  series.left(SimTime(1'000));
  const SteadyState state = judge_steady_state(series, {.rate = 100.0, .requests = 1});
  EXPECT_EQ(state.verdict, Verdict::unsteady);
  EXPECT_EQ(state.sentence, "the run is too short to tell whether the queue grows");
}

// Buckets of 1 ms until 2048 are used up, then of 2 ms.
TEST(LoadSeries, KeepsRequestSeconds) {
  LoadSeries series;
  series.arrived(SimTime(500'000));
  series.arrived(SimTime(1'000'000));
  series.left(SimTime(2'500'000));
  ASSERT_EQ(series.buckets().size(), 3U);
  EXPECT_DOUBLE_EQ(series.buckets()[0].held, 0.5e-3);
  EXPECT_DOUBLE_EQ(series.buckets()[1].held, 2e-3);
  EXPECT_DOUBLE_EQ(series.buckets()[2].held, 1e-3);
  EXPECT_EQ(series.buckets()[0].arrived, 1);
  EXPECT_EQ(series.buckets()[2].left, 1);
  series.left(SimTime(2'048'000'000));
  EXPECT_EQ(series.width(), Duration(2'000'000));
  ASSERT_EQ(series.buckets().size(), 1025U);
  EXPECT_DOUBLE_EQ(series.buckets()[0].held, 2.5e-3);
  EXPECT_DOUBLE_EQ(series.buckets()[1].held, 2.5e-3) << "two for 0.5 ms, then one";
  EXPECT_EQ(series.buckets()[0].arrived, 2);
}

TEST(SteadyState, OfReplications_IsThatOfMost) {
  SteadyState steady{.verdict = Verdict::steady, .growth = 0.01, .growth_error = 0.003};
  SteadyState saturated{.verdict = Verdict::saturated, .sentence = "why", .growth = 0.04, .growth_error = 0.004};
  EXPECT_EQ(combine_steady_states({steady, saturated, steady}).verdict, Verdict::steady);
  const SteadyState most = combine_steady_states({saturated, steady, saturated});
  EXPECT_EQ(most.verdict, Verdict::saturated);
  EXPECT_EQ(most.sentence, "why");
  EXPECT_DOUBLE_EQ(most.growth, 0.03);
  EXPECT_DOUBLE_EQ(combine_steady_states({steady, saturated}).growth_error, 0.0025);  // 5 / 2
  EXPECT_EQ(combine_steady_states({steady, saturated}).verdict, Verdict::unsteady);
}

}  // namespace
}  // namespace spillway
