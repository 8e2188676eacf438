// The free blocks of a pool by a value that a policy gave them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace spillway {

/// A heap of blocks, the smallest value on top; equal values in the order in which they were added. Any block may be
/// taken out. add() and remove() are O(log blocks), the rest is O(1). Memory is fixed at construction.
class BlockOrder {
 public:
  /// For blocks below `most`.
  explicit BlockOrder(std::size_t most) : entries_(most) { heap_.reserve(most); }

  [[nodiscard]] bool empty() const { return heap_.empty(); }
  [[nodiscard]] bool contains(std::int32_t block) const { return entry(block).at >= 0; }
  /// The block with the smallest value. The heap must not be empty.
  [[nodiscard]] std::int32_t first() const { return heap_.front(); }
  /// `block` is not in the heap. `value` is a number.
  void add(std::int32_t block, double value);
  /// `block` is in the heap.
  void remove(std::int32_t block);

 private:
  struct Entry {
    double value = 0.0;
    std::uint64_t added = 0;  // sequence number
    std::int32_t at = -1;     // position in the heap; -1: it is not there
  };
  [[nodiscard]] Entry& entry(std::int32_t block) { return entries_[static_cast<std::size_t>(block)]; }
  [[nodiscard]] const Entry& entry(std::int32_t block) const { return entries_[static_cast<std::size_t>(block)]; }
  [[nodiscard]] bool before(std::int32_t a, std::int32_t b) const;
  void put(std::size_t at, std::int32_t block);
  void rise(std::size_t at);
  void sink(std::size_t at);

  std::vector<Entry> entries_;  // by block
  std::vector<std::int32_t> heap_;
  std::uint64_t added_ = 0;
};

}  // namespace spillway
