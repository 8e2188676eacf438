// The experts of a layer that are on the GPU: a fixed number of slots. The least recently used leaves first, or a
// measured hit curve says what is there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sim/api/experts.hpp"

namespace spillway {

/// Resident experts of one layer, in order of their last use. Construction takes O(experts), a call O(1).
class ExpertSlots {
 public:
  /// `experts`: of the layer. `resident`: those that are there at the start, the first one leaves first.
  ExpertSlots(std::int32_t experts, std::span<const std::int32_t> resident)
      : slots_(static_cast<std::int32_t>(resident.size())), links_(static_cast<std::size_t>(experts) + 1) {
    links_.back() = {experts, experts};
    for (const std::int32_t expert : resident) append(expert);
  }

  [[nodiscard]] std::int32_t slots() const { return slots_; }
  [[nodiscard]] bool holds(std::int32_t expert) const { return at(expert).next != kAway; }
  /// A resident expert is used now.
  void touch(std::int32_t expert) {
    remove(expert);
    append(expert);
  }
  /// `expert`, which is not resident, takes the slot of the least recently used one, which is returned. Needs a slot.
  std::int32_t replace(std::int32_t expert) {
    const std::int32_t left = links_.back().next;
    remove(left);
    append(expert);
    return left;
  }

 private:
  static constexpr std::int32_t kAway = -1;
  /// Neighbours in the order of use. The list is a ring: the end joins the last expert to the first one.
  struct Link {
    std::int32_t before = kAway;
    std::int32_t next = kAway;
  };
  [[nodiscard]] Link& at(std::int32_t expert) { return links_[static_cast<std::size_t>(expert)]; }
  [[nodiscard]] const Link& at(std::int32_t expert) const { return links_[static_cast<std::size_t>(expert)]; }
  void remove(std::int32_t expert) {
    const Link link = std::exchange(at(expert), {});
    at(link.before).next = link.next;
    at(link.next).before = link.before;
  }
  void append(std::int32_t expert) {
    const auto end = static_cast<std::int32_t>(links_.size()) - 1;
    at(expert) = {at(end).before, end};
    at(at(end).before).next = expert;
    at(end).before = expert;
  }

  std::int32_t slots_;
  std::vector<Link> links_;  // by expert, then the end
};

/// The slots of all layers. With a measured hit curve, the curve says which experts in use are there, whatever was
/// loaded before. add() takes O(experts), any other call O(1); with a curve, the first call of a layer in an iteration
/// takes O(experts), later ones O(log slots).
class LayerSlots {
 public:
  /// `experts`: of each layer.
  LayerSlots(ExpertActivation& activation, std::int32_t experts) : activation_(activation), experts_(experts) {}
  /// Slots of the next layer with experts; `resident`: as for ExpertSlots.
  void add(std::span<const std::int32_t> resident) { layers_.emplace_back(experts_, resident); }

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
    if (has_curve_ == false) return std::nullopt;
    const auto found = activation_.found(layer, of(layer).slots());
    has_curve_ = found.has_value();
    return found;
  }

  ExpertActivation& activation_;
  std::int32_t experts_;
  std::vector<ExpertSlots> layers_;
  mutable std::optional<bool> has_curve_;  // constant in a run; empty: nobody has asked
};

}  // namespace spillway
