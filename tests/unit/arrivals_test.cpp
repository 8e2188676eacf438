#include "traces/arrivals.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace spillway::traces {
namespace {

ArrivalPlan gamma_plan(double mean_gap_s, double cv) {
  ArrivalPlan plan;
  plan.process = Arrival::gamma;
  plan.mean_gap_s = mean_gap_s;
  plan.cv = cv;
  return plan;
}

ArrivalPlan burst_plan(double rate, std::int64_t after, double factor, Duration time) {
  ArrivalPlan plan;
  plan.process = Arrival::burst;
  plan.mean_gap_s = 1.0 / rate;
  plan.burst_after = after;
  plan.burst_factor = factor;
  plan.burst_time = time;
  return plan;
}

std::vector<std::int64_t> arrivals_of(const ArrivalPlan& plan, int count, std::int64_t replication = 0) {
  ArrivalClock clock(plan, 1, replication);
  std::vector<std::int64_t> times;
  times.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) times.push_back(clock.next(SimTime()).ns());
  return times;
}

std::vector<double> gaps_of(const ArrivalPlan& plan, int count) {
  const auto times = arrivals_of(plan, count + 1);
  std::vector<double> gaps;
  for (std::size_t i = 1; i < times.size(); ++i) gaps.push_back(static_cast<double>(times[i] - times[i - 1]) * 1e-9);
  return gaps;
}

TEST(Arrivals, NamesAndProcessesAreInOneOrder) {
  for (const std::string& name : arrival_names()) EXPECT_EQ(name_of(arrival_of(name)), name);
  EXPECT_EQ(name_of(Arrival::all_at_once), "all-at-once");
  EXPECT_EQ(name_of(Arrival::burst), "burst");
  EXPECT_ANY_THROW((void)arrival_of("weibull"));
}

TEST(Arrivals, DetailsSayWhatTheNameDoesNot) {
  EXPECT_EQ(ArrivalPlan().details(), "");
  EXPECT_EQ(gamma_plan(1.0, 2.5).details(), "CV 2.5");
  EXPECT_EQ(burst_plan(1.0, 25, 2.0, Duration(60'000'000'000)).details(), "x2 for 60 s after 25 prompts");
}

TEST(Arrivals, GammaHasItsMeanAndItsVariation) {
  constexpr int kGaps = 400'000;
  for (const double cv : {0.5, 1.0, 2.0, 5.0}) {
    SCOPED_TRACE(cv);
    double sum = 0.0;
    double squares = 0.0;
    for (const double gap : gaps_of(gamma_plan(0.25, cv), kGaps)) {
      sum += gap;
      squares += gap * gap;
    }
    const double mean = sum / kGaps;
    const double variation = std::sqrt(squares / kGaps - mean * mean) / mean;
    // Four standard deviations of the mean, 0.25 cv / sqrt(n), and of the sample's deviation. A gamma's fourth central
    // moment is (3 + 6 cv^2) sigma^4, so the deviation's standard deviation is sigma sqrt((2 + 6 cv^2) / n) / 2; the
    // mean's is added.
    EXPECT_NEAR(mean, 0.25, 4.0 * 0.25 * cv / std::sqrt(kGaps));
    EXPECT_NEAR(variation, cv, 4.0 * cv * (std::sqrt((2.0 + 6.0 * cv * cv) / kGaps) / 2.0 + cv / std::sqrt(kGaps)));
  }
}

TEST(Arrivals, GammaHasItsDistribution) {
  struct Case {
    double cv;
    std::vector<std::pair<double, double>> shares;  // (x, share of the gaps up to x means)
  };
  // The regularised incomplete gamma function P(a, a x), a = 1 / cv^2, by its series (python: t = s = 1 / a; then
  // t *= a x / (a + n), s += t; P = s exp(-a x + a log(a x) - lgamma(a))). A CV of 1 is exponential.
  const std::vector<Case> cases{
      {0.5, {{0.1, 0.00078}, {0.5, 0.14288}, {1.0, 0.56653}, {2.0, 0.95762}}},
      {1.0, {{0.01, 0.00995}, {0.1, 0.09516}, {0.5, 0.39347}, {1.0, 0.63212}, {2.0, 0.86466}, {5.0, 0.99326}}},
      {2.0, {{0.01, 0.24657}, {0.1, 0.43652}, {0.5, 0.64016}, {1.0, 0.74368}, {2.0, 0.84649}, {5.0, 0.95275}}},
      {13.0, {{0.01, 0.94723}, {0.1, 0.96022}, {0.5, 0.96939}, {1.0, 0.97336}, {2.0, 0.97733}, {5.0, 0.98254}}}};
  constexpr int kGaps = 100'000;
  // Kolmogorov-Smirnov: sqrt(-ln(alpha / 2) / 2) / sqrt(n) with alpha = 0.0001 is 2.225 / sqrt(n).
  const double bound = 2.225 / std::sqrt(kGaps);
  for (const Case& c : cases) {
    const auto gaps = gaps_of(gamma_plan(1.0, c.cv), kGaps);
    for (const auto& [x, share] : c.shares) {
      const auto below = std::count_if(gaps.begin(), gaps.end(), [x = x](double gap) { return gap <= x; });
      EXPECT_NEAR(static_cast<double>(below) / kGaps, share, bound) << c.cv << " at " << x;
    }
  }
}

// Independent values: a python port of split_mix, xoshiro256** and of Marsaglia and Tsang's method with math.log and
// math.exp, stream (1, 0, "workload.arrival"), each gap rounded to nanoseconds.
TEST(Arrivals, AreThoseOfAnotherProgram) {
  EXPECT_EQ(arrivals_of(gamma_plan(0.25, 2.0), 5),
            (std::vector<std::int64_t>{0, 19281426, 95758770, 97025782, 278774746}));
  // Two per second, from the third on eight per second for one second, up to 2.264443751 s: the last gap crosses it.
  EXPECT_EQ(
      arrivals_of(burst_plan(2.0, 3, 4.0, Duration(1'000'000'000)), 14),
      (std::vector<std::int64_t>{0, 963868741, 1264443751, 1401151839, 1553314867, 1653699866, 1726088225, 1771329902,
                                 1805803633, 1872490875, 2047950530, 2064434218, 2072541038, 3205471311}));
}

TEST(Arrivals, ScaleWithTheRateAndDifferByReplication) {
  const auto slow = arrivals_of(gamma_plan(1.0, 3.0), 1000);
  const auto fast = arrivals_of(gamma_plan(0.5, 3.0), 1000);
  for (std::size_t i = 0; i < slow.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(fast[i]), static_cast<double>(slow[i]) / 2.0, static_cast<double>(i));
  }
  EXPECT_EQ(arrivals_of(gamma_plan(1.0, 3.0), 1000), slow);
  EXPECT_NE(arrivals_of(gamma_plan(1.0, 3.0), 1000, 1), slow);
}

TEST(Arrivals, ABurstOfFactorOneIsPoisson) {
  ArrivalPlan poisson;
  poisson.mean_gap_s = 0.5;
  const auto plain = arrivals_of(poisson, 2000);
  const auto burst = arrivals_of(burst_plan(2.0, 25, 1.0, Duration(60'000'000'000)), 2000);
  // Equal except for the gap across the end of the burst, which is a sum of two rounded numbers.
  for (std::size_t i = 0; i < plain.size(); ++i) ASSERT_LE(std::abs(plain[i] - burst[i]), 2) << i;
}

// Aqua's burst: 25 prompts at the stable rate, then double rate for 60 s, then the stable rate again.
TEST(Arrivals, ABurstHasItsRatesByPhase) {
  constexpr double kRate = 2.0;
  constexpr std::int64_t kMinute = 60'000'000'000;
  constexpr int kRuns = 400;
  double before_s = 0.0;
  double in_burst = 0.0;
  double after = 0.0;
  for (int run = 0; run < kRuns; ++run) {
    const auto times = arrivals_of(burst_plan(kRate, 25, 2.0, Duration(kMinute)), 700, run);
    const std::int64_t begin = times[24];
    ASSERT_GT(times.back(), begin + 2 * kMinute);
    before_s += static_cast<double>(begin) * 1e-9;
    for (const std::int64_t time : times) {
      if (time > begin && time <= begin + kMinute) in_burst += 1.0;
      if (time > begin + kMinute && time <= begin + 2 * kMinute) after += 1.0;
    }
  }
  // 24 gaps of 0.5 s per run; 240 arrivals in the minute of the burst, 120 in the next minute. The standard deviation
  // of a Poisson count is its root, that of a sum of n gaps its mean over sqrt(n). The bounds are four standard
  // deviations.
  EXPECT_NEAR(before_s / kRuns, 12.0, 4.0 * 12.0 / std::sqrt(24.0 * kRuns));
  EXPECT_NEAR(in_burst / kRuns, 240.0, 4.0 * std::sqrt(240.0 / kRuns));
  EXPECT_NEAR(after / kRuns, 120.0, 4.0 * std::sqrt(120.0 / kRuns));
}

TEST(Arrivals, ABurstCanBeALull) {
  const auto times = arrivals_of(burst_plan(10.0, 10, 0.001, Duration(100'000'000'000)), 300);
  // 100 s at 0.01/s have 1 arrival on average; more than 8 are less likely than one in a million.
  const auto in_lull = std::count_if(times.begin(), times.end(), [&](std::int64_t time) {
    return time > times[9] && time <= times[9] + 100'000'000'000;
  });
  EXPECT_LE(in_lull, 8);
  EXPECT_GT(times.back(), times[9] + 100'000'000'000);
}

}  // namespace
}  // namespace spillway::traces
