// How likely each expert of each layer is used: the matrix by which MoE-Infinity loads experts ahead and lets them
// leave.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
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
/// (MoE-Infinity, arXiv 2401.14361, 4.5; shared/experts.md, 8.3, step 1).
[[nodiscard]] constexpr double load_priority(double share, std::int32_t layer, std::int32_t running,
                                             std::int32_t layers) {
  return share * (1.0 - static_cast<double>(layer - running) / static_cast<double>(layers));
}

/// Worth of keeping an expert of `layer`: early layers stay (step 3). A share of 0 still leaves an order.
[[nodiscard]] constexpr double keep_priority(double share, std::int32_t layer, std::int32_t layers) {
  constexpr double kLeast = 1e-9;
  return (share + kLeast) * (1.0 - static_cast<double>(layer) / static_cast<double>(layers));
}

/// Shares of every expert, each row adding up to 1, and which of the experts are present.
class ExpertMatrix {
 public:
  ExpertMatrix(std::int32_t layers, std::int32_t experts)
      : layers_(layers), experts_(static_cast<std::size_t>(experts)), rows_(static_cast<std::size_t>(layers)) {
    for (Row& row : rows_) {
      row.shares.assign(experts_, 0.0);
      row.order.resize(experts_);
      row.position.resize(experts_);
      std::iota(row.order.begin(), row.order.end(), 0);
      std::iota(row.position.begin(), row.position.end(), std::size_t{0});
      row.present.assign(experts_, false);
    }
  }

  /// `share(layer, expert)`: the matrix from now on. O(layers * experts * log experts).
  template <class Share>
  void set(const Share& share) {
    for (std::int32_t l = 0; l < layers_; ++l) {
      Row& row = at(l);
      for (std::size_t e = 0; e < experts_; ++e) row.shares[e] = share(l, static_cast<std::int32_t>(e));
      std::vector<std::int32_t> by_share(experts_);
      std::iota(by_share.begin(), by_share.end(), 0);
      std::ranges::stable_sort(by_share, [&](std::int32_t a, std::int32_t b) {
        return row.shares[static_cast<std::size_t>(a)] > row.shares[static_cast<std::size_t>(b)];
      });
      std::vector<bool> present(experts_);
      for (std::size_t i = 0; i < experts_; ++i) present[static_cast<std::size_t>(row.order[i])] = row.present[i];
      row.order = by_share;
      row.end = 0;
      for (std::size_t i = 0; i < experts_; ++i) {
        row.position[static_cast<std::size_t>(by_share[i])] = i;
        row.present[i] = present[static_cast<std::size_t>(by_share[i])];
        if (row.present[i]) row.end = i + 1;
      }
      row.first_absent = 0;
    }
  }

  [[nodiscard]] double share(const LayerExpert& one) const {
    return rows_[static_cast<std::size_t>(one.layer)].shares[static_cast<std::size_t>(one.expert)];
  }
  /// Amortised O(1).
  void add(const LayerExpert& one) {
    Row& row = at(one.layer);
    const std::size_t i = row.position[static_cast<std::size_t>(one.expert)];
    row.present[i] = true;
    row.end = std::max(row.end, i + 1);
  }
  void remove(const LayerExpert& one) {
    Row& row = at(one.layer);
    const std::size_t i = row.position[static_cast<std::size_t>(one.expert)];
    row.present[i] = false;
    while (row.end > 0 && !row.present[row.end - 1]) --row.end;
    row.first_absent = std::min(row.first_absent, i);
  }

  /// The present expert that is least worth keeping, of all layers but `running`; of equal ones the one of the first
  /// layer. O(layers).
  [[nodiscard]] std::optional<LayerExpert> least(std::int32_t running) const {
    std::optional<LayerExpert> least;
    double lowest = 0.0;
    for (std::int32_t l = 0; l < layers_; ++l) {
      const Row& row = rows_[static_cast<std::size_t>(l)];
      if (l == running || row.end == 0) continue;
      const LayerExpert one{l, row.order[row.end - 1]};
      const double worth = keep_priority(share(one), l, layers_);
      if (!least || worth < lowest) {
        least = one;
        lowest = worth;
      }
    }
    return least;
  }
  /// The absent expert that is most worth loading, of the layers after `running` and of those that are more worth
  /// keeping than `kept`, such as what would have to leave; likewise. Every expert is more worth than 0. Amortised
  /// O(layers).
  [[nodiscard]] std::optional<LayerExpert> most(std::int32_t running, double kept) {
    std::optional<LayerExpert> most;
    double highest = 0.0;
    for (std::int32_t l = running + 1; l < layers_; ++l) {
      Row& row = at(l);
      while (row.first_absent < experts_ && row.present[row.first_absent]) ++row.first_absent;
      if (row.first_absent == experts_) continue;
      const LayerExpert one{l, row.order[row.first_absent]};
      if (keep_priority(share(one), l, layers_) <= kept) continue;
      const double worth = load_priority(share(one), l, running, layers_);
      if (!most || worth > highest) {
        most = one;
        highest = worth;
      }
    }
    return most;
  }

 private:
  /// Experts in the order of their shares, the largest first.
  struct Row {
    std::vector<double> shares{};  // by expert
    std::vector<std::int32_t> order{};
    std::vector<std::size_t> position{};  // by expert
    std::vector<bool> present{};          // by position
    std::size_t end = 0;                  // behind the last present one
    std::size_t first_absent = 0;         // at most the position of the first absent one
  };
  [[nodiscard]] Row& at(std::int32_t layer) { return rows_[static_cast<std::size_t>(layer)]; }

  std::int32_t layers_;
  std::size_t experts_;
  std::vector<Row> rows_;
};

}  // namespace spillway
