// The smallest of some numbers that change one at a time.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace spillway {

/// Numbers by place, all 0 at first. Equal numbers: the lowest place is the least. set() is O(log places), least() and
/// at() O(1).
class LeastTree {
 public:
  explicit LeastTree(std::size_t places) : leaves_(std::bit_ceil(places)), least_(2 * leaves_), values_(leaves_) {
    for (std::size_t place = 0; place < leaves_; ++place) {
      least_[leaves_ + place] = place;
      if (place >= places) values_[place] = std::numeric_limits<std::int64_t>::max();
    }
    for (std::size_t node = leaves_; --node > 0;) play(node);
  }
  void set(std::size_t place, std::int64_t value) {
    if (std::exchange(values_[place], value) == value) return;
    for (std::size_t node = (leaves_ + place) / 2; node > 0; node /= 2) play(node);
  }
  [[nodiscard]] std::int64_t at(std::size_t place) const { return values_[place]; }
  /// The place of the smallest number.
  [[nodiscard]] std::size_t least() const { return least_[leaves_ > 1 ? 1 : leaves_]; }

 private:
  void play(std::size_t node) {
    const std::size_t left = least_[2 * node];
    const std::size_t right = least_[2 * node + 1];
    // Without a branch: no processor can predict it.
    const auto right_is_less = static_cast<std::size_t>(values_[right] < values_[left]);
    least_[node] = left + right_is_less * (right - left);
  }

  std::size_t leaves_;
  std::vector<std::size_t> least_;  // a heap of places: 1 is the root, the second half are the places
  std::vector<std::int64_t> values_;
};

}  // namespace spillway
