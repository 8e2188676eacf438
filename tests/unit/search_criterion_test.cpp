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
  EXPECT_EQ(criterion.fault(outcome(100, 40, 6)), "46 of 100 requests were rejected or timed out");
  EXPECT_EQ(criterion.fault(outcome(100, 46, 0)), "46 of 100 requests were rejected or timed out");
  EXPECT_EQ(criterion.fault(outcome(0, 0, 0)), "");
}

// 44 of 55 is a miss by a fifth.
TEST(Criterion, Miss_IsTheMissingShare) {
  const Criterion criterion{.conditions = {}, .attainment = 0.55};
  EXPECT_EQ(criterion.miss(outcome(100, 40, 5)), 0.0);
  EXPECT_NEAR(criterion.miss(outcome(100, 50, 6)).value(), 0.2, 1e-12);
}

}  // namespace
}  // namespace spillway
