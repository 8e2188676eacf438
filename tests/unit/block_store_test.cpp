// The pool of blocks with content: which block is reused, and what a change of its size keeps.
#include "sim/kv/block_store.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "sim/core/error.hpp"

namespace spillway {
namespace {

/// Fills a block with each content and releases it.
void fill(CachedBlocks& blocks, const std::vector<BlockHash>& contents) {
  for (const BlockHash content : contents) {
    const std::int32_t block = blocks.allocate();
    blocks.name(block, content);
    blocks.release(block);
  }
}

std::vector<bool> held(const CachedBlocks& blocks, const std::vector<BlockHash>& contents) {
  std::vector<bool> held;
  held.reserve(contents.size());
  for (const BlockHash content : contents) held.push_back(blocks.find(content) >= 0);
  return held;
}

// A pool of 4 holds 1 to 4. It shrinks to 2 and loses 1 and 2. It grows to 3: the empty block is reused before 3 is.
TEST(CachedBlocks, Resize_TakesTheLeastRecentlyFreed) {
  CachedBlocks blocks(Blocks(4), Blocks(6));
  fill(blocks, {1, 2, 3, 4});
  blocks.resize(Blocks(2));
  EXPECT_EQ(blocks.free(), Blocks(2));
  EXPECT_EQ(held(blocks, {1, 2, 3, 4}), (std::vector<bool>{false, false, true, true}));
  blocks.resize(Blocks(3));
  EXPECT_EQ(blocks.free(), Blocks(3));
  fill(blocks, {5});
  EXPECT_EQ(held(blocks, {3, 4, 5}), (std::vector<bool>{true, true, true}));
  fill(blocks, {6});
  EXPECT_EQ(held(blocks, {3, 4, 5, 6}), (std::vector<bool>{false, true, true, true}));
}

// Three of four blocks are in use. At a size of 1 two are too many: the next two that are released leave the pool,
// whatever they hold.
TEST(CachedBlocks, Resize_BelowWhatIsInUse) {
  CachedBlocks blocks(Blocks(4), Blocks(4));
  std::vector<std::int32_t> used;
  for (const BlockHash content : {1U, 2U, 3U}) {
    used.push_back(blocks.allocate());
    blocks.name(used.back(), content);
  }
  blocks.resize(Blocks(1));
  EXPECT_EQ(blocks.free(), Blocks(-2));
  blocks.release(used[0]);
  EXPECT_EQ(blocks.free(), Blocks(-1));
  EXPECT_EQ(held(blocks, {1, 2, 3}), (std::vector<bool>{false, true, true}));
  blocks.resize(Blocks(2));  // one of the two that were to leave may stay
  EXPECT_EQ(blocks.free(), Blocks(0));
  blocks.release(used[1]);
  EXPECT_EQ(blocks.free(), Blocks(1));
  EXPECT_EQ(held(blocks, {2, 3}), (std::vector<bool>{true, true}));
  blocks.release(used[2]);
  EXPECT_EQ(blocks.free(), Blocks(2));
  EXPECT_THROW(blocks.resize(Blocks(5)), InvariantError);
}

TEST(CachedBlocks, ForgetFree_KeepsWhatIsInUse) {
  CachedBlocks blocks(Blocks(3));
  fill(blocks, {1, 2});
  const std::int32_t used = blocks.find(2);
  blocks.share(used);
  blocks.forget_free();
  EXPECT_EQ(held(blocks, {1, 2}), (std::vector<bool>{false, true}));
  EXPECT_EQ(blocks.free(), Blocks(2));
}

}  // namespace
}  // namespace spillway
