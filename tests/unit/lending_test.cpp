// Lent memory: the coordinator between a lender and its borrower, and what both sides do in a run.
#include "sim/engine/lending.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "sim/core/error.hpp"

namespace spillway {
namespace {

SimTime at(double seconds) { return SimTime{} + round_seconds(seconds); }

LentMemory lent_from(SimTime begin, Bytes offered = Bytes(0)) {
  LentMemory lent(Loan{.offered = offered, .memory_bandwidth = BytesPerSecond(2e9)});
  lent.measure_from(begin);
  return lent;
}

TEST(LentMemory, NothingIsGrantedOfWhatIsReclaimed) {
  LentMemory lent = lent_from(SimTime{});
  EXPECT_EQ(lent.available(), Bytes(0));
  lent.offer(Bytes(100), at(1));
  EXPECT_EQ(lent.available(), Bytes(100));
  lent.hold(Bytes(60), at(2));
  lent.reclaim(at(3));
  EXPECT_TRUE(lent.reclaimed());
  EXPECT_EQ(lent.available(), Bytes(0));
  EXPECT_EQ(lent.offered(), Bytes(100));
}

TEST(LentMemory, ReturnsOnlyAsAWhole) {
  LentMemory lent = lent_from(SimTime{});
  lent.offer(Bytes(100), at(0));
  lent.hold(Bytes(60), at(1));
  lent.reclaim(at(2));
  EXPECT_FALSE(lent.take_back(at(3)));
  lent.hold(Bytes(1), at(4));
  EXPECT_FALSE(lent.take_back(at(5)));
  lent.hold(Bytes(0), at(6));
  EXPECT_TRUE(lent.take_back(at(7)));
  EXPECT_EQ(lent.offered(), Bytes(0));
  EXPECT_FALSE(lent.reclaimed());
  lent.offer(Bytes(80), at(8));
  EXPECT_EQ(lent.available(), Bytes(80));
}

TEST(LentMemory, BrokenPromisesAreTold) {
  LentMemory lent = lent_from(SimTime{});
  EXPECT_THROW(lent.reclaim(at(0)), InvariantError);
  lent.offer(Bytes(100), at(0));
  EXPECT_THROW(lent.offer(Bytes(100), at(0)), InvariantError);
  EXPECT_THROW(lent.hold(Bytes(101), at(0)), InvariantError);
  EXPECT_THROW(static_cast<void>(lent.take_back(at(0))), InvariantError);
  lent.hold(Bytes(50), at(0));
  lent.reclaim(at(1));
  EXPECT_THROW(lent.hold(Bytes(51), at(1)), InvariantError);
}

// The span begins at 10. Offered 100 from 0 on, held 40 from 5 to 12 and 70 until 13, reclaimed at 13, empty at 14,
// back at 16: in the span 6 s of 100 bytes; 2 s of 40, 1 s of 70, and 1 s of 20. Taken back 3 s after the reclaim.
TEST(LentMemory, FiguresAreThoseOfTheSpan) {
  LentMemory lent = lent_from(at(10));
  lent.offer(Bytes(100), at(0));
  lent.hold(Bytes(90), at(1));
  lent.hold(Bytes(40), at(5));
  lent.copied(Bytes(1'000), at(6));
  lent.hold(Bytes(70), at(12));
  lent.copied(Bytes(3'000), at(12));
  lent.reclaim(at(13));
  lent.hold(Bytes(20), at(13));
  lent.hold(Bytes(0), at(14));
  EXPECT_TRUE(lent.take_back(at(16)));
  const LendingFigures figures = lent.figures(at(20));
  EXPECT_DOUBLE_EQ(figures.offered_time, 600.0);
  EXPECT_DOUBLE_EQ(figures.held_time, 80.0 + 70.0 + 20.0);
  EXPECT_EQ(figures.peak_held, Bytes(70));
  EXPECT_EQ(figures.offers, 0);
  EXPECT_EQ(figures.reclaims, 1);
  EXPECT_EQ(figures.returns, 1);
  EXPECT_DOUBLE_EQ(figures.return_time, 3.0);
  EXPECT_DOUBLE_EQ(figures.longest_return, 3.0);
  EXPECT_EQ(figures.copied, Bytes(3'000));
}

// Asked for at 15, nothing has changed since 12: the state has lasted.
TEST(LentMemory, FiguresReachToTheEndOfTheSpan) {
  LentMemory lent = lent_from(SimTime{}, Bytes(100));
  lent.hold(Bytes(10), at(12));
  EXPECT_DOUBLE_EQ(lent.figures(at(15)).offered_time, 1'500.0);
  EXPECT_DOUBLE_EQ(lent.figures(at(15)).held_time, 30.0);
}

// 4,000 bytes at 2 GB/s keep the memory busy for 2 us, which the lender hears of once.
TEST(LentMemory, TheLendersMemoryIsBusyWithTheCopies) {
  LentMemory lent = lent_from(SimTime{}, Bytes(100));
  lent.copied(Bytes(1'000), at(1));
  lent.copied(Bytes(3'000), at(2));
  EXPECT_EQ(lent.take_busy(), Duration(2'000));
  EXPECT_EQ(lent.take_busy(), Duration(0));
}

TEST(LentMemory, MemoryOfUnknownBandwidthIsNeverBusy) {
  LentMemory lent(Loan{.offered = Bytes(100)});
  lent.copied(Bytes(1'000), at(1));
  EXPECT_EQ(lent.take_busy(), Duration(0));
}

// A plain account in another form: who holds how much of the memory that the lender has in all.
TEST(LentMemory, BytesBalanceInRandomStorms) {
  constexpr std::int64_t kAll = 1'000;
  std::mt19937_64 random(7);
  const auto below = [&random](std::int64_t limit) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit));
  };
  LentMemory lent = lent_from(SimTime{});
  std::int64_t with_lender = kAll;
  std::int64_t idle = 0;  // lent, not held
  std::int64_t held = 0;
  bool wanted = false;
  std::int64_t returns = 0;
  for (int step = 1; step <= 20'000; ++step) {
    const SimTime now = at(step * 0.25);
    const std::int64_t act = below(4);
    if (act == 0 && with_lender == kAll) {
      idle = 1 + below(kAll);
      with_lender -= idle;
      lent.offer(Bytes(idle), now);
    } else if (act == 1 && with_lender < kAll) {
      lent.reclaim(now);
      wanted = true;
    } else if (act == 2) {
      // More may be held only of what is granted.
      const std::int64_t next = below(1 + (wanted ? held : held + idle));
      idle += held - next;
      held = next;
      lent.hold(Bytes(held), now);
    } else if (wanted) {
      const bool free = held == 0;
      EXPECT_EQ(lent.take_back(now), free);
      if (free) {
        with_lender += idle;
        idle = 0;
        wanted = false;
        ++returns;
      }
    }
    ASSERT_EQ(with_lender + idle + held, kAll);
    ASSERT_EQ(lent.offered(), Bytes(idle + held)) << "step " << step;
    ASSERT_EQ(lent.held(), Bytes(held));
    ASSERT_EQ(lent.available(), Bytes(wanted ? 0 : idle + held));
  }
  EXPECT_GT(returns, 500);
  EXPECT_EQ(lent.figures(at(6'000)).returns, returns);
}

}  // namespace
}  // namespace spillway
