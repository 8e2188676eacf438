// Routed experts that live on a GPU and its host: which of them an iteration uses, and what computing one takes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sim/core/units.hpp"

namespace spillway {

/// An expert that an iteration uses in one layer, and for how many of its tokens.
struct ExpertUse {
  std::int32_t expert = 0;
  std::int32_t tokens = 0;  // small, so that the uses of all layers stay in a cache
  bool operator==(const ExpertUse&) const = default;
};

/// A layer all of whose experts an iteration uses.
struct AllUsed {
  std::span<const std::int32_t> experts{};    // none has more tokens than one before it; empty: not known
  std::span<const std::int32_t> tokens{};     // theirs, in the same order
  std::span<const std::uint16_t> place_of{};  // of each expert in this order, by its number

  [[nodiscard]] bool known() const { return !experts.empty(); }
  [[nodiscard]] std::int32_t tokens_of(std::int32_t expert) const {
    return tokens[place_of[static_cast<std::size_t>(expert)]];
  }
};

/// What the routers of the iteration that runs choose. Layers are counted among those with experts, from 0. Answers are
/// valid until the iteration ends.
///
/// Contract
///  * A policy may ask for a layer once its router has run: from then on, a real engine knows the answer.
///  * Before that, a policy has `predicted` alone: what the hidden state of an earlier layer says of a later one.
class ExpertActivation {
 public:
  virtual ~ExpertActivation() = default;
  /// Tokens of the iteration.
  [[nodiscard]] virtual std::int64_t tokens() const = 0;
  /// The experts in use, by ascending number. O(experts) for the first call of a layer in an iteration, then O(1).
  [[nodiscard]] virtual std::span<const ExpertUse> layer(std::int32_t layer) = 0;
  /// How many they are. O(1) where no sequence decodes, for a policy that need not know which.
  [[nodiscard]] virtual std::int64_t distinct(std::int32_t layer) {
    return static_cast<std::int64_t>(this->layer(layer).size());
  }
  /// What layer() says, without a list by expert, where all experts of `layer` are in use, for top_k * tokens()
  /// together. Unless it is known(), ask layer(). Amortised O(1).
  [[nodiscard]] virtual AllUsed all_used(std::int32_t /*layer*/) { return {}; }
  /// `count` experts, the likeliest first, that the gate of `layer` would choose if it were given the hidden state of
  /// the layer before: some of those in use, filled up with the most popular others.
  [[nodiscard]] virtual std::span<const std::int32_t> predicted(std::int32_t layer, std::int32_t count) = 0;
  /// With a measured hit curve (experts.hit_curve): which of the experts in use are in the layer's `slots` slots, by
  /// ascending number. A policy may ask at the gate, and before it whether an expert that was predicted is there.
  /// Empty: there is no curve, in the whole run, and the policy keeps account of its slots. O(experts) for the first
  /// call of a layer in an iteration, then O(1).
  [[nodiscard]] virtual std::optional<std::span<const std::int32_t>> found(std::int32_t /*layer*/,
                                                                           std::int32_t /*slots*/) {
    return std::nullopt;
  }
  /// The experts of a layer by popularity, the most popular first: what profiling a workload tells. Constant.
  [[nodiscard]] virtual std::span<const std::int32_t> by_popularity(std::int32_t layer) const = 0;
  /// Probability that a token uses an expert. Constant.
  [[nodiscard]] virtual double popularity(std::int32_t layer, std::int32_t expert) const = 0;

  /// Kinds of requests, each of which has popular experts of its own.
  [[nodiscard]] virtual std::int32_t patterns() const { return 1; }
  /// Share of the iteration's tokens whose requests are of a kind.
  [[nodiscard]] virtual double pattern_share(std::int32_t /*pattern*/) const { return 1.0; }
  /// Probability that a token of such a request uses an expert. Constant.
  [[nodiscard]] virtual double popularity_in(std::int32_t /*pattern*/, std::int32_t layer, std::int32_t expert) const {
    return popularity(layer, expert);
  }
};

/// Rate of matrix products by rows of one product: straight lines between points, constant outside.
class RateByRows {
 public:
  struct Point {
    double rows = 0.0;   // > 0, ascending
    double flops = 0.0;  // > 0, FLOP/s
  };
  RateByRows() = default;
  explicit RateByRows(std::vector<Point> points) : points_(std::move(points)) {}

  [[nodiscard]] bool empty() const { return points_.empty(); }
  /// O(points).
  [[nodiscard]] double at(double rows) const {
    const auto above =
        std::find_if(points_.begin(), points_.end(), [rows](const Point& point) { return point.rows >= rows; });
    if (above == points_.begin()) return points_.front().flops;
    if (above == points_.end()) return points_.back().flops;
    const Point& below = *std::prev(above);
    return below.flops + (above->flops - below.flops) * (rows - below.rows) / (above->rows - below.rows);
  }

 private:
  std::vector<Point> points_;
};

/// The experts of a model and what they cost, as one GPU of its tensor-parallel group sees them. Every expert is three
/// matrices, or two without a gate, of which the GPU holds its share.
struct ExpertDeployment {
  std::int32_t count = 0;                  // of a layer
  std::int32_t top_k = 0;                  // that a token uses
  std::vector<std::int32_t> layers{};      // the model's layers that have experts, ascending
  std::int32_t matrices = 3;               // of an expert
  Bytes bytes{};                           // of one expert, scales included
  double parameters = 0.0;                 // of one expert
  std::int64_t hidden_bytes = 0;           // of the hidden state of one token
  double gpu_bandwidth = 0.0;              // bytes/s at which the GPU reads weights
  double gpu_flops = 0.0;                  // FLOP/s that its matrix products reach
  double dram_peak = 0.0;                  // bytes/s, of the channels of one socket; 0: unknown
  RateByRows cpu_flops{};                  // of one socket; empty: unknown
  std::int64_t gpus = 1;                   // of the group: its host computes whole experts, once for all of them
  ExpertActivation* activation = nullptr;  // valid for the whole run; null while a layout is planned

  [[nodiscard]] std::int32_t expert_layers() const { return static_cast<std::int32_t>(layers.size()); }
  /// Experts of all layers.
  [[nodiscard]] std::int64_t all() const { return static_cast<std::int64_t>(count) * expert_layers(); }
  [[nodiscard]] Bytes all_bytes() const { return bytes * all(); }
  /// The GPU computes `experts` of them, `rows` token-expert pairs in all: their weights are read once, or their
  /// arithmetic takes longer. Seconds.
  [[nodiscard]] double gpu_seconds(std::int64_t experts, std::int64_t rows) const {
    return std::max(static_cast<double>(bytes.count()) * static_cast<double>(experts) / gpu_bandwidth,
                    2.0 * parameters * static_cast<double>(rows) / gpu_flops);
  }
};

}  // namespace spillway
