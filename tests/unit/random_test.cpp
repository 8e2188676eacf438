#include "sim/core/random.hpp"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

namespace spillway {
namespace {

/// Doubles between a and b; a and b have the same sign.
std::int64_t ulps(double a, double b) {
  const auto x = std::bit_cast<std::int64_t>(std::abs(a));
  const auto y = std::bit_cast<std::int64_t>(std::abs(b));
  return x > y ? x - y : y - x;
}

TEST(Xoshiro256, MatchesThePublishedOutputs) {
  // State {1, 2, 3, 4}: the outputs of the authors' xoshiro256starstar.c, as the reference test of the rand_xoshiro
  // crate lists them.
  Xoshiro256 engine({1, 2, 3, 4});
  for (const std::uint64_t expected :
       {11520ULL, 0ULL, 1509978240ULL, 1215971899390074240ULL, 1216172134540287360ULL, 607988272756665600ULL,
        16172922978634559625ULL, 8476171486693032832ULL, 10595114339597558777ULL, 2904607092377533576ULL}) {
    EXPECT_EQ(engine.next(), expected);
  }
}

TEST(SplitMix, MatchesThePublishedOutputs) {
  // Seed 1234567: the outputs of the authors' splitmix64.c as listed on rosettacode.org ("Pseudo-random
  // numbers/Splitmix64").
  std::uint64_t state = 1234567;
  for (const std::uint64_t expected : {6457827717110365317ULL, 3203168211198807973ULL, 9817491932198370423ULL,
                                       4593380528125082431ULL, 16408922859458223821ULL}) {
    EXPECT_EQ(split_mix(state), expected);
  }
}

TEST(FixedHash, MatchesThePublishedOutputsOfFnv1a) {
  // Test vectors of draft-eastlake-fnv.
  EXPECT_EQ(fixed_hash(""), 0xcbf29ce484222325U);
  EXPECT_EQ(fixed_hash("a"), 0xaf63dc4c8601ec8cU);
  EXPECT_EQ(fixed_hash("foobar"), 0x85944171f73967e8U);
}

TEST(RandomStream, DependsOnSeedReplicationAndName) {
  // Computed with Python integers from the rules in random.hpp: splitmix of the seed, plus the replication; splitmix of
  // that, plus the name's FNV-1a; four splitmix outputs are the state.
  const auto first = [](std::int64_t seed, std::int64_t replication, const char* name) {
    return RandomStream(seed, replication, name).next_u64();
  };
  EXPECT_EQ(first(1, 0, "workload.arrival"), 15763167624675649426U);
  EXPECT_EQ(first(1, 1, "workload.arrival"), 7734245324911028915U);
  EXPECT_EQ(first(2, 0, "workload.arrival"), 10625357305951162473U);
  EXPECT_EQ(first(1, 0, "workload.lengths"), 15547912053515085992U);
}

TEST(RandomStream, NeighbouringSeedsAndReplicationsDoNotCollide) {
  std::set<std::uint64_t> seen;
  for (std::int64_t seed = 0; seed < 100; ++seed) {
    for (std::int64_t replication = 0; replication < 100; ++replication) {
      seen.insert(RandomStream(seed, replication, "x").next_u64());
    }
  }
  EXPECT_EQ(seen.size(), 10000U);
}

TEST(RandomStream, UniformHas53BitsBelowOne) {
  RandomStream stream(7, 0, "uniform");
  double sum = 0.0;
  constexpr int kDraws = 1'000'000;
  for (int i = 0; i < kDraws; ++i) {
    const double u = stream.uniform();
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    ASSERT_EQ(u * 0x1p53, std::floor(u * 0x1p53));
    sum += u;
  }
  // The mean of n uniforms has standard deviation 1 / sqrt(12 n) = 0.00029; four of them are 0.00115.
  EXPECT_NEAR(sum / kDraws, 0.5, 0.00115);
}

TEST(RandomStream, ExponentialHasItsMeanAndVariance) {
  RandomStream stream(7, 0, "exponential");
  double sum = 0.0;
  double squares = 0.0;
  constexpr int kDraws = 1'000'000;
  for (int i = 0; i < kDraws; ++i) {
    const double x = stream.exponential(0.25);
    ASSERT_GE(x, 0.0);
    sum += x;
    squares += x * x;
  }
  // Mean m = 0.25, E x^2 = 2 m^2 = 0.125; four standard deviations of the averages are 4 m / sqrt(n) = 0.001 and, with
  // Var x^2 = 20 m^4, 4 m^2 sqrt(20 / n) = 0.00112.
  EXPECT_NEAR(sum / kDraws, 0.25, 0.001);
  EXPECT_NEAR(squares / kDraws, 0.125, 0.00112);
}

TEST(RandomStream, NormalHasItsMomentsAndTails) {
  RandomStream stream(7, 0, "normal");
  double sum = 0.0;
  double squares = 0.0;
  double fourths = 0.0;
  int within_one = 0;
  int beyond_three = 0;
  constexpr int kDraws = 1'000'000;
  for (int i = 0; i < kDraws; ++i) {
    const double x = stream.normal();
    sum += x;
    squares += x * x;
    fourths += x * x * x * x;
    if (std::abs(x) < 1.0) ++within_one;
    if (std::abs(x) > 3.0) ++beyond_three;
  }
  // Four standard deviations: 4 / sqrt(n) = 0.004; Var x^2 = 2 -> 0.0057; Var x^4 = 96 -> 0.0392. P(|x| < 1) =
  // 0.682689, binomial deviation 465 -> 1862; P(|x| > 3) = 0.0026998, deviation 51.9 -> 208.
  EXPECT_NEAR(sum / kDraws, 0.0, 0.004);
  EXPECT_NEAR(squares / kDraws, 1.0, 0.0057);
  EXPECT_NEAR(fourths / kDraws, 3.0, 0.0392);
  EXPECT_NEAR(within_one, 682689, 1862);
  EXPECT_NEAR(beyond_three, 2700, 208);
}

TEST(RandomStream, LognormalHasItsMedianAndMean) {
  RandomStream stream(7, 0, "lognormal");
  double sum = 0.0;
  int below_median = 0;
  constexpr int kDraws = 1'000'000;
  for (int i = 0; i < kDraws; ++i) {
    const double x = stream.lognormal(2.0, 0.5);
    sum += x;
    if (x < 7.38905609893065) ++below_median;  // e^2
  }
  // Mean e^(2 + 0.125) = 8.3729; standard deviation of one draw = mean sqrt(e^0.25 - 1) = 4.462; four of the average's:
  // 0.0178. The median splits a million draws with deviation 500.
  EXPECT_NEAR(sum / kDraws, 8.3729, 0.0178);
  EXPECT_NEAR(below_median, 500000, 2000);
}

// The same method in python with math.log and math.exp, stream (1, 0, "x").
TEST(RandomStream, GammaIsThatOfAnotherProgram) {
  RandomStream below(1, 0, "x");
  for (const double expected : {0.4940837737120315, 0.18344482197145434, 0.09796750529793839, 0.09654774956422245}) {
    EXPECT_NEAR(below.gamma(0.25), expected, 1e-14);
  }
  RandomStream above(1, 0, "x");
  for (const double expected : {4.1115494857930015, 2.6385074279675806, 2.632101077543942, 1.9409868242760155}) {
    EXPECT_NEAR(above.gamma(4.0), expected, 1e-14);
  }
}

TEST(RandomStream, GammaIsFiniteAtTheEdges) {
  for (const double shape : {1e-4, 0.999, 1.0, 1e4}) {
    RandomStream stream(1, 0, "x");
    double sum = 0.0;
    constexpr int kDraws = 100'000;
    for (int i = 0; i < kDraws; ++i) {
      const double x = stream.gamma(shape);
      ASSERT_TRUE(std::isfinite(x) && x >= 0.0) << shape;
      sum += x;
    }
    EXPECT_NEAR(sum / kDraws, shape, 4.0 * std::sqrt(shape / kDraws)) << "four deviations of the mean";
  }
}

TEST(PortableLog, IsWithinTwoUlpEverywhere) {
  RandomStream stream(1, 0, "log");
  std::int64_t worst = 0;
  const auto check = [&](double x) {
    if (x == 1.0) return;
    worst = std::max(worst, ulps(portable_log(x), std::log(x)));
  };
  // Every exponent, subnormals included, with random and with extreme mantissas.
  for (int exponent = -1074; exponent <= 1023; ++exponent) {
    check(std::ldexp(1.0, exponent));
    for (int i = 0; i < 200; ++i) check(std::ldexp(1.0 + stream.uniform(), exponent));
  }
  // Towards 1 from both sides, where cancellation would show.
  for (int exponent = -53; exponent <= -1; ++exponent) {
    for (int i = 0; i < 200; ++i) {
      const double distance = std::ldexp(0.5 + 0.5 * stream.uniform(), exponent);
      check(1.0 + distance);
      check(1.0 - distance);
    }
  }
  EXPECT_LE(worst, 2);
}

TEST(PortableLog, HandlesTheEdges) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(portable_log(1.0), 0.0);
  EXPECT_FALSE(std::signbit(portable_log(1.0)));
  EXPECT_EQ(portable_log(0.0), -kInfinity);
  EXPECT_EQ(portable_log(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(portable_log(-1.0)));
  EXPECT_TRUE(std::isnan(portable_log(std::numeric_limits<double>::quiet_NaN())));
}

TEST(PortableExp, IsWithinTwoUlpEverywhere) {
  RandomStream stream(1, 0, "exp");
  std::int64_t worst = 0;
  const auto check = [&](double x) { worst = std::max(worst, ulps(portable_exp(x), std::exp(x))); };
  for (int i = 0; i < 500'000; ++i) check(-745.0 + 1454.7 * stream.uniform());
  for (int i = 0; i < 500'000; ++i) check(-2.0 + 4.0 * stream.uniform());
  for (int exponent = -60; exponent <= 0; ++exponent) {
    check(std::ldexp(1.0, exponent));
    check(-std::ldexp(1.0, exponent));
  }
  EXPECT_LE(worst, 2);
}

TEST(PortableExp, HandlesTheEdges) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(portable_exp(0.0), 1.0);
  EXPECT_EQ(portable_exp(-kInfinity), 0.0);
  EXPECT_EQ(portable_exp(kInfinity), kInfinity);
  EXPECT_EQ(portable_exp(709.79), kInfinity);
  EXPECT_LT(portable_exp(709.78), kInfinity);
  EXPECT_EQ(portable_exp(-746.0), 0.0);
  EXPECT_EQ(portable_exp(-745.0), std::numeric_limits<double>::denorm_min());
  EXPECT_TRUE(std::isnan(portable_exp(std::numeric_limits<double>::quiet_NaN())));
}

// The same bits as one by one: for common numbers, which are computed several at once, and for others among them.
TEST(PortableExp, OfManyIsThatOfEach) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  RandomStream random(3, 0, "exp of many");
  for (const double limit : {1.0, 700.0, 745.0}) {
    std::vector<double> numbers{-limit, limit, 0.0, -0.0, 0.5 * limit};
    while (numbers.size() < 1001) numbers.push_back((2.0 * random.uniform() - 1.0) * limit);
    std::vector<double> all = numbers;
    portable_exp(all);
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint64_t>(all[i]), std::bit_cast<std::uint64_t>(portable_exp(numbers[i])))
          << numbers[i];
    }
  }
  std::vector<double> all{-kInfinity, 1.0, std::numeric_limits<double>::quiet_NaN(), kInfinity};
  portable_exp(all);
  EXPECT_EQ(all[0], 0.0);
  EXPECT_EQ(all[1], portable_exp(1.0));
  EXPECT_TRUE(std::isnan(all[2]));
  EXPECT_EQ(all[3], kInfinity);
}

}  // namespace
}  // namespace spillway
