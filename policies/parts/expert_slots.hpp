// The experts of a layer that are on the GPU: a fixed number of slots. The least recently used leaves first, or a
// measured hit curve says what is there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sim/api/experts.hpp"

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

/// The slots of all layers. With a measured hit curve, the curve says which experts in use are there, whatever was
/// loaded before. All calls O(slots).
class LayerSlots {
 public:
  explicit LayerSlots(ExpertActivation& activation) : activation_(activation) {}
  /// Slots of the next layer with experts.
  void add(std::vector<std::int32_t> resident) { layers_.emplace_back(std::move(resident)); }

  [[nodiscard]] bool holds(std::int32_t layer, std::int32_t expert) const {
    const auto found = drawn(layer);
    return found ? std::ranges::binary_search(*found, expert) : of(layer).holds(expert);
  }
  /// Whether a hit curve says what is there.
  [[nodiscard]] bool by_curve(std::int32_t layer) const { return drawn(layer).has_value(); }
  /// A resident expert is used now.
  void touch(std::int32_t layer, std::int32_t expert) {
    if (!by_curve(layer)) layers_[static_cast<std::size_t>(layer)].touch(expert);
  }
  /// `expert` takes a slot; which expert left it, if that is known.
  std::optional<std::int32_t> replace(std::int32_t layer, std::int32_t expert) {
    if (by_curve(layer)) return std::nullopt;
    return layers_[static_cast<std::size_t>(layer)].replace(expert);
  }

 private:
  [[nodiscard]] const ExpertSlots& of(std::int32_t layer) const { return layers_[static_cast<std::size_t>(layer)]; }
  [[nodiscard]] std::optional<std::span<const std::int32_t>> drawn(std::int32_t layer) const {
    return activation_.found(layer, static_cast<std::int32_t>(of(layer).by_use().size()));
  }

  ExpertActivation& activation_;
  std::vector<ExpertSlots> layers_;
};

}  // namespace spillway
