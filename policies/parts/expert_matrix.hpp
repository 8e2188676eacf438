// How likely each expert of each layer is used: the matrix by which MoE-Infinity loads experts ahead and lets them
// leave.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
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

/// Worth of keeping an expert of `layer`: early layers stay (step 3). A share of 0 still leaves an order.
[[nodiscard]] constexpr double keep_priority(double share, std::int32_t layer, std::int32_t layers) {
  constexpr double kLeast = 1e-9;
  return (share + kLeast) * (1.0 - static_cast<double>(layer) / static_cast<double>(layers));
}

/// Shares of every expert, each row adding up to 1, and the experts of each row by their share, the largest first.
class ExpertShares {
 public:
  /// `share(layer, expert)`. O(layers * experts * log experts).
  template <class Share>
  ExpertShares(std::int32_t layers, std::int32_t experts, const Share& share) {
    const auto count = static_cast<std::size_t>(experts);
    rows_.resize(static_cast<std::size_t>(layers));
    for (std::int32_t l = 0; l < layers; ++l) {
      Row& row = rows_[static_cast<std::size_t>(l)];
      row.shares.resize(count);
      for (std::int32_t e = 0; e < experts; ++e) row.shares[static_cast<std::size_t>(e)] = share(l, e);
      row.order.resize(count);
      std::iota(row.order.begin(), row.order.end(), 0);
      std::ranges::stable_sort(row.order, std::ranges::greater{},
                               [&](std::int32_t e) { return row.shares[static_cast<std::size_t>(e)]; });
      row.position.resize(count);
      for (std::size_t i = 0; i < count; ++i) row.position[static_cast<std::size_t>(row.order[i])] = i;
    }
  }
  struct Row {
    std::vector<double> shares{};         // by expert
    std::vector<std::int32_t> order{};    // experts
    std::vector<std::size_t> position{};  // by expert, in `order`
  };
  [[nodiscard]] const Row& row(std::int32_t layer) const { return rows_[static_cast<std::size_t>(layer)]; }

 private:
  std::vector<Row> rows_;
};

/// Which experts are present, and which of them are worth most and least by shares that may change.
class ExpertMatrix {
 public:
  /// At first none is present. `shares` must outlive it, or the next set().
  ExpertMatrix(std::int32_t layers, std::int32_t experts, const ExpertShares& shares)
      : layers_(layers), experts_(static_cast<std::size_t>(experts)), rows_(static_cast<std::size_t>(layers)) {
    for (std::int32_t distance = 0; distance <= layers; ++distance) {
      nearness_.push_back(load_priority(1.0, distance, 0, layers));
    }
    for (Row& row : rows_) row.present.assign(experts_, 0);
    for (std::vector<double>* worth : {&least_kept_, &best_share_, &best_kept_}) worth->resize(rows_.size());
    set(shares);
  }

  /// From now on these shares count. O(layers), and what settling their cursors takes: at most O(layers * experts).
  void set(const ExpertShares& shares) {
    shares_ = &shares;
    for (std::int32_t l = 0; l < layers_; ++l) {
      Row& row = at(l);
      row.end = experts_;
      row.first_absent = 0;
      settle(l);
    }
  }

  [[nodiscard]] double share(const LayerExpert& one) const {
    return shares_->row(one.layer).shares[static_cast<std::size_t>(one.expert)];
  }
  /// Amortised O(1).
  void add(const LayerExpert& one) {
    Row& row = at(one.layer);
    row.present[static_cast<std::size_t>(one.expert)] = 1;
    row.end = std::max(row.end, position(one) + 1);
    settle(one.layer);
  }
  void remove(const LayerExpert& one) {
    Row& row = at(one.layer);
    row.present[static_cast<std::size_t>(one.expert)] = 0;
    row.first_absent = std::min(row.first_absent, position(one));
    settle(one.layer);
  }

  /// The present expert that is least worth keeping, of all layers but `running`; of equal ones the one of the first
  /// layer. O(layers).
  [[nodiscard]] std::optional<LayerExpert> least(std::int32_t running) const {
    std::int32_t least = -1;
    double lowest = std::numeric_limits<double>::infinity();
    for (std::int32_t l = 0; l < layers_; ++l) {
      const double worth = least_kept_[static_cast<std::size_t>(l)];
      if (worth >= lowest || l == running) continue;
      least = l;
      lowest = worth;
    }
    if (least < 0) return std::nullopt;
    return LayerExpert{least, shares_->row(least).order[at(least).end - 1]};
  }
  /// The absent expert that is most worth loading, of the layers after `running` and of those that are more worth
  /// keeping than `kept`, such as what would have to leave; likewise. Every expert is more worth than 0. O(layers).
  [[nodiscard]] std::optional<LayerExpert> most(std::int32_t running, double kept) const {
    std::int32_t most = -1;
    double highest = -1.0;
    for (std::int32_t l = running + 1; l < layers_; ++l) {
      if (best_kept_[static_cast<std::size_t>(l)] <= kept) continue;
      const double worth = best_share_[static_cast<std::size_t>(l)] * nearness_[static_cast<std::size_t>(l - running)];
      if (worth <= highest) continue;
      most = l;
      highest = worth;
    }
    if (most < 0) return std::nullopt;
    return LayerExpert{most, shares_->row(most).order[at(most).first_absent]};
  }

 private:
  struct Row {
    std::vector<std::uint8_t> present{};  // by expert
    std::size_t end = 0;                  // behind the last present one, by share
    std::size_t first_absent = 0;
  };
  [[nodiscard]] Row& at(std::int32_t layer) { return rows_[static_cast<std::size_t>(layer)]; }
  [[nodiscard]] const Row& at(std::int32_t layer) const { return rows_[static_cast<std::size_t>(layer)]; }
  [[nodiscard]] std::size_t position(const LayerExpert& one) const {
    return shares_->row(one.layer).position[static_cast<std::size_t>(one.expert)];
  }
  /// Moves the cursors of a row, which stand too far behind and too far in front.
  void settle(std::int32_t layer) {
    Row& row = at(layer);
    const ExpertShares::Row& by = shares_->row(layer);
    const auto there = [&](std::size_t i) { return row.present[static_cast<std::size_t>(by.order[i])] != 0; };
    const auto share = [&](std::size_t i) { return by.shares[static_cast<std::size_t>(by.order[i])]; };
    while (row.end > 0 && !there(row.end - 1)) --row.end;
    while (row.first_absent < experts_ && there(row.first_absent)) ++row.first_absent;
    const auto l = static_cast<std::size_t>(layer);
    least_kept_[l] =
        row.end > 0 ? keep_priority(share(row.end - 1), layer, layers_) : std::numeric_limits<double>::infinity();
    const bool absent = row.first_absent < experts_;
    best_share_[l] = absent ? share(row.first_absent) : -1.0;
    best_kept_[l] = absent ? keep_priority(best_share_[l], layer, layers_) : -1.0;
  }

  std::int32_t layers_;
  std::size_t experts_;
  std::vector<double> nearness_;  // by distance of two layers
  std::vector<Row> rows_;
  // By layer, next to each other, because every choice reads all of them.
  std::vector<double> least_kept_;  // worth of keeping the last present one; infinite: none is
  std::vector<double> best_share_;  // of the first absent one, and the worth of keeping it; -1: none is
  std::vector<double> best_kept_;
  const ExpertShares* shares_ = nullptr;
};

}  // namespace spillway
