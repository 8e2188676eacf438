#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "cuda_calibrate/measure/sampler.hpp"
#include "tests/unit/calibrate_fakes.hpp"

namespace spillway::calibrate {
namespace {

// A power of two, so that sums of it are exact.
constexpr double kMillisecond = 1.0 / 1024.0;

struct Sampled {
  Timings timings;
  double clock = 0.0;
};

Sampled run(const std::vector<double>& times, const SamplingRule& rule) {
  Sampled result;
  const std::atomic<bool> stop{false};
  FakeCase one(times, "fake", result.clock, {});
  result.timings = sample(
      one, times.size(), rule, [&] { return result.clock; }, stop);
  return result;
}

TEST(CalibrateSampler, CallsFillATiming) {
  const SamplingRule rule;                               // 200 us
  EXPECT_EQ(calls_per_timing(3e-6, 1000, rule), 67);     // 66.7
  EXPECT_EQ(calls_per_timing(0.7e-6, 1000, rule), 286);  // 285.7
  EXPECT_EQ(calls_per_timing(1e-6, 128, rule), 128);
  EXPECT_EQ(calls_per_timing(1.0, 1000, rule), 1);
  EXPECT_EQ(calls_per_timing(1e-300, 1000, rule), 1000);
  EXPECT_EQ(calls_per_timing(1e-6, 0, rule), 1);
}

TEST(CalibrateSampler, LongEnoughAndOftenEnough) {
  // 0.05 s are 51.2 of them.
  const Sampled default_run = run({kMillisecond}, {});
  EXPECT_EQ(default_run.timings.calls, 1);
  EXPECT_EQ(default_run.timings.series.at(0).size(), 52U);
  EXPECT_FALSE(default_run.timings.interrupted);
  EXPECT_DOUBLE_EQ(default_run.clock, (4 + 52) * kMillisecond);
  // 20 timings take 0.6 s, more than 0.05 s.
  EXPECT_EQ(run({32 * kMillisecond}, {}).timings.series.at(0).size(), 20U);
  // 2^-17 s is 7.6 us: 27 calls are 206 us a timing, and 0.05 s are 242.7 of them.
  const Sampled small = run({kMillisecond / 128}, {});
  EXPECT_EQ(small.timings.calls, 27);
  EXPECT_EQ(small.timings.series.at(0).size(), 243U);
  EXPECT_EQ(small.timings.series.at(0).front(), kMillisecond / 128);
}

TEST(CalibrateSampler, TimeOfAPointIsLimited) {
  // Warm-up ends at 0.5 s, and the twelfth timing at 2 s.
  EXPECT_EQ(run({0.125}, {}).timings.series.at(0).size(), 12U);
  // Warm-up alone takes 8 s: the minimum number of timings still runs.
  EXPECT_EQ(run({2.0}, {}).timings.series.at(0).size(), 3U);
}

TEST(CalibrateSampler, QuickestSeriesChoosesCalls_SlowestIsMeasured) {
  // 2^-17 s asks for 27 calls, with which the slow series is at 26 ms a timing: 0.05 s are two of them, 20 are wanted.
  const Sampled both = run({kMillisecond, kMillisecond / 128}, {});
  EXPECT_EQ(both.timings.calls, 27);
  ASSERT_EQ(both.timings.series.size(), 2U);
  EXPECT_EQ(both.timings.series[0].size(), 20U);
  EXPECT_EQ(both.timings.series[1].size(), 20U);
  EXPECT_EQ(both.timings.series[0].front(), kMillisecond);
}

/// A case with a slow first call, as when a kernel is loaded.
class ColdCase : public Case {
 public:
  std::vector<double> sample(std::int64_t calls) override {
    asked.push_back(calls);
    return {asked.size() == 1 ? 1.0 : 3e-6};
  }
  [[nodiscard]] std::int64_t most_calls() const override { return 1000; }
  [[nodiscard]] std::string kernel() const override { return "cold"; }
  std::vector<std::int64_t> asked{};
};

TEST(CalibrateSampler, FirstCallDoesNotCount) {
  ColdCase one;
  const std::atomic<bool> stop{false};
  const Timings timings = sample(
      one, 1, {}, [] { return 0.0; }, stop);
  // The median of 1 s and three times 3 us is 3 us: 67 calls.
  ASSERT_GE(one.asked.size(), 5U);
  EXPECT_EQ(one.asked[3], 1);
  EXPECT_EQ(one.asked[4], 67);
  for (const double seconds : timings.series.at(0)) EXPECT_EQ(seconds, 3e-6);
}

TEST(CalibrateSampler, StopsBetweenTimings) {
  for (const std::int64_t last : {0, 2, 4, 10}) {
    double now = 0.0;
    std::int64_t calls = 0;
    std::atomic<bool> stop{last == 0};
    FakeCase one({kMillisecond}, "fake", now, [&] { stop = ++calls >= last; });
    const Timings timings = sample(
        one, 1, {}, [&] { return now; }, stop);
    EXPECT_TRUE(timings.interrupted) << last;
    EXPECT_EQ(calls, last);
  }
}

TEST(CalibrateSampler, ImpossibleTimes_AreRefused) {
  const std::atomic<bool> stop{false};
  double now = 0.0;
  const auto timed = [&](const std::vector<double>& times, std::size_t rows) {
    FakeCase one(times, "fake", now, {});
    (void)sample(
        one, rows, {}, [&] { return now; }, stop);
  };
  EXPECT_THROW(timed({0.0}, 1), Unsupported);
  EXPECT_THROW(timed({-1e-6}, 1), Unsupported);
  EXPECT_THROW(timed({std::nan("")}, 1), Unsupported);
  EXPECT_THROW(timed({std::numeric_limits<double>::infinity()}, 1), Unsupported);
  EXPECT_THROW(timed({1e-3}, 2), Unsupported);
}

}  // namespace
}  // namespace spillway::calibrate
