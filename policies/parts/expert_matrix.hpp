// How likely each expert of each layer is used: the matrix by which MoE-Infinity loads experts ahead and lets them
// leave.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "policies/parts/expert_slots.hpp"
#include "sim/core/error.hpp"
#include "sim/core/prefetch.hpp"

namespace spillway {

/// An expert of a layer with experts.
struct LayerExpert {
  std::int32_t layer = 0;
  std::int32_t expert = 0;
  bool operator==(const LayerExpert&) const = default;
};

/// Worth of loading an expert of `layer` while `running` runs, of `layers`: its share of its row, less for later layers
/// (MoE-Infinity, arXiv 2401.14361, 4.5).
[[nodiscard]] constexpr double load_priority(double share, std::int32_t layer, std::int32_t running,
                                             std::int32_t layers) {
  return share * (1.0 - static_cast<double>(layer - running) / static_cast<double>(layers));
}

/// The factor of `layer` in the worth of keeping one of its experts: early layers stay (step 3).
[[nodiscard]] constexpr double keep_factor(std::int32_t layer, std::int32_t layers) {
  return 1.0 - static_cast<double>(layer) / static_cast<double>(layers);
}
/// Worth of keeping an expert. A share of 0 still leaves an order.
[[nodiscard]] constexpr double keep_priority(double share, double factor) {
  constexpr double kLeast = 1e-9;
  return (share + kLeast) * factor;
}
[[nodiscard]] constexpr double keep_priority(double share, std::int32_t layer, std::int32_t layers) {
  return keep_priority(share, keep_factor(layer, layers));
}

/// A share, 0 to 1, to a billionth, halves up: shares that are equal but for the rounding on their way are equal.
[[nodiscard]] constexpr double to_billionths(double share) {
  const double billionths = share * 1e9;
  const double whole = static_cast<std::int32_t>(billionths);
  return (whole + static_cast<double>(billionths - whole >= 0.5)) * 1e-9;
}

/// How many of `count` come before the first one that does not fulfil `holds(i)`; none behind it may. O(log count),
/// without a branch for each step: no processor can predict it. Each step waits for the one before, so the last few are
/// counted at once.
template <class Holds>
[[nodiscard]] constexpr std::size_t count_leading(std::size_t count, const Holds& holds) {
  constexpr std::size_t kFew = 32;
  std::size_t leading = 0;  // of the `count` that follow these, some may be, too
  while (count > kFew) {
    const std::size_t half = (count + 1) / 2;
    leading += half & (std::size_t{0} - static_cast<std::size_t>(holds(leading + half - 1)));
    count -= half;
  }
  std::uint16_t more = 0;  // as wide as a rank, so that a processor compares many at once
  for (std::size_t i = 0; i < count; ++i) more = static_cast<std::uint16_t>(more + (holds(leading + i) ? 1 : 0));
  return leading + more;
}

/// Not a character type: a write to one might change anything, so a compiler would read everything again.
enum class Presence : std::uint8_t { absent, present };

/// Which experts are present.
class PresentExperts {
 public:
  /// At first none is.
  PresentExperts(std::int32_t layers, std::int32_t experts)
      : experts_(static_cast<std::size_t>(experts)), present_(static_cast<std::size_t>(layers) * experts_) {}
  [[nodiscard]] bool has(const LayerExpert& one) const { return row(one.layer)[one.expert] == Presence::present; }
  void set(const LayerExpert& one, bool present) {
    present_[static_cast<std::size_t>(one.layer) * experts_ + static_cast<std::size_t>(one.expert)] =
        present ? Presence::present : Presence::absent;
  }
  /// The expert of this number in all layers is absent: layer * experts + expert.
  void clear_number(std::size_t number) { present_[number] = Presence::absent; }
  /// All of a layer are present.
  void fill(std::int32_t layer) { std::ranges::fill(of(layer), Presence::present); }
  /// Of a layer, these experts are present and no others.
  void keep_only(std::int32_t layer, std::span<const std::uint16_t> experts) {
    const std::span<Presence> row = of(layer);
    std::ranges::fill(row, Presence::absent);
    for (const std::uint16_t expert : experts) row[expert] = Presence::present;
  }
  /// Of a layer, these experts are absent.
  void clear(std::int32_t layer, std::span<const std::uint16_t> experts) {
    const std::span<Presence> row = of(layer);
    for (const std::uint16_t expert : experts) row[expert] = Presence::absent;
  }
  /// How many of a layer are present.
  [[nodiscard]] std::size_t count(std::int32_t layer) const {
    constexpr std::size_t kAtOnce = 128;  // a byte holds their number
    const Presence* const row = this->row(layer);
    std::size_t count = 0;
    // Sums of one byte each, so that a processor adds up many at once.
    for (std::size_t begin = 0, end = 0; begin < experts_; begin = end) {
      end = std::min(begin + kAtOnce, experts_);
      std::uint8_t some = 0;
      for (std::size_t e = begin; e < end; ++e) {
        some = static_cast<std::uint8_t>(some + static_cast<std::uint8_t>(row[e]));
      }
      count += some;
    }
    return count;
  }
  /// By expert.
  [[nodiscard]] const Presence* row(std::int32_t layer) const {
    return present_.data() + static_cast<std::size_t>(layer) * experts_;
  }
  /// The same as bits: bit e % 64 of word e / 64 says whether expert e is present. O(experts / 8).
  void read_bits(std::int32_t layer, std::vector<std::uint64_t>& words) const {
    constexpr std::size_t kBits = 64;
    constexpr std::size_t kAtOnce = 8;
    words.resize((experts_ + kBits - 1) / kBits);
    const Presence* row = this->row(layer);
    std::size_t left = experts_;
    for (std::uint64_t& word : words) {
      word = 0;
      const std::size_t bits = std::min(left, kBits);
      left -= bits;
      if (bits == kBits) {
        for (std::size_t bit = 0; bit < kBits; bit += kAtOnce) {
          std::uint64_t eight = 0;
          std::memcpy(&eight, row + bit, kAtOnce);
          static_assert(std::endian::native == std::endian::little);
          // Each byte is 0 or 1: byte i becomes bit 56 + i, and nothing is carried into those.
          word |= (eight * 0x0102040810204080U >> 56U) << bit;
        }
      } else {
        for (std::size_t bit = 0; bit < bits; ++bit) word |= static_cast<std::uint64_t>(row[bit]) << bit;
      }
      row += bits;
    }
  }

 private:
  [[nodiscard]] std::span<Presence> of(std::int32_t layer) {
    return std::span(present_).subspan(static_cast<std::size_t>(layer) * experts_, experts_);
  }

  std::size_t experts_;
  std::vector<Presence> present_;
};

/// Shares of every expert, each row adding up to 1, in billionths (to_billionths()), and two orders of the experts. In
/// that of a row, by share, the largest comes first; the number of an expert is its place. In that of all rows, by what
/// keeping an expert is worth, the least comes first; the number is its rank. Of equal ones, the expert with the lowest
/// number comes first in a row. In the order of all rows the first layer does, and in it the expert with the highest.
class ExpertShares {
 public:
  /// A rank, or the number of an expert in all layers: layer * experts + expert. Small, so that a cache holds them.
  using Number = std::uint16_t;
  /// The most experts of all layers. One less than there are numbers, so that the end of the ranks is one, too.
  static constexpr std::int64_t kMost = std::numeric_limits<Number>::max();
  /// `share(layer, expert)`; at most kMost experts. O(n log n) for n experts of all layers; O(n) where what keeping
  /// them is worth is spread out.
  template <class Share>
  ExpertShares(std::int32_t layers, std::int32_t experts, const Share& share)
      : layers_(layers),
        experts_(static_cast<std::size_t>(experts)),
        shares_(static_cast<std::size_t>(layers) * experts_),
        order_(shares_.size()),
        rank_(shares_.size()),
        rank_of_place_(shares_.size()),
        share_of_place_(shares_.size()),
        by_worth_(shares_.size()),
        inverse_((std::uint64_t{1} << kShift) / experts_ + 1),
        worth_same_(shares_.size() / kBits + 1) {
    SPILLWAY_CHECK(std::ssize(shares_) <= kMost, "more experts than ranks");
    for (std::int32_t layer = 0; layer < layers; ++layer) factors_.push_back(keep_factor(layer, layers));
    change([&](std::int32_t layer, std::span<double> row) {
      for (std::int32_t e = 0; e < experts; ++e) row[static_cast<std::size_t>(e)] = share(layer, e);
    });
  }
  /// Replaces all shares: `fill(layer, row)` must write every element of `row`, by expert. A matrix that uses them
  /// needs set() of the same object before any other call. As the constructor.
  template <class Fill>
  void change(const Fill& fill) {
    for (std::int32_t layer = 0; layer < layers_; ++layer) {
      fill(layer, std::span(shares_).subspan(at(layer, 0), experts_));
    }
    sort();
  }
  [[nodiscard]] std::int32_t layers() const { return layers_; }
  [[nodiscard]] std::int32_t experts() const { return static_cast<std::int32_t>(experts_); }
  /// Experts by their places.
  [[nodiscard]] const std::uint16_t* order(std::int32_t layer) const { return order_.data() + at(layer, 0); }
  [[nodiscard]] double share_of_place(std::int32_t layer, std::int32_t place) const {
    return share_of_place_[at(layer, place)];
  }
  /// No share is higher.
  [[nodiscard]] double highest() const { return highest_; }
  /// By place: they fall.
  [[nodiscard]] const Number* ranks_of_places(std::int32_t layer) const { return rank_of_place_.data() + at(layer, 0); }
  /// By expert.
  [[nodiscard]] const Number* ranks(std::int32_t layer) const { return rank_.data() + at(layer, 0); }
  /// The first rank whose expert is worth more than that of this one. O(1), and O(n) where all are worth the same.
  [[nodiscard]] std::size_t worth_more(std::size_t rank) const {
    do {
      ++rank;
    } while (rank < by_worth_.size() && (worth_same_[rank / kBits] >> (rank % kBits) & 1U) != 0);
    return rank;
  }
  [[nodiscard]] LayerExpert by_worth(std::size_t rank) const {
    const std::size_t number = by_worth_[rank];
    const std::int32_t layer = layer_of(number);
    return {layer, static_cast<std::int32_t>(number) - layer * experts()};
  }
  /// The numbers of the experts in all layers, by rank.
  [[nodiscard]] const Number* numbers_by_worth() const { return by_worth_.data(); }
  /// The layer of the expert of this number in all layers. Without a division.
  [[nodiscard]] std::int32_t layer_of(std::size_t number) const {
    return static_cast<std::int32_t>(number * inverse_ >> kShift);
  }
  /// How many experts of a layer have this rank or a higher one: those at its first places. O(log experts).
  [[nodiscard]] std::int32_t places_from(std::int32_t layer, std::size_t rank) const {
    const auto least = static_cast<Number>(std::min<std::size_t>(rank, kMost));  // compared as a rank, many at once
    const auto is_higher = [ranks = ranks_of_places(layer), least](std::size_t place) { return ranks[place] >= least; };
    return static_cast<std::int32_t>(count_leading(experts_, is_higher));
  }

 private:
  struct Worth {
    std::int64_t bits = 0;     // of a number above 0: they are in its order
    std::uint32_t number = 0;  // in the order of equal ones
    auto operator<=>(const Worth&) const = default;
  };
  static constexpr std::size_t kBits = 64;
  static constexpr int kShift = 32;
  [[nodiscard]] std::size_t at(std::int32_t layer, std::int32_t place) const {
    return static_cast<std::size_t>(layer) * experts_ + static_cast<std::size_t>(place);
  }
  void sort() {
    const std::size_t count = shares_.size();
    unsorted_.resize(count);
    std::size_t number = 0;
    for (std::int32_t layer = 0; layer < layers_; ++layer) {
      const double factor = factors_[static_cast<std::size_t>(layer)];
      for (std::int32_t e = experts(); e-- > 0; ++number) {
        const double worth = keep_priority(shares_[at(layer, e)], factor);
        unsorted_[number] = {std::bit_cast<std::int64_t>(worth), static_cast<std::uint32_t>(number)};
      }
    }
    sort_by_ranges();
    next_place_.assign(static_cast<std::size_t>(layers_), experts_);
    for (std::size_t rank = 0; rank < count; ++rank) {
      const std::size_t of_number = sorted_[rank].number;
      const std::size_t layer = of_number / experts_;
      const std::size_t expert = experts_ - 1 - of_number % experts_;
      const std::size_t row = layer * experts_;
      rank_[row + expert] = static_cast<Number>(rank);
      const std::size_t place = --next_place_[layer];
      order_[row + place] = static_cast<std::uint16_t>(expert);
      rank_of_place_[row + place] = static_cast<Number>(rank);
      share_of_place_[row + place] = shares_[row + expert];
      by_worth_[rank] = static_cast<Number>(row + expert);
    }
    std::ranges::fill(worth_same_, 0);
    for (std::size_t rank = 1; rank < count; ++rank) {
      const bool is_same = sorted_[rank].bits == sorted_[rank - 1].bits;
      worth_same_[rank / kBits] |= static_cast<std::uint64_t>(is_same) << (rank % kBits);
    }
    highest_ = *std::ranges::max_element(shares_);
  }
  /// By a count over as many ranges as there are numbers, then within each.
  void sort_by_ranges() {
    const auto [lowest, highest] = std::ranges::minmax(unsorted_, {}, &Worth::bits);
    const std::size_t ranges = std::bit_ceil(unsorted_.size());
    int shift = 0;
    while (static_cast<std::size_t>((highest.bits - lowest.bits) >> shift) >= ranges) ++shift;
    const auto range_of = [first = lowest.bits, shift](const Worth& one) {
      return static_cast<std::size_t>((one.bits - first) >> shift);
    };
    ends_.assign(ranges + 1, 0);
    for (const Worth& one : unsorted_) ++ends_[range_of(one) + 1];
    for (std::size_t range = 0; range < ranges; ++range) ends_[range + 1] += ends_[range];
    sorted_.resize(unsorted_.size());
    for (const Worth& one : unsorted_) sorted_[ends_[range_of(one)]++] = one;
    std::size_t begin = 0;
    for (std::size_t range = 0; range < ranges; ++range) {
      const std::size_t end = ends_[range];
      if (end > begin + 1) std::ranges::sort(std::span(sorted_).subspan(begin, end - begin));
      begin = end;
    }
  }

  std::int32_t layers_;
  std::size_t experts_;
  std::vector<double> factors_;  // of each layer
  // Layer by layer:
  std::vector<double> shares_;         // by expert
  std::vector<std::uint16_t> order_;   // by place
  std::vector<Number> rank_;           // by expert
  std::vector<Number> rank_of_place_;  // so that those of a few places are next to each other
  std::vector<double> share_of_place_;
  std::vector<Number> by_worth_;           // numbers in all layers, by rank
  std::uint64_t inverse_;                  // a little more than 2^32 / experts: exact for numbers below 2^16
  std::vector<std::uint64_t> worth_same_;  // bits by rank: worth the same as the one before
  double highest_ = 0.0;
  // Kept for their memory:
  std::vector<Worth> sorted_;
  std::vector<Worth> unsorted_;
  std::vector<std::uint32_t> ends_;  // of the ranges
  std::vector<std::size_t> next_place_;
};

/// An expert, and the first rank of those that are more worth keeping.
struct KeptExpert {
  LayerExpert one{};
  std::size_t worth_more = 0;
  bool operator==(const KeptExpert&) const = default;
};

/// The first absent expert by share of each layer, and which of these is most worth loading.
class FirstAbsent {
 public:
  explicit FirstAbsent(std::int32_t layers) : share_(static_cast<std::size_t>(layers), kNone), rank_(share_.size()) {
    for (std::int32_t distance = 0; distance <= layers; ++distance) {
      nearness_.push_back(load_priority(1.0, distance, 0, layers));
    }
  }
  /// It is at `place`; experts(): none is absent.
  void set(const ExpertShares& shares, std::int32_t layer, std::int32_t place) {
    const auto at = static_cast<std::size_t>(layer);
    if (place == shares.experts()) {
      share_[at] = kNone;
      return;
    }
    share_[at] = shares.share_of_place(layer, place);
    rank_[at] = shares.ranks_of_places(layer)[place];
  }
  /// Its layer, of those after `running` whose expert is of rank `from` or a higher one; -1: there is none. `look(l)`
  /// sets that of layer l if it may have changed; no share is above `bound`. O(layers).
  template <class Look>
  [[nodiscard]] std::int32_t most(std::int32_t running, std::size_t from, double bound, const Look& look) const {
    std::int32_t most = -1;
    double highest = -1.0;
    const auto layers = static_cast<std::int32_t>(share_.size());
    // look() changes what they point at, not where that is.
    const double* const shares = share_.data();
    const std::uint32_t* const ranks = rank_.data();
    const double* const nearness = nearness_.data();
    for (std::int32_t l = running + 1; l < layers; ++l) {
      const double near = nearness[l - running];
      if (bound * near <= highest) break;  // nor is a later one worth more
      look(l);
      if (ranks[l] < from) continue;
      const double worth = shares[l] * near;
      most = worth > highest ? l : most;
      highest = std::max(highest, worth);
    }
    return most;
  }

 private:
  static constexpr double kNone = -std::numeric_limits<double>::infinity();
  // By layer, next to each other, because most() reads those of later layers.
  std::vector<double> share_;        // of its first absent expert; kNone: none is
  std::vector<std::uint32_t> rank_;  // of that
  std::vector<double> nearness_;     // by distance of two layers
};

/// Which of the present experts is worth least, and which absent one most, by shares that may change.
///
/// Contract of this and of SeldomAskedMatrix
///  * `present` and `shares` must outlive it, `shares` until the next set() has returned.
///  * Each change of `present` is told by a call with "add", "fill" or "remove" in its name after it, or is made when
///    remove_least() names the experts; at the start, none is present. Meanwhile, no other function of the object may
///    be called.
///  * least(running) is the present expert that is least worth keeping, of all layers but `running`; of equal ones the
///    one of the first layer. 0 <= running < layers.
///  * most(running, from) is the absent expert that is most worth loading, of the layers after `running` and of those
///    of rank `from` or a higher one: more worth keeping than what would have to leave. Likewise.
///
/// Those that are present are bits in the order of all experts. Where many experts of a layer come at once, most of
/// them leave soon, and a bit for each would cost more than it saves. So those that are worth less than every other
/// expert at that time have none: they are the tail, a range of places of that layer, which gets shorter from its end.
/// Nor are there bits for those of a full layer that will most likely stay until the shares change: those of ranks well
/// above all that were looked at while earlier shares were in use. Once a search gets that far, all get their bits.
class ExpertMatrix {
 public:
  ExpertMatrix(const PresentExperts& present, const ExpertShares& shares)
      : present_(present),
        present_by_rank_(
            static_cast<std::size_t>(shares.layers()) * static_cast<std::size_t>(shares.experts()) / kBits + 1),
        prefix_(static_cast<std::size_t>(shares.layers())),
        gap_ends_(prefix_.size()),
        gaps_changed_(gap_ends_.size()),
        gaps_(gap_ends_.size()),
        first_absent_(shares.layers()) {
    set(shares);
  }

  /// Replaces the shares. Those before may only have changed if they are the same object. O(n / 8 + present experts)
  /// for n experts of all layers.
  void set(const ExpertShares& shares) {
    const ExpertShares* const before = shares_ == &shares ? nullptr : shares_;
    shares_ = &shares;
    std::ranges::fill(present_by_rank_, 0);
    std::uint64_t* const words = present_by_rank_.data();
    const std::size_t row_bytes = static_cast<std::size_t>(shares.experts()) * sizeof(Number);
    for (std::int32_t layer = 0; layer < shares.layers(); ++layer) {
      const Number* const ranks = shares.ranks(layer);
      spillway::prefetch(shares.ranks(std::min(layer + 1, shares.layers() - 1)), row_bytes);
      if (before != nullptr && prefix_[at(layer)] != 0) {
        const std::span order(before->order(layer), present_.count(layer));
#pragma GCC unroll 4
        for (const std::uint16_t expert : order) mark(words, ranks[expert]);
        continue;
      }
      present_.read_bits(layer, row_);
      for (std::size_t word = 0; word < row_.size(); ++word) {
        for (std::uint64_t bits = row_[word]; bits != 0; bits &= bits - 1) {
          mark(words, ranks[word * kBits + static_cast<std::size_t>(std::countr_zero(bits))]);
        }
      }
    }
    std::ranges::fill(prefix_, Number{0});
    first_ = first_running_ = 0;
    tail_ = {};
    constexpr std::size_t kMargin = 4;  // words
    if (reached_ > 0) reached_before_ = std::exchange(reached_, 0);
    marked_end_ = std::min(reached_before_ + kMargin, present_by_rank_.size());
    is_rest_marked_ = true;
    std::ranges::fill(gap_ends_, std::numeric_limits<Number>::max());
    std::ranges::fill(gaps_changed_, Number{1});
    std::ranges::fill(gaps_, 0);
  }
  /// O(1). So is remove(), but O(log experts) in a layer that has lost none but its last ones since all came, and
  /// O(experts) for the tail's last expert.
  void add(const LayerExpert& one) {
    add_all(one.layer, 1, [&one](std::size_t /*i*/) { return one.expert; });
  }
  void remove(const LayerExpert& one) {
    const std::size_t rank = shares_->ranks(one.layer)[one.expert];
    present_by_rank_[rank / kBits] &= ~bit(rank);
    note_gap(rank, one.layer);
    Number& prefix = prefix_[at(one.layer)];
    if (prefix != 0) prefix = static_cast<Number>(!is_present(one.layer, shares_->places_from(one.layer, rank)));
    if (one.layer == tail_.layer) shorten_tail();
  }
  /// As add() of several of one layer, `expert(i)` for each `i` below `count`. O(count).
  template <class Expert>
  void add_all(std::int32_t layer, std::size_t count, const Expert& expert) {
    const Number* const ranks = shares_->ranks(layer);
    Number lowest = std::numeric_limits<Number>::max();
    for (std::size_t i = 0; i < count; ++i) {
      const Number rank = ranks[expert(i)];
      mark(rank);
      lowest = std::min(lowest, rank);
    }
    prefix_[at(layer)] = 0;
    starts_at(layer, lowest / kBits);
  }
  /// As add() of many of one layer, no matter which: `present` says so. O(experts).
  void add_many(std::int32_t layer) {
    const std::uint16_t* const order = shares_->order(layer);
    const Number* const ranks = shares_->ranks_of_places(layer);
    const Presence* const present = present_.row(layer);
    begin_tail(layer);
    prefix_[at(layer)] = 0;
    for (std::int32_t place = 0; place < tail_.begin; ++place) {
      const std::size_t rank = ranks[place];
      present_by_rank_[rank / kBits] |= static_cast<std::uint64_t>(present[order[place]]) << (rank % kBits);
    }
    shorten_tail();
  }
  /// Asks the caches for what fill() reads.
  SPILLWAY_PREFETCHES void prefetch(std::int32_t layer) const {
    spillway::prefetch(shares_->ranks_of_places(layer), static_cast<std::size_t>(shares_->experts()) * sizeof(Number));
  }
  /// The same where all of the layer are present now. O(log experts), and O(1) for each that gets a bit and for each
  /// that is left of the tail before.
  void fill(std::int32_t layer) {
    const Number* const ranks = shares_->ranks_of_places(layer);
    begin_tail(layer);
    prefix_[at(layer)] = 1;
    std::uint64_t* const words = present_by_rank_.data();
    const std::size_t end = marked_end_ * kBits;
    for (std::int32_t place = tail_.begin; place > 0 && ranks[place - 1] < end; --place) mark(words, ranks[place - 1]);
    is_rest_marked_ = false;
    gap_ends_[at(layer)] = 0;
    gaps_changed_[at(layer)] = 0;
    gaps_[at(layer)] = shares_->experts();
    first_absent_.set(*shares_, layer, shares_->experts());
  }
  /// Removes the `count` experts that least(running) would name one after the other, if each was removed; so many must
  /// be there in other layers. Calls `left(number, layer)` in turn for each, with its number in all layers, or
  /// `left_last(layer, begin, end, whole)` for those of a layer that are at places from `begin` to `end` - 1 of its
  /// order, the last one first; `whole`: all that are at places before `end` were present, and no others. Both must
  /// change `present`. O(layers + experts + count + n / 64) for n experts of all layers, and O(n) at most once after
  /// each set().
  template <class Left, class LeftLast>
  void remove_least(std::int32_t running, std::int64_t count, const Left& left, const LeftLast& left_last) {
    if (count == 0) return;
    run(running);
    if (count < std::ssize(gaps_)) {
      remove_first<false>(count, left_last, [&](std::size_t rank, std::size_t number) {
        const std::int32_t layer = shares_->layer_of(number);
        note_gap(rank, layer);
        left(number, layer);
      });
      return;
    }
    // Nearly all layers lose some: all note the end of a word that is not before the last one that has lost any.
    remove_first<true>(count, left_last,
                       [&](std::size_t /*rank*/, std::size_t number) { left(number, shares_->layer_of(number)); });
    const auto end = static_cast<Number>(std::min<std::size_t>((first_ + 1) * kBits, ExpertShares::kMost));
    // Ranks and changes are as wide as each other, so that a processor notes many at once.
    Number* const changed = gaps_changed_.data();
    Number* const gap_ends = gap_ends_.data();
    for (std::size_t layer = 0; layer < gaps_.size(); ++layer) {
      const Number before = gap_ends[layer];
      gap_ends[layer] = std::max(before, end);
      changed[layer] |= static_cast<Number>(gap_ends[layer] ^ before);
    }
  }
  /// The experts of a layer by share.
  [[nodiscard]] std::span<const std::uint16_t> order(std::int32_t layer) const {
    return {shares_->order(layer), static_cast<std::size_t>(shares_->experts())};
  }
  /// As remove_least() of one.
  [[nodiscard]] std::optional<KeptExpert> least(std::int32_t running) {
    run(running);
    std::optional<KeptExpert> least;
    const auto keep = [&](std::size_t rank, std::size_t /*number*/) {
      least = {shares_->by_worth(rank), shares_->worth_more(rank)};
      return false;
    };
    for (;;) {
      if (tail_word() < first_) {
        const LayerExpert one{tail_.layer, shares_->order(tail_.layer)[tail_.end - 1]};
        return KeptExpert{one, shares_->worth_more(tail_rank())};
      }
      if (first_ == present_by_rank_.size()) return std::nullopt;
      if (!visit<false>(stop_before_tail(), keep)) return least;
    }
  }
  /// O(layers), and O(experts) for each layer that has changed since it was asked for.
  [[nodiscard]] std::optional<LayerExpert> most(std::int32_t running, std::size_t from) {
    const std::int32_t layer = first_absent_.most(running, from, shares_->highest(), [this](std::int32_t later) {
      if (gaps_changed_[at(later)] != 0) look_for_gap(later);
    });
    if (layer < 0) return std::nullopt;
    return LayerExpert{layer, shares_->order(layer)[gaps_[at(layer)]]};
  }

 private:
  using Number = ExpertShares::Number;
  /// Places of a layer's order, from `begin` to `end` - 1. The experts there that are present need no bits. One that
  /// has come back has one all the same, which changes nothing: the tail is shorter before the bit is looked at.
  struct Tail {
    std::int32_t layer = -1;
    std::int32_t begin = 0;
    std::int32_t end = 0;  // that at the place before is present
  };
  static constexpr std::size_t kBits = 64;
  static std::size_t at(std::int32_t layer) { return static_cast<std::size_t>(layer); }
  static std::uint64_t bit(std::size_t rank) { return std::uint64_t{1} << (rank % kBits); }
  static void mark(std::uint64_t* words, std::size_t rank) { words[rank / kBits] |= bit(rank); }
  void mark(std::size_t rank) { mark(present_by_rank_.data(), rank); }
  /// Whether the expert at that place is; none is behind all places.
  [[nodiscard]] bool is_present(std::int32_t layer, std::int32_t place) const {
    return place < shares_->experts() && present_.has({layer, shares_->order(layer)[place]});
  }
  /// Experts of `layer` are new, with bits in no word before `word`.
  void starts_at(std::int32_t layer, std::size_t word) {
    std::size_t& first = layer == running_ ? first_running_ : first_;
    first = std::min(first, word);
    gaps_changed_[at(layer)] = 1;
  }
  [[nodiscard]] bool has_tail() const { return tail_.begin < tail_.end; }
  /// The rank of the tail's last expert: none of the tail is lower.
  [[nodiscard]] std::size_t tail_rank() const { return shares_->ranks_of_places(tail_.layer)[tail_.end - 1]; }
  /// The last ones of the tail may have left.
  void shorten_tail() {
    const std::uint16_t* const order = shares_->order(tail_.layer);
    const Presence* const present = present_.row(tail_.layer);
    while (has_tail() && present[order[tail_.end - 1]] == Presence::absent) --tail_.end;
  }
  /// Those of the tail become bits. The next tail is of `layer`, with the ranks that come before every word that has a
  /// bit, and may be too long.
  void begin_tail(std::int32_t layer) {
    if (has_tail()) {
      const std::uint16_t* const order = shares_->order(tail_.layer);
      const Presence* const present = present_.row(tail_.layer);
      const Number* const ranks = shares_->ranks_of_places(tail_.layer);
      for (std::int32_t place = tail_.begin; place < tail_.end; ++place) {
        if (present[order[place]] == Presence::present) mark(ranks[place]);
      }
      starts_at(tail_.layer, tail_rank() / kBits);
    }
    reached_ = std::max(reached_, first_);
    const std::size_t first = std::min(first_, first_running_);
    starts_at(layer, first);
    tail_ = {.layer = layer, .begin = shares_->places_from(layer, first * kBits), .end = shares_->experts()};
  }
  /// The word of the tail's last expert; behind all words if there is none that may leave.
  [[nodiscard]] std::size_t tail_word() const {
    const bool may_leave = has_tail() && tail_.layer != running_;
    return may_leave ? tail_rank() / kBits : present_by_rank_.size() + 1;
  }
  /// Those of the tail that belong in the word `first_`, and none before it, become bits. Returns the word of the next
  /// one, or the end of all words.
  std::size_t stop_before_tail() {
    std::size_t word = tail_word();
    while (word == first_) {
      mark(tail_rank());
      --tail_.end;
      shorten_tail();
      word = tail_word();
    }
    return std::min(word, present_by_rank_.size());
  }
  /// The expert of this rank has left.
  void note_gap(std::size_t rank, std::int32_t layer) {
    Number& end = gap_ends_[at(layer)];
    if (rank < end) return;
    end = static_cast<Number>(rank + 1);
    gaps_changed_[at(layer)] = 1;
  }
  void look_for_gap(std::int32_t layer) {
    const std::uint16_t* const order = shares_->order(layer);
    const Presence* const present = present_.row(layer);
    const Number* const ranks = shares_->ranks_of_places(layer);
    const std::int32_t experts = shares_->experts();
    Number& end = gap_ends_[at(layer)];
    std::int32_t place = gaps_[at(layer)];
    // Of a layer that was full, many may have left; of others, few.
    if (place == experts) place = shares_->places_from(layer, end);
    while (place > 0 && ranks[place - 1] < end) --place;
    if (place < experts && present[order[place]] == Presence::present) {
      while (place < experts && present[order[place]] == Presence::present) ++place;
      end = place < experts ? static_cast<Number>(ranks[place] + 1) : Number{0};
    }
    gaps_[at(layer)] = place;
    gaps_changed_[at(layer)] = 0;
    first_absent_.set(*shares_, layer, place);
  }
  /// From now on, the experts of `running` stay.
  void run(std::int32_t running) {
    if (running == running_) return;
    running_ = running;
    first_ = std::min(first_, first_running_);
    first_running_ = present_by_rank_.size();
  }
  /// The first word from `word` on that has a bit; `stop`: none before it does. Gives the rest their bits if it gets to
  /// them.
  [[nodiscard]] std::size_t next_word(std::size_t word, std::size_t stop) {
    const std::uint64_t* const words = present_by_rank_.data();
    const std::size_t end = std::min(stop, marked_end_);
    while (word < end && words[word] == 0) ++word;
    if (word < end || end == stop) return word;
    mark_rest();
    return next_word(word, stop);
  }
  /// From now on, every expert that is present and not of the tail has its bit.
  void mark_rest() {
    const std::size_t begin = std::exchange(marked_end_, present_by_rank_.size()) * kBits;
    if (is_rest_marked_) return;
    for (std::int32_t layer = 0; layer < shares_->layers(); ++layer) {
      const Number* const ranks = shares_->ranks_of_places(layer);
      const std::uint16_t* const order = shares_->order(layer);
      const Presence* const present = present_.row(layer);
      for (std::int32_t place = 0; place < shares_->experts() && ranks[place] >= begin; ++place) {
        if (present[order[place]] == Presence::present) mark(ranks[place]);
      }
    }
  }
  /// Where those of the tail begin that leave: at most the last `count`, and none of the word `first_` or a later one.
  /// Takes them off the count.
  [[nodiscard]] std::int32_t last_of_tail(std::int64_t& count) const {
    const Number* const ranks = shares_->ranks_of_places(tail_.layer);
    const std::size_t stop = first_ * kBits;
    std::int32_t begin = tail_.end;
    if (prefix_[at(tail_.layer)] != 0) {
      begin = static_cast<std::int32_t>(std::max<std::int64_t>(tail_.begin, tail_.end - count));
      if (ranks[begin] >= stop) begin = shares_->places_from(tail_.layer, stop);
      count -= tail_.end - begin;
      return begin;
    }
    const std::uint16_t* const order = shares_->order(tail_.layer);
    const Presence* const present = present_.row(tail_.layer);
    for (; begin > tail_.begin && ranks[begin - 1] < stop && count > 0; --begin) {
      count -= static_cast<std::int64_t>(present[order[begin - 1]]);
    }
    return begin;
  }
  /// Removes the first `count`. Calls `left(rank, number)`, or `left_last` as remove_least() does. `in_words`: whole
  /// words at once where they leave.
  template <bool in_words, class LeftLast, class Left>
  void remove_first(std::int64_t count, const LeftLast& left_last, const Left& left) {
    for (;;) {
      if (tail_word() < first_) {
        const std::int32_t begin = last_of_tail(count);
        note_gap(shares_->ranks_of_places(tail_.layer)[begin], tail_.layer);
        left_last(tail_.layer, begin, tail_.end, prefix_[at(tail_.layer)] != 0);
        tail_.end = begin;
        shorten_tail();
        if (count == 0) return;
      }
      if (first_ == present_by_rank_.size()) return;
      const std::size_t stop = stop_before_tail();
      if constexpr (in_words) count -= remove_words(stop, count, left);
      if (count == 0) return;
      const bool more = visit<true>(stop, [&](std::size_t rank, std::size_t number) {
        left(rank, number);
        return --count > 0;
      });
      if (!more) return;
    }
  }
  /// Removes those that do not stay of the words from `first_` to `stop` - 1, word by word, up to one that has more
  /// bits than are left of `count`. Calls `left(rank, number)` for each. Returns how many have left.
  template <class Left>
  [[nodiscard]] std::int64_t remove_words(std::size_t stop, const std::int64_t count, const Left& left) {
    const auto experts = static_cast<std::size_t>(shares_->experts());
    const std::size_t staying = at(running_) * experts;  // numbers from there on
    std::int64_t more = count;
    for (first_ = next_word(first_, stop); first_ < stop; first_ = next_word(first_ + 1, stop)) {
      std::uint64_t bits = present_by_rank_[first_];
      const std::int64_t in_word = count_bits(bits);
      if (in_word > more) break;
      more -= in_word;
      const std::size_t first_rank = first_ * kBits;
      const Number* const numbers = shares_->numbers_by_worth() + first_rank;
      std::uint64_t stay = 0;
      for (; bits != 0; bits &= bits - 1) {
        const auto at = static_cast<std::size_t>(std::countr_zero(bits));
        const std::size_t number = numbers[at];
        if (number - staying < experts) {
          first_running_ = std::min(first_running_, first_);
          stay |= bit(at);
          ++more;
        } else {
          left(first_rank + at, number);
        }
      }
      present_by_rank_[first_] = stay;
    }
    return count - more;
  }
  /// Calls `visit(rank, number)` for the experts that do not stay, the least worth keeping first, of the words from
  /// `first_` to `stop` - 1, until it returns false. Returns whether it went on to the end. `removes`: those that were
  /// visited, the last one, too, are bits no longer.
  template <bool removes, class Visit>
  bool visit(std::size_t stop, const Visit& visit) {
    const auto experts = static_cast<std::size_t>(shares_->experts());
    const std::size_t staying = at(running_) * experts;  // numbers from there on
    for (std::size_t word = next_word(first_, stop); word < stop; word = next_word(word + 1, stop)) {
      const std::size_t first_rank = word * kBits;
      const Number* const numbers = shares_->numbers_by_worth() + first_rank;
      std::uint64_t stay = 0;
      for (std::uint64_t bits = present_by_rank_[word]; bits != 0;) {
        const auto at = static_cast<std::size_t>(std::countr_zero(bits));
        bits &= bits - 1;
        const std::size_t rank = first_rank + at;
        const std::size_t number = numbers[at];
        if (number - staying < experts) {
          first_running_ = std::min(first_running_, word);
          stay |= bit(at);
          continue;
        }
        if (visit(rank, number)) continue;
        if constexpr (removes) present_by_rank_[word] = stay | bits;
        first_ = word;
        return false;
      }
      if constexpr (removes) present_by_rank_[word] = stay;
    }
    first_ = stop;
    return true;
  }

  const PresentExperts& present_;
  const ExpertShares* shares_ = nullptr;
  std::vector<std::uint64_t> present_by_rank_;  // bits by rank: which are present, but for the tail
  Tail tail_{};
  std::int32_t running_ = -1;       // whose experts stay
  std::size_t first_ = 0;           // no word before it has an expert of another layer than the running one
  std::size_t first_running_ = 0;   // no word before the smaller one of both has any
  std::size_t marked_end_ = 0;      // from this word on, experts of layers that were full may have no bits
  bool is_rest_marked_ = true;      // no layer has been full since the shares changed
  std::size_t reached_ = 0;         // the highest `first_` when many came, since the shares changed; 0: many never came
  std::size_t reached_before_ = 0;  // the same of earlier shares
  // By layer:
  std::vector<Number> prefix_;        // not 0: no expert that is absent comes before one that is present
  std::vector<Number> gap_ends_;      // all experts of this rank or a higher one are present
  std::vector<Number> gaps_changed_;  // not 0: gap_ends_ has risen, or experts have come, since gaps_ was found
  std::vector<std::int32_t> gaps_;  // place of the first absent expert, while its gap has not changed; `experts`: none
  FirstAbsent first_absent_;        // of those whose gap has not changed
  std::vector<std::uint64_t> row_;  // during set()
};

/// The same for a matrix that is told of many more changes than it is asked questions: it looks who is present when it
/// is asked.
class SeldomAskedMatrix {
 public:
  SeldomAskedMatrix(const PresentExperts& present, const ExpertShares& shares)
      : present_(present),
        rows_(static_cast<std::size_t>(shares.layers())),
        first_absent_(shares.layers()),
        marks_(rows_.size() * static_cast<std::size_t>(shares.experts()) / kBits + 1),
        next_(rows_.size()),
        next_ranks_(rows_.size()) {
    set(shares);
  }

  /// Replaces the shares. O(layers), and O(layers * experts) in the next question.
  void set(const ExpertShares& shares) {
    shares_ = &shares;
    std::ranges::fill(rows_, Row{.last = shares.experts() - 1});
  }
  /// O(1), and O(experts) in the next question.
  void add(const LayerExpert& one) { add_all(one.layer); }
  /// As add() of some of one layer.
  void add_all(std::int32_t layer) {
    Row& row = rows_[at(layer)];
    row.last = shares_->experts() - 1;
    row.grown = true;
  }
  void remove(const LayerExpert& one) { remove_some(one.layer); }
  /// As remove() of some of one layer.
  void remove_some(std::int32_t layer) { rows_[at(layer)].looked_at = 0; }
  /// As remove() of some, of any layers. O(1), and O(layers * experts) in the next question.
  void remove_many() { ++removals_; }
  /// O(layers), and O(experts) for each layer that has changed since it was asked for.
  [[nodiscard]] std::optional<KeptExpert> least(std::int32_t running) {
    std::uint32_t lowest = kNone;
    // Those of late layers are mostly worth least. Once one is found, rows that are worth more need no look.
    for (std::int32_t layer = shares_->layers(); layer-- > 0;) {
      if (layer == running) continue;
      const Number* const ranks = shares_->ranks_of_places(layer);
      const std::uint16_t* const order = shares_->order(layer);
      const Presence* const present = present_.row(layer);
      std::int32_t& last = rows_[at(layer)].last;
      while (last >= 0 && ranks[last] < lowest && present[order[last]] == Presence::absent) --last;
      if (last >= 0) lowest = std::min<std::uint32_t>(lowest, ranks[last]);
    }
    if (lowest == kNone) return std::nullopt;
    return KeptExpert{shares_->by_worth(lowest), shares_->worth_more(lowest)};
  }
  /// As that of ExpertMatrix, but calls `left(one)` for each. O(layers + n / 64) for n experts of all layers,
  /// and O(1) for each, present or not, that is worth less than the last one that leaves, and for up to about four
  /// times as many others: few where presence has little to do with rank.
  template <class Left>
  void remove_least(std::int32_t running, std::int64_t count, const Left& left) {
    if (count == 0) return;
    mark_first(running, count);
    std::size_t rank = 0;
    for (std::size_t word = 0; word < marks_.size(); ++word) {
      for (std::uint64_t bits = std::exchange(marks_[word], 0); bits != 0 && count > 0; bits &= bits - 1, --count) {
        rank = word * kBits + static_cast<std::size_t>(std::countr_zero(bits));
        left(shares_->by_worth(rank));
      }
    }
    // None of this rank or a lower one is left.
    for (std::int32_t layer = 0; layer < shares_->layers(); ++layer) {
      if (layer == running) continue;
      const Number* const ranks = shares_->ranks_of_places(layer);
      Row& row = rows_[at(layer)];
      std::ptrdiff_t last = next_[at(layer)];  // some behind it are of higher ranks, but few
      while (last < row.last && ranks[last + 1] > rank) ++last;
      row.last = static_cast<std::int32_t>(last);
      if (row.last < row.first_absent) remove_some(layer);  // or those that have left are behind the first gap
    }
  }
  /// As least().
  [[nodiscard]] std::optional<LayerExpert> most(std::int32_t running, std::size_t from) {
    const std::int32_t layer =
        first_absent_.most(running, from, shares_->highest(), [this](std::int32_t later) { look_for_absent(later); });
    if (layer < 0) return std::nullopt;
    return LayerExpert{layer, shares_->order(layer)[rows_[at(layer)].first_absent]};
  }

 private:
  using Number = ExpertShares::Number;
  struct Row {
    std::int32_t last = 0;  // no expert behind this place is present
    // As when somebody last looked for it:
    std::int32_t first_absent = 0;  // place of the first absent expert; `experts`: none is absent
    std::uint64_t looked_at = 0;    // removals_, then; 0: some of this row have left since
    bool grown = false;             // some have come since
  };
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::size_t kBits = 64;
  static std::size_t at(std::int32_t layer) { return static_cast<std::size_t>(layer); }
  /// Marks at least the first `count` experts of other layers than `running`, and every one before the last of these.
  void mark_first(std::int32_t running, std::int64_t count) {
    const std::size_t stop = marks_.size() * kBits;
    std::size_t begin = stop;
    for (std::int32_t layer = 0; layer < shares_->layers(); ++layer) {
      const std::int32_t last = layer == running ? -1 : rows_[at(layer)].last;
      next_[at(layer)] = last;
      next_ranks_[at(layer)] = last < 0 ? kNone : shares_->ranks_of_places(layer)[last];
      begin = std::min<std::size_t>(begin, next_ranks_[at(layer)]);
    }
    // In steps, since each costs O(layers). Ranks beyond the last one that leaves are looked at in vain, so each later
    // step is as long as needed if experts are present in it as often as in the step before, and a little longer.
    std::size_t step = static_cast<std::size_t>(count) + next_.size();
    for (std::size_t end = begin; end < stop;) {
      end += step;
      const std::int64_t wanted = count;
      for (std::int32_t layer = 0; layer < shares_->layers(); ++layer) {
        if (next_ranks_[at(layer)] >= end) continue;
        const Number* const ranks = shares_->ranks_of_places(layer);
        const std::uint16_t* const order = shares_->order(layer);
        const Presence* const present = present_.row(layer);
        std::ptrdiff_t place = next_[at(layer)];
        for (; place >= 0 && ranks[place] < end; --place) {
          const auto is_present = static_cast<std::uint64_t>(present[order[place]]);
          marks_[ranks[place] / kBits] |= is_present << (ranks[place] % kBits);
          count -= static_cast<std::int64_t>(is_present);
        }
        next_[at(layer)] = static_cast<std::int32_t>(place);
        next_ranks_[at(layer)] = place < 0 ? kNone : ranks[place];
      }
      if (count <= 0) break;
      const auto found = static_cast<std::size_t>(wanted - count);
      const auto left = static_cast<std::size_t>(count);
      // The bounds keep the number of steps small where few or none are found.
      step = std::max(step * (left + left / 16 + 1) / std::max(found, left / 4 + 1), 2 * next_.size());
    }
  }
  /// Without a loss, the first gap is not before the one before.
  void look_for_absent(std::int32_t layer) {
    Row& row = rows_[at(layer)];
    const bool lost = row.looked_at != removals_;
    if (!lost && !row.grown) return;
    const std::uint16_t* const order = shares_->order(layer);
    const Presence* const present = present_.row(layer);
    if (lost) row.first_absent = 0;
    while (row.first_absent < shares_->experts() && present[order[row.first_absent]] == Presence::present) {
      ++row.first_absent;
    }
    first_absent_.set(*shares_, layer, row.first_absent);
    row.looked_at = removals_;
    row.grown = false;
  }

  const PresentExperts& present_;
  const ExpertShares* shares_ = nullptr;
  std::vector<Row> rows_;  // by layer
  std::uint64_t removals_ = 1;
  FirstAbsent first_absent_;
  // During remove_least():
  std::vector<std::uint64_t> marks_;  // bits by rank
  // By layer:
  std::vector<std::int32_t> next_;         // the last place that has not been looked at; -1: none is left
  std::vector<std::uint32_t> next_ranks_;  // of these; kNone: none is left
};

}  // namespace spillway
