// Which experts the tokens of an iteration use: a deterministic draw by popularity and locality.
//
// Given     E, k          experts of a layer, experts that a token uses
//           p_e           popularity: rank^-s, each layer with its own order of experts
//           q             locality: a sequence keeps an expert of its token before with this probability
//           T_d, T_n      tokens of sequences that decode, tokens without a token before (of prompts)
// Computed  pi_e          probability that a token uses e: min(1, c p_e) with c so that their sum is k
//           m_e           how many of the T_d sequences used e in the iteration before; a real number
//           rho_e         q + (1 - q) pi_e: used again; a sequence that did not use e uses it with (1 - q) pi_e
//           d_e           probability that e is in use:
//                           1 - ((1-q)(1-pi_e))^m_e (1 - (1-q) pi_e)^(T_d - m_e) (1 - pi_e)^T_n
//                         and at most mu_e, which an m_e that is no whole number could fall below
//           active set    a systematic sample: e is drawn with probability d_e, the number drawn is the sum of all d_e,
//                         rounded down or up
//                         Where m, rounded by an iteration with prompts, leaves the sum of d below k, the most popular
//                         experts make up for it, each up to 1
//           n_e           tokens of an active e: mu_e / d_e scaled to a sum of k (T_d + T_n), in whole tokens by the
//                         largest remainder, 1 <= n_e <= T_d + T_n, where
//                           mu_e = m_e rho_e + (T_d - m_e)(1-q) pi_e + T_n pi_e
//           all active    without a draw where the sum of 1 - d_e is below 0.5, by a millionth at least
// Requests may be of several kinds, each with an order of popularity of its own. pi_e is then the mean over the tokens
// of the iteration, as if each of them were of a kind by chance: exact while all are of one kind.
//
// The part of n_e that decodes is m_e of the next iteration, scaled down where their sum would exceed k T_d. Of
// sequences that leave, m_e loses their share; one that ends its prompt, or comes back, adds pi_e.
//
// With a measured hit curve: which of the n experts in use are in the K slots of their layer
// Given     hit(K)        share of the uses that find their expert: straight lines between the measured points, 0 at no
//                         slots, 1 at E
// Computed  h             min(hit(K), K / n): no more than K are there
//           found         a systematic sample of the n experts, by ascending number, each with probability h: their
//                         number is n h, rounded down or up. Its hash is of (seed ^ 0x68697473, iteration, layer)
// The chain above says which experts are in use, and no longer which of them are there.
//
// Source: shared/experts.md, 8.0, with the measurements behind the defaults of s and q. Independent of the machine: d_e
// is held in 32.32 fixed point while it is summed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sim/api/execution_model.hpp"
#include "sim/api/experts.hpp"
#include "sim/api/hit_curve.hpp"

namespace spillway {

/// pi by rank: min(1, c p), whose sum is `top_k`, 1 <= top_k <= weights. Weights > 0. O(weights * those that reach 1).
[[nodiscard]] std::vector<double> water_filling(std::span<const double> weights, double top_k);
/// 1 - (1 - pi)^tokens, summed: distinct experts that independent tokens use.
[[nodiscard]] double distinct_experts(std::span<const double> pi, std::int64_t tokens);

/// One in 32.32 fixed point.
inline constexpr std::int64_t kFixedOne = std::int64_t{1} << 32;

/// The order in which a systematic sample visits `count` experts: (step j + first) mod count.
struct SampleOrder {
  std::int32_t step = 1;  // coprime with count
  std::int32_t first = 0;
  /// From a hash, as experts.md has it.
  [[nodiscard]] static SampleOrder of(std::uint64_t hash, std::int32_t count);
};

/// Experts for which a point u, 1 + u, 2 + u, ... lies in their part of the running sum of `d`, in the order of the
/// visit. `d` and `u` in fixed point, u < 1. O(experts).
void systematic_sample(std::span<const std::int64_t> d, std::int64_t u, const SampleOrder& order,
                       std::vector<std::int32_t>& drawn);

/// Whole numbers in the proportions of `weights` (> 0), whose sum is `total`, each from 1 to `most`:
/// size <= total <= size * most. By largest remainder, to a millionth; of equal ones the first. O(n log n).
void largest_remainder(std::span<const double> weights, std::int64_t total, std::int64_t most,
                       std::vector<std::int64_t>& parts);

/// How an LLM's routers choose.
struct ExpertChoice {
  std::int32_t count = 0;
  std::int32_t top_k = 0;
  std::int32_t layers = 0;       // with experts
  double skew = 0.0;             // s
  std::vector<double> shares{};  // popularity by expert, instead of `skew`; the same in all layers
  double locality = 0.0;         // q, [0, 1]
  std::int32_t patterns = 1;     // kinds of requests; 1 with `shares`
  double lookahead = 0.8;        // share of the experts in use that the gate of the layer before predicts, of as many
  HitCurve hit_curve{};          // of slots on the GPU; empty: their policy keeps account
  std::uint64_t seed = 0;
};

/// The kind of a request, by its number at its instance: 0 to patterns - 1, in no order.
[[nodiscard]] std::int32_t expert_pattern(std::uint32_t number, std::int32_t patterns);

class ExpertDraw final : public ExpertActivation {
 public:
  explicit ExpertDraw(const ExpertChoice& choice);

  /// The next iteration has so many tokens of requests of each kind. O(layers * experts * patterns) when their shares
  /// have changed.
  void mix(std::span<const std::int64_t> tokens);
  /// An iteration with this shape begins: O(layers); O(layers * experts) when sequences have come or gone.
  void begin(const BatchShape& shape);

  [[nodiscard]] std::int64_t tokens() const override { return decodes_ + fresh_; }
  [[nodiscard]] std::span<const ExpertUse> layer(std::int32_t layer) override;
  [[nodiscard]] std::span<const std::int32_t> predicted(std::int32_t layer, std::int32_t count) override;
  /// Of a layer, all calls of a run have the same `slots`.
  [[nodiscard]] std::optional<std::span<const std::int32_t>> found(std::int32_t layer, std::int32_t slots) override;
  [[nodiscard]] std::span<const std::int32_t> by_popularity(std::int32_t layer) const override {
    return at(layer).ranking;
  }
  [[nodiscard]] double popularity(std::int32_t layer, std::int32_t expert) const override {
    return at(layer).profile[static_cast<std::size_t>(expert)];
  }
  [[nodiscard]] std::int32_t patterns() const override { return choice_.patterns; }
  [[nodiscard]] double pattern_share(std::int32_t pattern) const override {
    return shares_[static_cast<std::size_t>(pattern)];
  }
  [[nodiscard]] double popularity_in(std::int32_t pattern, std::int32_t layer, std::int32_t expert) const override {
    return at(layer).of_pattern[static_cast<std::size_t>(pattern)][static_cast<std::size_t>(expert)];
  }

 private:
  /// What a layer's experts are and did; vectors by expert.
  struct Layer {
    std::vector<std::vector<double>> of_pattern{};  // pi of each kind of requests
    std::vector<double> profile{};                  // their mean
    std::vector<std::int32_t> ranking{};            // experts by this mean
    std::vector<double> pi{};                       // of the iteration
    std::vector<double> before{};                   // m
    std::vector<std::int32_t> with_before{};        // the experts whose m is not 0, ascending
    // For T_d = for_decodes, T_n = for_fresh and an m of 0: d, its sum, 1 - d, and the factor of the latter for m = 1.
    std::int64_t for_decodes = -1;
    std::int64_t for_fresh = -1;
    std::vector<std::int64_t> d{};
    std::int64_t sum = 0;
    std::vector<double> idle{};
    std::vector<double> ratio{};
    std::vector<ExpertUse> used{};
    std::int64_t all_used_for = -1;  // `used` holds for every iteration of so many fresh tokens alone
    std::int64_t drawn_at = -1;      // iteration
    std::vector<std::int32_t> prediction{};
    std::vector<std::int32_t> found{};
    std::int64_t found_at = -1;  // iteration
  };
  [[nodiscard]] const Layer& at(std::int32_t layer) const { return layers_[static_cast<std::size_t>(layer)]; }
  /// So many sequences without a choice of their own have joined; of all, the share `kept` is left.
  void count_before(Layer& layer, double joined, double kept);
  /// pi of tokens of these shares.
  void mean_of_patterns(const Layer& layer, std::vector<double>& pi) const;
  void draw(Layer& layer, std::int32_t number);
  /// A token uses k experts, so `sum`, of all d, must not be less.
  void raise_to_top_k(Layer& layer, std::int64_t sum);
  void prepare_base(Layer& layer) const;
  [[nodiscard]] double expected_decodes(const Layer& layer, std::int32_t expert) const;
  void share_tokens(Layer& layer);
  void remember(Layer& layer);

  ExpertChoice choice_;
  std::vector<Layer> layers_;
  std::vector<double> shares_;  // of the iteration's tokens, by kind of request
  std::int64_t iteration_ = -1;
  std::int64_t decodes_ = 0;         // T_d
  std::int64_t fresh_ = 0;           // T_n
  std::int64_t ended_ = 0;           // prompts that end in the iteration
  std::vector<std::int32_t> drawn_;  // these are kept for their memory
  std::vector<std::int64_t> chance_;
  std::vector<std::pair<std::int32_t, std::int64_t>> raised_;
  std::vector<double> weights_;
  std::vector<std::int64_t> parts_;
  std::vector<std::int64_t> found_chance_;
};

}  // namespace spillway
