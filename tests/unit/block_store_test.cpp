// The pool of blocks with content: which block is reused, and what a change of its size keeps.
#include "sim/kv/block_store.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "sim/core/error.hpp"
#include "tests/oracle/random_case.hpp"
#include "tests/support/cases.hpp"

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

// --- a pool that reuses the smallest value first

/// Fills a block with a content and releases it with a value.
void fill(CachedBlocks& blocks, BlockHash content, double value) {
  const std::int32_t block = blocks.allocate();
  blocks.name(block, content);
  blocks.release(block, [&](std::int64_t) { return value; });
}

/// Uses the block that holds a content once more, and releases it with the number of its hits as the value.
std::int64_t hit(CachedBlocks& blocks, BlockHash content) {
  std::int64_t seen = -1;
  const std::int32_t block = blocks.find(content);
  blocks.share(block);
  blocks.release(block, [&](std::int64_t hits) { return static_cast<double>(seen = hits); });
  return seen;
}

// Contents 1 to 4 with the values 5, 2, 9, 2 fill the pool. 5 takes the place of 2 (value 2, freed before 4), 6 that of
// 4 (value 2), 7 that of 5 (value 3).
TEST(OrderedBlocks, TheSmallestValue_ThenTheLeastRecentlyFreed_IsReusedFirst) {
  CachedBlocks blocks(Blocks(4), Blocks(4), Reuse::smallest_value);
  fill(blocks, 1, 5.0);
  fill(blocks, 2, 2.0);
  fill(blocks, 3, 9.0);
  fill(blocks, 4, 2.0);
  fill(blocks, 5, 3.0);
  EXPECT_EQ(held(blocks, {1, 2, 3, 4, 5}), (std::vector<bool>{true, false, true, true, true}));
  fill(blocks, 6, 8.0);
  EXPECT_EQ(held(blocks, {1, 3, 4, 5, 6}), (std::vector<bool>{true, true, false, true, true}));
  fill(blocks, 7, 0.0);
  EXPECT_EQ(held(blocks, {1, 3, 5, 6, 7}), (std::vector<bool>{true, true, false, true, true}));
}

// Two of three blocks hold content. The third was freed last, but holds nothing: it is reused before the others.
TEST(OrderedBlocks, ABlockWithoutContent_IsReusedFirst) {
  CachedBlocks blocks(Blocks(3), Blocks(3), Reuse::smallest_value);
  fill(blocks, 1, std::numeric_limits<double>::lowest());
  fill(blocks, 2, 1.0);
  const std::int32_t empty = blocks.allocate();
  const auto never = [](std::int64_t) -> double { throw InvariantError("a block without content has no value"); };
  blocks.release(empty, never);
  EXPECT_EQ(blocks.allocate(), empty);
  EXPECT_EQ(blocks.free(), Blocks(2));
  EXPECT_EQ(held(blocks, {1, 2}), (std::vector<bool>{true, true}));
}

// Content 1 is hit twice and 2 once. 3 and then 4 replace what was hit less: 2 (1 hit), then 3 (none). The block of 3
// starts again with no hits.
TEST(OrderedBlocks, HitsCount_WhileABlockHoldsTheContent) {
  CachedBlocks blocks(Blocks(2), Blocks(2), Reuse::smallest_value);
  fill(blocks, 1, 0.0);
  fill(blocks, 2, 0.0);
  EXPECT_EQ(hit(blocks, 1), 1);
  EXPECT_EQ(hit(blocks, 1), 2);
  EXPECT_EQ(hit(blocks, 2), 1);
  fill(blocks, 3, 0.0);
  EXPECT_EQ(held(blocks, {1, 2, 3}), (std::vector<bool>{true, false, true}));
  fill(blocks, 4, 0.0);
  EXPECT_EQ(held(blocks, {1, 3, 4}), (std::vector<bool>{true, false, true}));
  EXPECT_EQ(hit(blocks, 4), 1);
}

// A pool of 4 holds 1 to 4 with the values 4, 3, 2, 1. It shrinks to 2 and loses 4 and 3. It grows to 3: the empty
// block is reused before 2 is.
TEST(OrderedBlocks, Resize_TakesTheSmallestValues) {
  CachedBlocks blocks(Blocks(4), Blocks(4), Reuse::smallest_value);
  for (const BlockHash content : {1U, 2U, 3U, 4U}) fill(blocks, content, 5.0 - static_cast<double>(content));
  blocks.resize(Blocks(2));
  EXPECT_EQ(held(blocks, {1, 2, 3, 4}), (std::vector<bool>{true, true, false, false}));
  blocks.resize(Blocks(3));
  fill(blocks, 5, 9.0);
  EXPECT_EQ(held(blocks, {1, 2, 5}), (std::vector<bool>{true, true, true}));
  EXPECT_EQ(blocks.free(), Blocks(3));
}

TEST(OrderedBlocks, ForgetFree_LeavesBlocksWithoutContent) {
  CachedBlocks blocks(Blocks(3), Blocks(3), Reuse::smallest_value);
  fill(blocks, 1, 1.0);
  fill(blocks, 2, 2.0);
  const std::int32_t used = blocks.find(2);
  blocks.share(used);
  blocks.forget_free();
  EXPECT_EQ(held(blocks, {1, 2}), (std::vector<bool>{false, true}));
  EXPECT_EQ(blocks.free(), Blocks(2));
  blocks.release(used, [](std::int64_t) { return 0.0; });
  fill(blocks, 3, 1.0);
  fill(blocks, 4, 1.0);
  EXPECT_EQ(held(blocks, {2, 3, 4}), (std::vector<bool>{true, true, true}));
}

/// A pool as a plain list of its blocks in the order in which they were freed.
class PlainPool {
 public:
  struct Block {
    BlockHash content = 0;  // 0: none
    int users = 0;
    std::int64_t hits = 0;
    double value = 0.0;
  };
  explicit PlainPool(std::int64_t total, bool ordered) : blocks(static_cast<std::size_t>(total)), ordered_(ordered) {}

  std::vector<Block> blocks;  // the least recently freed free block first
  std::int64_t surplus = 0;

  [[nodiscard]] std::optional<std::size_t> find(BlockHash content) const {
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      if (blocks[b].content == content) return b;
    }
    return std::nullopt;
  }
  [[nodiscard]] std::int64_t free() const { return std::ranges::count(blocks, 0, &Block::users) - surplus; }
  /// Takes the block that is reused next out of the list.
  Block take() {
    auto next = blocks.end();
    for (auto b = blocks.begin(); b != blocks.end(); ++b) {
      if (b->users > 0) continue;
      const bool less =
          next != blocks.end() && ordered_ && next->content != 0 && (b->content == 0 || b->value < next->value);
      if (next == blocks.end() || less) next = b;
    }
    const Block taken = *next;
    blocks.erase(next);
    return taken;
  }
  void release(std::size_t at, double value) {
    Block block = blocks[at];
    if (--block.users > 0) {
      blocks[at] = block;
      return;
    }
    block.value = value;
    blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(at));
    blocks.push_back(block);
    drop();
  }
  void resize(std::int64_t change) {
    for (; change > 0; --change) {
      surplus > 0 ? static_cast<void>(--surplus) : static_cast<void>(blocks.insert(blocks.begin(), Block{}));
    }
    surplus -= change;
    drop();
  }
  void drop() {
    for (; surplus > 0 && std::ranges::count(blocks, 0, &Block::users) > 0; --surplus) static_cast<void>(take());
  }

 private:
  bool ordered_;
};

// Random steps on a pool of at most 12 blocks and 30 contents, in both modes, beside the plain list.
TEST(CachedBlocks, RandomSteps_MatchAPlainList) {
  std::int64_t reused = 0;
  for (std::uint64_t seed = 1; seed <= random_cases(400); ++seed) {
    SCOPED_TRACE(seed);
    oracle::Dice dice(seed);
    const bool ordered = dice.chance(70);
    std::int64_t total = dice.between(1, 12);
    CachedBlocks blocks(Blocks(total), Blocks(12), ordered ? Reuse::smallest_value : Reuse::least_recent);
    PlainPool plain(total, ordered);
    struct Use {
      std::int32_t block;
      BlockHash content;  // unique while in use; its block has no content if above 30
    };
    std::vector<Use> uses;
    BlockHash unnamed = 1000;
    for (int step = 0; step < 200; ++step) {
      const std::int64_t what = dice.between(1, 100);
      const auto content = static_cast<BlockHash>(dice.between(1, 30));
      if (what <= 45) {
        if (const auto there = plain.find(content)) {
          uses.push_back({blocks.find(content), content});
          blocks.share(uses.back().block);
          ++plain.blocks[*there].users;
          ++plain.blocks[*there].hits;
        } else if (plain.free() > 0) {
          const bool names = dice.chance(80);
          uses.push_back({blocks.allocate(), names ? content : unnamed++});
          reused += plain.take().content != 0 ? 1 : 0;
          plain.blocks.push_back({.content = uses.back().content, .users = 1});
          if (names) blocks.name(uses.back().block, content);
        }
      } else if (what <= 90 && !uses.empty()) {
        const auto at = static_cast<std::size_t>(dice.between(0, std::ssize(uses) - 1));
        const Use use = uses[at];
        uses.erase(uses.begin() + static_cast<std::ptrdiff_t>(at));
        const std::size_t there = *plain.find(use.content);
        const auto base = static_cast<double>(dice.between(0, 3));
        const double value = base + static_cast<double>(plain.blocks[there].hits);
        if (plain.blocks[there].users == 1 && use.content > 30) plain.blocks[there].content = 0;
        plain.release(there, value);
        const auto value_of = [&](std::int64_t hits) { return base + static_cast<double>(hits); };
        ordered ? blocks.release(use.block, value_of) : blocks.release(use.block);
      } else if (what <= 98) {
        const std::int64_t now = dice.between(0, 12);
        blocks.resize(Blocks(now));
        plain.resize(now - total);
        total = now;
      } else {
        blocks.forget_free();
        for (PlainPool::Block& block : plain.blocks) block.content = block.users == 0 ? 0 : block.content;
      }
      ASSERT_EQ(blocks.free(), Blocks(plain.free()));
      for (BlockHash one = 1; one <= 30; ++one) {
        const auto there = plain.find(one);
        ASSERT_EQ(blocks.find(one) >= 0, there.has_value()) << "content " << one << " after step " << step;
        if (!there) continue;
        ASSERT_EQ(blocks.idle(blocks.find(one)), plain.blocks[*there].users == 0);
      }
    }
  }
  EXPECT_GT(reused, 1000);
}

}  // namespace
}  // namespace spillway
