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

/// Shares of every expert, each row adding up to 1, and the experts of each row by their share, the largest first.
class ExpertShares {
 public:
  /// `share(layer, expert)`; at most 65,536 experts. O(layers * experts * log experts).
  template <class Share>
  ExpertShares(std::int32_t layers, std::int32_t experts, const Share& share)
      : rows_(static_cast<std::size_t>(layers)) {
    for (Row& row : rows_) {
      row.shares.resize(static_cast<std::size_t>(experts));
      row.kept.resize(row.shares.size());
      row.position.resize(row.shares.size());
      row.order.resize(row.shares.size());
    }
    filled_.resize(static_cast<std::size_t>(experts));
    change([&](std::int32_t layer, std::span<double> shares) {
      for (std::int32_t e = 0; e < experts; ++e) shares[static_cast<std::size_t>(e)] = share(layer, e);
    });
  }
  /// Replaces all shares: `fill(layer, row)` must write every element of `row`, by expert. A matrix that uses them
  /// needs ExpertMatrix::set() before any other call. O(layers * experts * log experts).
  template <class Fill>
  void change(const Fill& fill) {
    for (std::size_t l = 0; l < rows_.size(); ++l) {
      const auto layer = static_cast<std::int32_t>(l);
      fill(layer, std::span(filled_));
      sort(rows_[l], keep_factor(layer, static_cast<std::int32_t>(rows_.size())));
    }
  }
  struct Row {
    std::vector<double> shares{};           // the largest first
    std::vector<std::int64_t> kept{};       // worth of keeping them: the bits of a number above 0 are in its order
    std::vector<std::uint16_t> order{};     // whose they are; small, so that those of all layers stay in a cache
    std::vector<std::uint16_t> position{};  // by expert, in `order`
    [[nodiscard]] double share(std::int32_t expert) const { return shares[position[static_cast<std::size_t>(expert)]]; }
  };
  [[nodiscard]] const Row& row(std::int32_t layer) const { return rows_[static_cast<std::size_t>(layer)]; }

 private:
  /// The largest share first; of equal ones, the expert with the lowest number.
  void sort(Row& row, double factor) {
    sorted_.clear();
    for (const double share : filled_) sorted_.emplace_back(-share, static_cast<std::uint16_t>(sorted_.size()));
    std::ranges::sort(sorted_);
    for (std::size_t i = 0; i < sorted_.size(); ++i) {
      const std::uint16_t expert = sorted_[i].second;
      row.shares[i] = -sorted_[i].first;
      row.kept[i] = std::bit_cast<std::int64_t>(keep_priority(row.shares[i], factor));
      row.order[i] = expert;
      row.position[expert] = static_cast<std::uint16_t>(i);
    }
  }

  std::vector<double> filled_;                            // of a row, by expert; kept for its memory
  std::vector<std::pair<double, std::uint16_t>> sorted_;  // likewise
  std::vector<Row> rows_;
};

/// Which experts are present, and which of them are worth most and least by shares that may change.
class ExpertMatrix {
 public:
  /// At first none is present. `shares` must outlive it, or the next set().
  ExpertMatrix(std::int32_t layers, std::int32_t experts, const ExpertShares& shares)
      : layers_(layers),
        experts_(experts),
        rows_(static_cast<std::size_t>(layers)),
        present_(rows_.size(), Bits(static_cast<std::size_t>(experts))),
        by_share_(present_),
        best_share_(rows_.size()),
        best_kept_(rows_.size()),
        least_kept_(rows_.size()) {
    for (std::int32_t distance = 0; distance <= layers; ++distance) {
      nearness_.push_back(load_priority(1.0, distance, 0, layers));
    }
    set(shares);
  }

  /// Replaces the shares. The experts that are present stay. O(layers * experts).
  void set(const ExpertShares& shares) {
    for (const Change& change : changes_) present_[at(change.layer)].set(change.expert, change.present);
    changes_.clear();
    shares_ = &shares;
    for (std::int32_t layer = 0; layer < layers_; ++layer) {
      const std::size_t l = at(layer);
      const auto& position = shares.row(layer).position;
      Row& row = rows_[l];
      row.last = -1;
      for (std::int32_t e = 0; e < experts_; ++e) {
        const std::int32_t place = position[static_cast<std::size_t>(e)];
        const bool present = present_[l].has(e);
        by_share_[l].set(place, present);
        if (present) row.last = std::max(row.last, place);
      }
      row.first_absent = by_share_[l].next_absent(0);
      judge_last(layer);
      judge_first_absent(layer);
    }
  }

  [[nodiscard]] double share(const LayerExpert& one) const { return shares_->row(one.layer).share(one.expert); }
  /// O(1), and O(log layers + experts / 64) in the next call of least() or most().
  void add(const LayerExpert& one) { note(one, true); }
  void remove(const LayerExpert& one) { note(one, false); }

  /// The present expert that is least worth keeping, of all layers but `running`; of equal ones the one of the first
  /// layer. O(1), and as above; 0 <= running < layers.
  [[nodiscard]] std::optional<LayerExpert> least(std::int32_t running) {
    catch_up();
    if (running != running_) {
      const std::int32_t before = std::exchange(running_, running);
      if (before >= 0) judge_last(before);
      judge_last(running);
    }
    const std::size_t least = least_kept_.least();
    if (least_kept_.at(least) == kNone) return std::nullopt;
    const auto layer = static_cast<std::int32_t>(least);
    return LayerExpert{layer, expert_at(layer, rows_[least].last)};
  }
  /// The absent expert that is most worth loading, of the layers after `running` and of those that are more worth
  /// keeping than `kept`, such as what would have to leave; likewise. Every expert is more worth than 0. O(layers), and
  /// as above.
  [[nodiscard]] std::optional<LayerExpert> most(std::int32_t running, double kept) {
    catch_up();
    std::int32_t most = -1;
    double highest = -1.0;
    for (std::int32_t l = running + 1; l < layers_; ++l) {
      if (best_kept_[at(l)] <= kept) continue;
      const double worth = best_share_[at(l)] * nearness_[static_cast<std::size_t>(l - running)];
      most = worth > highest ? l : most;
      highest = std::max(highest, worth);
    }
    if (most < 0) return std::nullopt;
    return LayerExpert{most, expert_at(most, rows_[at(most)].first_absent)};
  }

 private:
  /// A set of experts, or of places of a row.
  class Bits {
   public:
    explicit Bits(std::size_t count) : words_((count + kBits - 1) / kBits), count_(static_cast<std::int32_t>(count)) {}
    [[nodiscard]] bool has(std::int32_t at) const { return (words_[word(at)] >> bit(at) & 1U) != 0; }
    void set(std::int32_t at, bool present) {
      std::uint64_t& of = words_[word(at)];
      of = (of & ~(std::uint64_t{1} << bit(at))) | std::uint64_t{present} << bit(at);
    }
    /// The last one up to `at`; -1: none.
    [[nodiscard]] std::int32_t last_up_to(std::int32_t at) const {
      std::size_t w = word(at);
      const std::uint64_t left = words_[w] << (kBits - 1 - bit(at));
      if (left != 0) return at - std::countl_zero(left);
      while (w-- > 0) {
        if (words_[w] != 0) return static_cast<std::int32_t>((w + 1) * kBits) - 1 - std::countl_zero(words_[w]);
      }
      return -1;
    }
    /// The first number from `at` on that is not in the set; `count`: all are.
    [[nodiscard]] std::int32_t next_absent(std::int32_t at) const {
      while (at < count_) {
        const std::int32_t more = std::countr_one(words_[word(at)] >> bit(at));
        if (more < static_cast<std::int32_t>(kBits - bit(at))) return std::min(at + more, count_);
        at += more;
      }
      return count_;
    }

   private:
    static constexpr std::size_t kBits = 64;
    static std::size_t word(std::int32_t at) { return static_cast<std::size_t>(at) / kBits; }
    static std::size_t bit(std::int32_t at) { return static_cast<std::size_t>(at) % kBits; }
    std::vector<std::uint64_t> words_;
    std::int32_t count_;
  };
  /// Places of a layer's row, by share.
  struct Row {
    std::int32_t last = -1;         // of an expert that is present; -1: none is
    std::int32_t first_absent = 0;  // of one that is not
    bool moved = false;             // `last`, since judge_last()
  };
  struct Change {
    std::uint16_t layer = 0;
    std::uint16_t expert = 0;
    bool present = false;
  };
  static constexpr std::size_t kMostChanges = 4096;
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  static std::size_t at(std::int32_t layer) { return static_cast<std::size_t>(layer); }
  [[nodiscard]] std::int32_t expert_at(std::int32_t layer, std::int32_t place) const {
    return shares_->row(layer).order[static_cast<std::size_t>(place)];
  }
  /// Experts arrive and leave more often than somebody asks, above all while other shares count.
  void note(const LayerExpert& one, bool present) {
    if (changes_.size() == kMostChanges) catch_up();
    changes_.push_back({static_cast<std::uint16_t>(one.layer), static_cast<std::uint16_t>(one.expert), present});
  }
  void catch_up() {
    for (const Change& change : changes_) apply(change);
    changes_.clear();
    for (const std::int32_t layer : moved_) judge_last(layer);
    moved_.clear();
  }
  void apply(const Change& change) {
    const std::int32_t layer = change.layer;
    const std::int32_t place = shares_->row(layer).position[change.expert];
    present_[at(layer)].set(change.expert, change.present);
    Bits& by_share = by_share_[at(layer)];
    by_share.set(place, change.present);
    Row& row = rows_[at(layer)];
    if (change.present) {
      if (place > row.last) move_last(layer, place);
      if (place == row.first_absent) {
        row.first_absent = by_share.next_absent(place);
        judge_first_absent(layer);
      }
      return;
    }
    if (place == row.last) move_last(layer, by_share.last_up_to(place));
    if (place < row.first_absent) {
      row.first_absent = place;
      judge_first_absent(layer);
    }
  }
  void move_last(std::int32_t layer, std::int32_t place) {
    Row& row = rows_[at(layer)];
    row.last = place;
    if (layer != running_ && !std::exchange(row.moved, true)) moved_.push_back(layer);
  }
  void judge_last(std::int32_t layer) {
    Row& row = rows_[at(layer)];
    row.moved = false;
    const bool counts = row.last >= 0 && layer != running_;
    least_kept_.set(at(layer), counts ? shares_->row(layer).kept[static_cast<std::size_t>(row.last)] : kNone);
  }
  void judge_first_absent(std::int32_t layer) {
    const std::int32_t place = rows_[at(layer)].first_absent;
    const bool is_one = place < experts_;
    best_share_[at(layer)] = is_one ? shares_->row(layer).shares[static_cast<std::size_t>(place)] : -1.0;
    best_kept_[at(layer)] = is_one ? keep_priority(best_share_[at(layer)], layer, layers_) : -1.0;
  }

  std::int32_t layers_;
  std::int32_t experts_;
  std::int32_t running_ = -1;        // whose experts stay
  std::vector<double> nearness_;     // by distance of two layers
  std::vector<Change> changes_;      // since somebody asked
  std::vector<std::int32_t> moved_;  // layers whose last one has moved
  // By layer:
  std::vector<Row> rows_;
  std::vector<Bits> present_;   // experts; new shares find them as they are
  std::vector<Bits> by_share_;  // the same, by their places
  // Next to each other, because most() reads those of all later layers.
  std::vector<double> best_share_;  // of the first absent one, and the worth of keeping it; -1: none is
  std::vector<double> best_kept_;
  LeastTree least_kept_;  // worth of keeping the last present one; kNone: none is, or the layer runs
  const ExpertShares* shares_ = nullptr;
};

}  // namespace spillway
