// Several layer rules in one iteration: each moves its own state, and a layer computes when all of them say so.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

#include "sim/api/layer_rule.hpp"

namespace spillway {

/// Rules that share the copy streams, as one rule. A copy belongs to the rule that issued it (Copy::owner), and only
/// that rule hears of its end, so each rule sees the calls that it would see alone. At one instant the rules are called
/// in the order of their owners. A layer waits for the first of them that is not ready.
class RuleSet final : public LayerRule {
 public:
  /// The rule with the number `owner`, below kCopyOwners; null: none. It must outlive its copies.
  void set(std::int32_t owner, LayerRule* rule) {
    rules_[at(owner)] = rule;
    if (rule == nullptr) ended_[at(owner)] = false;
  }

  void at_layer_start(std::int32_t layer, std::int32_t sub_batch, CopySink& sink) override {
    ended_.fill(false);
    for (std::int32_t owner = 0; owner < kCopyOwners; ++owner) {
      if (rules_[at(owner)] == nullptr) continue;
      Owned owned(owner, sink);
      rules_[at(owner)]->at_layer_start(layer, sub_batch, owned);
    }
  }
  void at_copy_done(const Copy& copy, CopySink& sink) override {
    LayerRule* const rule = rules_[at(copy.owner)];
    if (rule == nullptr) return;
    ended_[at(copy.owner)] = true;
    Owned owned(copy.owner, sink);
    rule->at_copy_done(copy, owned);
  }
  void at_copies_done(CopySink& sink) override {
    for (std::int32_t owner = 0; owner < kCopyOwners; ++owner) {
      if (!ended_[at(owner)]) continue;
      ended_[at(owner)] = false;
      Owned owned(owner, sink);
      rules_[at(owner)]->at_copies_done(owned);
    }
  }
  [[nodiscard]] std::int32_t quiet(std::int32_t layer) const override {
    std::int32_t quiet = std::numeric_limits<std::int32_t>::max();
    for (const LayerRule* rule : rules_) {
      if (rule != nullptr) quiet = std::min(quiet, rule->quiet(layer));
    }
    return quiet;
  }
  void skip(std::int32_t first, std::int32_t count) override {
    for (LayerRule* rule : rules_) {
      if (rule != nullptr) rule->skip(first, count);
    }
  }
  /// Unknown where more than one rule has a state.
  [[nodiscard]] Recurrence recurs(std::int32_t layer) const override {
    Recurrence all{std::numeric_limits<std::int32_t>::max(), 0};
    for (const LayerRule* rule : rules_) {
      if (rule == nullptr) continue;
      const Recurrence one = rule->recurs(layer);
      if (one.layers == 0 || (one.state != 0 && all.state != 0)) return {};
      all = {std::min(all.layers, one.layers), all.state | one.state};
    }
    return all;
  }
  void repeat(std::int32_t first, std::int32_t count) override {
    for (LayerRule* rule : rules_) {
      if (rule != nullptr) rule->repeat(first, count);
    }
  }
  [[nodiscard]] bool ready(std::int32_t layer, std::int32_t sub_batch) const override {
    return std::all_of(rules_.begin(), rules_.end(),
                       [&](const LayerRule* rule) { return rule == nullptr || rule->ready(layer, sub_batch); });
  }
  [[nodiscard]] Wait waits_for(std::int32_t layer, std::int32_t sub_batch) const override {
    std::int32_t owner = 0;
    while (rules_[at(owner)] == nullptr || rules_[at(owner)]->ready(layer, sub_batch)) ++owner;
    return owner == kCpuAttention ? rules_[at(owner)]->waits_for(layer, sub_batch) : wait_for(owner);
  }
  /// At most one of the rules works in layers.
  [[nodiscard]] bool works_in_layers() const override {
    return std::ranges::any_of(rules_,
                               [](const LayerRule* rule) { return rule != nullptr && rule->works_in_layers(); });
  }
  [[nodiscard]] LayerWork work(std::int32_t layer, std::int32_t sub_batch, CopySink& sink) override {
    const std::int32_t owner = worker();
    Owned owned(owner, sink);
    LayerWork work = rules_[at(owner)]->work(layer, sub_batch, owned);
    if (work.wait == Wait::layers) work.wait = wait_for(owner);
    return work;
  }
  void skip_alike(std::int32_t count) override { rules_[at(worker())]->skip_alike(count); }
  void skip_rounds(std::int32_t count) override { rules_[at(worker())]->skip_rounds(count); }
  void skip_turns() override { rules_[at(worker())]->skip_turns(); }
  void at_layers_end(CopySink& sink) override {
    for (std::int32_t owner = 0; owner < kCopyOwners; ++owner) {
      if (rules_[at(owner)] == nullptr) continue;
      Owned owned(owner, sink);
      rules_[at(owner)]->at_layers_end(owned);
    }
  }
  [[nodiscard]] std::optional<Wait> unfinished(std::int32_t sub_batch) const override {
    for (const LayerRule* rule : rules_) {
      if (rule == nullptr) continue;
      if (const auto wait = rule->unfinished(sub_batch)) return wait;
    }
    return std::nullopt;
  }

 private:
  /// Notes whose copy it is.
  class Owned final : public CopySink {
   public:
    Owned(std::int32_t owner, CopySink& sink) : owner_(owner), sink_(sink) {}
    void issue(const Copy& copy) override {
      Copy owned = copy;
      owned.owner = static_cast<std::int16_t>(owner_);
      sink_.issue(owned);
    }

   private:
    std::int32_t owner_;
    CopySink& sink_;
  };

  /// Whose rule works in layers.
  [[nodiscard]] std::int32_t worker() const {
    std::int32_t owner = 0;
    while (rules_[at(owner)] == nullptr || !rules_[at(owner)]->works_in_layers()) ++owner;
    return owner;
  }
  static std::size_t at(std::int32_t owner) { return static_cast<std::size_t>(owner); }

  std::array<LayerRule*, static_cast<std::size_t>(kCopyOwners)> rules_{};
  std::array<bool, static_cast<std::size_t>(kCopyOwners)>
      ended_{};  // copies of this owner have ended now, and the rule does not know that all have
};

}  // namespace spillway
