// KV of single layers, swapped between GPU and host in FIFO order while other layers compute.
//
// Source: Pie, sections 3.1 to 3.3: a mapping table with two-phase updates, one swap-out and one swap-in at a time,
// both chosen when a layer starts. Where the paper is silent: dist(j) = (j - k) mod n is the number of layers before
// layer j is needed, if layer k starts now.
//   swap-out  c = the layer that finished last. Starts when none is under way, c is on the GPU, a host slot is free,
//   and
//             either fewer than m layers are on the host, or one of them is needed sooner than c.
//   swap-in   the layer on the host that is needed soonest. Starts when none is under way and a GPU slot is free.
//   make way  if nothing is under way and the layer that is to compute is on the host, too many layers are on the GPU
//             after a raise by several: the one that is needed last leaves. Otherwise this would be a deadlock.
// The GPU has n - m slots, including the slot being drained and the slot being filled; the host has m + 2 slots.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "sim/api/layer_rule.hpp"
#include "sim/core/units.hpp"

namespace spillway {

/// A set of layers 0 .. 255. O(1).
class LayerSet {
 public:
  static constexpr std::int32_t kMost = 256;
  static constexpr std::int32_t kNone = -1;

  [[nodiscard]] bool has(std::int32_t layer) const { return (words_[word(layer)] >> bit(layer) & 1U) != 0; }
  /// Requires that the set lacks it.
  void insert(std::int32_t layer) {
    ++count_;
    words_[word(layer)] |= std::uint64_t{1} << bit(layer);
  }
  /// Requires that the set has it.
  void erase(std::int32_t layer) {
    --count_;
    words_[word(layer)] &= ~(std::uint64_t{1} << bit(layer));
  }
  [[nodiscard]] std::int32_t count() const { return count_; }
  /// The number of consecutive layers in the set, starting at `from`.
  [[nodiscard]] std::int32_t run(std::int32_t from) const {
    std::size_t w = word(from);
    std::int32_t length = std::countr_one(words_[w] >> bit(from));
    for (std::int32_t end = 64 - static_cast<std::int32_t>(bit(from)); length == end && ++w < words_.size();
         end += 64) {
      length += std::countr_one(words_[w]);
    }
    return length;
  }
  /// The first member of the sequence `from`, `from` + 1, ..., the last layer, 0, 1, ...; kNone for an empty set.
  [[nodiscard]] std::int32_t next_cyclic(std::int32_t from) const {
    if (count_ == 0) return kNone;
    const std::int32_t ahead = next(from);
    return ahead != kNone ? ahead : next(0);
  }

 private:
  static std::size_t word(std::int32_t layer) { return static_cast<std::size_t>(layer) / 64; }
  static std::uint32_t bit(std::int32_t layer) { return static_cast<std::uint32_t>(layer) % 64; }
  [[nodiscard]] std::int32_t next(std::int32_t from) const {
    std::size_t w = word(from);
    std::uint64_t rest = words_[w] >> bit(from) << bit(from);
    while (rest == 0) {
      if (++w == words_.size()) return kNone;
      rest = words_[w];
    }
    return static_cast<std::int32_t>(w * 64) + std::countr_zero(rest);
  }

  std::array<std::uint64_t, kMost / 64> words_{};
  std::int32_t count_ = 0;
};

class LayerSwap final : public LayerRule {
 public:
  /// Copies of one slot, which stores one layer's KV of every block: `in` is h2d, `out` is d2h. The rule fills in
  /// `layer`.
  struct SlotCopies {
    Copy in{};
    Copy out{};
  };

  /// Requires 3 <= layers <= LayerSet::kMost and 0 <= on_host <= layers - 3. The last `on_host` layers start on the
  /// host. With `check_at_completion`, the end of a copy may start the next copy at once. Otherwise copies start when
  /// layers start, and at every end of a copy while a layer waits.
  LayerSwap(std::int32_t layers, std::int32_t on_host, bool check_at_completion, const SlotCopies& copies);

  /// From now on `on_host` layers go to the host, in slots of a new size. A layer has its new slot once it has come
  /// back to the GPU: its next copies out and in still move the old slot. After as many copies in as there are layers,
  /// layers with a new slot stay until all layers have theirs, unless a layer is waited for.
  void resize(std::int32_t on_host, const SlotCopies& copies);
  /// Whether every layer has a slot of the new size.
  [[nodiscard]] bool resized() const { return old_.count() == 0; }
  /// Requires that no KV is live: `on_host` layers go to the host, and every slot has its new size at once. Copies in
  /// flight complete.
  void recut(std::int32_t on_host, const SlotCopies& copies);
  /// Changes the bytes of a copy, both for slots of the current size and for slots that still have the old size.
  void set_copies(const SlotCopies& copies, const SlotCopies& old_copies) {
    copies_ = copies;
    old_copies_ = old_copies;
  }

  /// Whether no layer is on the host or on its way, and no layer shall go to the host.
  [[nodiscard]] bool resting() const { return on_host_ == 0 && gpu_.count() == layers_; }
  /// The most bytes on the host at once, including copies in flight.
  [[nodiscard]] Bytes peak_host() const { return peak_host_; }

  void at_layer_start(std::int32_t layer, std::int32_t sub_batch, CopySink& sink) override;
  void at_copy_done(const Copy& copy, CopySink& sink) override;
  void at_copies_done(CopySink& sink) override;
  [[nodiscard]] bool ready(std::int32_t layer, std::int32_t /*sub_batch*/) const override { return gpu_.has(layer); }
  /// While both directions are busy, no layer starts a copy.
  [[nodiscard]] std::int32_t quiet(std::int32_t layer) const override {
    return going_in_ && going_out_ ? gpu_.run(layer) : 0;
  }
  void skip(std::int32_t first, std::int32_t count) override {
    coldest_ = count > 1 ? first + count - 2 : current_;
    current_ = first + count - 1;
    waited_ = false;
  }

 private:
  [[nodiscard]] std::int32_t distance(std::int32_t layer) const {
    return layer >= current_ ? layer - current_ : layer - current_ + layers_;
  }
  /// Not while copies in both directions are under way.
  void decide(CopySink& sink);
  void come_in(std::int32_t layer, CopySink& sink);
  void go_out(std::int32_t layer, CopySink& sink);
  void issue(std::int32_t layer, Copy& slot, CopySink& sink);
  [[nodiscard]] SlotCopies& slot_of(std::int32_t layer) {
    return !resized() && old_.has(layer) ? old_copies_ : copies_;
  }

  std::int32_t layers_;
  std::int32_t on_host_;
  bool check_at_completion_;
  SlotCopies copies_;
  SlotCopies old_copies_;
  LayerSet gpu_;   // idle or computing on the GPU
  LayerSet host_;  // idle on the host
  LayerSet old_;   // layers whose slot still has the size before the last resize
  std::int32_t current_;
  std::int32_t coldest_ = LayerSet::kNone;  // layer that finished last; none before the first layer of all
  bool started_ = false;
  bool waited_ = false;  // a layer was waiting when a copy ended
  bool going_in_ = false;
  bool going_out_ = false;
  std::int32_t came_in_ = 0;  // copies in since the last resize
  Bytes peak_host_{};
};

}  // namespace spillway
