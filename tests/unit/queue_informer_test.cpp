// AQUA's informer by hand, without an engine: section 3.3 of its rules.
#include "policies/parts/queue_informer.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace spillway {
namespace {

/// The published thresholds, with 4 of 10 blocks retained.
QueueInformer of_ten() { return QueueInformer({.retained = Blocks(4)}); }

LenderView view(std::int64_t waiting, std::int64_t used, std::int64_t lent = 0) {
  return {.waiting = waiting, .all = Blocks(10), .used = Blocks(used), .lent = Blocks(lent)};
}

void expect_nothing(const LendingDecision& decision) {
  EXPECT_EQ(decision.offer, Blocks(0));
  EXPECT_FALSE(decision.reclaim);
}

// At most 2 wait and less than 4 blocks are used: it offers 10 - 4, however few are used.
TEST(QueueInformer, OffersTheRest_WhileFewWaitAndLittleIsUsed) {
  QueueInformer informer = of_ten();
  for (const LenderView& one : {view(0, 0), view(2, 3)}) {
    EXPECT_EQ(informer.iteration_ended(one).offer, Blocks(6));
    EXPECT_FALSE(informer.iteration_ended(one).reclaim);
  }
  expect_nothing(informer.iteration_ended(view(3, 0)));
  expect_nothing(informer.iteration_ended(view(0, 4)));
}

// 6 are lent: 9 that wait are no reason, 10 are, and what is used is none.
TEST(QueueInformer, ReclaimsOnceManyWait) {
  QueueInformer informer = of_ten();
  expect_nothing(informer.iteration_ended(view(9, 4, 6)));
  const LendingDecision decision = informer.iteration_ended(view(10, 0, 6));
  EXPECT_TRUE(decision.reclaim);
  EXPECT_EQ(decision.offer, Blocks(0));
}

// Between the two thresholds it neither offers nor reclaims: 5 wait.
TEST(QueueInformer, BetweenTheThresholdsNothingChanges) {
  QueueInformer informer = of_ten();
  expect_nothing(informer.iteration_ended(view(5, 0)));
  expect_nothing(informer.iteration_ended(view(5, 0, 6)));
}

TEST(QueueInformer, OffersNothingOfLessThanItRetains) {
  for (const std::int64_t retained : {10, 11}) {
    QueueInformer informer({.retained = Blocks(retained)});
    expect_nothing(informer.iteration_ended(view(0, 0)));
  }
}

// A request needs more than 4 blocks, so 6 come back. Nothing is offered until a request has ended, even though none
// waits and none is used.
TEST(QueueInformer, ReclaimsForALargeRequest_AndWaitsForItsEnd) {
  QueueInformer informer = of_ten();
  EXPECT_TRUE(informer.memory_lacking(view(1, 0, 6)).reclaim);
  expect_nothing(informer.iteration_ended(view(0, 0)));
  informer.request_ended();
  EXPECT_EQ(informer.iteration_ended(view(0, 0)).offer, Blocks(6));
}

// With nothing lent there is nothing to reclaim, and so nothing to wait for.
TEST(QueueInformer, AloneWithItsMemoryItCannotHelpALargeRequest) {
  QueueInformer informer = of_ten();
  expect_nothing(informer.memory_lacking(view(1, 0)));
  EXPECT_EQ(informer.iteration_ended(view(0, 0)).offer, Blocks(6));
}

// An instance that comes up anew knows nothing of the requests before.
TEST(QueueInformer, EachInstanceHasItsOwn) {
  const MakeInformer make = queue_informer({.retained = Blocks(4)});
  const auto before = make();
  static_cast<void>(before->memory_lacking(view(1, 0, 6)));
  expect_nothing(before->iteration_ended(view(0, 0)));
  EXPECT_EQ(make()->iteration_ended(view(0, 0)).offer, Blocks(6));
}

}  // namespace
}  // namespace spillway
