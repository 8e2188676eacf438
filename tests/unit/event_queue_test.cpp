#include "sim/core/event_queue.hpp"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "tests/oracle/random_case.hpp"

namespace spillway {
namespace {

TEST(EventQueue, WhenTimesAreEqual_ThenPhaseThenOrderOfPushing) {
  EventQueue queue;
  queue.push(SimTime(5), EventPhase::decision, 1);
  queue.push(SimTime(5), EventPhase::arrival, 2);
  queue.push(SimTime(4), EventPhase::observation, 3);
  queue.push(SimTime(5), EventPhase::arrival, 4);
  queue.push(SimTime(5), EventPhase::compute_done, 5);
  std::vector<std::uint32_t> kinds;
  while (!queue.empty()) kinds.push_back(queue.pop().kind);
  EXPECT_EQ(kinds, (std::vector<std::uint32_t>{3, 5, 2, 4, 1}));
}

// Compared with an ordered set, which is slow but obviously correct.
TEST(EventQueue, WhenPushedAndPoppedAtRandom_ThenOrderedAsASet) {
  oracle::Dice dice(1);
  EventQueue queue;
  std::set<std::tuple<std::int64_t, int, std::uint32_t>> expected;
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    if (expected.empty() || dice.chance(55)) {
      const std::int64_t time = dice.between(0, 50);
      const auto phase = static_cast<int>(dice.between(0, 6));
      queue.push(SimTime(time), static_cast<EventPhase>(phase), i);
      expected.emplace(time, phase, i);
    } else {
      const Event event = queue.pop();
      EXPECT_EQ(event.kind, std::get<2>(*expected.begin()));
      expected.erase(expected.begin());
    }
  }
}

TEST(EventQueue, PushedByTarget_ComesInOrderOfTargets) {
  EventQueue queue;
  for (const std::uint32_t target : {4U, 1U, 3U}) queue.push_by_target(SimTime(5), EventPhase::compute_done, 0, target);
  queue.push_by_target(SimTime(4), EventPhase::compute_done, 0, 9);
  queue.push(SimTime(5), EventPhase::transfer_done, 0, 7);
  std::vector<std::uint32_t> targets;
  while (!queue.empty()) targets.push_back(queue.pop().target);
  EXPECT_EQ(targets, (std::vector<std::uint32_t>{9, 7, 1, 3, 4}));
}

TEST(EventQueue, KnowsTheSecondEvent) {
  EventQueue queue;
  EXPECT_EQ(queue.second(), nullptr);
  for (const std::int64_t at : {5, 3, 8, 1, 9, 2, 7}) queue.push(SimTime(at), EventPhase::arrival, 0);
  for (const std::int64_t next : {2, 3, 5, 7, 8, 9}) {
    ASSERT_NE(queue.second(), nullptr);
    EXPECT_EQ(queue.second()->time, SimTime(next));
    queue.pop();
  }
  EXPECT_EQ(queue.second(), nullptr);
}

}  // namespace
}  // namespace spillway
