// The smallest of some numbers that change one at a time.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace spillway {

/// Numbers by place, all 0 at first, each above the smallest int64. Equal numbers: the lowest place is the least. set()
/// is O(log places), least() and at() O(1).
class LeastTree {
 public:
  explicit LeastTree(std::size_t places) : leaves_(std::bit_ceil(places)), nodes_(2 * leaves_) {
    for (std::size_t place = 0; place < leaves_; ++place) {
      nodes_[leaves_ + place] = {place < places ? 0 : std::numeric_limits<std::int64_t>::max(), place};
    }
    for (std::size_t node = leaves_; --node > 0;) {
      const Node& left = nodes_[2 * node];
      const Node& right = nodes_[2 * node + 1];
      nodes_[node] = right.value < left.value ? right : left;
    }
  }
  void set(std::size_t place, std::int64_t value) {
    std::size_t at = leaves_ + place;
    if (std::exchange(nodes_[at].value, value) == value) return;
    // The least number of what was passed goes up, so that a step reads its neighbour alone and waits for no other
    // read. Without a branch: no processor can predict it.
    Node least = nodes_[at];
    for (; at > 1; at /= 2) {
      const Node& other = nodes_[at ^ 1U];
      const auto other_is_first = static_cast<std::int64_t>(at & 1U);
      const bool changes = other.value - other_is_first < least.value;
      least = {changes ? other.value : least.value, changes ? other.place : least.place};
      nodes_[at / 2] = least;
    }
  }
  [[nodiscard]] std::int64_t at(std::size_t place) const { return nodes_[leaves_ + place].value; }
  /// The place of the smallest number.
  [[nodiscard]] std::size_t least() const { return nodes_[1].place; }

 private:
  struct Node {  // the smallest number below it
    std::int64_t value = 0;
    std::size_t place = 0;
  };
  std::size_t leaves_;
  std::vector<Node> nodes_;  // a heap: 1 is the root, the second half are the places
};

}  // namespace spillway
