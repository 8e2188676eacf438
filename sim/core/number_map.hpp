// A hash table of small values by number.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "sim/core/error.hpp"

namespace spillway {

/// Values by numbers >= 0, in no order. One array with linear probing, at most half full: a look-up touches one cache
/// line as a rule. find(), operator[] and erase() are O(1) expected; operator[] and erase() move values. Memory is
/// O(most numbers at once).
template <class Value>
class NumberMap {
 public:
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  /// Null: there is none. Valid until the next operator[] or erase().
  [[nodiscard]] Value* find(std::int64_t number) { return const_cast<Value*>(std::as_const(*this).find(number)); }
  [[nodiscard]] const Value* find(std::int64_t number) const {
    if (size_ == 0) return nullptr;
    const Cell& cell = cells_[place_of(number)];
    return cell.number == kFree ? nullptr : &cell.value;
  }
  /// A value made by default if there is none.
  Value& operator[](std::int64_t number) {
    SPILLWAY_CHECK(number >= 0, "a number below 0 has no place in a table");
    if (2 * (size_ + 1) > cells_.size()) grow();
    Cell& cell = cells_[place_of(number)];
    if (cell.number == kFree) {
      cell.number = number;
      ++size_;
    }
    return cell.value;
  }
  /// Returns whether there was one.
  bool erase(std::int64_t number) {
    if (size_ == 0) return false;
    std::size_t hole = place_of(number);
    if (cells_[hole].number == kFree) return false;
    // Cells that follow go back to where a search from their home meets them.
    for (std::size_t at = next(hole); cells_[at].number != kFree; at = next(at)) {
      const std::size_t from_home = (at - home(cells_[at].number)) & mask();
      if (from_home < ((at - hole) & mask())) continue;
      cells_[hole] = std::move(cells_[at]);
      hole = at;
    }
    cells_[hole] = {};
    --size_;
    return true;
  }

 private:
  static constexpr std::int64_t kFree = -1;
  static constexpr std::size_t kFewest = 16;
  struct Cell {
    std::int64_t number = kFree;
    Value value{};
  };

  [[nodiscard]] std::size_t mask() const { return cells_.size() - 1; }
  [[nodiscard]] std::size_t next(std::size_t at) const { return (at + 1) & mask(); }
  [[nodiscard]] std::size_t home(std::int64_t number) const {
    // Fibonacci hashing: the upper bits of the product depend on all bits of the number.
    return static_cast<std::size_t>((static_cast<std::uint64_t>(number) * 0x9E3779B97F4A7C15ULL) >> shift_);
  }
  /// The cell of a number, or the free cell at which a search for it ends.
  [[nodiscard]] std::size_t place_of(std::int64_t number) const {
    std::size_t at = home(number);
    while (cells_[at].number != number && cells_[at].number != kFree) at = next(at);
    return at;
  }
  void grow() {
    std::vector<Cell> before = std::exchange(cells_, std::vector<Cell>(cells_.empty() ? kFewest : 2 * cells_.size()));
    shift_ = 64 - std::countr_zero(cells_.size());
    for (Cell& cell : before) {
      if (cell.number != kFree) cells_[place_of(cell.number)] = std::move(cell);
    }
  }

  std::vector<Cell> cells_;  // as many as a power of two, or none
  int shift_ = 0;
  std::size_t size_ = 0;
};

}  // namespace spillway
