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
// Measurements behind the defaults of s and q: hwmodels/README.md, "Experts". Independent of the machine: d_e
// is held in 32.32 fixed point while it is summed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sim/api/execution_model.hpp"
#include "sim/api/experts.hpp"
#include "sim/api/hit_curve.hpp"
#include "sim/exec/expert_sample.hpp"

namespace spillway {

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
  /// have changed and several kinds have one, else O(patterns).
  void mix(std::span<const std::int64_t> tokens);
  /// An iteration with this shape begins: O(layers); O(layers * experts) when sequences have come or gone.
  void begin(const BatchShape& shape);

  [[nodiscard]] std::int64_t tokens() const override { return decodes_ + fresh_; }
  [[nodiscard]] std::span<const ExpertUse> layer(std::int32_t layer) override;
  [[nodiscard]] std::int64_t distinct(std::int32_t layer) override;
  /// Known where prompts of one kind use all experts: by popularity in that kind. With `shares`, only where these fall.
  [[nodiscard]] AllUsed all_used(std::int32_t layer) override;
  [[nodiscard]] std::span<const std::int32_t> predicted(std::int32_t layer, std::int32_t count) override;
  /// Of a layer, all calls of a run have the same `slots`.
  [[nodiscard]] std::optional<std::span<const std::int32_t>> found(std::int32_t layer, std::int32_t slots) override;
  [[nodiscard]] std::span<const std::int32_t> by_popularity(std::int32_t layer) const override {
    return at(layer).ranking;
  }
  [[nodiscard]] double popularity(std::int32_t layer, std::int32_t expert) const override;
  [[nodiscard]] std::int32_t patterns() const override { return choice_.patterns; }
  [[nodiscard]] double pattern_share(std::int32_t pattern) const override {
    return shares_[static_cast<std::size_t>(pattern)];
  }
  [[nodiscard]] double popularity_in(std::int32_t pattern, std::int32_t layer, std::int32_t expert) const override {
    const Ranks& ranks = at(layer).ranks[static_cast<std::size_t>(pattern)];
    return by_rank_[ranks[static_cast<std::size_t>(expert)]];
  }

 private:
  using Ranks = std::vector<std::uint16_t>;  // of each expert; small, so that those of all layers stay in a cache

  /// What an iteration's shape says of experts, by rank. While all tokens are of one kind, popularity by rank is the
  /// same in all layers. Of several kinds, each layer has its own, where the rank of an expert is its number.
  struct Base {
    std::vector<double> pi{};
    std::int64_t for_decodes = -1;  // T_d = for_decodes, T_n = for_fresh:
    std::int64_t for_fresh = -1;
    std::vector<std::int64_t> d{};  // of an m of 0
    std::int64_t sum = 0;           // of d
    std::vector<double> idle{};     // 1 - d
    std::vector<double> weights{};  // mu / d of an m of 0, times 2^32
    // Where sequences decode, since otherwise no m is above 0:
    std::vector<PowerBase> ratio{};     // factor of idle for each 1 that m is more
    std::vector<std::int64_t> again{};  // d of an m of 1
    // Where prompts alone use all experts:
    std::int64_t shared_for = -1;             // T_n of the three below
    bool shared = false;                      // in each layer an expert has the tokens of its rank
    std::vector<std::int32_t> rank_tokens{};  // these
    bool falls = false;                       // no rank has more than the one before
  };
  struct Before {
    std::int32_t expert = 0;
    double m = 0.0;
  };
  struct Layer {
    std::vector<Ranks> ranks{};                        // of each kind of requests
    std::vector<std::vector<std::int32_t>> by_rank{};  // experts, likewise; empty: nobody has asked
    std::vector<std::int32_t> ranking{};               // experts by their mean popularity
    std::vector<Before> before{};                      // by ascending number
    std::vector<ExpertUse> used{};
    std::int64_t all_used_for = -1;  // `used` holds for every iteration of so many fresh tokens alone
    std::int64_t asked_at = -1;      // the last iteration in which somebody asked
    std::int64_t drawn_at = -1;      // iteration of `used`
    std::vector<std::int32_t> prediction{};
    std::vector<std::int32_t> found{};
    std::int64_t found_at = -1;  // iteration
  };
  [[nodiscard]] const Layer& at(std::int32_t layer) const { return layers_[static_cast<std::size_t>(layer)]; }
  [[nodiscard]] bool mixed() const { return kind_ < 0; }
  [[nodiscard]] Base& base(std::int32_t layer) { return mixed() ? mixed_[static_cast<std::size_t>(layer)] : common_; }
  [[nodiscard]] const Ranks& ranks(const Layer& layer) const {
    return mixed() ? numbers_ : layer.ranks[static_cast<std::size_t>(kind_)];
  }
  /// The shares have changed.
  void set_popularity();
  /// The base of a layer, for the shape of the iteration.
  Base& prepared(std::int32_t layer);
  /// The state of a layer before the iteration that somebody asks for.
  void recall(Layer& layer);
  /// So many sequences without a choice of their own have joined; of all, the share `kept` is left.
  void count_before(Layer& layer, double joined, double kept);
  void draw(Layer& layer, std::int32_t number);
  /// Prompts alone use all experts. Returns false where each layer shares their tokens differently.
  [[nodiscard]] bool share_by_rank(Base& base);
  /// The same, and writes down which tokens the layer's experts have.
  [[nodiscard]] bool use_all(Layer& layer, Base& base);
  /// A token uses k experts, so `sum`, of all d, must not be less.
  void raise_to_top_k(const Layer& layer, Base& base, std::int64_t sum);
  /// While a layer is drawn, a rank has another chance.
  void change(Base& base, std::size_t rank, std::int64_t d) {
    changed_.emplace_back(rank, std::exchange(base.d[rank], d));
  }
  void prepare(Base& base);
  /// d of an expert of this rank, given its ratio to the power of m.
  [[nodiscard]] std::int64_t chance(const Base& base, std::size_t rank, double m, double power) const {
    const double idle = base.idle[rank] * power;
    const double mu = expected_decodes(base.pi[rank], m) + real(fresh_) * base.pi[rank];
    return to_fixed(std::min(1.0 - idle, mu));
  }
  /// Sets d of the experts whose m is not 1. Returns the change of the sum of d. O(experts in use before).
  std::int64_t change_others(const Layer& layer, Base& base);
  /// mu of the tokens that decode; of the others it is T_n pi.
  [[nodiscard]] double expected_decodes(double pi, double m) const {
    const double q = choice_.locality;
    return m * (q + (1.0 - q) * pi) + (real(decodes_) - m) * (1.0 - q) * pi;
  }
  void share_tokens(Layer& layer, const Base& base);
  /// Those of the experts drawn, by weights_.
  void whole_tokens(Layer& layer);
  void remember(Layer& layer, const Base& base);
  void sort_drawn();
  void sort_many_drawn();
  /// No expert is left out where their chances have this sum.
  [[nodiscard]] bool all_in_use(std::int64_t sum) const;
  [[nodiscard]] std::uint64_t hash_of(std::int32_t layer) const;

  ExpertChoice choice_;
  std::vector<double> by_rank_;  // pi
  std::vector<Layer> layers_;
  std::vector<double> shares_;  // of the iteration's tokens, by kind of request
  std::int32_t kind_ = 0;       // the one that all tokens are of; -1: several
  Ranks numbers_;               // 0, 1, 2, ...
  Base common_{};               // while they are of one kind
  std::vector<Base> mixed_;     // by layer, of several kinds
  std::int64_t iteration_ = -1;
  std::uint64_t iteration_hash_ = 0;
  std::int64_t decodes_ = 0;  // T_d
  std::int64_t fresh_ = 0;    // T_n
  std::int64_t ended_ = 0;    // prompts that end in the iteration
  // These are kept for their memory.
  std::span<std::int32_t> drawn_;
  std::vector<std::int32_t> drawn_room_;        // for every expert
  std::vector<std::uint64_t> bits_;             // one for each expert; 0 between two calls
  enum class Drawn : std::uint8_t { no, yes };  // not a character type, which might be anything to a compiler
  std::vector<Drawn> is_drawn_;                 // the same for sort_many_drawn()
  std::vector<std::pair<std::size_t, std::int64_t>> changed_;  // ranks, and d before
  std::vector<double> before_;                                 // m of each expert drawn
  // Of experts whose m is not 1:
  std::vector<std::size_t> other_ranks_;
  std::vector<PowerBase> other_ratios_;
  std::vector<double> other_m_;
  PortablePowers powers_;
  // By rank, while a base is prepared:
  std::vector<double> bases_;
  std::vector<double> unused_;
  // Of experts drawn:
  std::vector<double> weights_;
  std::vector<double> parts_;
  LargestRemainder remainder_;
};

}  // namespace spillway
