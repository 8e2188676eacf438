#include "policies/parts/expert_slots.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "sim/core/random.hpp"

namespace spillway {
namespace {

std::vector<ExpertUse> uses(const std::vector<std::int32_t>& experts) {
  std::vector<ExpertUse> uses;
  uses.reserve(experts.size());
  for (const std::int32_t expert : experts) uses.push_back({expert, 1});
  return uses;
}

// 3, 1 and 4 are there, in this order. 1 and 5 are used: 3 and 4 are older than 1. 5 takes the slot of 3, 0 that of 4,
// 2 that of 1.
TEST(ExpertSlots, TheLeastRecentlyUsedLeaves) {
  ExpertSlots slots(6, std::vector<std::int32_t>{3, 1, 4});
  EXPECT_EQ(slots.slots(), 3);
  slots.touch(uses({1, 5}));
  EXPECT_FALSE(slots.holds(5));
  EXPECT_EQ(slots.replace(5), 3);
  EXPECT_FALSE(slots.holds(3));
  EXPECT_TRUE(slots.holds(5));
  EXPECT_EQ(slots.replace(0), 4);
  EXPECT_EQ(slots.replace(2), 1);
}

// Against a list from which experts are taken out. Replacements without a use between them fill the order's memory.
TEST(ExpertSlots, AgreeWithAList) {
  RandomStream random(11, 0, "expert-slots");
  const auto below = [&](std::int32_t end) { return static_cast<std::int32_t>(random.uniform() * end); };
  int many = 0;
  int fills = 0;  // the slots change at once
  for (int c = 0; c < 300; ++c) {
    const std::int32_t experts = 1 + below(20);
    std::vector<std::int32_t> all(static_cast<std::size_t>(experts));
    for (std::int32_t e = 0; e < experts; ++e) all[static_cast<std::size_t>(e)] = e;
    const std::int32_t held = 1 + below(experts);
    std::deque<std::int32_t> list(all.begin(), all.begin() + held);
    ExpertSlots slots(experts, std::vector<std::int32_t>(list.begin(), list.end()));
    for (int step = 0; step < 50; ++step) {
      const std::int32_t what = below(4);
      if (what == 0) {
        std::vector<std::int32_t> missing;
        for (const std::int32_t e : all) {
          if (std::ranges::find(list, e) == list.end() && below(4) > 0) missing.push_back(e);
        }
        slots.replace_all(uses(missing));
        list.insert(list.end(), missing.begin(), missing.end());
        list.erase(list.begin(), list.end() - held);
        fills += std::ssize(missing) >= held ? 1 : 0;
      } else if (what == 1) {
        std::vector<std::int32_t> used;
        used.reserve(all.size());
        for (const std::int32_t e : all) {
          if (below(2) == 0) used.push_back(e);
        }
        slots.touch(uses(used));
        for (const std::int32_t e : used) {
          if (std::erase(list, e) > 0) list.push_back(e);
        }
      } else {
        for (int n = below(2) == 0 ? 1 : 3 * experts; n > 0; --n, ++many) {
          const std::int32_t e = below(experts);
          if (std::ranges::find(list, e) != list.end()) continue;
          ASSERT_EQ(slots.replace(e), list.front()) << "case " << c;
          list.pop_front();
          list.push_back(e);
        }
      }
      for (const std::int32_t e : all) {
        ASSERT_EQ(slots.holds(e), std::ranges::find(list, e) != list.end()) << "case " << c;
      }
    }
  }
  EXPECT_GT(many, 10'000);
  EXPECT_GT(fills, 300);
}

}  // namespace
}  // namespace spillway
