// Memory in contiguous chunks whose sizes are powers of two, as a binary buddy allocator gives it.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <set>

#include "sim/core/units.hpp"

namespace spillway {

/// Chunks of 1, 2, 4, ... blocks, each at a multiple of its size. A chunk is halved until it fits, and merges with its
/// other half (its buddy) as soon as both are free. Memory of any size is a row of chunks, the largest first. Takes the
/// smallest free chunk that is large enough, the one with the lowest address among several. O(log^2 blocks) per call.
/// Source: Knuth, The Art of Computer Programming, volume 1, section 2.5.
class BuddyAllocator {
 public:
  explicit BuddyAllocator(Blocks capacity) {
    std::int64_t address = 0;
    for (std::size_t order = kOrders; order-- > 0;) {
      if ((capacity.count() & size_of(order)) == 0) continue;
      free_[order].insert(address);
      address += size_of(order);
    }
  }

  /// The chunk for `needed` blocks, at least one.
  [[nodiscard]] static Blocks chunk_of(Blocks needed) { return Blocks(size_of(order_of(needed))); }
  [[nodiscard]] bool fits(Blocks needed) const { return smallest_free(order_of(needed)) < kOrders; }

  /// The address of a chunk for `needed` blocks, which must fit.
  [[nodiscard]] std::int64_t take(Blocks needed) {
    const std::size_t wanted = order_of(needed);
    std::size_t order = smallest_free(wanted);
    const std::int64_t address = free_[order].extract(free_[order].begin()).value();
    while (order > wanted) {
      --order;
      free_[order].insert(address + size_of(order));
    }
    return address;
  }

  /// Frees the chunk that `take(needed)` placed at this address.
  void give_back(std::int64_t address, Blocks needed) {
    std::size_t order = order_of(needed);
    while (free_[order].erase(address ^ size_of(order)) > 0) {
      address &= ~size_of(order);
      ++order;
    }
    free_[order].insert(address);
  }

 private:
  static constexpr std::size_t kOrders = 62;

  [[nodiscard]] static std::int64_t size_of(std::size_t order) { return std::int64_t{1} << order; }
  [[nodiscard]] static std::size_t order_of(Blocks needed) {
    return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(needed.count() - 1)));
  }
  /// kOrders if no free chunk is large enough.
  [[nodiscard]] std::size_t smallest_free(std::size_t order) const {
    while (order < kOrders && free_[order].empty()) ++order;
    return order;
  }

  std::array<std::set<std::int64_t>, kOrders> free_;  // addresses of the free chunks of each size
};

}  // namespace spillway
