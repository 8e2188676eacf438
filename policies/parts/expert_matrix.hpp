// How likely each expert of each layer is used: the matrix by which MoE-Infinity loads experts ahead and lets them
// leave.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

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
  /// All of a layer are present.
  void fill(std::int32_t layer) { std::ranges::fill(of(layer), Presence::present); }
  /// Of a layer, these experts are present and no others.
  void keep_only(std::int32_t layer, std::span<const std::uint16_t> experts) {
    const std::span<Presence> row = of(layer);
    std::ranges::fill(row, Presence::absent);
    for (const std::uint16_t expert : experts) row[expert] = Presence::present;
  }
  /// The experts at these places of a layer's order are absent.
  void clear(std::int32_t layer, std::span<const std::uint16_t> order, std::span<const std::uint16_t> places) {
    const std::span<Presence> row = of(layer);
    for (const std::uint16_t place : places) row[order[place]] = Presence::absent;
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
  /// `share(layer, expert)`; at most 65,536 experts of each of as many layers, fewer than 2^32 in all. O(n log n) for n
  /// experts of all layers; O(n) where what keeping them is worth is spread out.
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
        worth_same_(shares_.size() / kBits + 1) {
    for (std::int32_t layer = 0; layer < layers; ++layer) factors_.push_back(keep_factor(layer, layers));
    change([&](std::int32_t layer, std::span<double> row) {
      for (std::int32_t e = 0; e < experts; ++e) row[static_cast<std::size_t>(e)] = share(layer, e);
    });
  }
  /// Replaces all shares: `fill(layer, row)` must write every element of `row`, by expert. A matrix that uses them
  /// needs set() before any other call. As the constructor.
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
  [[nodiscard]] const std::uint32_t* ranks_of_places(std::int32_t layer) const {
    return rank_of_place_.data() + at(layer, 0);
  }
  /// By expert.
  [[nodiscard]] const std::uint32_t* ranks(std::int32_t layer) const { return rank_.data() + at(layer, 0); }
  /// The first rank whose expert is worth more than that of this one. O(1), and O(n) where all are worth the same.
  [[nodiscard]] std::size_t worth_more(std::size_t rank) const {
    do {
      ++rank;
    } while (rank < by_worth_.size() && (worth_same_[rank / kBits] >> (rank % kBits) & 1U) != 0);
    return rank;
  }
  [[nodiscard]] LayerExpert by_worth(std::size_t rank) const { return {by_worth_[rank].layer, by_worth_[rank].expert}; }
  /// How many experts of a layer have this rank or a higher one: those at its first places. O(log experts).
  [[nodiscard]] std::int32_t places_from(std::int32_t layer, std::size_t rank) const {
    const std::uint32_t* const ranks = ranks_of_places(layer);
    const auto is_higher = [rank](std::uint32_t other) { return other >= rank; };
    return static_cast<std::int32_t>(std::partition_point(ranks, ranks + experts_, is_higher) - ranks);
  }

 private:
  struct Worth {
    std::int64_t bits = 0;     // of a number above 0: they are in its order
    std::uint32_t number = 0;  // in the order of equal ones
    auto operator<=>(const Worth&) const = default;
  };
  static constexpr std::size_t kBits = 64;
  struct Placed {  // small, so that those of all layers stay in a cache
    std::uint16_t layer = 0;
    std::uint16_t expert = 0;
  };
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
      rank_[row + expert] = static_cast<std::uint32_t>(rank);
      const std::size_t place = --next_place_[layer];
      order_[row + place] = static_cast<std::uint16_t>(expert);
      rank_of_place_[row + place] = static_cast<std::uint32_t>(rank);
      share_of_place_[row + place] = shares_[row + expert];
      by_worth_[rank] = {static_cast<std::uint16_t>(layer), static_cast<std::uint16_t>(expert)};
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
  std::vector<double> shares_;                // by expert
  std::vector<std::uint16_t> order_;          // by place
  std::vector<std::uint32_t> rank_;           // by expert
  std::vector<std::uint32_t> rank_of_place_;  // so that those of a few places are next to each other
  std::vector<double> share_of_place_;
  std::vector<Placed> by_worth_;           // by rank
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
    for (std::int32_t l = running + 1; l < layers; ++l) {
      const auto at = static_cast<std::size_t>(l);
      const double nearness = nearness_[static_cast<std::size_t>(l - running)];
      if (bound * nearness <= highest) break;  // nor is a later one worth more
      look(l);
      if (rank_[at] < from) continue;
      const double worth = share_[at] * nearness;
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
///  * `present` and `shares` must outlive it, `shares` up to the next set().
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
/// expert at that time are a list, the tail, which gets shorter from its end.
class ExpertMatrix {
 public:
  ExpertMatrix(const PresentExperts& present, const ExpertShares& shares)
      : present_(present),
        present_by_rank_(
            static_cast<std::size_t>(shares.layers()) * static_cast<std::size_t>(shares.experts()) / kBits + 1),
        gaps_(static_cast<std::size_t>(shares.layers())),
        first_absent_(shares.layers()) {
    set(shares);
  }

  /// Replaces the shares. O(n / 8 + present experts) for n experts of all layers.
  void set(const ExpertShares& shares) {
    shares_ = &shares;
    std::ranges::fill(present_by_rank_, 0);
    for (std::int32_t layer = 0; layer < shares.layers(); ++layer) {
      const std::uint32_t* const ranks = shares.ranks(layer);
      present_.read_bits(layer, row_);
      for (std::size_t word = 0; word < row_.size(); ++word) {
        for (std::uint64_t bits = row_[word]; bits != 0; bits &= bits - 1) {
          mark(ranks[word * kBits + static_cast<std::size_t>(std::countr_zero(bits))]);
        }
      }
    }
    first_ = first_running_ = 0;
    tail_.places.clear();
    std::ranges::fill(gaps_, Gap{});
  }
  /// O(1), and so is remove(), but for experts of the layer of which many came last: O(experts).
  void add(const LayerExpert& one) {
    add_all(one.layer, 1, [&one](std::size_t /*i*/) { return one.expert; });
  }
  void remove(const LayerExpert& one) {
    const std::uint32_t rank = shares_->ranks(one.layer)[one.expert];
    present_by_rank_[rank / kBits] &= ~bit(rank);
    note_gap(rank, one.layer);
    if (one.layer != tail_.layer || tail_.places.empty()) return;
    const std::int32_t place = shares_->places_from(one.layer, rank) - 1;
    tail_.whole &= place >= tail_.places.back();
    if (place < tail_.places.back()) {
      std::erase(tail_.places, place);
    } else if (place == tail_.places.back()) {
      tail_.places.pop_back();
    }
  }
  /// As add() of several of one layer, `expert(i)` for each `i` below `count`. O(count).
  template <class Expert>
  void add_all(std::int32_t layer, std::size_t count, const Expert& expert) {
    const std::uint32_t* const ranks = shares_->ranks(layer);
    std::uint32_t lowest = std::numeric_limits<std::uint32_t>::max();
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t rank = ranks[expert(i)];
      mark(rank);
      lowest = std::min(lowest, rank);
    }
    starts_at(layer, std::size_t{lowest} / kBits);
  }
  /// As add() of many of one layer, no matter which: `present` says so. O(experts).
  void add_many(std::int32_t layer) {
    const std::uint16_t* const order = shares_->order(layer);
    const std::uint32_t* const ranks = shares_->ranks_of_places(layer);
    const Presence* const present = present_.row(layer);
    const std::int32_t begin = begin_tail(layer);
    for (std::int32_t place = 0; place < begin; ++place) {
      const std::uint32_t rank = ranks[place];
      present_by_rank_[rank / kBits] |= static_cast<std::uint64_t>(present[order[place]]) << (rank % kBits);
    }
    tail_.places.resize(static_cast<std::size_t>(shares_->experts() - begin));
    std::uint16_t* next = tail_.places.data();
    for (std::int32_t place = begin; place < shares_->experts(); ++place) {
      *next = static_cast<std::uint16_t>(place);  // overwritten unless it is there
      next += static_cast<std::ptrdiff_t>(present[order[place]]);
    }
    tail_.places.resize(static_cast<std::size_t>(next - tail_.places.data()));
  }
  /// The same where all of the layer are present now. O(1) for each that is worth no less than every other expert, and
  /// O(experts / 8).
  void fill(std::int32_t layer) {
    const std::uint32_t* const ranks = shares_->ranks_of_places(layer);
    const std::int32_t begin = begin_tail(layer);
    for (std::int32_t place = 0; place < begin; ++place) mark(ranks[place]);
    tail_.places.resize(static_cast<std::size_t>(shares_->experts() - begin));
    std::iota(tail_.places.begin(), tail_.places.end(), static_cast<std::uint16_t>(begin));
    tail_.whole = true;
    gaps_[at(layer)] = {.end = 0, .place = shares_->experts()};
  }
  /// Removes the `count` experts that least(running) would name one after the other, if each was removed; so many must
  /// be there in other layers. Calls `left(one)` in turn for each, or `left_last(layer, places, whole)` for several of
  /// a layer, the last one first; `whole`: they and those at all places before them were present, and no others. Both
  /// must change `present`. O(count + n / 64) for n experts of all layers, and O(present experts of the running layer).
  template <class Left, class LeftLast>
  void remove_least(std::int32_t running, std::int64_t count, const Left& left, const LeftLast& left_last) {
    if (count == 0) return;
    run(running);
    for (;;) {
      // `whole` holds: an expert of the tail's layer that came back after it had left has a lower rank than the tail
      // and a bit. While it is there, `first_` is not beyond its word, so this is not entered.
      if (tail_word() < first_) {
        std::vector<std::uint16_t>& places = tail_.places;
        const auto most = places.end() - std::min<std::int64_t>(count, std::ssize(places));
        const auto begin = std::partition_point(most, places.end(), [this](std::uint16_t place) {
          return shares_->ranks_of_places(tail_.layer)[place] >= first_ * kBits;
        });
        note_gap(shares_->ranks_of_places(tail_.layer)[*begin], tail_.layer);
        left_last(tail_.layer, std::span<const std::uint16_t>(begin, places.end()), tail_.whole);
        count -= places.end() - begin;
        places.erase(begin, places.end());
        if (count == 0) return;
      }
      if (first_ == present_by_rank_.size()) return;
      const bool more = visit<true>(stop_before_tail(), [&](std::size_t rank, const LayerExpert& one) {
        note_gap(rank, one.layer);
        left(one);
        return --count > 0;
      });
      if (!more) return;
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
    const auto keep = [&](std::size_t rank, const LayerExpert& one) {
      least = {one, shares_->worth_more(rank)};
      return false;
    };
    for (;;) {
      if (tail_word() < first_) {
        const LayerExpert one{tail_.layer, shares_->order(tail_.layer)[tail_.places.back()]};
        return KeptExpert{one, shares_->worth_more(tail_rank())};
      }
      if (first_ == present_by_rank_.size()) return std::nullopt;
      if (!visit<false>(stop_before_tail(), keep)) return least;
    }
  }
  /// O(layers), and O(experts) for each layer that has changed since it was asked for.
  [[nodiscard]] std::optional<LayerExpert> most(std::int32_t running, std::size_t from) {
    const std::int32_t layer = first_absent_.most(running, from, shares_->highest(), [this](std::int32_t later) {
      if (gaps_[at(later)].changed) look_for_gap(later);
    });
    if (layer < 0) return std::nullopt;
    return shares_->by_worth(gaps_[at(layer)].end - 1);
  }

 private:
  /// One more than the highest rank in a layer whose expert is not present; 0: all are. While `changed`: all from there
  /// on are present, and the one before may be.
  struct Gap {
    std::uint32_t end = std::numeric_limits<std::uint32_t>::max();
    bool changed = true;
    std::int32_t place = 0;  // of the expert before `end`, or a later one
  };
  /// Experts of a layer that are present without a bit.
  struct Tail {
    std::int32_t layer = -1;
    std::vector<std::uint16_t> places{};  // in its order, ascending
    bool whole = false;                   // and all at the places before them are present, too
  };
  static constexpr std::size_t kBits = 64;
  static std::size_t at(std::int32_t layer) { return static_cast<std::size_t>(layer); }
  static std::uint64_t bit(std::size_t rank) { return std::uint64_t{1} << (rank % kBits); }
  void mark(std::size_t rank) { present_by_rank_[rank / kBits] |= bit(rank); }
  /// Experts of `layer` are new, with bits in no word before `word`.
  void starts_at(std::int32_t layer, std::size_t word) {
    std::size_t& first = layer == running_ ? first_running_ : first_;
    first = std::min(first, word);
    gaps_[at(layer)].changed = true;
  }
  /// The rank of the tail's last expert: none of the tail is lower.
  [[nodiscard]] std::size_t tail_rank() const { return shares_->ranks_of_places(tail_.layer)[tail_.places.back()]; }
  /// Those of the tail become bits, and the next tail is of `layer`. Returns its first place: the ranks from there on
  /// come before every word that has a bit.
  std::int32_t begin_tail(std::int32_t layer) {
    if (!tail_.places.empty()) {
      for (const std::uint16_t place : tail_.places) mark(shares_->ranks_of_places(tail_.layer)[place]);
      starts_at(tail_.layer, tail_rank() / kBits);
    }
    tail_.layer = layer;
    tail_.whole = false;
    const std::size_t first = std::min(first_, first_running_);
    starts_at(layer, first);
    const std::uint32_t* const ranks = shares_->ranks_of_places(layer);
    const auto is_later = [first](std::uint32_t rank) { return rank >= first * kBits; };
    return static_cast<std::int32_t>(std::partition_point(ranks, ranks + shares_->experts(), is_later) - ranks);
  }
  /// The word of the tail's last expert; behind all words if there is none that may leave.
  [[nodiscard]] std::size_t tail_word() const {
    const bool may_leave = !tail_.places.empty() && tail_.layer != running_;
    return may_leave ? tail_rank() / kBits : present_by_rank_.size() + 1;
  }
  /// Those of the tail that belong in the word `first_`, and none before it, become bits. Returns the word of the next
  /// one, or the end of all words.
  std::size_t stop_before_tail() {
    std::size_t word = tail_word();
    while (word == first_) {
      mark(tail_rank());
      tail_.places.pop_back();
      word = tail_word();
    }
    return std::min(word, present_by_rank_.size());
  }
  /// The expert of this rank has left. Without a branch: no processor can predict it.
  void note_gap(std::size_t rank, std::int32_t layer) {
    Gap& gap = gaps_[at(layer)];
    const auto end = static_cast<std::uint32_t>(rank) + 1;
    gap.changed |= end > gap.end;
    gap.end = std::max(gap.end, end);
  }
  void look_for_gap(std::int32_t layer) {
    const std::uint16_t* const order = shares_->order(layer);
    const Presence* const present = present_.row(layer);
    const std::uint32_t* const ranks = shares_->ranks_of_places(layer);
    const std::int32_t experts = shares_->experts();
    Gap& gap = gaps_[at(layer)];
    std::int32_t place = gap.place;
    while (place > 0 && ranks[place - 1] < gap.end) --place;
    while (place < experts && present[order[place]] == Presence::present) ++place;
    gap = {.end = place < experts ? ranks[place] + 1 : 0, .changed = false, .place = place};
    first_absent_.set(*shares_, layer, place);
  }
  /// From now on, the experts of `running` stay.
  void run(std::int32_t running) {
    if (running == running_) return;
    running_ = running;
    first_ = std::min(first_, first_running_);
    first_running_ = present_by_rank_.size();
  }
  /// The first word from `word` on that has a bit; `stop`: none before it does.
  [[nodiscard]] std::size_t next_word(std::size_t word, std::size_t stop) const {
    const std::uint64_t* const words = present_by_rank_.data();
    const auto has_bit = [](std::uint64_t bits) { return bits != 0; };
    return static_cast<std::size_t>(std::find_if(words + word, words + stop, has_bit) - words);
  }
  /// Calls `visit(rank, one)` for the experts that do not stay, the least worth keeping first, of the words from
  /// `first_` to `stop` - 1, until it returns false. Returns whether it went on to the end. `removes`: those that were
  /// visited, the last one, too, are bits no longer.
  template <bool removes, class Visit>
  bool visit(std::size_t stop, const Visit& visit) {
    for (std::size_t word = next_word(first_, stop); word < stop; word = next_word(word + 1, stop)) {
      std::uint64_t left = present_by_rank_[word];
      for (std::uint64_t bits = left; bits != 0; bits &= bits - 1) {
        const std::size_t rank = word * kBits + static_cast<std::size_t>(std::countr_zero(bits));
        const LayerExpert one = shares_->by_worth(rank);
        if (one.layer == running_) {
          first_running_ = std::min(first_running_, word);
          continue;
        }
        left &= ~bit(rank);
        if (visit(rank, one)) continue;
        if constexpr (removes) present_by_rank_[word] = left;
        first_ = word;
        return false;
      }
      if constexpr (removes) present_by_rank_[word] = left;
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
  std::vector<Gap> gaps_;           // by layer
  std::vector<std::uint64_t> row_;  // during set()
  FirstAbsent first_absent_;        // of those that have not changed
};

/// The same for a matrix that is told of many more changes than it is asked questions: it looks who is present when it
/// is asked.
class SeldomAskedMatrix {
 public:
  SeldomAskedMatrix(const PresentExperts& present, const ExpertShares& shares)
      : present_(present), rows_(static_cast<std::size_t>(shares.layers())), first_absent_(shares.layers()) {
    set(shares);
  }

  /// Replaces the shares. O(layers), and O(layers * experts) in the next question.
  void set(const ExpertShares& shares) {
    shares_ = &shares;
    for (Row& row : rows_) {
      row.added = row.removed = kBoth;
    }
  }
  /// O(1), and O(experts) in the next question.
  void add(const LayerExpert& one) { rows_[at(one.layer)].added = kBoth; }
  /// As add() of some of one layer.
  void add_all(std::int32_t layer) { rows_[at(layer)].added = kBoth; }
  void remove(const LayerExpert& one) { remove_some(one.layer); }
  /// As remove() of some of one layer.
  void remove_some(std::int32_t layer) { rows_[at(layer)].removed = kBoth; }
  /// As remove() of many, of any layers. O(layers), and O(layers * experts) in the next question.
  void remove_many() {
    for (Row& row : rows_) row.removed = kBoth;
  }
  /// O(layers), and O(experts) for each layer that has changed since it was asked for.
  [[nodiscard]] std::optional<KeptExpert> least(std::int32_t running) {
    std::uint32_t lowest = kNone;
    for (std::int32_t layer = 0; layer < shares_->layers(); ++layer) {
      if (layer != running) lowest = std::min(lowest, lowest_rank(layer));
    }
    if (lowest == kNone) return std::nullopt;
    const LayerExpert one = shares_->by_worth(lowest);
    return KeptExpert{one, shares_->worth_more(lowest)};
  }
  /// As that of ExpertMatrix. O(layers + count log layers), and O(experts) for each layer that has changed since it was
  /// asked for.
  template <class Left>
  void remove_least(std::int32_t running, std::int64_t count, const Left& left) {
    if (count == 0) return;
    lowest_.clear();
    for (std::int32_t layer = 0; layer < shares_->layers(); ++layer) {
      if (layer != running && last_of(layer) >= 0) lowest_.push_back(lowest_rank(layer));
    }
    std::ranges::make_heap(lowest_, std::greater{});
    for (; count > 0; --count) {
      std::ranges::pop_heap(lowest_, std::greater{});
      const LayerExpert one = shares_->by_worth(lowest_.back());
      lowest_.pop_back();
      left(one);
      remove(one);
      if (last_of(one.layer) < 0) continue;
      lowest_.push_back(lowest_rank(one.layer));
      std::ranges::push_heap(lowest_, std::greater{});
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
  /// What somebody may ask a row for.
  enum Asked : std::uint8_t { kLast = 1, kGap = 2, kBoth = 3 };
  struct Row {
    // Places, as when somebody last asked for each:
    std::int32_t last = -1;         // of an expert that is present; -1: none is
    std::int32_t first_absent = 0;  // of one that is not; `experts`: all are present
    // Of which of the two experts have come, or left, since then:
    std::uint8_t added = kBoth;
    std::uint8_t removed = kBoth;
  };
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  static std::size_t at(std::int32_t layer) { return static_cast<std::size_t>(layer); }
  /// That of the last one that is present; kNone: none is.
  [[nodiscard]] std::uint32_t lowest_rank(std::int32_t layer) {
    const std::int32_t last = last_of(layer);
    return last < 0 ? kNone : shares_->ranks_of_places(layer)[last];
  }
  [[nodiscard]] std::int32_t last_of(std::int32_t layer) {
    Row& row = rows_[at(layer)];
    if (((row.added | row.removed) & kLast) != 0) look_for_last(layer, row);
    return row.last;
  }
  /// Without a new one, the last one is not behind the one before.
  void look_for_last(std::int32_t layer, Row& row) {
    const std::uint16_t* const order = shares_->order(layer);
    const Presence* const present = present_.row(layer);
    if ((row.added & kLast) != 0) row.last = shares_->experts() - 1;
    while (row.last >= 0 && present[order[row.last]] == Presence::absent) --row.last;
    row.added &= kGap;
    row.removed &= kGap;
  }
  /// Without a loss, the first gap is not before the one before.
  void look_for_absent(std::int32_t layer) {
    Row& row = rows_[at(layer)];
    if (((row.added | row.removed) & kGap) == 0) return;
    const std::uint16_t* const order = shares_->order(layer);
    const Presence* const present = present_.row(layer);
    if ((row.removed & kGap) != 0) row.first_absent = 0;
    while (row.first_absent < shares_->experts() && present[order[row.first_absent]] == Presence::present) {
      ++row.first_absent;
    }
    first_absent_.set(*shares_, layer, row.first_absent);
    row.added &= kLast;
    row.removed &= kLast;
  }

  const PresentExperts& present_;
  const ExpertShares* shares_ = nullptr;
  std::vector<Row> rows_;  // by layer
  FirstAbsent first_absent_;
  std::vector<std::uint32_t> lowest_;  // during remove_least(): a heap of the lowest rank of each layer
};

}  // namespace spillway
