// The heap of free blocks by value, beside a plain list.
#include "sim/kv/block_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/oracle/random_case.hpp"
#include "tests/support/cases.hpp"

namespace spillway {
namespace {

// Up to 40 blocks with few different values. Any block may be taken out, not only the first.
TEST(BlockOrder, RandomSteps_MatchAPlainList) {
  struct Free {
    std::int32_t block = -1;
    double value = 0.0;
  };
  for (std::uint64_t seed = 1; seed <= random_cases(200); ++seed) {
    SCOPED_TRACE(seed);
    oracle::Dice dice(seed);
    BlockOrder order(40);
    std::vector<Free> plain;  // in the order in which they were added
    for (int step = 0; step < 300; ++step) {
      const auto block = static_cast<std::int32_t>(dice.between(0, 39));
      const auto there = std::ranges::find(plain, block, &Free::block);
      ASSERT_EQ(order.contains(block), there != plain.end());
      if (there != plain.end()) {
        order.remove(block);
        plain.erase(there);
      } else {
        plain.push_back({block, static_cast<double>(dice.between(0, 9))});
        order.add(block, plain.back().value);
      }
      ASSERT_EQ(order.empty(), plain.empty());
      if (!plain.empty()) {
        ASSERT_EQ(order.first(), std::ranges::min_element(plain, {}, &Free::value)->block);
      }
    }
    for (; !plain.empty(); plain.erase(std::ranges::min_element(plain, {}, &Free::value))) {
      ASSERT_EQ(order.first(), std::ranges::min_element(plain, {}, &Free::value)->block);
      order.remove(order.first());
    }
    EXPECT_TRUE(order.empty());
  }
}

}  // namespace
}  // namespace spillway
