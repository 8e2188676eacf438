// Paged KV memory with prefix caching: which GPU block holds which content.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "sim/api/view.hpp"
#include "sim/core/units.hpp"
#include "sim/kv/block_order.hpp"

namespace spillway {

/// Content hash of a full block: chained, so it names the whole prefix up to the block's end.
using BlockHash = std::uint64_t;
[[nodiscard]] inline BlockHash chain_hash(BlockHash parent, std::uint64_t content) {
  std::uint64_t x = parent * 0x9E3779B97F4A7C15ULL + content + 0x632BE59BD9B4E019ULL;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31U);
}

/// Which free block a pool reuses first.
enum class Reuse : std::uint8_t {
  least_recent,   // the least recently freed one, as vLLM's block pool does. O(1)
  smallest_value  // one without content, then the one of the smallest value: see release. O(log free blocks)
};

/// GPU blocks with identity: reference counts, a content index, and the free blocks in the order of their reuse. A free
/// block keeps its content until it is reused. The number of blocks may change: a pool that shrinks loses the free
/// blocks that it would reuse next, and blocks in use when their last user releases them. New blocks are reused first,
/// because they hold nothing. Memory is O(largest number of blocks), fixed at construction.
class CachedBlocks {
 public:
  explicit CachedBlocks(Blocks total) : CachedBlocks(total, total) {}
  /// `most`: the largest number of blocks.
  CachedBlocks(Blocks total, Blocks most, Reuse reuse = Reuse::least_recent);

  /// Free blocks; < 0: so many more are in use than the pool has.
  [[nodiscard]] Blocks free() const { return Blocks(free_count_) - surplus_; }
  /// The pool has `total` blocks from now on, at most `most`. O(change).
  void resize(Blocks total);
  /// No free block holds content any more. O(free blocks).
  void forget_free();
  /// The block that holds `hash`, or -1. O(1) expected.
  [[nodiscard]] std::int32_t find(BlockHash hash) const;
  [[nodiscard]] bool idle(std::int32_t block) const { return blocks_[index(block)].users == 0; }
  /// Takes the free block that is reused first and drops its content. There must be a free block.
  [[nodiscard]] std::int32_t allocate();
  /// Adds a user to a block found in the index.
  void share(std::int32_t block);
  /// Removes a user; when the last one leaves, the block is free. Not for a block with content in a pool that reuses
  /// the smallest value first.
  void release(std::int32_t block);
  /// Likewise, in such a pool. `value(hits)` gives the value of a block with content whose last user leaves. `hits`:
  /// how often its content was shared since the block holds it. Minus infinity: the content is forgotten.
  template <class Value>
  void release(std::int32_t block, const Value& value) {
    const Block& b = blocks_[index(block)];
    if (b.users > 1 || !b.named) return release(block);
    const double worth = value(hits_[index(block)]);
    if (worth != -std::numeric_limits<double>::infinity()) return release_ordered(block, worth);
    forget(block);
    release(block);
  }
  /// The block is full and holds `hash`. It stays unnamed if another block already holds `hash`.
  void name(std::int32_t block, BlockHash hash);

 private:
  struct Block {
    BlockHash hash = 0;
    std::int32_t users = 0;
    std::int32_t prev = -1;
    std::int32_t next = -1;
    bool named = false;
  };
  static std::size_t index(std::int32_t block) { return static_cast<std::size_t>(block); }
  [[nodiscard]] std::size_t home(BlockHash hash) const { return static_cast<std::size_t>(hash) & mask_; }
  void unlink(std::int32_t block);
  void append(std::int32_t block);
  void prepend(std::int32_t block);
  /// Removes a user. Returns whether it was the last one.
  bool leave(std::int32_t block);
  void release_ordered(std::int32_t block, double value);
  /// The free block that is reused first; -1: none is free.
  [[nodiscard]] std::int32_t first_free() const;
  /// A block is free no more.
  void take(std::int32_t block);
  void drop_surplus();
  void forget(std::int32_t block);

  std::vector<Block> blocks_;
  std::vector<std::int32_t> table_;  // open addressing, linear probing: block or -1
  std::size_t mask_ = 0;
  // Free blocks: with an order those with content are in it, and all others in the list.
  std::int32_t head_ = -1;
  std::int32_t tail_ = -1;
  std::optional<BlockOrder> order_;
  std::vector<std::int64_t> hits_;  // by block; only with an order
  std::int64_t free_count_ = 0;
  Blocks total_{};
  Blocks surplus_{};                  // blocks in use beyond total_
  std::vector<std::int32_t> absent_;  // not in the pool now; the next one to join last
};

}  // namespace spillway
