// The hash table by number against an ordered map.
#include "sim/core/number_map.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>

namespace spillway {
namespace {

TEST(NumberMap, IsEmptyAtFirst) {
  NumberMap<int> map;
  EXPECT_TRUE(map.empty());
  EXPECT_EQ(map.find(0), nullptr);
  EXPECT_FALSE(map.erase(0));
}

TEST(NumberMap, WithNumbersBelow0_FindsNothingAndTakesNone) {
  NumberMap<int> map;
  map[0] = 1;
  EXPECT_EQ(map.find(-1), nullptr);
  EXPECT_FALSE(map.erase(-1));
  EXPECT_THROW(map[-1] = 1, InvariantError);
}

// Few numbers, so they come and go all the time; multiples of 2^40, so their lower bits say nothing.
TEST(NumberMap, WithRandomChanges_HoldsWhatAnOrderedMapHolds) {
  std::mt19937_64 random(1);
  for (const std::int64_t times : {std::int64_t{1}, std::int64_t{1} << 40}) {
    for (const std::uint64_t numbers : {8U, 100U, 2000U}) {
      NumberMap<std::int64_t> map;
      std::map<std::int64_t, std::int64_t> plain;
      for (std::int64_t step = 0; step < 20'000; ++step) {
        const std::int64_t number = static_cast<std::int64_t>(random() % numbers) * times;
        if (random() % 2 == 0) {
          map[number] = step;
          plain[number] = step;
        } else {
          ASSERT_EQ(map.erase(number), plain.erase(number) == 1);
        }
        ASSERT_EQ(map.size(), plain.size());
        const std::int64_t other = static_cast<std::int64_t>(random() % numbers) * times;
        const auto found = plain.find(other);
        const std::int64_t* const value = map.find(other);
        ASSERT_EQ(value == nullptr, found == plain.end());
        if (value == nullptr) continue;
        ASSERT_EQ(*value, found->second);
      }
      for (const auto& [number, value] : plain) ASSERT_EQ(*map.find(number), value);
    }
  }
}

}  // namespace
}  // namespace spillway
