// The experts of a layer that are on the GPU: a fixed number of slots. The least recently used leaves first, or a
// measured hit curve says what is there.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sim/api/experts.hpp"

namespace spillway {

/// Experts in use of a layer: those that are resident, and those that are not, each in their order. An object, so that
/// layers reuse its memory. The two lists are its user's to shorten.
struct SplitUses {
  std::span<ExpertUse> resident{};
  std::span<ExpertUse> missing{};

  /// Those of `used` are resident for which `holds(expert)`. Without a branch for each: no processor can predict it.
  template <class Holds>
  void split(std::span<const ExpertUse> used, const Holds& holds) {
    if (room_.size() < 2 * used.size()) room_.resize(2 * used.size());
    ExpertUse* const first_resident = room_.data();
    ExpertUse* const first_missing = first_resident + used.size();
    ExpertUse* next_resident = first_resident;
    ExpertUse* next_missing = first_missing;
    for (const ExpertUse& use : used) {
      *next_resident = *next_missing = use;
      const auto is_resident = static_cast<std::ptrdiff_t>(holds(use.expert));
      next_resident += is_resident;
      next_missing += 1 - is_resident;
    }
    resident = {first_resident, next_resident};
    missing = {first_missing, next_missing};
  }
  /// The same of all experts of a layer, where bit e of `held` says that expert e is resident: in whole runs.
  void split_all(std::span<const ExpertUse> used, std::span<const std::uint64_t> held) {
    if (room_.size() < 2 * used.size()) room_.resize(2 * used.size());
    ExpertUse* const first_resident = room_.data();
    ExpertUse* const first_missing = first_resident + used.size();
    ExpertUse* next_resident = first_resident;
    ExpertUse* next_missing = first_missing;
    for (std::size_t begin = 0; begin < used.size(); begin += kBits) {
      const std::size_t size = std::min(kBits, used.size() - begin);
      const ExpertUse* const uses = &used[begin];
      std::uint64_t left = held[begin / kBits];
      for (std::size_t at = 0; at < size;) {
        const auto out = std::min<std::size_t>(static_cast<std::size_t>(std::countr_zero(left)), size - at);
        next_missing = std::copy_n(uses + at, out, next_missing);
        at += out;
        if (at == size) break;
        left >>= out;
        const auto in = static_cast<std::size_t>(std::countr_one(left));
        next_resident = std::copy_n(uses + at, in, next_resident);
        at += in;
        left = in < kBits ? left >> in : 0;
      }
    }
    resident = {first_resident, next_resident};
    missing = {first_missing, next_missing};
  }
  /// The same without a list of those that are missing: `miss(use)` is called for each of them, by ascending number.
  template <class Miss>
  void list_resident_of_all(std::span<const ExpertUse> used, std::span<const std::uint64_t> held, const Miss& miss) {
    if (room_.size() < used.size()) room_.resize(used.size());
    ExpertUse* next_resident = room_.data();
    const auto for_each_bit = [](std::uint64_t bits, const auto& visit) {
      for (; bits != 0; bits &= bits - 1) visit(static_cast<std::size_t>(std::countr_zero(bits)));
    };
    for (std::size_t begin = 0; begin < used.size(); begin += kBits) {
      const std::span<const ExpertUse> uses = used.subspan(begin, std::min(kBits, used.size() - begin));
      const std::uint64_t in = held[begin / kBits];
      for_each_bit(in, [&](std::size_t at) { *next_resident++ = uses[at]; });
      for_each_bit(~in & (~std::uint64_t{0} >> (kBits - uses.size())), [&](std::size_t at) { miss(uses[at]); });
    }
    resident = {room_.data(), next_resident};
    missing = {};
  }
  /// Those that are resident of a layer all of whose experts are in use; those that are missing are not listed.
  void list_held(const AllUsed& all, std::span<const std::uint64_t> held) {
    if (room_.size() < all.experts.size()) room_.resize(all.experts.size());
    ExpertUse* next = room_.data();
    std::int32_t first = 0;
    for (std::uint64_t bits : held) {
      for (; bits != 0; bits &= bits - 1) {
        const std::int32_t expert = first + std::countr_zero(bits);
        *next++ = {expert, all.tokens_of(expert)};
      }
      first += static_cast<std::int32_t>(kBits);
    }
    resident = {room_.data(), next};
    missing = {};
  }
  /// One that is missing, whether it is listed or not, joins those that are resident, in their order. O(n).
  void take_as_resident(const ExpertUse& use) {
    const auto listed = std::ranges::find(missing, use.expert, &ExpertUse::expert);
    if (listed != missing.end()) {
      std::shift_left(listed, missing.end(), 1);
      missing = missing.first(missing.size() - 1);
    }
    resident = {resident.data(), resident.size() + 1};
    const auto before = std::ranges::find_if(resident.begin(), resident.end() - 1,
                                             [&use](const ExpertUse& other) { return other.expert > use.expert; });
    std::shift_right(before, resident.end(), 1);
    *before = use;
  }
  /// The bits of a word of `held`.
  static constexpr std::size_t kBits = 64;

 private:
  std::vector<ExpertUse> room_;
};

/// Bit e of `held` says that expert e is there.
[[nodiscard]] inline bool is_held(std::span<const std::uint64_t> held, std::int32_t expert) {
  const auto at = static_cast<std::size_t>(expert);
  return (held[at / SplitUses::kBits] >> (at % SplitUses::kBits) & 1U) != 0;
}

/// How many bits are set. std::popcount() is a call where a processor may lack the instruction.
[[nodiscard]] constexpr std::int64_t count_bits(std::uint64_t bits) {
  bits -= bits >> 1U & 0x5555555555555555U;
  bits = (bits & 0x3333333333333333U) + (bits >> 2U & 0x3333333333333333U);
  bits = (bits + (bits >> 4U)) & 0x0F0F0F0F0F0F0F0FU;
  return static_cast<std::int64_t>(bits * 0x0101010101010101U >> 56U);
}

/// Sets that bit: the expert is there.
inline void hold(std::span<std::uint64_t> held, std::int32_t expert) {
  const auto at = static_cast<std::size_t>(expert);
  held[at / SplitUses::kBits] |= std::uint64_t{1} << (at % SplitUses::kBits);
}

/// Of the uses that it is shown, those with the most tokens: these first, and of equal ones the one with the lowest
/// number.
class MostUsed {
 public:
  /// Forgets all; the next ones are at most `count`.
  void begin(std::size_t count) {
    count_ = count;
    uses_.clear();
    set_bar();
  }
  /// `use` has at least one token, and fewer than 2^31 - 1. O(1), and O(count) where it is among the most used so far.
  void add(const ExpertUse& use) {
    if (use.tokens > bar_ || (use.tokens == bar_ && use.expert < uses_.back().expert)) insert(use);
  }
  /// Whether one with so many tokens may be among the most used so far.
  [[nodiscard]] bool takes(std::int32_t tokens) const { return tokens >= bar_; }
  [[nodiscard]] std::span<const ExpertUse> uses() const { return uses_; }

 private:
  void insert(const ExpertUse& use) {
    if (uses_.size() == count_) uses_.pop_back();
    const auto behind = [&use](const ExpertUse& other) {
      return other.tokens < use.tokens || (other.tokens == use.tokens && other.expert > use.expert);
    };
    uses_.insert(std::ranges::find_if(uses_, behind), use);
    set_bar();
  }
  void set_bar() {
    constexpr std::int32_t kNone = std::numeric_limits<std::int32_t>::max();
    if (uses_.size() < count_) {
      bar_ = 0;
    } else {
      bar_ = count_ == 0 ? kNone : uses_.back().tokens;
    }
  }

  std::size_t count_ = 0;
  std::vector<ExpertUse> uses_;
  std::int32_t bar_ = 0;  // fewer tokens are too few
};

/// Resident experts of one layer, in order of their last use. At most 65,536 experts. Construction takes O(experts).
class ExpertSlots {
 public:
  /// `experts`: of the layer. `resident`: those that are there at the start, the first one leaves first.
  ExpertSlots(std::int32_t experts, std::span<const std::int32_t> resident)
      : slots_(static_cast<std::int32_t>(resident.size())),
        last_use_(static_cast<std::size_t>(experts), kAway),
        held_(last_use_.size() / SplitUses::kBits + 1),
        uses_(2 * (resident.size() + last_use_.size())) {
    for (const std::int32_t expert : resident) append(expert);
  }

  [[nodiscard]] std::int32_t slots() const { return slots_; }
  /// O(1).
  [[nodiscard]] bool holds(std::int32_t expert) const { return last_use_[at(expert)] != kAway; }
  /// Bit e says the same of expert e. O(1).
  [[nodiscard]] std::span<const std::uint64_t> held() const { return held_; }
  /// Experts that are resident are used now, in this order, each once. Amortised O(resident).
  void touch(std::span<const ExpertUse> resident) {
    if (std::ssize(resident) == slots_) {
      first_ = end_ = 0;  // what was before is of no account
    } else if (end_ + resident.size() > uses_.size()) {
      forget();
    }
    for (const ExpertUse& use : resident) {
      last_use_[at(use.expert)] = static_cast<std::uint32_t>(end_);
      uses_[end_++] = static_cast<std::uint16_t>(use.expert);
    }
  }
  /// `expert`, which is not resident, takes the slot of the least recently used one, which is returned. Needs a slot.
  /// Amortised O(1).
  std::int32_t replace(std::int32_t expert) {
    while (last_use_[uses_[first_]] != first_) ++first_;
    const std::int32_t left = uses_[first_++];
    last_use_[at(left)] = kAway;
    flip(left);
    if (end_ == uses_.size()) forget();
    append(expert);
    return left;
  }
  /// The same of each of `missing`, one after the other. Amortised O(missing); where they are at least as many as the
  /// slots, O(slots + experts / 16).
  void replace_all(std::span<const ExpertUse> missing) {
    const auto slots = static_cast<std::size_t>(slots_);
    if (missing.size() < slots) {
      for (const ExpertUse& use : missing) replace(use.expert);
      return;
    }
    // Whoever was there has left, and so have the first of them.
    std::ranges::fill(last_use_, kAway);
    std::ranges::fill(held_, 0);
    first_ = 0;
    end_ = slots;
    missing = missing.last(slots);
    for (std::size_t use = 0; use < slots; ++use) {
      const std::size_t expert = at(missing[use].expert);
      last_use_[expert] = static_cast<std::uint32_t>(use);
      uses_[use] = static_cast<std::uint16_t>(expert);
      held_[expert / SplitUses::kBits] |= std::uint64_t{1} << (expert % SplitUses::kBits);
    }
  }

 private:
  static constexpr std::uint32_t kAway = std::numeric_limits<std::uint32_t>::max();
  static std::size_t at(std::int32_t expert) { return static_cast<std::size_t>(expert); }
  void append(std::int32_t expert) {
    last_use_[at(expert)] = static_cast<std::uint32_t>(end_);
    flip(expert);
    uses_[end_++] = static_cast<std::uint16_t>(expert);
  }
  void flip(std::int32_t expert) {
    held_[at(expert) / SplitUses::kBits] ^= std::uint64_t{1} << (at(expert) % SplitUses::kBits);
  }
  /// Of each resident expert, only the last use counts.
  void forget() {
    std::size_t end = 0;
    for (std::size_t use = first_; use < end_; ++use) {
      const std::uint16_t expert = uses_[use];
      if (last_use_[expert] != use) continue;
      last_use_[expert] = static_cast<std::uint32_t>(end);
      uses_[end++] = expert;
    }
    first_ = 0;
    end_ = end;
  }

  std::int32_t slots_;
  std::vector<std::uint32_t> last_use_;  // by expert, in uses_; kAway: it is not resident
  std::vector<std::uint64_t> held_;      // held()
  std::vector<std::uint16_t> uses_;      // from first_ to end_, the oldest first
  std::size_t first_ = 0;
  std::size_t end_ = 0;
};

/// The slots of all layers. With a measured hit curve, the curve says which experts in use are there, whatever was
/// loaded before. add() takes O(experts), touch(), split(), list_resident() and replace_all() as much as they are
/// given, any other call O(1), all amortised; with a curve, the first call of a layer in an iteration takes O(experts),
/// later ones O(log slots) for each expert.
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
  /// As that of ExpertSlots. Needs a layer without a curve.
  [[nodiscard]] std::span<const std::uint64_t> held(std::int32_t layer) const { return of(layer).held(); }
  /// Whether a hit curve says what is there.
  [[nodiscard]] bool by_curve(std::int32_t layer) const { return drawn(layer).has_value(); }
  /// Experts that are resident are used now, in this order, each once.
  void touch(std::int32_t layer, std::span<const ExpertUse> resident) {
    if (!by_curve(layer)) layers_[static_cast<std::size_t>(layer)].touch(resident);
  }
  /// Which of `used` are resident, and which are not.
  void split(std::int32_t layer, std::span<const ExpertUse> used, SplitUses& uses) const {
    if (const auto found = drawn(layer)) {
      uses.split(used, [&](std::int32_t expert) { return std::ranges::binary_search(*found, expert); });
    } else if (std::ssize(used) == experts_ && few_runs(of(layer).held())) {
      uses.split_all(used, of(layer).held());
    } else {
      uses.split(used, [&slots = of(layer)](std::int32_t expert) { return slots.holds(expert); });
    }
  }
  /// Lists which of `used` are resident, and calls `miss(use)` for each of the others in their order. The list of those
  /// that are missing is not to be read.
  template <class Miss>
  void list_resident(std::int32_t layer, std::span<const ExpertUse> used, SplitUses& uses, const Miss& miss) const {
    if (std::ssize(used) == experts_ && !by_curve(layer)) {
      return uses.list_resident_of_all(used, of(layer).held(), miss);
    }
    split(layer, used, uses);
    for (const ExpertUse& use : uses.missing) miss(use);
  }
  /// `expert` takes a slot; which expert left it, if that is known.
  std::optional<std::int32_t> replace(std::int32_t layer, std::int32_t expert) {
    if (by_curve(layer)) return std::nullopt;
    return layers_[static_cast<std::size_t>(layer)].replace(expert);
  }
  /// Each of `missing` takes a slot, one after the other.
  void replace_all(std::int32_t layer, std::span<const ExpertUse> missing) {
    if (!by_curve(layer)) layers_[static_cast<std::size_t>(layer)].replace_all(missing);
  }

 private:
  [[nodiscard]] const ExpertSlots& of(std::int32_t layer) const { return layers_[static_cast<std::size_t>(layer)]; }
  /// Whole runs are faster to copy than each by itself, unless a run is short: its end is a surprise to a processor.
  [[nodiscard]] bool few_runs(std::span<const std::uint64_t> held) const {
    constexpr std::int32_t kShort = 8;  // experts
    std::int32_t ends = 0;
    for (const std::uint64_t bits : held) ends += std::popcount(bits ^ (bits << 1U));
    return ends * kShort < experts_;
  }
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
