#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "cuda_calibrate/measure/statistics.hpp"

namespace spillway::calibrate {
namespace {

TEST(CalibrateStatistics, ByHand) {
  // With 5 values, position (n - 1) q is 2 for the median, 0.4 for p10 and 3.6 for p90.
  const Spread odd = spread_of(std::vector<double>{50, 10, 30, 20, 40});
  EXPECT_DOUBLE_EQ(odd.median, 30);
  EXPECT_DOUBLE_EQ(odd.p10, 10 + 0.4 * 10);
  EXPECT_DOUBLE_EQ(odd.p90, 40 + 0.6 * 10);
  EXPECT_EQ(odd.n, 5);
  // With 4 values: 1.5, 0.3 and 2.7. The outlier counts.
  const Spread even = spread_of(std::vector<double>{4, 1, 2, 1000});
  EXPECT_DOUBLE_EQ(even.median, 3);
  EXPECT_DOUBLE_EQ(even.p10, 1.3);
  EXPECT_DOUBLE_EQ(even.p90, 4 + 0.7 * 996);
  EXPECT_EQ(even.n, 4);
}

TEST(CalibrateStatistics, OneValue_IsEverything) {
  const Spread one = spread_of(std::vector<double>{7.5});
  EXPECT_EQ(one.median, 7.5);
  EXPECT_EQ(one.p10, 7.5);
  EXPECT_EQ(one.p90, 7.5);
  EXPECT_EQ(one.n, 1);
}

TEST(CalibrateStatistics, Nothing_HasNone) { EXPECT_THROW((void)spread_of(std::vector<double>{}), InvariantError); }

/// From the definition: where the line through the points (i / (n - 1), x_i) is at q.
double naive_quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  if (values.size() == 1) return values[0];
  const double step = 1.0 / static_cast<double>(values.size() - 1);
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    const double left = static_cast<double>(i) * step;
    if (q <= left + step + 1e-12) return values[i] + (values[i + 1] - values[i]) * ((q - left) / step);
  }
  return values.back();
}

TEST(CalibrateStatistics, AgreesWithNaive) {
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> times(-9.0, 1.0);
  for (std::size_t n = 1; n <= 60; ++n) {
    std::vector<double> values(n);
    for (double& value : values) value = times(random);
    const Spread spread = spread_of(values);
    EXPECT_NEAR(spread.median, naive_quantile(values, 0.5), 1e-12) << n;
    EXPECT_NEAR(spread.p10, naive_quantile(values, 0.1), 1e-12) << n;
    EXPECT_NEAR(spread.p90, naive_quantile(values, 0.9), 1e-12) << n;
    EXPECT_LE(spread.p10, spread.median);
    EXPECT_LE(spread.median, spread.p90);
  }
}

}  // namespace
}  // namespace spillway::calibrate
