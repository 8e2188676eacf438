#include "sim/core/huge_pages.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory_resource>
#include <vector>

namespace spillway {
namespace {

TEST(HugePages, GivesMemoryOfEverySize) {
  HugePages pages;
  for (const std::size_t bytes : {std::size_t{1}, HugePages::kPage - 1, HugePages::kPage, 3 * HugePages::kPage + 5}) {
    void* const block = pages.allocate(bytes, 64);
    const std::size_t alignment = bytes < HugePages::kPage ? 64 : HugePages::kPage;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % alignment, 0U);
    std::memset(block, 1, bytes);
    pages.deallocate(block, bytes, 64);
  }
}

TEST(HugePages, BlocksOfOneCanBeGivenBackToAnother) {
  EXPECT_EQ(HugePages(), HugePages());
  EXPECT_NE(HugePages(), *std::pmr::new_delete_resource());
}

TEST(HugePages, GatheringKeepsContents) {
  const std::vector<std::uint64_t> values(1'000'000, 7);
  HugePages::gather(&values.front(), &values.back());
  EXPECT_EQ(values, std::vector<std::uint64_t>(1'000'000, 7));
}

}  // namespace
}  // namespace spillway
