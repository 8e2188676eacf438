// The experts of a layer that are on the GPU: a fixed number of slots, the least recently used leaves first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace spillway {

/// Resident experts of one layer, in order of their last use. All calls O(slots).
class ExpertSlots {
 public:
  ExpertSlots() = default;
  /// `resident`: at the start, the first one leaves first.
  explicit ExpertSlots(std::vector<std::int32_t> resident) : by_use_(std::move(resident)) {}

  [[nodiscard]] bool holds(std::int32_t expert) const { return std::ranges::find(by_use_, expert) != by_use_.end(); }
  /// A resident expert is used now.
  void touch(std::int32_t expert) {
    const auto at = std::ranges::find(by_use_, expert);
    std::rotate(at, at + 1, by_use_.end());
  }
  /// `expert` takes the slot of the least recently used one, which is returned.
  std::int32_t replace(std::int32_t expert) {
    const std::int32_t left = by_use_.front();
    std::rotate(by_use_.begin(), by_use_.begin() + 1, by_use_.end());
    by_use_.back() = expert;
    return left;
  }
  [[nodiscard]] const std::vector<std::int32_t>& by_use() const { return by_use_; }

 private:
  std::vector<std::int32_t> by_use_;
};

}  // namespace spillway
