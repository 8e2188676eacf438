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
      fill(static_cast<std::int32_t>(l), std::span(filled_));
      sort(rows_[l]);
    }
  }
  struct Row {
    std::vector<double> shares{};           // the largest first
    std::vector<std::uint16_t> order{};     // whose they are; small, so that those of all layers stay in a cache
    std::vector<std::uint16_t> position{};  // by expert, in `order`
    [[nodiscard]] double share(std::int32_t expert) const { return shares[position[static_cast<std::size_t>(expert)]]; }
  };
  [[nodiscard]] const Row& row(std::int32_t layer) const { return rows_[static_cast<std::size_t>(layer)]; }

 private:
  /// The largest share first; of equal ones, the expert with the lowest number.
  void sort(Row& row) {
    sorted_.clear();
    for (const double share : filled_) sorted_.emplace_back(-share, static_cast<std::uint16_t>(sorted_.size()));
    std::ranges::sort(sorted_);
    for (std::size_t i = 0; i < sorted_.size(); ++i) {
      const std::uint16_t expert = sorted_[i].second;
      row.shares[i] = -sorted_[i].first;
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
        experts_(static_cast<std::size_t>(experts)),
        rows_(static_cast<std::size_t>(layers)),
        best_share_(rows_.size()),
        best_kept_(rows_.size()),
        least_kept_(rows_.size()) {
    for (std::int32_t distance = 0; distance <= layers; ++distance) {
      nearness_.push_back(load_priority(1.0, distance, 0, layers));
    }
    for (std::int32_t l = 0; l < layers; ++l) {
      at(l).present.assign(experts_, 0);
      at(l).factor = keep_factor(l, layers);
    }
    set(shares);
  }

  /// Replaces the shares. The experts that are present stay. O(layers * experts).
  void set(const ExpertShares& shares) {
    shares_ = &shares;
    for (std::int32_t l = 0; l < layers_; ++l) {
      Row& row = at(l);
      row.by_share.clear(experts_);
      const auto& position = shares.row(l).position;
      for (std::size_t e = 0; e < experts_; ++e) row.by_share.set(position[e], row.present[e]);
      touch(l);
    }
  }

  [[nodiscard]] double share(const LayerExpert& one) const { return shares_->row(one.layer).share(one.expert); }
  /// O(1), and O(log layers + experts / 64) in the next call of least() or most() for each layer that has changed.
  void add(const LayerExpert& one) { flip(one, 1); }
  void remove(const LayerExpert& one) { flip(one, 0); }

  /// The present expert that is least worth keeping, of all layers but `running`; of equal ones the one of the first
  /// layer. O(1), and as above; two layers change with `running`, 0 <= running < layers.
  [[nodiscard]] std::optional<LayerExpert> least(std::int32_t running) {
    if (running != running_) {
      if (running_ >= 0) touch(running_);
      touch(running);
      running_ = running;
    }
    judge();
    const std::size_t least = least_kept_.least();
    if (least_kept_.at(least) == kNone) return std::nullopt;
    const auto layer = static_cast<std::int32_t>(least);
    return LayerExpert{layer, expert_at(layer, at(layer).by_share.last())};
  }
  /// The absent expert that is most worth loading, of the layers after `running` and of those that are more worth
  /// keeping than `kept`, such as what would have to leave; likewise. Every expert is more worth than 0. O(layers), and
  /// as above.
  [[nodiscard]] std::optional<LayerExpert> most(std::int32_t running, double kept) {
    judge();
    std::int32_t most = -1;
    double highest = -1.0;
    for (std::int32_t l = running + 1; l < layers_; ++l) {
      if (best_kept_[static_cast<std::size_t>(l)] <= kept) continue;
      const double worth = best_share_[static_cast<std::size_t>(l)] * nearness_[static_cast<std::size_t>(l - running)];
      most = worth > highest ? l : most;
      highest = std::max(highest, worth);
    }
    if (most < 0) return std::nullopt;
    return LayerExpert{most, expert_at(most, at(most).by_share.first_missing())};
  }

 private:
  /// Places of a row, by share, at which an expert is present.
  class Places {
   public:
    static constexpr std::size_t kNowhere = std::numeric_limits<std::size_t>::max();
    void clear(std::size_t places) { words_.assign(places / kBits + 1, 0); }
    /// `present`: 0 or 1.
    void set(std::size_t place, std::uint64_t present) {
      std::uint64_t& word = words_[place / kBits];
      word = (word & ~(std::uint64_t{1} << place % kBits)) | present << place % kBits;
    }
    /// kNowhere: none is present.
    [[nodiscard]] std::size_t last() const {
      for (std::size_t i = words_.size(); i-- > 0;) {
        if (words_[i] != 0) return i * kBits + kBits - 1 - static_cast<std::size_t>(std::countl_zero(words_[i]));
      }
      return kNowhere;
    }
    /// At least the number of places: all are present.
    [[nodiscard]] std::size_t first_missing() const {
      std::size_t i = 0;
      while (~words_[i] == 0) ++i;
      return i * kBits + static_cast<std::size_t>(std::countr_one(words_[i]));
    }

   private:
    static constexpr std::size_t kBits = 64;
    std::vector<std::uint64_t> words_;
  };
  struct Row {
    std::vector<std::uint8_t> present{};  // by expert; new shares find it as it is
    Places by_share{};                    // the same experts, by the shares that count
    double factor = 0.0;                  // keep_factor() of the layer
    bool touched = false;                 // whether it has changed since judge()
  };
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  [[nodiscard]] Row& at(std::int32_t layer) { return rows_[static_cast<std::size_t>(layer)]; }
  [[nodiscard]] const Row& at(std::int32_t layer) const { return rows_[static_cast<std::size_t>(layer)]; }
  [[nodiscard]] std::int32_t expert_at(std::int32_t layer, std::size_t place) const {
    return shares_->row(layer).order[place];
  }
  void flip(const LayerExpert& one, std::uint8_t present) {
    const auto expert = static_cast<std::size_t>(one.expert);
    Row& row = at(one.layer);
    row.present[expert] = present;
    row.by_share.set(shares_->row(one.layer).position[expert], present);
    touch(one.layer);
  }
  void touch(std::int32_t layer) {
    if (!std::exchange(at(layer).touched, true)) touched_.push_back(layer);
  }
  /// Finds what is worth most and least in the layers that have changed.
  void judge() {
    for (const std::int32_t layer : touched_) {
      Row& row = at(layer);
      row.touched = false;
      const std::vector<double>& shares = shares_->row(layer).shares;
      const auto l = static_cast<std::size_t>(layer);
      const std::size_t last = row.by_share.last();
      std::int64_t worth = kNone;
      if (last != Places::kNowhere && layer != running_) {
        // The bits of numbers above 0, read as whole numbers, are in the same order.
        worth = std::bit_cast<std::int64_t>(keep_priority(shares[last], row.factor));
      }
      least_kept_.set(l, worth);
      const std::size_t absent = row.by_share.first_missing();
      best_share_[l] = absent < experts_ ? shares[absent] : -1.0;
      best_kept_[l] = absent < experts_ ? keep_priority(best_share_[l], row.factor) : -1.0;
    }
    touched_.clear();
  }

  std::int32_t layers_;
  std::size_t experts_;
  std::int32_t running_ = -1;     // whose experts stay
  std::vector<double> nearness_;  // by distance of two layers
  std::vector<Row> rows_;
  // By layer, next to each other, because most() reads those of all later layers.
  std::vector<double> best_share_;  // of the first absent one, and the worth of keeping it; -1: none is
  std::vector<double> best_kept_;

  std::vector<std::int32_t> touched_{};  // layers that judge() has to look at
  LeastTree least_kept_;                 // worth of keeping the last present one; kNone: none is, or the layer runs
  const ExpertShares* shares_ = nullptr;
};

}  // namespace spillway
