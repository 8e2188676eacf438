// Which outcomes meet the criterion of a search, from counts made by hand.
#include <gtest/gtest.h>

#include "sim/study/search.hpp"

namespace spillway {
namespace {

PointOutcome outcome(std::int64_t submitted, std::int64_t rejected, std::int64_t timed_out) {
  PointOutcome one;
  one.measured = {.submitted = submitted,
                  .finished = submitted - rejected - timed_out,
                  .rejected = rejected,
                  .timed_out = timed_out,
                  .unfinished = 0};
  return one;
}

// 55 of 100 answered requests are 55%, though (1 - 0.55) * 100 is less than 45 in floating point.
TEST(Criterion, LostRequests_AreThoseRejectedAndTimedOut) {
  const Criterion criterion{.conditions = {}, .attainment = 0.55};
  EXPECT_EQ(criterion.fault(outcome(100, 40, 5)), "");
  EXPECT_EQ(criterion.fault(outcome(100, 0, 45)), "");
  EXPECT_EQ(criterion.fault(outcome(100, 40, 6)), "46 of 100 requests were rejected, timed out or lost");
  EXPECT_EQ(criterion.fault(outcome(100, 46, 0)), "46 of 100 requests were rejected, timed out or lost");
  EXPECT_EQ(criterion.fault(outcome(0, 0, 0)), "");
}

// 44 of 55 is a miss by a fifth.
TEST(Criterion, Miss_IsTheMissingShare) {
  const Criterion criterion{.conditions = {}, .attainment = 0.55};
  EXPECT_EQ(criterion.miss(outcome(100, 40, 5)), 0.0);
  EXPECT_NEAR(criterion.miss(outcome(100, 50, 6)).value(), 0.2, 1e-12);
}

PointOutcome judged(const std::string& steadiness, double ttft, double half_width) {
  PointOutcome one = outcome(100, 0, 0);
  one.steadiness = steadiness;
  one.steadiness_reason = "why";
  one.metrics.push_back({.name = "p99_ttft_ms", .unit = "ms", .value = ttft, .n = 3, .half_width = half_width});
  return one;
}

// A run is lengthened when it cannot say yet whether it is steady, or when its interval includes the limit; not when it
// is saturated, or was not judged.
TEST(Criterion, AValueHoldsOnlyWhenTheRunIsSteady) {
  std::vector<Problem> problems;
  const Criterion criterion{.conditions = parse_conditions("p99_ttft_ms<500", "test", false, problems)};
  ASSERT_TRUE(problems.empty());
  EXPECT_EQ(criterion.fault(judged("steady", 400, 10)), "");
  EXPECT_EQ(criterion.fault(judged("", 400, 10)), "");
  EXPECT_EQ(criterion.fault(judged("saturated", 400, 10)), "saturated: why");
  EXPECT_EQ(criterion.fault(judged("unsteady", 400, 10)), "unsteady: why");
  EXPECT_TRUE(criterion.undecided(judged("unsteady", 400, 10)));
  EXPECT_TRUE(criterion.undecided(judged("steady", 495, 10)));
  EXPECT_FALSE(criterion.undecided(judged("steady", 400, 10)));
  EXPECT_FALSE(criterion.undecided(judged("saturated", 495, 10)));
  EXPECT_FALSE(criterion.undecided(judged("", 495, 10)));
}

}  // namespace
}  // namespace spillway
