// How likely each expert of each layer is used: the matrix by which MoE-Infinity loads experts ahead and lets them
// leave.
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

#include "policies/parts/least_tree.hpp"

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

/// Which experts are present.
class PresentExperts {
 public:
  /// At first none is.
  PresentExperts(std::int32_t layers, std::int32_t experts)
      : experts_(static_cast<std::size_t>(experts)), present_(static_cast<std::size_t>(layers) * experts_) {}
  [[nodiscard]] bool has(const LayerExpert& one) const { return row(one.layer)[one.expert] != 0; }
  void set(const LayerExpert& one, bool present) {
    present_[static_cast<std::size_t>(one.layer) * experts_ + static_cast<std::size_t>(one.expert)] =
        static_cast<std::uint8_t>(present);
  }
  /// By expert, 0 or 1.
  [[nodiscard]] const std::uint8_t* row(std::int32_t layer) const {
    return present_.data() + static_cast<std::size_t>(layer) * experts_;
  }

 private:
  std::size_t experts_;
  std::vector<std::uint8_t> present_;
};

/// Shares of every expert, each row adding up to 1, and the experts of each row by their share, the largest first. The
/// number of an expert in this order is its place.
class ExpertShares {
 public:
  /// `share(layer, expert)`; at most 65,536 experts. O(layers * experts * log experts).
  template <class Share>
  ExpertShares(std::int32_t layers, std::int32_t experts, const Share& share)
      : layers_(layers),
        experts_(static_cast<std::size_t>(experts)),
        shares_(static_cast<std::size_t>(layers) * experts_),
        kept_(shares_.size()),
        order_(shares_.size()),
        place_(shares_.size()),
        filled_(experts_) {
    change([&](std::int32_t layer, std::span<double> shares) {
      for (std::int32_t e = 0; e < experts; ++e) shares[static_cast<std::size_t>(e)] = share(layer, e);
    });
  }
  /// Replaces all shares: `fill(layer, row)` must write every element of `row`, by expert. A matrix that uses them
  /// needs set() before any other call. O(layers * experts * log experts).
  template <class Fill>
  void change(const Fill& fill) {
    for (std::int32_t layer = 0; layer < layers_; ++layer) {
      fill(layer, std::span(filled_));
      sort(layer);
    }
  }
  [[nodiscard]] std::int32_t layers() const { return layers_; }
  [[nodiscard]] std::int32_t experts() const { return static_cast<std::int32_t>(experts_); }
  [[nodiscard]] double share(std::int32_t layer, std::int32_t place) const { return shares_[at(layer, place)]; }
  /// Worth of keeping the expert: the bits of a number above 0 are in its order.
  [[nodiscard]] std::int64_t kept(std::int32_t layer, std::int32_t place) const { return kept_[at(layer, place)]; }
  [[nodiscard]] std::int32_t place(const LayerExpert& one) const { return place_[at(one.layer, one.expert)]; }
  /// By expert.
  [[nodiscard]] const std::uint16_t* places(std::int32_t layer) const { return place_.data() + at(layer, 0); }
  /// Experts by their places.
  [[nodiscard]] const std::uint16_t* order(std::int32_t layer) const { return order_.data() + at(layer, 0); }

 private:
  [[nodiscard]] std::size_t at(std::int32_t layer, std::int32_t place) const {
    return static_cast<std::size_t>(layer) * experts_ + static_cast<std::size_t>(place);
  }
  /// The largest share first; of equal ones, the expert with the lowest number.
  void sort(std::int32_t layer) {
    const double factor = keep_factor(layer, layers_);
    sorted_.clear();
    for (const double share : filled_) sorted_.emplace_back(-share, static_cast<std::uint16_t>(sorted_.size()));
    std::ranges::sort(sorted_);
    const std::size_t row = at(layer, 0);
    for (std::size_t i = 0; i < sorted_.size(); ++i) {
      const std::uint16_t expert = sorted_[i].second;
      const double share = -sorted_[i].first;
      shares_[row + i] = share;
      kept_[row + i] = std::bit_cast<std::int64_t>(keep_priority(share, factor));
      order_[row + i] = expert;
      place_[row + expert] = static_cast<std::uint16_t>(i);
    }
  }

  std::int32_t layers_;
  std::size_t experts_;
  // Layer by layer, by place:
  std::vector<double> shares_;
  std::vector<std::int64_t> kept_;
  std::vector<std::uint16_t> order_;  // small, so that those of all layers stay in a cache
  std::vector<std::uint16_t> place_;  // by expert
  // Kept for their memory:
  std::vector<double> filled_;  // of a row, by expert
  std::vector<std::pair<double, std::uint16_t>> sorted_;
};

/// An expert, and what keeping it is worth.
struct KeptExpert {
  LayerExpert one{};
  double worth = 0.0;
  bool operator==(const KeptExpert&) const = default;
};

/// The first absent expert by share of each layer, and which of these is most worth loading.
class FirstAbsent {
 public:
  explicit FirstAbsent(std::int32_t layers) : share_(static_cast<std::size_t>(layers), -1.0), kept_(share_) {
    for (std::int32_t distance = 0; distance <= layers; ++distance) {
      nearness_.push_back(load_priority(1.0, distance, 0, layers));
    }
  }
  /// It is at `place`; experts(): none is absent.
  void set(const ExpertShares& shares, std::int32_t layer, std::int32_t place) {
    const auto at = static_cast<std::size_t>(layer);
    const bool is_one = place < shares.experts();
    share_[at] = is_one ? shares.share(layer, place) : -1.0;
    kept_[at] = is_one ? std::bit_cast<double>(shares.kept(layer, place)) : -1.0;
  }
  /// Its layer, of those after `running` whose expert is more worth keeping than `kept`; -1: there is none. O(layers).
  [[nodiscard]] std::int32_t most(std::int32_t running, double kept) const {
    std::int32_t most = -1;
    double highest = -1.0;
    const auto layers = static_cast<std::int32_t>(share_.size());
    for (std::int32_t l = running + 1; l < layers; ++l) {
      const auto at = static_cast<std::size_t>(l);
      if (kept_[at] <= kept) continue;
      const double worth = share_[at] * nearness_[static_cast<std::size_t>(l - running)];
      most = worth > highest ? l : most;
      highest = std::max(highest, worth);
    }
    return most;
  }

 private:
  // By layer, next to each other, because most() reads those of all later layers.
  std::vector<double> share_;     // of its first absent expert; -1: none is
  std::vector<double> kept_;      // worth of keeping that; likewise
  std::vector<double> nearness_;  // by distance of two layers
};

/// Which of the present experts is worth least, and which absent one most, by shares that may change.
///
/// Contract of this and of SeldomAskedMatrix
///  * `present` and `shares` must outlive it, `shares` up to the next set().
///  * Each change of `present` is told by add(), add_all() or remove() after it, or is made when remove_least() names
///  the
///    expert; at the start, none is present.
///  * least(running) is the present expert that is least worth keeping, of all layers but `running`; of equal ones the
///    one of the first layer. 0 <= running < layers.
///  * most(running, kept) is the absent expert that is most worth loading, of the layers after `running` and of those
///    that are more worth keeping than `kept`, such as what would have to leave; likewise. Every expert is more worth
///    than 0.
class ExpertMatrix {
 public:
  ExpertMatrix(const PresentExperts& present, const ExpertShares& shares)
      : present_(present),
        words_(static_cast<std::size_t>(shares.experts()) / kBits + 1),
        rows_(static_cast<std::size_t>(shares.layers())),
        by_share_(rows_.size() * words_),
        first_absent_(shares.layers()),
        least_kept_(rows_.size()) {
    set(shares);
  }

  /// Replaces the shares. O(layers * experts).
  void set(const ExpertShares& shares) {
    shares_ = &shares;
    std::ranges::fill(by_share_, 0);
    for (std::int32_t layer = 0; layer < shares.layers(); ++layer) {
      const std::uint16_t* const order = shares.order(layer);
      const std::uint8_t* const present = present_.row(layer);
      Row& row = rows_[at(layer)];
      row.last = -1;
      for (std::int32_t place = 0; place < shares.experts(); ++place) {
        if (present[order[place]] == 0) continue;
        word(layer, place) |= bit(place);
        row.last = place;
      }
      row.first_absent = first_from(layer, 0);
      judge_last(layer);
      first_absent_.set(shares, layer, row.first_absent);
    }
  }
  /// O(log layers + experts / 64).
  void add(const LayerExpert& one) {
    const std::int32_t place = shares_->place(one);
    word(one.layer, place) |= bit(place);
    Row& row = rows_[at(one.layer)];
    if (place > row.last) {
      row.last = place;
      if (one.layer != running_) judge_last(one.layer);
    }
    if (place == row.first_absent) set_first_absent(one.layer, first_from(one.layer, place));
  }
  void remove(const LayerExpert& one) {
    Row& row = rows_[at(one.layer)];
    // Most often the last one leaves, whose place need not be looked up.
    std::int32_t place = row.last;
    if (shares_->order(one.layer)[place] != one.expert) place = shares_->place(one);
    word(one.layer, place) &= ~bit(place);
    if (place == row.last) {
      row.last = last_up_to(one.layer, place);
      if (one.layer != running_) judge_last(one.layer);
    }
    if (place < row.first_absent) set_first_absent(one.layer, place);
  }
  /// As add() of several of one layer, `expert(i)` for each `i` below `count` > 0. O(count + log layers + experts /
  /// 64).
  template <class Expert>
  void add_all(std::int32_t layer, std::size_t count, const Expert& expert) {
    Row& row = rows_[at(layer)];
    const std::uint16_t* const places = shares_->places(layer);
    std::uint64_t* const words = &word(layer, 0);
    std::int32_t last = row.last;
    for (std::size_t i = 0; i < count; ++i) {
      const std::int32_t place = places[expert(i)];
      words[static_cast<std::size_t>(place) / kBits] |= bit(place);
      last = std::max(last, place);
    }
    if (std::exchange(row.last, last) < last && layer != running_) judge_last(layer);
    if (row.first_absent < shares_->experts()) set_first_absent(layer, first_from(layer, row.first_absent));
  }
  /// Removes the `count` experts that least(running) would name one after the other, if each was removed, and calls
  /// `left(one)` for each, which must change `present`; so many must be there in other layers. O(count), and O(log
  /// layers + experts / 64) for each layer that the next one is of.
  template <class Left>
  void remove_least(std::int32_t running, std::int64_t count, const Left& left) {
    run(running);
    while (count > 0) {
      const std::size_t least = least_kept_.least();
      const LeastTree::Entry rival = least_kept_.second();
      const auto layer = static_cast<std::int32_t>(least);
      const std::uint16_t* const order = shares_->order(layer);
      std::uint64_t* const words = &word(layer, 0);
      Row& row = rows_[least];
      std::int32_t place = row.last;
      std::int32_t lowest = place;
      do {
        words[static_cast<std::size_t>(place) / kBits] &= ~bit(place);
        left(LayerExpert{layer, order[place]});
        lowest = place;
        place = last_up_to(layer, place);
        --count;
      } while (count > 0 && place >= 0 && LeastTree::Entry{shares_->kept(layer, place), least} < rival);
      row.last = place;
      judge_last(layer);
      if (lowest < row.first_absent) set_first_absent(layer, lowest);
    }
  }
  /// O(1); O(log layers) where another layer runs.
  [[nodiscard]] std::optional<KeptExpert> least(std::int32_t running) {
    run(running);
    const std::size_t least = least_kept_.least();
    const std::int64_t kept = least_kept_.at(least);
    if (kept == kNone) return std::nullopt;
    const auto layer = static_cast<std::int32_t>(least);
    return KeptExpert{{layer, shares_->order(layer)[rows_[least].last]}, std::bit_cast<double>(kept)};
  }
  /// O(layers).
  [[nodiscard]] std::optional<LayerExpert> most(std::int32_t running, double kept) const {
    const std::int32_t layer = first_absent_.most(running, kept);
    if (layer < 0) return std::nullopt;
    return LayerExpert{layer, shares_->order(layer)[rows_[at(layer)].first_absent]};
  }

 private:
  /// Places of a layer.
  struct Row {
    std::int32_t last = -1;         // of an expert that is present; -1: none is
    std::int32_t first_absent = 0;  // of one that is not; `experts`: all are present
  };
  static constexpr std::size_t kBits = 64;
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  static std::size_t at(std::int32_t layer) { return static_cast<std::size_t>(layer); }
  static std::uint64_t bit(std::int32_t place) { return std::uint64_t{1} << (static_cast<std::size_t>(place) % kBits); }
  [[nodiscard]] std::uint64_t& word(std::int32_t layer, std::int32_t place) {
    return by_share_[at(layer) * words_ + static_cast<std::size_t>(place) / kBits];
  }
  /// The last present place, which is not after `place`; -1: none.
  [[nodiscard]] std::int32_t last_up_to(std::int32_t layer, std::int32_t place) const {
    const std::uint64_t* const words = &by_share_[at(layer) * words_];
    std::size_t w = static_cast<std::size_t>(place) / kBits;
    while (words[w] == 0) {
      if (w-- == 0) return -1;
    }
    return static_cast<std::int32_t>(w * kBits + kBits - 1) - std::countl_zero(words[w]);
  }
  /// The first absent place, which is not before `place`; `experts`: none. The bits beyond the last expert are 0.
  [[nodiscard]] std::int32_t first_from(std::int32_t layer, std::int32_t place) const {
    const std::uint64_t* const words = &by_share_[at(layer) * words_];
    std::size_t w = static_cast<std::size_t>(place) / kBits;
    while (~words[w] == 0) ++w;
    return static_cast<std::int32_t>(w * kBits) + std::countr_one(words[w]);
  }
  /// From now on, the experts of `running` stay.
  void run(std::int32_t running) {
    if (running == running_) return;
    const std::int32_t before = std::exchange(running_, running);
    if (before >= 0) judge_last(before);
    judge_last(running);
  }
  void set_first_absent(std::int32_t layer, std::int32_t place) {
    rows_[at(layer)].first_absent = place;
    first_absent_.set(*shares_, layer, place);
  }
  void judge_last(std::int32_t layer) {
    const std::int32_t last = rows_[at(layer)].last;
    const bool counts = last >= 0 && layer != running_;
    least_kept_.set(at(layer), counts ? shares_->kept(layer, last) : kNone);
  }

  const PresentExperts& present_;
  const ExpertShares* shares_ = nullptr;
  std::size_t words_;          // of a row: one bit for each expert, and at least one more
  std::int32_t running_ = -1;  // whose experts stay
  // By layer:
  std::vector<Row> rows_;
  std::vector<std::uint64_t> by_share_;  // bits by place, which are present
  FirstAbsent first_absent_;
  LeastTree least_kept_;  // worth of keeping the last present one; kNone: none is, or the layer runs
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
      row.last_changed = row.gap_changed = {true, true};
    }
  }
  /// O(1), and O(experts) in the next question.
  void add(const LayerExpert& one) { add_all(one.layer, 1); }
  void add_all(std::int32_t layer, std::size_t count) {
    Row& row = rows_[at(layer)];
    row.present += static_cast<std::int32_t>(count);
    row.last_changed.added = row.gap_changed.added = true;
  }
  void remove(const LayerExpert& one) {
    Row& row = rows_[at(one.layer)];
    --row.present;
    row.last_changed.removed = row.gap_changed.removed = true;
  }
  /// O(layers).
  [[nodiscard]] std::optional<KeptExpert> least(std::int32_t running) {
    std::int64_t kept = std::numeric_limits<std::int64_t>::max();
    std::int32_t least = -1;
    for (std::int32_t layer = 0; layer < shares_->layers(); ++layer) {
      if (layer == running) continue;
      const std::int32_t last = last_of(layer);
      if (last < 0 || shares_->kept(layer, last) >= kept) continue;
      kept = shares_->kept(layer, last);
      least = layer;
    }
    if (least < 0) return std::nullopt;
    return KeptExpert{{least, shares_->order(least)[rows_[at(least)].last]}, std::bit_cast<double>(kept)};
  }
  [[nodiscard]] std::optional<LayerExpert> most(std::int32_t running, double kept) {
    for (std::int32_t layer = running + 1; layer < shares_->layers(); ++layer) look_for_absent(layer);
    const std::int32_t layer = first_absent_.most(running, kept);
    if (layer < 0) return std::nullopt;
    return LayerExpert{layer, shares_->order(layer)[rows_[at(layer)].first_absent]};
  }

 private:
  struct Changed {
    bool added = true;
    bool removed = true;
    [[nodiscard]] bool any() const { return added || removed; }
  };
  struct Row {
    std::int32_t present = 0;  // experts
    // Places, as when somebody last asked for each, and what has changed since:
    std::int32_t last = -1;  // of an expert that is present; -1: none is
    Changed last_changed{};
    std::int32_t first_absent = 0;  // of one that is not; `experts`: all are present
    Changed gap_changed{};
  };
  static std::size_t at(std::int32_t layer) { return static_cast<std::size_t>(layer); }
  [[nodiscard]] std::int32_t last_of(std::int32_t layer) {
    Row& row = rows_[at(layer)];
    if (row.last_changed.any()) look_for_last(layer, row);
    return row.last;
  }
  /// Without a new one, the last one is not behind the one before.
  void look_for_last(std::int32_t layer, Row& row) {
    const std::uint16_t* const order = shares_->order(layer);
    const std::uint8_t* const present = present_.row(layer);
    if (row.last_changed.added) row.last = shares_->experts() - 1;
    if (row.present == 0) row.last = -1;
    while (row.last >= 0 && present[order[row.last]] == 0) --row.last;
    row.last_changed = {false, false};
  }
  /// Without a loss, the first gap is not before the one before.
  void look_for_absent(std::int32_t layer) {
    Row& row = rows_[at(layer)];
    if (!row.gap_changed.any()) return;
    const std::uint16_t* const order = shares_->order(layer);
    const std::uint8_t* const present = present_.row(layer);
    if (row.gap_changed.removed) row.first_absent = 0;
    while (row.first_absent < shares_->experts() && present[order[row.first_absent]] != 0) ++row.first_absent;
    first_absent_.set(*shares_, layer, row.first_absent);
    row.gap_changed = {false, false};
  }

  const PresentExperts& present_;
  const ExpertShares* shares_ = nullptr;
  std::vector<Row> rows_;  // by layer
  FirstAbsent first_absent_;
};

}  // namespace spillway
