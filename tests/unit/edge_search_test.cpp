// The search against functions with a known edge.
#include "sim/study/edge_search.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

namespace spillway {
namespace {

struct Found {
  std::optional<double> holds;
  std::optional<double> fails;
  std::vector<double> tried;
};

Found search(const EdgeSearch::Settings& settings, const std::function<bool(double)>& condition) {
  EdgeSearch search(settings);
  Found found;
  while (search.next()) {
    found.tried.push_back(*search.next());
    search.tell(condition(*search.next()));
    EXPECT_LT(found.tried.size(), 200U);
  }
  found.holds = search.holds_at();
  found.fails = search.fails_at();
  return found;
}

TEST(EdgeSearch, DoublesThenHalves) {
  // By hand: 4 and 8 hold, 16 and 12 do not; 10 holds, 11 does not; 10.5 holds, and 11 - 10.5 is below 5% of 11.
  const auto found = search({.start = 4.0, .tolerance = 0.05}, [](double x) { return x <= 10.7; });
  EXPECT_EQ(found.tried, (std::vector<double>{4, 8, 16, 12, 10, 11, 10.5}));
  EXPECT_EQ(found.holds, 10.5);
  EXPECT_EQ(found.fails, 11.0);
}

TEST(EdgeSearch, GoesDownWhenTheStartDoesNotHold) {
  const auto found = search({.start = 4.0, .tolerance = 0.3}, [](double x) { return x <= 0.7; });
  // 0.5 holds after 1 did not; 0.75 does not, and 0.25 of 0.75 is more than 30%; 0.625 holds, 0.125 of 0.75 is less.
  EXPECT_EQ(found.tried, (std::vector<double>{4, 2, 1, 0.5, 0.75, 0.625}));
}

TEST(EdgeSearch, EndsWithinTheToleranceOfTheEdge) {
  for (const double edge : {0.001234, 0.5, 3.7, 99.0, 123456.0}) {
    for (const auto goal : {EdgeSearch::Goal::largest, EdgeSearch::Goal::smallest}) {
      const auto holds = [&](double x) { return (x <= edge) == (goal == EdgeSearch::Goal::largest); };
      const auto found = search({.goal = goal, .start = 4.0, .tolerance = 0.01}, holds);
      ASSERT_TRUE(found.holds && found.fails) << edge;
      EXPECT_TRUE(holds(*found.holds) && !holds(*found.fails));
      EXPECT_LE(std::abs(*found.holds - *found.fails), 0.01 * std::max(*found.holds, *found.fails)) << edge;
    }
  }
}

TEST(EdgeSearch, WholeNumbersEndOneApart) {
  const auto found = search({.start = 4.0, .tolerance = 1e-4, .whole = true}, [](double x) { return x <= 13.0; });
  EXPECT_EQ(found.holds, 13.0);
  EXPECT_EQ(found.fails, 14.0);
}

TEST(EdgeSearch, StaysWithinItsLimits) {
  const auto all = search({.start = 4.0, .low = 1.0, .high = 20.0}, [](double) { return true; });
  EXPECT_EQ(all.tried, (std::vector<double>{4, 8, 16, 20}));
  EXPECT_EQ(all.holds, 20.0);
  EXPECT_FALSE(all.fails);
  const auto none = search({.start = 4.0, .low = 1.0, .high = 20.0}, [](double) { return false; });
  EXPECT_EQ(none.tried, (std::vector<double>{4, 2, 1}));
  EXPECT_FALSE(none.holds);
}

// 4 holds and 8 does not. Their distance is 50% of the larger value and 100% of the smaller one.
TEST(EdgeSearch, TheToleranceIsAShareOfTheLargerValue) {
  const auto found = search({.start = 4.0, .tolerance = 0.5}, [](double x) { return x <= 5.0; });
  EXPECT_EQ(found.tried, (std::vector<double>{4, 8}));
}

// 4.24 is rounded to 4, which is below the least value 4.2; 9.7 is tried as it is.
TEST(EdgeSearch, TheFirstValueIsWithinTheLimitsToo) {
  const auto low = search({.start = 4.24, .low = 4.2, .high = 9.7, .whole = true}, [](double) { return true; });
  EXPECT_EQ(low.tried, (std::vector<double>{4.2, 8, 9.7}));
}

/// The values tried by a search for the smallest whole number from `least` on; above 100 none can be tried.
std::vector<double> tried_below_a_wall(EdgeSearch& search, double least) {
  std::vector<double> tried;
  while (search.next()) {
    tried.push_back(*search.next());
    if (tried.back() > 100.0) {
      search.tell_impossible();
    } else {
      search.tell(tried.back() >= least);
    }
  }
  return tried;
}

// 32 and 64 fail, 128 cannot be: 96, half of the way, holds. From there as ever, between 64 and 96.
TEST(EdgeSearch, ApproachesAValueThatCannotBeTried) {
  EdgeSearch search({.goal = EdgeSearch::Goal::smallest, .start = 32.0, .whole = true});
  EXPECT_EQ(tried_below_a_wall(search, 80.0), (std::vector<double>{32, 64, 128, 96, 80, 72, 76, 78, 79}));
  EXPECT_EQ(search.holds_at(), 80.0);
  EXPECT_EQ(search.fails_at(), 79.0);
  EdgeSearch last({.goal = EdgeSearch::Goal::smallest, .start = 32.0, .tolerance = 1e-3, .whole = true});
  EXPECT_EQ(tried_below_a_wall(last, 100.0), (std::vector<double>{32, 64, 128, 96, 112, 104, 100, 98, 99}));
  EXPECT_EQ(last.holds_at(), 100.0);
  EdgeSearch none({.goal = EdgeSearch::Goal::smallest, .start = 32.0, .tolerance = 1e-3, .whole = true});
  EXPECT_EQ(tried_below_a_wall(none, 101.0), (std::vector<double>{32, 64, 128, 96, 112, 104, 100, 102, 101}));
  EXPECT_FALSE(none.holds_at());
}

// Where it holds at other values, or nothing has been tried, a value that cannot be tried is one that fails.
TEST(EdgeSearch, AnImpossibleValueFails) {
  EdgeSearch largest({.start = 64.0, .whole = true});
  EXPECT_EQ(tried_below_a_wall(largest, 0.0), (std::vector<double>{64, 128, 96, 112, 104, 100, 102, 101}));
  EXPECT_EQ(largest.holds_at(), 100.0);
  EdgeSearch first({.start = 200.0, .whole = true});
  EXPECT_EQ(tried_below_a_wall(first, 0.0).front(), 200.0);
  EXPECT_EQ(first.holds_at(), 100.0);
}

TEST(EdgeSearch, ZeroIsAValueOfSomeKeys) {
  const EdgeSearch::Settings settings{
      .goal = EdgeSearch::Goal::smallest, .start = 4.0, .low = 0.0, .whole = true, .zero = true};
  const auto all = search(settings, [](double) { return true; });
  EXPECT_EQ(all.tried, (std::vector<double>{4, 2, 1, 0}));
  EXPECT_EQ(all.holds, 0.0);
  const auto most = search(settings, [](double x) { return x >= 1.0; });
  EXPECT_EQ(most.holds, 1.0);
  EXPECT_EQ(most.fails, 0.0);
  const auto none = search({.start = 4.0, .whole = true, .zero = true}, [](double) { return false; });
  EXPECT_EQ(none.tried, (std::vector<double>{4, 2, 1, 0}));
  const auto without = search({.start = 4.0, .whole = true}, [](double) { return false; });
  EXPECT_EQ(without.tried, (std::vector<double>{4, 2, 1}));
  // Up to a limit of 1: 0 is beyond 1 on the other side only.
  const auto limited = search({.start = 1.0, .high = 1.0, .whole = true, .zero = true}, [](double) { return true; });
  EXPECT_EQ(limited.tried, (std::vector<double>{1}));
}

TEST(EdgeSearch, ConditionsWithoutAnEdgeEnd) {
  const auto all = search({.start = 4.0}, [](double) { return true; });
  EXPECT_FALSE(all.fails);
  const auto none = search({.start = 4.0}, [](double) { return false; });
  EXPECT_FALSE(none.holds);
}

TEST(EdgeSearch, ValuesHaveSixDigits) {
  const auto found = search({.start = 3.0, .tolerance = 1e-4}, [](double x) { return x <= 3.14159265; });
  for (const double x : found.tried) {
    EXPECT_NEAR(x * 1e5, std::round(x * 1e5), 1e-6) << x;  // values of one digit before the point
  }
}

}  // namespace
}  // namespace spillway
