#include "policies/parts/expert_slots.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
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

// 3, 1 and 4 are there, in this order. 1 is used: 3 and 4 are older. 5 takes the slot of 3, 0 that of 4,
// 2 that of 1.
TEST(ExpertSlots, TheLeastRecentlyUsedLeaves) {
  ExpertSlots slots(6, std::vector<std::int32_t>{3, 1, 4});
  EXPECT_EQ(slots.slots(), 3);
  slots.touch(uses({1}));
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
        const bool whole = below(4) == 0;
        for (const std::int32_t e : all) {
          if (std::ranges::find(list, e) != list.end() && (whole || below(2) == 0)) used.push_back(e);
        }
        slots.touch(uses(used));
        for (const std::int32_t e : used) {
          std::erase(list, e);
          list.push_back(e);
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
        const bool held_now = std::ranges::find(list, e) != list.end();
        ASSERT_EQ(slots.holds(e), held_now) << "case " << c;
        ASSERT_EQ((slots.held()[0] >> e & 1U) == 1U, held_now) << "case " << c;
      }
    }
  }
  EXPECT_GT(many, 10'000);
  EXPECT_GT(fills, 300);
}

// Against a stable sort. Of a few tokens each, many uses are equal.
TEST(MostUsed, AgreeWithAStableSort) {
  RandomStream random(13, 0, "most-used");
  const auto below = [&](std::int32_t end) { return static_cast<std::int32_t>(random.uniform() * end); };
  MostUsed most;
  for (int c = 0; c < 2000; ++c) {
    std::vector<ExpertUse> uses;
    for (std::int32_t e = 0, experts = below(30); e < experts; ++e) uses.push_back({e, 1 + below(c % 2 == 0 ? 5 : 50)});
    const auto count = static_cast<std::size_t>(below(6));
    most.begin(count);
    std::vector<ExpertUse> shown = uses;  // in any order
    for (std::size_t i = shown.size(); i > 1; --i) {
      std::swap(shown[i - 1], shown[static_cast<std::size_t>(below(static_cast<std::int32_t>(i)))]);
    }
    for (const ExpertUse& use : shown) most.add(use);
    std::ranges::stable_sort(uses, std::greater{}, &ExpertUse::tokens);
    uses.resize(std::min(uses.size(), count));
    ASSERT_TRUE(std::ranges::equal(most.uses(), uses)) << "case " << c;
  }
}

// Against a look at each expert. Of 63 to 130 experts, runs are of 1 to 150, so that some end with a word of 64 bits,
// and some go on over two of them.
TEST(SplitUses, OfAllExperts_AreWholeRuns) {
  RandomStream random(12, 0, "split-uses");
  const auto below = [&](std::int32_t end) { return static_cast<std::int32_t>(random.uniform() * end); };
  SplitUses split;
  int words = 0;  // that are full
  for (int c = 0; c < 3000; ++c) {
    const std::int32_t experts = std::vector<std::int32_t>{1, 63, 64, 65, 128, 130}[static_cast<std::size_t>(below(6))];
    const std::int32_t longest = std::vector<std::int32_t>{1, 5, 150}[static_cast<std::size_t>(below(3))];
    std::vector<std::uint64_t> held(static_cast<std::size_t>(experts) / 64 + 1);
    std::vector<ExpertUse> used;
    std::vector<ExpertUse> resident;
    std::vector<ExpertUse> missing;
    bool is_held = below(2) == 0;
    for (std::int32_t left = 1 + below(longest), e = 0; e < experts; ++e) {
      used.push_back({e, 1 + below(9)});
      (is_held ? resident : missing).push_back(used.back());
      if (is_held) held[static_cast<std::size_t>(e) / 64] |= std::uint64_t{1} << (e % 64);
      if (--left > 0) continue;
      left = 1 + below(longest);
      is_held = !is_held;
    }
    split.split_all(used, held);
    ASSERT_TRUE(std::ranges::equal(split.resident, resident)) << "case " << c;
    ASSERT_TRUE(std::ranges::equal(split.missing, missing)) << "case " << c;
    if (!missing.empty()) {
      std::vector<ExpertUse> others = missing;
      const std::ptrdiff_t at = below(static_cast<std::int32_t>(missing.size()));
      others.erase(others.begin() + at);
      split.take_as_resident(missing[static_cast<std::size_t>(at)]);
      ASSERT_TRUE(std::ranges::equal(split.missing, others)) << "case " << c;
    }
    std::int64_t bits = 0;
    for (const std::uint64_t word : held) bits += count_bits(word);
    ASSERT_EQ(bits, std::ssize(resident)) << "case " << c;
    // By their tokens, the first one of equal ones first.
    std::vector<ExpertUse> falling = used;
    std::ranges::stable_sort(falling, std::greater{}, &ExpertUse::tokens);
    std::vector<std::int32_t> by_tokens;
    std::vector<std::int32_t> tokens;
    std::vector<std::uint16_t> place_of(used.size());
    for (const ExpertUse& use : falling) {
      place_of[static_cast<std::size_t>(use.expert)] = static_cast<std::uint16_t>(tokens.size());
      by_tokens.push_back(use.expert);
      tokens.push_back(use.tokens);
    }
    split.list_held({by_tokens, tokens, place_of}, held);
    ASSERT_TRUE(std::ranges::equal(split.resident, resident)) << "case " << c;
    ASSERT_TRUE(split.missing.empty()) << "case " << c;
    std::vector<ExpertUse> missed;
    split.list_resident_of_all(used, held, [&missed](const ExpertUse& use) { missed.push_back(use); });
    ASSERT_TRUE(std::ranges::equal(split.resident, resident)) << "case " << c;
    ASSERT_TRUE(std::ranges::equal(missed, missing)) << "case " << c;
    if (!missing.empty()) {
      resident.push_back(missing[static_cast<std::size_t>(below(static_cast<std::int32_t>(missing.size())))]);
      split.take_as_resident(resident.back());
      std::ranges::sort(resident, {}, &ExpertUse::expert);
      ASSERT_TRUE(std::ranges::equal(split.resident, resident)) << "case " << c;
    }
    words += std::ranges::find(held, ~std::uint64_t{0}) != held.end() ? 1 : 0;
  }
  EXPECT_GT(words, 100);
}

}  // namespace
}  // namespace spillway
