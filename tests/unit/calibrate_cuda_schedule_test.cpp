#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "cuda_calibrate/cuda/schedule.hpp"

namespace spillway::calibrate::gpu {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::Ge;
using testing::Lt;

TEST(CudaSchedule, Rotation_AllBuffersAreLargerThanFourTimesTheL2) {
  // 4 x 50 = 200: 3 x 64 = 192 does not exceed it, 4 x 64 does.
  EXPECT_EQ(rotation(64, 50), 4);
  // Exactly four times is not more than four times.
  EXPECT_EQ(rotation(100, 50), 3);
  EXPECT_EQ(rotation(200, 50), 2);
  EXPECT_EQ(rotation(201, 50), 1);
}

TEST(CudaSchedule, SequentialSlots_RunsFollowEachOtherAndStartAgain) {
  EXPECT_THAT(block_slots(Order::sequential, 3, 8, 0, 7), ElementsAre(0, 1, 2));
  EXPECT_THAT(block_slots(Order::sequential, 3, 8, 1, 7), ElementsAre(3, 4, 5));
  // Slots 6, 7, 8 would exceed eight slots.
  EXPECT_THAT(block_slots(Order::sequential, 3, 8, 2, 7), ElementsAre(0, 1, 2));
}

TEST(CudaSchedule, RandomSlots_AreDifferentAndInThePool) {
  for (const std::int64_t slots : {100, 101, 5000}) {
    const auto drawn = block_slots(Order::random, 100, slots, 0, 7);
    EXPECT_EQ(std::set<std::int64_t>(drawn.begin(), drawn.end()).size(), 100U);
    EXPECT_THAT(drawn, Each(Ge(0)));
    EXPECT_THAT(drawn, Each(Lt(slots)));
  }
}

TEST(CudaSchedule, RandomSlots_FollowFromSeedAndSet) {
  const auto drawn = block_slots(Order::random, 100, 5000, 0, 7);
  EXPECT_EQ(drawn, block_slots(Order::random, 100, 5000, 0, 7));
  EXPECT_NE(drawn, block_slots(Order::random, 100, 5000, 1, 7));
  EXPECT_NE(drawn, block_slots(Order::random, 100, 5000, 0, 8));
  EXPECT_FALSE(std::is_sorted(drawn.begin(), drawn.end()));
}

TEST(CudaSchedule, Marks_AreEvenlySpreadAndEndWithTheLastOperation) {
  EXPECT_THAT(marks(3, 24), ElementsAre(1, 2, 3));
  // Quarters of 10, rounded up: 2.5, 5, 7.5, 10.
  EXPECT_THAT(marks(10, 4), ElementsAre(3, 5, 8, 10));
  EXPECT_THAT(marks(1, 1), ElementsAre(1));
}

TEST(CudaSchedule, Overlapped_LeavesOutWhatEndedAfterTheFirstLane) {
  // Lane 0 runs dry after 4.0 s. Lane 1 had ended 4 operations 3.5 s after the start; its fifth ended later.
  const std::vector<LaneTimes> lanes{{{1, 2}, {2.0, 4.0}}, {{2, 4, 6}, {1.5, 3.5, 5.0}}};
  const auto shares = overlapped(lanes);
  ASSERT_EQ(shares.size(), 2U);
  EXPECT_EQ(shares[0].operations, 2);
  EXPECT_DOUBLE_EQ(shares[0].seconds, 4.0);
  EXPECT_EQ(shares[1].operations, 4);
  EXPECT_DOUBLE_EQ(shares[1].seconds, 3.5);
}

TEST(CudaSchedule, Overlapped_ALaneWithoutAnEndInTheSpanHasNothing) {
  const std::vector<LaneTimes> lanes{{{5}, {1.0}}, {{1, 2}, {1.5, 3.0}}};
  EXPECT_EQ(overlapped(lanes)[0].operations, 5);
  EXPECT_EQ(overlapped(lanes)[1].operations, 0);
}

TEST(CudaSchedule, Balanced_AllLanesAreBusyForAsLong) {
  // Four calls plus one of 8 s take 40 s: 5 of the slow ones, 20 of 2 s, 14 of 3 s (13.3, rounded up).
  EXPECT_THAT(balanced(4, std::vector<double>{8.0, 2.0, 3.0}), ElementsAre(5, 20, 14));
  EXPECT_THAT(balanced(1, std::vector<double>{1.0}), ElementsAre(2));
}

TEST(CudaSchedule, Balanced_HasALimit) {
  EXPECT_THAT(balanced(1, std::vector<double>{1.0, 1e-9}), ElementsAre(2, kMostOperations));
}

TEST(CudaSchedule, MostBalancedCalls_StayWithinTheLimit) {
  // 20000 operations of 1 s take as long as 20 of 1000 s; one of the 20 is the extra call.
  EXPECT_EQ(most_balanced_calls(std::vector<double>{1.0, 1000.0}), 19);
  EXPECT_THAT(balanced(19, std::vector<double>{1.0, 1000.0}), ElementsAre(kMostOperations, 20));
  EXPECT_EQ(most_balanced_calls(std::vector<double>{1.0, 1.0}), kMostBehindGate);
  EXPECT_EQ(most_balanced_calls(std::vector<double>{1.0, 1e6}), 1);
}

}  // namespace
}  // namespace spillway::calibrate::gpu
