// The kernel models of hwmodels/models/ against their headers: by hand, and by a second, plain implementation of each
// formula.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "hwmodels/calibration/least_squares.hpp"
#include "hwmodels/models/attention.hpp"
#include "hwmodels/models/elementwise_bytes.hpp"
#include "hwmodels/models/exact_math.hpp"
#include "hwmodels/models/gemm.hpp"
#include "hwmodels/models/residual_surface.hpp"

namespace spillway::hwmodels {
namespace {

constexpr double kExact = 1e-12;  // relative

void expect_relative(double value, double expected, const std::string& what = {}) {
  EXPECT_NEAR(value, expected, kExact * std::abs(expected)) << what;
}

/// (sum of x^p)^(1/p), from its definition.
double plain_norm(std::initializer_list<double> values, double p) {
  double sum = 0.0;
  for (const double value : values) sum += std::pow(value, p);
  return std::pow(sum, 1.0 / p);
}

// Elementary functions

/// Uniform in [low, high), equal on every machine, unlike the standard library's distributions.
class Uniform {
 public:
  Uniform(double low, double high) : low_(low), width_(high - low) {}
  double operator()(std::mt19937_64& random) const {
    return low_ + width_ * std::ldexp(static_cast<double>(random() >> 11U), -53);
  }

 private:
  double low_;
  double width_;
};

TEST(ExactMath, Log2Line_WhenAPowerOfTwo_ThenIsExact) {
  for (int exponent = -1000; exponent <= 1000; ++exponent) {
    EXPECT_EQ(log2_line(std::ldexp(1.0, exponent)), static_cast<double>(exponent));
  }
}

TEST(ExactMath, Log2Line_WhenBetweenPowersOfTwo_ThenIsOnTheStraightLine) {
  EXPECT_EQ(log2_line(3.0), 1.5);
  EXPECT_EQ(log2_line(5.0), 2.25);
  EXPECT_EQ(log2_line(0.75), -0.5);
  double last = log2_line(0.1);
  for (double x = 0.1; x < 5000.0; x *= 1.001) {
    const double below = std::log2(x) - log2_line(x);
    EXPECT_GE(below, -1e-12) << x;
    EXPECT_LE(below, 0.0861) << x;
    EXPECT_GE(log2_line(x), last) << x;
    last = log2_line(x);
  }
}

TEST(ExactMath, ExpNearZero_WhenWithinTwo_ThenErrsByLessThanTwoInTenThousand) {
  EXPECT_EQ(exp_near_zero(0.0), 1.0);
  for (int i = -2000; i <= 2000; ++i) {
    const double x = static_cast<double>(i) / 1000.0;
    EXPECT_NEAR(exp_near_zero(x) / std::exp(x), 1.0, 2e-4) << x;
    // Pade approximants keep e^x e^-x = 1.
    EXPECT_NEAR(exp_near_zero(x) * exp_near_zero(-x), 1.0, 1e-14) << x;
  }
}

TEST(ExactMath, ExpNearZero_WhenBeyondTwo_ThenStaysThere) {
  EXPECT_EQ(exp_near_zero(2.5), exp_near_zero(2.0));
  EXPECT_EQ(exp_near_zero(1e300), exp_near_zero(2.0));
  EXPECT_EQ(exp_near_zero(-7.0), exp_near_zero(-2.0));
  EXPECT_LT(exp_near_zero(1.9), exp_near_zero(2.0));
}

TEST(ExactMath, PNorm_WhenComparedWithPowers_ThenIsEqual) {
  std::mt19937_64 random(1);
  const Uniform octaves(-20.0, 20.0);
  for (const double p : kNormExponents) {
    for (int i = 0; i < 1000; ++i) {
      const double a = std::exp2(octaves(random));
      const double b = std::exp2(octaves(random));
      expect_relative(p_norm(a, b, p), plain_norm({a, b}, p), fmt::format("{} {} p={}", a, b, p));
      EXPECT_EQ(p_norm(a, b, p), p_norm(b, a, p));
    }
  }
}

// 1^p + 1^p = 2; 3^2 + 4^2 = 5^2; (1 + (1/4)^1.5)^(2/3) = (9/8)^(2/3).
TEST(ExactMath, PNorm_WhenByHand_ThenIsEqual) {
  EXPECT_EQ(p_norm(3.0, 4.0, 1.0), 7.0);
  expect_relative(p_norm(3.0, 4.0, 2.0), 5.0);
  expect_relative(p_norm(1.0, 1.0, 8.0), std::exp2(1.0 / 8.0));
  expect_relative(p_norm(1.0, 1.0, 1.5), std::exp2(2.0 / 3.0));
  expect_relative(p_norm(4.0, 1.0, 1.5), 4.0 * std::cbrt(81.0 / 64.0));
}

TEST(ExactMath, PNorm_WhenTheExponentGrows_ThenFallsTowardsTheLarger) {
  for (const double smaller : {0.1, 0.7, 1.0}) {
    double last = 3.0;
    for (const double p : kNormExponents) {
      const double norm = p_norm(1.0, smaller, p);
      EXPECT_LT(norm, last) << p;
      EXPECT_GE(norm, 1.0) << p;
      last = norm;
    }
    EXPECT_LE(last, std::exp2(1.0 / 8.0) + 1e-15);
  }
}

TEST(ExactMath, PNorm_WhenNumbersAreExtreme_ThenNeitherOverflowsNorVanishes) {
  for (const double p : kNormExponents) {
    EXPECT_EQ(p_norm(0.0, 0.0, p), 0.0);
    EXPECT_EQ(p_norm(0.0, 3.0, p), 3.0);
    EXPECT_EQ(p_norm(3.0, 0.0, p), 3.0);
    expect_relative(p_norm(1e300, 1e300, p) / 1e300, p_norm(1.0, 1.0, p));
    expect_relative(p_norm(1e-300, 2e-300, p) / 1e-300, p_norm(1.0, 2.0, p));
  }
}

// Residual surfaces

ResidualSurface random_surface(std::size_t anchors, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const Uniform place(0.0, 13.0);
  const Uniform weight(-0.1, 0.1);
  ResidualSurface surface{{2.0, 4.0}, {1.5, 3.0}, {}, {}};
  for (std::size_t i = 0; i < anchors; ++i) {
    const auto at = [&] { return std::floor(place(random)); };
    surface.anchors.push_back({{at(), at() / 6.0}, {at(), at()}});
    surface.weights.push_back(weight(random));
  }
  return surface;
}

// Work is one length away on both axes: 1 / (1 + 1 + 1); the first shape axis is two lengths away: 1 / (1 + 4).
TEST(ResidualSurface, Kernel_WhenByHand_ThenIsRationalQuadratic) {
  const ResidualSurface surface{{2.0, 4.0}, {1.0, 3.0}, {}, {}};
  const ResidualPoint a{{1.0, 1.0}, {5.0, 5.0}};
  const ResidualPoint b{{3.0, 5.0}, {7.0, 5.0}};
  expect_relative(surface.kernel(a, b), 1.0 / 15.0);
  expect_relative(surface.kernel(b, a), 1.0 / 15.0);
  EXPECT_EQ(surface.kernel(a, a), 1.0);
  // The second shape axis, three lengths away: 1 / (1 + 9).
  expect_relative(surface.kernel(a, {{1.0, 1.0}, {5.0, 14.0}}), 0.1);
}

// 0.3 at its own anchor; -0.6 half as much, one length away.
TEST(ResidualSurface, LogRatio_WhenByHand_ThenSumsTheAnchors) {
  const ResidualSurface surface{{2.0, 2.0}, {1.0, 1.0}, {{{0.0, 0.0}, {}}, {{2.0, 0.0}, {}}}, {0.3, -0.6}};
  EXPECT_NEAR(surface.log_ratio({{0.0, 0.0}, {}}), 0.0, kExact);
  EXPECT_NEAR(surface.log_ratio({{2.0, 0.0}, {}}), -0.45, kExact);
  EXPECT_EQ(ResidualSurface{}.log_ratio({{1.0, 2.0}, {3.0, 4.0}}), 0.0);
}

TEST(ResidualSurface, LogRatio_WhenFarFromEveryAnchor_ThenTendsToZero) {
  const ResidualSurface surface = random_surface(40, 2);
  const double near = std::abs(surface.log_ratio(surface.anchors[0]));
  EXPECT_GT(near, 0.01);
  // 500 octaves are 125 of the longest length: K < 1 / 125^2, and the 40 weights sum to less than 4.
  EXPECT_LT(std::abs(surface.log_ratio({{512.0, 512.0}, {0.0, 0.0}})), 4.0 / 15625.0);
  EXPECT_LT(std::abs(surface.log_ratio({{0.0, 0.0}, {512.0, 512.0}})), 4.0 / 15625.0);
}

TEST(ResidualSurface, Slice_WhenAnchorsShareTheirWork_ThenGivesTheFullEvaluation) {
  // 13 x 13 work positions for 400 anchors, so most anchors share a position.
  const ResidualSurface surface = random_surface(400, 3);
  for (const std::array<double, 2> shape : {std::array{0.0, 0.0}, {3.0, 11.5}, {6.25, 2.0}}) {
    const ResidualSlice slice(surface, shape);
    for (double x = -1.0; x < 13.0; x += 0.7) {
      for (double y = -1.0; y < 4.0; y += 0.3) {
        const double full = surface.log_ratio({{x, y}, shape});
        ASSERT_LT(std::abs(full), 2.0) << "beyond it the factor is cut off";
        EXPECT_NEAR(slice.ratio({x, y}) / std::exp(full), 1.0, 2e-4) << x << " " << y;
      }
    }
  }
}

TEST(ResidualSurface, Slice_WhenNothingWasMeasured_ThenCorrectsNothing) {
  EXPECT_TRUE(ResidualSlice().empty());
  EXPECT_EQ(ResidualSlice().ratio({1.0, 2.0}), 1.0);
  const ResidualSlice slice(ResidualSurface{}, {3.0, 4.0});
  EXPECT_TRUE(slice.empty());
  EXPECT_EQ(slice.ratio({1.0, 2.0}), 1.0);
  EXPECT_EQ(ResidualTable().ratio(1.0, 2.0), 1.0);
  EXPECT_EQ(ResidualTable(slice).ratio(1.0, 2.0), 1.0);
}

TEST(ResidualSurface, Slice_WhenTheRatioIsHuge_ThenStopsAtTheSquareOfE) {
  const ResidualSurface surface{{1.0, 1.0}, {1.0, 1.0}, {{}}, {50.0}};
  EXPECT_NEAR(ResidualSlice(surface, {0.0, 0.0}).ratio({0.0, 0.0}), std::exp(2.0), 2e-3);
}

TEST(ResidualSurface, Table_WhenAtANode_ThenGivesTheSlice) {
  const ResidualSlice slice(random_surface(60, 4), {2.0, 3.0});
  const ResidualTable table(slice);
  for (double x = 0.0; x <= 24.0; x += 0.5) {
    for (double y = 0.0; y <= 24.0; y += 0.5) expect_relative(table.ratio(x, y), slice.ratio({x, y}));
  }
}

TEST(ResidualSurface, Table_WhenBetweenNodes_ThenIsBilinear) {
  const ResidualSlice slice(random_surface(60, 5), {2.0, 3.0});
  const ResidualTable table(slice);
  // A fifth of the way from 3.0 to 3.5 and three fifths from 1.5 to 2.0.
  const double low = 0.4 * slice.ratio({3.0, 1.5}) + 0.6 * slice.ratio({3.0, 2.0});
  const double high = 0.4 * slice.ratio({3.5, 1.5}) + 0.6 * slice.ratio({3.5, 2.0});
  expect_relative(table.ratio(3.1, 1.8), 0.8 * low + 0.2 * high);
}

TEST(ResidualSurface, Table_WhenOutside_ThenMovesToTheEdge) {
  ResidualSurface surface{{4.0, 4.0}, {1.0, 1.0}, {{{0.0, 0.0}, {}}, {{24.0, 24.0}, {}}}, {0.5, -0.5}};
  const ResidualTable table(ResidualSlice(surface, {0.0, 0.0}));
  EXPECT_EQ(table.ratio(-3.0, -1.0), table.ratio(0.0, 0.0));
  EXPECT_EQ(table.ratio(30.0, 2.0), table.ratio(24.0, 2.0));
  EXPECT_EQ(table.ratio(2.0, 1e6), table.ratio(2.0, 24.0));
  EXPECT_NE(table.ratio(23.0, 24.0), table.ratio(24.0, 24.0));
}

/// Log ratios of a smooth bend plus noise, similar to real kernels: up to a factor of about 1.5.
std::vector<double> bends(const std::vector<ResidualPoint>& points, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  // The sum of twelve has a variance of 1 (Irwin and Hall).
  const Uniform part(-0.5, 0.5);
  const auto noise = [&] {
    double sum = 0.0;
    for (int i = 0; i < 12; ++i) sum += part(random);
    return 0.08 * sum;
  };
  std::vector<double> logs;
  logs.reserve(points.size());
  for (const ResidualPoint& point : points) {
    logs.push_back(0.25 * std::sin(point.work[0] / 2.0 + point.shape[0]) + 0.1 * std::cos(point.work[1]) + noise());
  }
  return logs;
}

std::vector<ResidualPoint> grid_points() {
  std::vector<ResidualPoint> points;
  for (int batch = 0; batch <= 8; ++batch) {
    for (int context = 4; context <= 14; ++context) {
      for (const double heads : {2.0, 3.0, 5.0}) {
        points.push_back({{real(batch), real(context)}, {heads, 2.0}});
      }
    }
  }
  return points;
}

// The header's bound, for the length and both noises of the fitted attention surfaces.
TEST(ResidualSurface, Table_WhenFittedOverFourOctaves_ThenFollowsTheSliceToOnePercent) {
  const std::vector<ResidualPoint> points = grid_points();
  for (const double noise : {0.05, 0.15}) {
    const SurfaceShape shape{{4.0, 4.0}, {4.0, 4.0}, noise, 600};
    const ResidualSlice slice(fit_residual(points, bends(points, 6), shape), {3.0, 2.0});
    const ResidualTable table(slice);
    double worst = 0.0;
    for (double x = 0.05; x < 12.0; x += 0.1) {
      for (double y = 0.05; y < 18.0; y += 0.1) {
        worst = std::max(worst, std::abs(table.ratio(x, y) / slice.ratio({x, y}) - 1.0));
      }
    }
    EXPECT_LE(worst, 0.01) << noise;
    EXPECT_GT(worst, 1e-4) << "the surface is not flat";
  }
}

// Of one point, K = 1: the weight w minimises (y - w)^2 + noise w^2, so w = y / (1 + noise). Of two measurements at one
// point w = (y1 + y2) / (2 + noise).
TEST(ResidualSurface, Fit_WhenOnePointWasMeasured_ThenIsItsShrunkMean) {
  const SurfaceShape shape{{1.0, 1.0}, {1.0, 1.0}, 0.25, 600};
  const std::vector<ResidualPoint> points{{{1.0, 2.0}, {3.0, 4.0}}, {{1.0, 2.0}, {3.0, 4.0}}};
  const ResidualSurface one = fit_residual(std::span(points).first(1), std::vector{0.5}, shape);
  ASSERT_EQ(one.weights.size(), 1U);
  EXPECT_NEAR(one.weights[0], 0.4, 1e-7);
  EXPECT_NEAR(one.log_ratio(points[0]), 0.4, 1e-7);
  const ResidualSurface two = fit_residual(points, std::vector{0.5, 0.4}, shape);
  ASSERT_EQ(two.weights.size(), 1U) << "a point that repeats another is no anchor";
  EXPECT_NEAR(two.weights[0], 0.4, 1e-7);
  EXPECT_TRUE(fit_residual({}, {}, shape).anchors.empty());
}

// All points are anchors, so the surface is the Gaussian process: (K + noise I) w = y, and it misses each measurement
// by noise w.
TEST(ResidualSurface, Fit_WhenAnchorsSuffice_ThenMissesEachPointByTheNoiseTimesItsWeight) {
  const std::vector<ResidualPoint> points = grid_points();
  const std::vector<double> logs = bends(points, 7);
  for (const double noise : {0.001, 0.1, 1.0}) {
    const ResidualSurface surface = fit_residual(points, logs, {{1.5, 1.0}, {1.5, 1.5}, noise, 600});
    ASSERT_EQ(surface.anchors.size(), points.size());
    double worst = 0.0;
    for (std::size_t i = 0; i < surface.anchors.size(); ++i) {
      const auto same = [&](const ResidualPoint& point) {
        return point.work == surface.anchors[i].work && point.shape == surface.anchors[i].shape;
      };
      const auto index = static_cast<std::size_t>(std::find_if(points.begin(), points.end(), same) - points.begin());
      ASSERT_LT(index, points.size());
      const double miss = logs[index] - surface.log_ratio(points[index]);
      EXPECT_NEAR(miss, noise * surface.weights[i], 1e-5) << noise;
      worst = std::max(worst, std::abs(miss));
    }
    EXPECT_TRUE(noise > 0.001 || worst < 0.01) << "nearly noiseless: through the points, not " << worst;
    EXPECT_TRUE(noise < 1.0 || worst > 0.05) << "noisy: smoothed, not " << worst;
  }
}

// On a line of 101 points: the first point, the farthest end, the middle between them, then the middles of the halves.
TEST(ResidualSurface, Fit_WhenAnchorsAreFew_ThenTheyLieFarApart) {
  std::vector<ResidualPoint> points;
  std::vector<double> logs;
  for (int i = 0; i <= 100; ++i) {
    points.push_back({{real(i), 0.0}, {}});
    logs.push_back(0.01 * real(i));
  }
  const ResidualSurface surface = fit_residual(points, logs, {{30.0, 1.0}, {1.0, 1.0}, 0.1, 5});
  std::vector<double> places;
  for (const ResidualPoint& anchor : surface.anchors) places.push_back(anchor.work[0]);
  ASSERT_EQ(places.size(), 5U);
  EXPECT_EQ(places[0], 0.0);
  EXPECT_EQ(places[1], 100.0);
  EXPECT_EQ(places[2], 50.0);
  std::sort(places.begin(), places.end());
  EXPECT_EQ(places, (std::vector{0.0, 25.0, 50.0, 75.0, 100.0}));
  // Least squares of all 101 rows on the five: the derivative by each weight, noise (K w)_i - sum_j K_ij (y_j - f_j),
  // is 0.
  for (const ResidualPoint& anchor : surface.anchors) {
    double slope = 0.1 * surface.log_ratio(anchor);
    for (std::size_t j = 0; j < points.size(); ++j) {
      slope -= surface.kernel(anchor, points[j]) * (logs[j] - surface.log_ratio(points[j]));
    }
    EXPECT_NEAR(slope, 0.0, 1e-5);
  }
}

// GEMM

/// gemm.hpp's formula, with std::pow.
double plain_gemm(const GemmModel& model, std::int64_t m, std::int64_t n, std::int64_t k, double weight_bytes,
                  double element_bytes) {
  constexpr std::array<std::pair<std::int64_t, std::int64_t>, 7> kTiles{
      {{64, 64}, {64, 128}, {128, 64}, {128, 128}, {64, 256}, {128, 256}, {256, 128}}};
  double compute = 1e300;
  for (const auto& [rows, columns] : kTiles) {
    for (const std::int64_t s : {1, 2, 4, 8, 16, 32}) {
      const double tiles = std::ceil(real(m) / real(rows)) * std::ceil(real(n) / real(columns));
      const double waves = std::ceil(tiles * real(s) / real(model.sm_count));
      const double tile = 2.0 * real(rows * columns) * (std::ceil(real(k) / real(s)) + model.prologue) *
                          (1.0 + 64.0 * model.edge_loss * (1.0 / real(rows) + 1.0 / real(columns))) *
                          real(model.sm_count) / model.flops;
      const double sums = s == 1 ? 0.0 : model.split_cost * 4.0 * real(m * n * s) / model.bandwidth;
      compute = std::min(compute, waves * tile + sums);
    }
  }
  const double memory = (weight_bytes + element_bytes * real(m * (k + n))) / model.bandwidth;
  return model.launch_seconds + plain_norm({compute, memory}, model.norm_exponent);
}

TEST(Gemm, Modelled_WhenComparedWithThePlainFormula_ThenIsEqual) {
  std::mt19937_64 random(8);
  const Uniform octaves(0.0, 14.0);
  const auto size = [&] { return static_cast<std::int64_t>(std::exp2(octaves(random))); };
  for (const double p : kNormExponents) {
    const GemmModel model{132, 3e-6, 7e14, 2.8e12, 0.12, 90.0, 0.4, p, {}};
    for (int i = 0; i < 400; ++i) {
      const std::int64_t m = size();
      const std::int64_t n = size();
      const std::int64_t k = size();
      const GemmTime time(model, n, k, real(n * k), 2.0);
      expect_relative(time.modelled(m).seconds, plain_gemm(model, m, n, k, real(n * k), 2.0),
                      fmt::format("m={} n={} k={} p={}", m, n, k, p));
      EXPECT_EQ(time.at(m).seconds, time.modelled(m).seconds) << "without a residual";
    }
  }
}

/// Only arithmetic, 8 FLOP/s per SM, so a 64 x 64 tile takes 1024 k s. Splits are too expensive to be chosen.
GemmModel arithmetic_only(std::int64_t sm_count) {
  return {sm_count, 0.0, 8.0 * real(sm_count), 1e100, 0.0, 0.0, 1e200, 8.0, {}};
}

// One SM works tile after tile: what counts is the padded area, and 64 x 64 pads least. 2 * 64 * 64 * 16 / 8 s a tile.
TEST(Gemm, Modelled_WhenOneSmWorks_ThenTimeJumpsBehindMultiplesOf64) {
  constexpr double kOne = 1024.0 * 16.0;
  const GemmTime time(arithmetic_only(1), 64, 16, 0.0, 0.0);
  expect_relative(time.modelled(1).seconds, kOne);
  expect_relative(time.modelled(64).seconds, kOne);
  expect_relative(time.modelled(65).seconds, 2.0 * kOne);
  expect_relative(time.modelled(128).seconds, 2.0 * kOne);
  expect_relative(time.modelled(129).seconds, 3.0 * kOne);
  expect_relative(GemmTime(arithmetic_only(1), 65, 16, 0.0, 0.0).modelled(64).seconds, 2.0 * kOne);
}

// Four SMs, n = 256; w is the time of a 64 x 64 tile.
//   m = 64: 4 tiles, one wave, w. m = 65: 8 tiles of 64 x 64 in two waves, or 4 of 64 x 128 in one of 2 w: 2 w.
//   m = 129: 12 tiles of 64 x 64 in three waves, 3 w; 128 x 64: 8 in two of 2 w; 128 x 128: 4 in one of 4 w; 64 x 256:
//   3 in one of 4 w: 3 w. m = 257: 20 tiles of 64 x 64, 5 w; every larger tile takes 6 w (128 x 64: 3 x 4 in three of 2
//   w) or 8 w.
// n = 257, m = 64: five tiles of 64 x 64 in two waves, 2 w.
TEST(Gemm, Modelled_WhenWavesFill_ThenTimeJumpsBehindThem) {
  constexpr double kWave = 1024.0 * 32.0;
  const GemmTime time(arithmetic_only(4), 256, 32, 0.0, 0.0);
  for (const auto& [m, waves] : {std::pair{1, 1}, {64, 1}, {65, 2}, {128, 2}, {129, 3}, {192, 3}, {193, 4}, {257, 5}}) {
    expect_relative(time.modelled(m).seconds, kWave * waves, std::to_string(m));
  }
  expect_relative(GemmTime(arithmetic_only(4), 257, 32, 0.0, 0.0).modelled(64).seconds, 2.0 * kWave);
}

// a = 1/2: a 64 x 64 tile takes 1 + 64 / 2 (1 / 64 + 1 / 64) = 2 times as long, one of 256 x 128 with eight times the
// area 1 + 64 / 2 (1 / 256 + 1 / 128) = 1.375 times. On one SM 256 x 128 outputs are one large tile, 8 * 1.375 = 11
// small ones without loss; 64 x 64 outputs are two.
TEST(Gemm, Modelled_WhenEdgesCost_ThenLargeTilesPay) {
  GemmModel model = arithmetic_only(1);
  model.edge_loss = 0.5;
  constexpr double kOne = 1024.0 * 16.0;
  expect_relative(GemmTime(model, 128, 16, 0.0, 0.0).modelled(256).seconds, 11.0 * kOne);
  expect_relative(GemmTime(model, 64, 16, 0.0, 0.0).modelled(64).seconds, 2.0 * kOne);
}

// Eight SMs and one tile of 64 x 64, k = 800, u = 20: in one part 2 * 4096 * 820 / 8 s; in eight parts, one on each SM,
// 2 * 4096 * 120 / 8 s and 3 * 4 * 64 * 64 * 8 / 100 s for the sums; in sixteen two waves of 2 * 4096 * 70 / 8 s. On 40
// SMs as fast each, 32 parts of 25 columns take 2 * 4096 * 45 / 8 s and sums four times as long.
TEST(Gemm, Modelled_WhenSmsIdle_ThenKIsSplit) {
  GemmModel model = arithmetic_only(8);
  model.prologue = 20.0;
  expect_relative(GemmTime(model, 64, 800, 0.0, 0.0).modelled(64).seconds, 1024.0 * 820.0);
  model.bandwidth = 100.0;
  model.split_cost = 3.0;
  expect_relative(GemmTime(model, 64, 800, 0.0, 0.0).modelled(64).seconds, 1024.0 * 120.0 + 3932.16);
  model.sm_count = 40;
  model.flops = 320.0;
  expect_relative(GemmTime(model, 64, 800, 0.0, 0.0).modelled(64).seconds, 1024.0 * 45.0 + 4.0 * 3932.16);
}

// W + E (m k + m n) bytes: 1000 + 2 (10 * 30 + 10 * 20) = 2000 at 500 bytes/s; half the weights, 3 s.
TEST(Gemm, Modelled_WhenMemoryBinds_ThenTimeIsBytesOverBandwidth) {
  const GemmModel model{1, 0.25, 1e100, 500.0, 0.0, 0.0, 0.0, 4.0, {}};
  const KernelTime time = GemmTime(model, 20, 30, 1000.0, 2.0).modelled(10);
  expect_relative(time.seconds, 4.25);
  EXPECT_FALSE(time.compute_bound);
  expect_relative(GemmTime(model, 20, 30, 500.0, 2.0).modelled(10).seconds, 3.25);
  expect_relative(GemmTime(model, 20, 30, 1000.0, 1.0).modelled(10).seconds, 3.25);
}

// x in 1 byte and y in 2: 1000 + 10 (30 + 2 * 20) = 1700 bytes at 500 bytes/s, 3.4 s, after a launch of 0.25 s.
// Quantising x: 0.5 s + 30 columns of 0.01 s + 300 elements of 0.002 s = 1.4 s.
TEST(Gemm, Modelled_WhenXIsQuantised_ThenThatComesBeforeIt) {
  GemmModel model{1, 0.25, 1e100, 500.0, 0.0, 0.0, 0.0, 4.0, {}};
  model.quantise = QuantiseModel{0.5, 0.01, 0.002};
  expect_relative(GemmTime(model, 20, 30, 1000.0, 1.0, 2.0).modelled(10).seconds, 0.25 + 3.4 + 1.4);
  expect_relative(GemmTime(model, 20, 30, 1000.0, 1.0, 2.0).modelled(20).seconds, 0.25 + 4.8 + 2.0);
  expect_relative(GemmTime(model, 20, 30, 1000.0, 1.0, 2.0, false).modelled(10).seconds, 0.25 + 3.4);
}

// 3 s of arithmetic and 4 s of traffic; the exponent says how much of them overlaps.
TEST(Gemm, Modelled_WhenBothBoundsCount_ThenTheExponentJoinsThem) {
  GemmModel model = arithmetic_only(1);
  model.launch_seconds = 0.5;
  model.flops = 2.0 * 64.0 * 64.0 * 16.0 / 3.0;
  model.bandwidth = 250.0;
  for (const auto& [p, joined] : {std::pair{1.0, 7.0}, {2.0, 5.0}, {4.0, std::pow(337.0, 0.25)}}) {
    model.norm_exponent = p;
    const KernelTime time = GemmTime(model, 64, 16, 1000.0, 0.0).modelled(64);
    expect_relative(time.seconds, 0.5 + joined);
    EXPECT_FALSE(time.compute_bound);
  }
  model.bandwidth = 500.0;
  EXPECT_TRUE(GemmTime(model, 64, 16, 1000.0, 0.0).modelled(64).compute_bound);
}

TEST(Gemm, Modelled_WhenTokensGrow_ThenNeverTakesLess) {
  const GemmModel model{108, 3e-6, 2.4e14, 1.5e12, 0.1, 64.0, 0.5, 4.0, {}};
  for (const std::int64_t n : {64, 1000, 4096, 28672}) {
    const GemmTime time(model, n, 4096, 2.0 * real(n) * 4096.0, 2.0);
    double last = 0.0;
    for (std::int64_t m = 1; m < 3000; ++m) {
      const double seconds = time.modelled(m).seconds;
      ASSERT_GE(seconds, last) << n << " " << m;
      last = seconds;
    }
  }
}

TEST(Gemm, At_WhenThereIsAResidual_ThenMultipliesByItsRatio) {
  EXPECT_EQ(gemm_point(8, 4096, 1024).work, (std::array{3.0, 0.0}));
  EXPECT_EQ(gemm_point(8, 4096, 1024).shape, (std::array{12.0, 10.0}));
  GemmModel model{132, 3e-6, 7e14, 2.8e12, 0.12, 90.0, 0.4, 4.0, {}};
  // One octave of m away, and two lengths of k: 0.2 * 1/2 * 1/5.
  model.residual = {{1.0, 1.0}, {1.0, 1.0}, {gemm_point(8, 4096, 1024)}, {0.2}};
  const auto ratio = [&](std::int64_t m, std::int64_t k) {
    const GemmTime time(model, 4096, k, 8e6, 2.0);
    EXPECT_EQ(time.at(m).compute_bound, time.modelled(m).compute_bound);
    return time.at(m).seconds / time.modelled(m).seconds;
  };
  EXPECT_NEAR(ratio(8, 1024), std::exp(0.2), 2e-4);
  EXPECT_NEAR(ratio(16, 1024), std::exp(0.1), 2e-4);
  EXPECT_NEAR(ratio(16, 4096), std::exp(0.02), 2e-4);
}

// Decode attention

/// attention.hpp's formula of decode, with std::pow.
double plain_decode(const DecodeAttentionModel& model, const AttentionShape& shape, double sequences, double context,
                    double longest) {
  const double heads = real(shape.q_heads);
  const double kv_heads = real(shape.kv_heads);
  const double dim = real(shape.head_dim);
  const double token = model.token_seconds * (1.0 + model.group_growth * heads / kv_heads) * dim / 128.0;
  const double mean = context / sequences;
  double chain = 1e300;
  for (const double s : {1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0}) {
    if (s > 1.0 && model.splits_grouped_heads_only && shape.q_heads == shape.kv_heads) continue;
    const double waves = std::max(1.0, sequences * kv_heads * s / real(model.sm_count));
    const double merge = s > 1.0 ? model.split_seconds * (1.0 + std::log2(s)) : 0.0;
    chain = std::min(chain, waves * (model.block_seconds + mean / s * token) + (longest - mean) / s * token + merge);
  }
  const double memory =
      (2.0 * context * kv_heads * dim * shape.kv_element_bytes + 2.0 * sequences * heads * dim * shape.element_bytes) /
      model.bandwidth;
  return model.launch_seconds + model.kv_head_seconds.value_or(0.0) * kv_heads +
         model.head_seconds * sequences * heads + plain_norm({chain, memory}, model.norm_exponent);
}

DecodeAttentionModel usual_decode(double p = 2.0) {
  return {132, 8e-6, 2e-10, 2.9e12, 1e-6, 3e-9, 0.05, 2e-6, p, false, {}, {}};
}

TEST(DecodeAttention, Modelled_WhenComparedWithThePlainFormula_ThenIsEqual) {
  std::mt19937_64 random(9);
  const Uniform octaves(0.0, 9.0);
  for (const double p : kNormExponents) {
    for (const bool grouped_only : {false, true}) {
      DecodeAttentionModel model = usual_decode(p);
      model.splits_grouped_heads_only = grouped_only;
      if (grouped_only) model.kv_head_seconds = 7e-8;
      for (const AttentionShape& shape : {AttentionShape{32, 8, 128, 2.0, 2.0}, AttentionShape{40, 40, 128, 2.0, 1.0},
                                          AttentionShape{8, 1, 64, 4.0, 2.0}}) {
        const DecodeAttentionTime time(model, shape);
        for (int i = 0; i < 100; ++i) {
          const double sequences = std::floor(std::exp2(octaves(random)));
          const double mean = std::exp2(octaves(random) + 3.0);
          const double longest = mean * std::exp2(octaves(random) / 3.0);
          expect_relative(time.modelled(sequences, sequences * mean, longest).seconds,
                          plain_decode(model, shape, sequences, sequences * mean, longest),
                          fmt::format("{} {} {} p={}", sequences, mean, longest, p));
          EXPECT_EQ(time.at(sequences, sequences * mean, longest).seconds,
                    time.modelled(sequences, sequences * mean, longest).seconds)
              << "without a residual";
        }
      }
    }
  }
}

/// Only the chain of blocks: 100 s per block and 1 s per token, on 8 SMs; a split takes `split`.
DecodeAttentionModel chain_only(double split) { return {8, 0.0, 0.0, 1e100, 100.0, 1.0, 0.0, split, 8.0, false, {}}; }

// KV heads as blocks: 4 of 8 SMs are busy, one wave of 100 + 50; 16 sequences of 4 heads are 8 waves. The longest of
// them has 30 tokens more than the mean, at the end of its chain.
TEST(DecodeAttention, Modelled_WhenNothingIsSplit_ThenWavesAndTheLongestCount) {
  const DecodeAttentionTime time(chain_only(1e100), {4, 4, 128});
  expect_relative(time.modelled(1.0, 50.0, 50.0).seconds, 150.0);
  expect_relative(time.modelled(2.0, 100.0, 50.0).seconds, 150.0);
  expect_relative(time.modelled(16.0, 800.0, 50.0).seconds, 8.0 * 150.0);
  expect_relative(time.modelled(16.0, 800.0, 80.0).seconds, 8.0 * 150.0 + 30.0);
  // 3 sequences of 4 heads are a wave and a half: work spreads evenly over a launch.
  expect_relative(time.modelled(3.0, 150.0, 50.0).seconds, 1.5 * 150.0);
  EXPECT_FALSE(time.modelled(16.0, 800.0, 50.0).compute_bound);
}

// One KV head on 8 SMs, 4000 tokens: in 8 parts 100 + 500 and 10 (1 + 3) for the split; in 4 parts 100 + 1000 + 30; in
// 16 parts two waves of 100 + 250 and 50. A longer sequence is split as well: 800 more, 100 in each part.
TEST(DecodeAttention, Modelled_WhenSmsIdle_ThenTheSequenceIsSplit) {
  const DecodeAttentionTime time(chain_only(10.0), {4, 1, 128});
  expect_relative(time.modelled(1.0, 4000.0, 4000.0).seconds, 640.0);
  expect_relative(time.modelled(1.0, 4000.0, 4800.0).seconds, 740.0);
  DecodeAttentionModel model = chain_only(10.0);
  model.splits_grouped_heads_only = true;
  expect_relative(DecodeAttentionTime(model, {4, 1, 128}).modelled(1.0, 4000.0, 4000.0).seconds, 640.0);
  expect_relative(DecodeAttentionTime(model, {1, 1, 128}).modelled(1.0, 4000.0, 4000.0).seconds, 4100.0);
}

// 1 s a token at G = 0 and d = 128; g = 1/4 and G = 4 double it, d = 64 halves it.
TEST(DecodeAttention, Modelled_WhenGroupsOrDimensionsGrow_ThenSoDoesTheTimePerToken) {
  DecodeAttentionModel model = chain_only(1e100);
  model.group_growth = 0.25;
  expect_relative(DecodeAttentionTime(model, {8, 2, 128}).modelled(1.0, 50.0, 50.0).seconds, 200.0);
  expect_relative(DecodeAttentionTime(model, {8, 2, 64}).modelled(1.0, 50.0, 50.0).seconds, 150.0);
}

// 2 X KV d K + 2 S H d E = 2 * 1000 * 2 * 128 * 1 + 2 * 10 * 8 * 128 * 2 = 552,960 bytes at 1000 bytes/s; 7 s of
// launch, 10 * 8 * 0.5 s of heads.
TEST(DecodeAttention, Modelled_WhenMemoryBinds_ThenTimeIsBytesOverBandwidth) {
  const DecodeAttentionModel model{8, 7.0, 0.5, 1000.0, 0.0, 0.0, 0.0, 0.0, 2.0, false, {}};
  const DecodeAttentionTime time(model, {8, 2, 128, 2.0, 1.0});
  expect_relative(time.modelled(10.0, 1000.0, 100.0).seconds, 7.0 + 40.0 + 552.96);
}

// A chain of 300 s and traffic of 2 * 200 * 128 * 2 + 2 * 128 * 2 = 102,912 bytes in 400 s.
TEST(DecodeAttention, Modelled_WhenBothBoundsCount_ThenTheExponentJoinsThem) {
  DecodeAttentionModel model = chain_only(1e100);
  model.bandwidth = 102'912.0 / 400.0;
  for (const auto& [p, joined] : {std::pair{1.0, 700.0}, {2.0, 500.0}}) {
    model.norm_exponent = p;
    expect_relative(DecodeAttentionTime(model, {1, 1, 128}).modelled(1.0, 200.0, 200.0).seconds, joined);
  }
}

TEST(DecodeAttention, Modelled_WhenThereIsMoreToRead_ThenNeverTakesLess) {
  for (const double p : kNormExponents) {
    for (const AttentionShape& shape : {AttentionShape{32, 8, 128}, AttentionShape{40, 40, 128}}) {
      const DecodeAttentionTime time(usual_decode(p), shape);
      for (const double context : {1.0, 100.0, 1000.0, 1023.0, 8192.0, 100'000.0}) {
        double last = 0.0;
        for (double sequences = 1.0; sequences <= 512.0; ++sequences) {
          const double seconds = time.modelled(sequences, sequences * context, context).seconds;
          ASSERT_GT(seconds, last) << sequences << " x " << context;
          ASSERT_GT(time.modelled(sequences, sequences * (context + 1.0), context + 1.0).seconds, seconds);
          ASSERT_GE(time.modelled(sequences, sequences * context, 2.0 * context).seconds, seconds);
          last = seconds;
        }
      }
    }
  }
}

TEST(DecodeAttention, At_WhenThereIsAResidual_ThenMultipliesByItsRatio) {
  const ResidualPoint point = decode_point(16.0, 1024.0, 32, 8);
  EXPECT_EQ(point.work, (std::array{4.0, 10.0}));
  EXPECT_EQ(point.shape, (std::array{3.0, 2.0})) << "KV heads and queries per KV head";
  DecodeAttentionModel model = usual_decode();
  model.residual = {{4.0, 4.0}, {1.0, 1.0}, {point}, {0.2}};
  const auto ratio = [&](double sequences, double context, const AttentionShape& shape) {
    const DecodeAttentionTime time(model, shape);
    return time.at(sequences, sequences * context, 2.0 * context).seconds /
           time.modelled(sequences, sequences * context, 2.0 * context).seconds;
  };
  EXPECT_NEAR(ratio(16.0, 1024.0, {32, 8, 128}), std::exp(0.2), 3e-4);
  // Four octaves of batch, and four of context: 1 / 2 each.
  EXPECT_NEAR(ratio(256.0, 1024.0, {32, 8, 128}), std::exp(0.1), 3e-4);
  EXPECT_NEAR(ratio(16.0, 64.0, {32, 8, 128}), std::exp(0.1), 3e-4);
  // Twice the KV heads, half the group: one octave on each axis, 1 / 3.
  EXPECT_NEAR(ratio(16.0, 1024.0, {32, 16, 128}), std::exp(0.2 / 3.0), 3e-4);
}

// Prefill attention

PrefillChunk chunk_of(std::int64_t fresh, std::int64_t context) { return {Tokens(fresh), Tokens(context)}; }

/// Decodes beside chunks.
struct Decodes {
  double count = 0.0;
  double attended = 0.0;  // tokens, all together
  double longest = 0.0;
};

/// attention.hpp's formula of prefill, with std::pow and a list of blocks.
double plain_prefill(const PrefillAttentionModel& model, const AttentionShape& shape,
                     const std::vector<PrefillChunk>& chunks, const KeyMemory& memory = {}, const Decodes& decodes = {},
                     const FusedDecodes& fused = {}) {
  const double heads = real(shape.q_heads);
  const double kv_heads = real(shape.kv_heads);
  const double dim = real(shape.head_dim);
  const double sms = real(model.sm_count);
  const double tile = model.tile_seconds * dim / 128.0;
  bool singles = decodes.count == 0.0;
  for (const PrefillChunk& chunk : chunks) singles = singles && chunk.new_tokens.count() == 1;
  const bool packs = model.packs_groups || singles;
  const double block_heads = packs ? kv_heads : heads;
  const double rows_of_block = model.packs_groups ? 128.0 : 64.0;
  double work = 0.0;
  double longest = 0.0;
  double bytes = 0.0;
  std::vector<double> behind;  // earlier tokens of each block that has any
  double earlier_bytes = 0.0;
  double sequences = 0.0;
  double most_blocks = block_heads;
  double blocks_with_rows = 0.0;
  const auto pass = [&](double blocks, double tokens) {
    if (tokens > 0.0) behind.insert(behind.end(), static_cast<std::size_t>(blocks), tokens);
  };
  const auto read = [&](double count, double tokens) {
    if (tokens > 0.0) sequences += count;
    earlier_bytes += count * 2.0 * tokens * kv_heads * dim * shape.kv_element_bytes;
  };
  for (const PrefillChunk& chunk : chunks) {
    const double c = real(chunk.new_tokens.count());
    const double x = real(chunk.context.count());
    const double rows = packs ? c * heads / kv_heads : c;
    work += block_heads * std::ceil(rows / 128.0) * (c / 2.0 / 128.0 * tile + model.block_seconds) / sms;
    longest = std::max(longest, model.longest_weight * (c / 128.0 * tile + model.block_seconds));
    bytes += 2.0 * c * kv_heads * dim * shape.kv_element_bytes + 2.0 * c * heads * dim * shape.element_bytes;
    const double blocks = block_heads * std::ceil(rows / rows_of_block);
    pass(blocks, x);
    read(1.0, x);
    most_blocks = std::max(most_blocks, blocks);
    blocks_with_rows += blocks;
  }
  double seconds = model.launch_seconds + plain_norm({work, longest, bytes / model.bandwidth}, model.norm_exponent);
  double last = 0.0;
  if (decodes.count > 0.0) {
    const double mean = decodes.attended / decodes.count;
    const double tokens = mean == decodes.longest ? 128.0 * (std::floor(mean / 128.0) + 1.0) : mean + 64.0;
    pass(decodes.count * block_heads, tokens);
    read(decodes.count, mean);
    last = std::max(tokens, decodes.longest);
    const double grid = (decodes.count + real(static_cast<std::int64_t>(chunks.size()))) * most_blocks;
    seconds += decodes.count * block_heads * fused.block_seconds / sms +
               (grid - blocks_with_rows - decodes.count * block_heads) * fused.empty_seconds / sms;
  }
  if (behind.empty()) return seconds;
  double sum = 0.0;
  for (const double tokens : behind) {
    sum += tokens;
    last = std::max(last, tokens);
  }
  const double count = real(static_cast<std::int64_t>(behind.size()));
  const double passes = std::max(std::ceil(count / sms) * sum / count, last);
  const double group = model.packs_groups ? 1.0 : heads / kv_heads;
  const bool fits = memory.cache_bytes == 0.0 || earlier_bytes / kv_heads <= memory.cache_bytes;
  const double reads = fits ? 1.0 : group / std::min(group, std::max(1.0, sms / sequences));
  const double bandwidth = memory.bandwidth == 0.0 ? model.bandwidth : memory.bandwidth;
  return seconds + std::max(passes / 128.0 * model.earlier_tile_seconds.value_or(model.tile_seconds) * dim / 128.0 *
                                rows_of_block / 128.0,
                            reads * earlier_bytes / bandwidth);
}

PrefillAttentionModel usual_prefill(double p = 2.0) { return {132, 9e-6, 2e12, 1.5e-6, 1e-6, 1.0, p, false, {}, {}}; }

constexpr FusedDecodes kFused{1.7e-6, 4e-7};

TEST(PrefillAttention, At_WhenComparedWithThePlainFormula_ThenIsEqual) {
  std::mt19937_64 random(10);
  const Uniform octaves(0.0, 12.0);
  for (const double p : kNormExponents) {
    for (const bool packs : {false, true}) {
      PrefillAttentionModel model = usual_prefill(p);
      model.packs_groups = packs;
      model.longest_weight = 0.7;
      if (packs) model.earlier_tile_seconds = 1.2e-6;
      for (const AttentionShape& shape : {AttentionShape{32, 8, 128, 2.0, 2.0}, AttentionShape{40, 40, 128, 2.0, 1.0},
                                          AttentionShape{8, 1, 64, 4.0, 2.0}}) {
        const KeyMemory memory{p > 2.0 ? 1.5e12 : 0.0, 2e7};
        const PrefillAttentionTime time(model, shape, memory);
        for (std::size_t count = 1; count <= 40; ++count) {
          std::vector<PrefillChunk> chunks;
          for (std::size_t i = 0; i < count; ++i) {
            const auto size = [&] { return static_cast<std::int64_t>(std::exp2(octaves(random))); };
            const std::int64_t fresh = size();
            chunks.push_back(chunk_of(fresh, i % 2 == 0 ? 0 : size()));
          }
          const std::string which = fmt::format("{} chunks p={}", count, p);
          expect_relative(time.at(chunks).seconds, plain_prefill(model, shape, chunks, memory), which);
          Decodes decodes;
          decodes.count = std::floor(std::exp2(octaves(random) / 1.5));
          const double each = std::floor(std::exp2(octaves(random)));
          decodes.attended = decodes.count * each;
          decodes.longest = count % 2 == 0 ? each : 3.0 * each;
          expect_relative(time.fused(chunks, decodes.count, decodes.attended, decodes.longest, kFused).seconds,
                          plain_prefill(model, shape, chunks, memory, decodes, kFused), which);
        }
      }
    }
  }
}

/// Only blocks: 10 s per tile of 128 keys, 3 s to start a block, on 4 SMs.
PrefillAttentionModel blocks_only(double longest_weight) {
  return {4, 0.0, 1e100, 10.0, 3.0, longest_weight, 8.0, false, {}, {}};
}

// 8 heads. 128 tokens: 8 blocks of half a tile in the mean, 8 * 8 / 4. 129 tokens: 16 blocks of 64.5 / 128 tiles.
// 256 tokens: 16 blocks of 1 tile, 52 s; behind 512: 32 blocks of 64 rows in 8 waves of 4 half tiles, 160 s. 10 tokens:
// 8 blocks of 5 / 128 tiles; behind 100: 8 blocks of 64 rows in 2 waves.
TEST(PrefillAttention, At_WhenOneChunkRuns_ThenItsBlocksSpreadOverTheSms) {
  const PrefillAttentionTime time(blocks_only(1e-100), {8, 2, 128});
  const auto seconds = [&](std::int64_t fresh, std::int64_t context) {
    const std::array chunks{chunk_of(fresh, context)};
    EXPECT_TRUE(time.at(chunks).compute_bound);
    return time.at(chunks).seconds;
  };
  expect_relative(seconds(128, 0), 16.0);
  expect_relative(seconds(129, 0), 4.0 * (64.5 / 128.0 * 10.0 + 3.0));
  expect_relative(seconds(256, 512), 52.0 + 160.0);
  expect_relative(seconds(10, 100), 2.0 * (5.0 / 128.0 * 10.0 + 3.0) + 2.0 * 100.0 / 128.0 * 5.0);
}

// 65 rows of 8 heads are 16 blocks of 64 rows, 4 waves; 64 rows are 2. A fifth SM takes 16 blocks in 4 waves still, a
// sixth in 3. A tile of earlier tokens takes 20 s, half of it with 64 rows.
TEST(PrefillAttention, At_WhenTokensAreEarlier_ThenWholeWavesPassOverThem) {
  PrefillAttentionModel model = blocks_only(1e-100);
  model.earlier_tile_seconds = 20.0;
  const auto earlier = [&](std::int64_t sms, std::int64_t fresh) {
    model.sm_count = sms;
    const PrefillAttentionTime time(model, {8, 2, 128});
    return time.at(std::array{chunk_of(fresh, 1280)}).seconds - time.at(std::array{chunk_of(fresh, 0)}).seconds;
  };
  expect_relative(earlier(4, 65), 4.0 * 100.0);
  expect_relative(earlier(4, 64), 2.0 * 100.0);
  expect_relative(earlier(5, 65), 4.0 * 100.0);
  expect_relative(earlier(6, 65), 3.0 * 100.0);
}

// Three sequences of one token behind 127: 2 KV heads each, whose 4 query heads share a block; the 6 blocks take 2
// waves. A chunk of two tokens in the same call parts them: 8 blocks each, 6 waves.
TEST(PrefillAttention, At_WhenEachChunkHasOneToken_ThenQueryHeadsShareABlock) {
  const PrefillAttentionTime time(blocks_only(1e-100), {8, 2, 128});
  constexpr double kSingle = 0.5 / 128.0 * 10.0 + 3.0;
  constexpr double kWave = 127.0 / 128.0 * 5.0;
  std::vector<PrefillChunk> chunks(3, chunk_of(1, 127));
  expect_relative(time.at(chunks).seconds, 3.0 * 2.0 * kSingle / 4.0 + 2.0 * kWave);
  chunks.push_back(chunk_of(2, 0));
  expect_relative(time.at(chunks).seconds, 3.0 * 8.0 * kSingle / 4.0 + 2.0 * (10.0 / 128.0 + 3.0) + 6.0 * kWave);
}

// Of two chunks the longer decides: 2 tiles and the start, 23 s, against 13; work is far below. Its 512 earlier tokens
// are 4 half tiles.
TEST(PrefillAttention, At_WhenSmsAreMany_ThenTheLongestBlockCounts) {
  PrefillAttentionModel model = blocks_only(2.0);
  model.sm_count = 1'000'000'000;
  const PrefillAttentionTime time(model, {8, 2, 128});
  const std::array chunks{chunk_of(128, 0), chunk_of(256, 512)};
  expect_relative(time.at(chunks).seconds, 46.0 + 20.0);
  expect_relative(time.at(std::span(chunks).first(1)).seconds, 26.0);
}

// On 4 SMs, 8 blocks behind 1280 tokens and 8 behind 128 take 4 waves of 704 tokens in the mean; on 16, the longest.
TEST(PrefillAttention, At_WhenContextsDiffer_ThenTheirMeanOrTheLongestCounts) {
  PrefillAttentionModel model = blocks_only(1e-100);
  const std::array chunks{chunk_of(64, 1280), chunk_of(64, 128)};
  const std::array alone{chunk_of(64, 0), chunk_of(64, 0)};
  for (const auto& [sms, tokens] : {std::pair(4, 4.0 * 704.0), {16, 1280.0}}) {
    model.sm_count = sms;
    const PrefillAttentionTime time(model, {8, 2, 128});
    expect_relative(time.at(chunks).seconds - time.at(alone).seconds, tokens / 128.0 * 5.0);
  }
}

// 4 query heads share a KV head. 32 tokens: 128 rows of 2 KV heads are 2 blocks of 16 / 128 tiles, where apart they are
// 8. 33 tokens: 132 rows, 4 blocks.
TEST(PrefillAttention, At_WhenGroupsArePacked_ThenBlocksHoldAllTheirHeads) {
  PrefillAttentionModel model = blocks_only(1e-100);
  model.packs_groups = true;
  const PrefillAttentionTime time(model, {8, 2, 128});
  expect_relative(time.at(std::array{chunk_of(32, 0)}).seconds, 2.0 * 4.25 / 4.0);
  expect_relative(time.at(std::array{chunk_of(33, 0)}).seconds, 16.5 / 128.0 * 10.0 + 3.0);
  // One wave of 10 whole tiles; 65 tokens are 260 rows, 6 blocks, two waves.
  expect_relative(time.at(std::array{chunk_of(33, 1280)}).seconds, 16.5 / 128.0 * 10.0 + 3.0 + 100.0);
  expect_relative(time.at(std::array{chunk_of(65, 1280)}).seconds - time.at(std::array{chunk_of(65, 0)}).seconds,
                  200.0);
}

// Tiles of heads of 64 take half as long: 8 blocks of 2.5 + 3 s.
TEST(PrefillAttention, At_WhenHeadsAreSmaller_ThenTilesTakeLess) {
  expect_relative(PrefillAttentionTime(blocks_only(1e-100), {8, 2, 64}).at(std::array{chunk_of(128, 0)}).seconds, 11.0);
}

// 2 c KV d K + 2 c H d E of each: 100 * 2 * 2 * 128 * 1 + 2 * 100 * 8 * 128 * 2 = 460,800 bytes; 1000 earlier tokens
// are 512,000 bytes; at 1000 bytes/s.
TEST(PrefillAttention, At_WhenMemoryBinds_ThenTimeIsBytesOverBandwidth) {
  const PrefillAttentionModel model{8, 7.0, 1000.0, 0.0, 0.0, 0.0, 2.0, false, {}, {}};
  const AttentionShape shape{8, 2, 128, 2.0, 1.0};
  const PrefillAttentionTime time(model, shape);
  const std::array chunks{chunk_of(100, 1000), chunk_of(100, 0)};
  expect_relative(time.at(chunks).seconds, 7.0 + 2.0 * 460.8 + 512.0);
  EXPECT_FALSE(time.at(chunks).compute_bound);
  expect_relative(PrefillAttentionTime(model, shape, {2000.0, 0.0}).at(chunks).seconds, 7.0 + 2.0 * 460.8 + 256.0);
}

// At 512 bytes/s one token of 2 + 2 heads takes (2 * 2 * 128 * 2 + 2 * 2 * 128 * 2) / 512 = 4 s of traffic. Its write
// uses 256 of 512 threads, half of 6 s, and 2 * 256 * (2 + 2) bytes in 4 s: 5 s by the square root of squares. Tokens
// of 8 + 8 heads are 16 s of traffic; their 1,024 elements fill the 512 threads for 6 s, and take 16 s of writing.
TEST(PrefillAttention, At_WhenTheCacheIsWritten_ThenThreadsAndBytesOfItAreAdded) {
  PrefillAttentionModel model{8, 7.0, 512.0, 0.0, 0.0, 0.0, 2.0, false, {}, {}};
  const auto seconds = [&](std::int64_t heads, double kv_element_bytes) {
    const PrefillAttentionTime time(model, {heads, heads, 128, 2.0, kv_element_bytes});
    return time.at(std::array{chunk_of(30, 0), chunk_of(70, 0)}).seconds;
  };
  expect_relative(seconds(2, 2.0), 7.0 + 100.0 * 4.0);
  model.write_token_seconds = 6.0;
  expect_relative(seconds(2, 2.0), 7.0 + 100.0 * (4.0 + 5.0));
  expect_relative(seconds(8, 2.0), 7.0 + 100.0 * (16.0 + std::sqrt(6.0 * 6.0 + 16.0 * 16.0)));
  // KV in one byte: (512 + 1024) / 512 = 3 s of traffic; the write reads two bytes and writes one, 1,536 bytes in 3 s.
  expect_relative(seconds(2, 1.0), 7.0 + 100.0 * (3.0 + std::sqrt(3.0 * 3.0 + 3.0 * 3.0)));
}

// 1000 tokens of one KV head are 2 * 128 * 2 * 1000 = 512,000 bytes, and 1,024,000 of both heads take 1024 s. With 8
// SMs two of the 4 heads that share keys run at a time for 4 sequences, one for 16; all four for one.
TEST(PrefillAttention, At_WhenKeysExceedTheCache_ThenHeadsReadThemAgain) {
  PrefillAttentionModel model{8, 0.0, 1e100, 0.0, 0.0, 0.0, 1.0, false, {}, {}};
  const auto reads = [&](std::size_t sequences, double cache) {
    const PrefillAttentionTime time(model, {8, 2, 128}, {1000.0, cache});
    return time.at(std::vector(sequences, chunk_of(2, 1000))).seconds / (1024.0 * static_cast<double>(sequences));
  };
  expect_relative(reads(1, 1.0), 1.0);
  expect_relative(reads(4, 4 * 512'000.0), 1.0);
  expect_relative(reads(4, 4 * 512'000.0 - 1.0), 2.0);
  expect_relative(reads(16, 4 * 512'000.0), 4.0);
  expect_relative(reads(16, 0.0), 1.0);
  model.packs_groups = true;
  expect_relative(reads(16, 4 * 512'000.0), 1.0);
}

// Work 16 s (8 blocks of 8 s on 4 SMs), the longest block 16 / 13 of 13 s, traffic as long again: three equal parts.
TEST(PrefillAttention, At_WhenThreeBoundsCount_ThenTheExponentJoinsThem) {
  PrefillAttentionModel model = blocks_only(16.0 / 13.0);
  // 128 * 2 * 2 * 128 * 2 + 2 * 128 * 8 * 128 * 2 bytes.
  model.bandwidth = 655'360.0 / 16.0;
  for (const double p : kNormExponents) {
    model.norm_exponent = p;
    const double seconds = PrefillAttentionTime(model, {8, 2, 128}).at(std::array{chunk_of(128, 0)}).seconds;
    expect_relative(seconds, 16.0 * std::pow(3.0, 1.0 / p));
  }
}

TEST(PrefillAttention, At_WhenThereIsMoreToAttendTo_ThenNeverTakesLess) {
  for (const bool packs : {false, true}) {
    PrefillAttentionModel model = usual_prefill();
    model.packs_groups = packs;
    const PrefillAttentionTime time(model, {32, 8, 128});
    for (const std::int64_t context : {0, 1, 127, 1000, 30'000}) {
      double last = 0.0;
      for (std::int64_t fresh = 1; fresh < 1500; ++fresh) {
        const double seconds = time.at(std::array{chunk_of(fresh, context)}).seconds;
        ASSERT_GT(seconds, last) << fresh << " behind " << context;
        ASSERT_GT(time.at(std::array{chunk_of(fresh, context + 1)}).seconds, seconds);
        ASSERT_GT(time.at(std::array{chunk_of(fresh, context), chunk_of(1, 0)}).seconds, seconds);
        last = seconds;
      }
    }
  }
}

// A chunk of 130: 16 blocks of 65 / 128 tiles. Three decodes of 8 blocks, one half tile each: 24 blocks in 6 waves, 2 s
// to start each. The grid has 3 * 8 blocks for each of 4 sequences, 48 of them empty, 0.5 s each. Contexts of 300
// tokens in all, the longest of 200, are 100 + 64 in the mean.
TEST(PrefillAttention, Fused_WhenDecodesJoin_ThenTheirBlocksAndTheEmptyOnesCount) {
  const PrefillAttentionTime time(blocks_only(1e-100), {8, 2, 128});
  const std::array chunks{chunk_of(130, 0)};
  const double fresh = 4.0 * (65.0 / 128.0 * 10.0 + 3.0);
  expect_relative(time.at(chunks).seconds, fresh);
  const auto more = [&](double longest) { return time.fused(chunks, 3.0, 300.0, longest, {2.0, 0.5}).seconds - fresh; };
  expect_relative(more(100.0), 6.0 * 5.0 + 24.0 * 2.0 / 4.0 + 48.0 * 0.5 / 4.0);
  expect_relative(more(200.0), 6.0 * 164.0 / 128.0 * 5.0 + 12.0 + 6.0);
  expect_relative(more(12'800.0), 100.0 * 5.0 + 12.0 + 6.0);
}

// 128 tokens take a second tile.
TEST(PrefillAttention, Fused_WhenATileIsFull_ThenTheNewTokenTakesAnother) {
  const PrefillAttentionTime time(blocks_only(1e-100), {4, 1, 128});
  const std::array chunks{chunk_of(64, 0)};
  const auto seconds = [&](double each) {
    return time.fused(chunks, 1.0, each, each, {}).seconds - time.at(chunks).seconds;
  };
  expect_relative(seconds(127.0), 5.0);
  expect_relative(seconds(128.0), 10.0);
}

// Chunks of 100 and 300: a token's chunk has (100 * 100 + 300 * 300) / 400 = 250 tokens in the mean, so that there are
// 400 / 250 = 1.6 sequences.
TEST(PrefillAttention, At_WhenThereIsAResidual_ThenMultipliesByItsRatio) {
  const ResidualPoint point = prefill_point(4.0, 256.0, 32, 8);
  EXPECT_EQ(point.work, (std::array{2.0, 8.0}));
  EXPECT_EQ(point.shape, (std::array{5.0, 2.0})) << "query heads and queries per KV head";
  PrefillAttentionModel model = usual_prefill();
  const AttentionShape shape{32, 8, 128};
  const PrefillAttentionTime plain(model, shape);
  model.residual = {{4.0, 4.0}, {1.0, 1.0}, {point, prefill_point(1.0, 64.0, 16, 8)}, {0.2, 0.3}};
  const PrefillAttentionTime corrected(model, shape);
  const ResidualTable table(ResidualSlice(model.residual, point.shape));
  const auto ratio = [&](const std::vector<PrefillChunk>& chunks) {
    return corrected.at(chunks).seconds / plain.at(chunks).seconds;
  };
  expect_relative(ratio(std::vector(4, chunk_of(256, 0))), table.ratio(2.0, 8.0));
  expect_relative(ratio({chunk_of(100, 0), chunk_of(300, 0)}), table.ratio(log2_line(1.6), log2_line(250.0)));
  // Earlier tokens, of a chunk or of decodes, add the same time as without the residual.
  const std::vector chunks(4, chunk_of(256, 0));
  const std::vector behind(4, chunk_of(256, 900));
  expect_relative(corrected.at(behind).seconds - corrected.at(chunks).seconds,
                  plain.at(behind).seconds - plain.at(chunks).seconds);
  expect_relative(corrected.fused(chunks, 64.0, 6400.0, 100.0, kFused).seconds - corrected.at(chunks).seconds,
                  plain.fused(chunks, 64.0, 6400.0, 100.0, kFused).seconds - plain.at(chunks).seconds);
  EXPECT_NEAR(table.ratio(2.0, 8.0), std::exp(0.2 + 0.3 / 3.0 / 1.5), 1e-3);
}

// Bytes of elementwise kernels

LlmModel small_llm() {
  LlmModel llm;
  llm.hidden = 1000;
  llm.heads = 4;
  llm.kv_heads = 2;
  llm.head_dim = 250;  // q = 1000, k = 500
  llm.ffn = 2000;
  llm.gated_mlp = true;
  llm.dtype_bytes = 2;
  return llm;
}

// Two norms with their sums, 4 * 1000 each; the rotation of q and k, 2 * 1500; the activation, 3 * 2000; KV, 4 * 500;
// times 2 bytes. Kernels: two norms, rotation, activation, KV write.
TEST(Elementwise, Work_WhenByHand_ThenIsEqual) {
  const ElementwiseWork work = elementwise_work(small_llm(), 1);
  EXPECT_EQ(work.kernels, 5.0);
  EXPECT_EQ(work.bytes_per_token, 2.0 * (8000.0 + 3000.0 + 6000.0 + 2000.0));
}

// Norms are not shared among the GPUs; with four, each holds one of the two KV heads.
TEST(Elementwise, Work_WhenGpusShareTheModel_ThenAllButTheNormsShrinks) {
  EXPECT_EQ(elementwise_work(small_llm(), 2).bytes_per_token, 2.0 * (8000.0 + 1500.0 + 3000.0 + 1000.0));
  EXPECT_EQ(elementwise_work(small_llm(), 4).bytes_per_token, 2.0 * (8000.0 + 1000.0 + 1500.0 + 1000.0));
  EXPECT_EQ(elementwise_work(small_llm(), 4).kernels, 5.0);
}

TEST(Elementwise, Work_WhenTheModelDiffers_ThenSoDoItsKernels) {
  LlmModel llm = small_llm();
  llm.gated_mlp = false;
  llm.learned_position_rows = 100;
  EXPECT_EQ(elementwise_work(llm, 1).kernels, 4.0);
  EXPECT_EQ(elementwise_work(llm, 1).bytes_per_token, 2.0 * (8000.0 + 4000.0 + 2000.0));
  llm = small_llm();
  llm.rotary_dim = 125;  // half of each head
  llm.qk_norm = QkNorm::per_head;
  llm.layer_norms = 4;
  llm.dtype_bytes = 4;
  EXPECT_EQ(elementwise_work(llm, 1).kernels, 9.0);
  EXPECT_EQ(elementwise_work(llm, 1).bytes_per_token, 4.0 * (16'000.0 + 1500.0 + 3000.0 + 6000.0 + 2000.0));
}

}  // namespace
}  // namespace spillway::hwmodels
