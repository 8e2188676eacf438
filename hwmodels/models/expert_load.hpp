// How a router spreads tokens over experts, and what the most loaded GPU of an expert-parallel group computes.
//
// Each token goes to top_k of E experts. Each GPU of a group holds E / ranks of them, in order. Distributions:
//   balanced      token-expert pairs are dealt out evenly over GPUs, then over the experts of a GPU
//   power_law(a)  what the collector of ai-dynamo/aiconfigurator measures. Each expert draws
//                   x = ((X^(1-a) - x0^(1-a)) u + x0^(1-a))^(1/(1-a)),  u uniform in [0, 1],
//                 with x0 = 1 and X = 0.8 tokens, or x0 = 0.01 and X = 2 where there are at most as many pairs as
//                 experts. The x are scaled to the number of pairs and rounded; the largest experts take what rounding
//                 leaves, the smallest give up what it adds. An expert may get more rows than there are tokens. All of
//                 this is from memory of the collector's source; it was checked against its tables.
//   shares        each pair chooses an expert with these probabilities, independently of the others; equal shares are a
//                 router that chooses at random, which leaves more experts idle in a small batch than `balanced` does
// Draws are replaced by a fixed sequence, stratified so that every quantile of u occurs equally often; results are
// averages over this sequence. Shares: the most loaded GPU has P s + c sqrt(P s (1 - s)) of P pairs, where s is the
// largest share of a GPU and c the expected maximum of as many standard normal numbers as there are GPUs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace spillway::hwmodels {

/// Rows of the tiles of grouped matrix multiplications.
inline constexpr std::array<std::int64_t, 5> kRowTiles{16, 32, 64, 128, 256};

/// Beyond it, one expert has all rows.
inline constexpr double kSteepestLaw = 4.0;

/// What one GPU computes. Averages, hence no integers.
struct RankLoad {
  double rows = 0.0;                             // token-expert pairs
  double active = 0.0;                           // experts with at least one row
  double largest = 0.0;                          // rows of the expert with the most rows
  std::array<double, kRowTiles.size()> tiles{};  // by M of kRowTiles: sum over experts of ceil(rows / M)
};

class ExpertLoad {
 public:
  enum class Kind : std::uint8_t { balanced, power_law, shares, elsewhere };
  /// Which of the experts with equally many rows takes a pair that rounding left: the one with the larger x, or the
  /// first one, so that a few tokens all go to one GPU.
  enum class Ties : std::uint8_t { by_draw, in_order };

  [[nodiscard]] static ExpertLoad balanced() { return {}; }
  /// `alpha` from 0 to kSteepestLaw. At 1 it is the limit of the law: the logarithm of x is uniform.
  [[nodiscard]] static ExpertLoad power_law(double alpha, Ties ties = Ties::by_draw);
  /// One share per expert: each from 0 to 1, their sum 1 within 1e-6. Throws ConfigError for any others.
  [[nodiscard]] static ExpertLoad shares(std::vector<double> shares);

  /// The execution model times no routed experts: a policy that places them times what it computes where.
  [[nodiscard]] static ExpertLoad elsewhere();

  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] double alpha() const { return alpha_; }
  [[nodiscard]] Ties ties() const { return ties_; }
  /// Empty unless made by shares().
  [[nodiscard]] const std::vector<double>& expert_shares() const { return shares_; }
  /// "balanced", "power_law_1.2", "shares", "elsewhere".
  [[nodiscard]] std::string name() const;

 private:
  Kind kind_ = Kind::balanced;
  double alpha_ = 0.0;
  Ties ties_ = Ties::by_draw;
  std::vector<double> shares_;
};

/// The most loaded GPU of a group, by tokens.
class MostLoadedRank {
 public:
  MostLoadedRank() = default;
  /// 1 <= top_k <= experts; `ranks` divides `experts`; shares are as many as experts.
  MostLoadedRank(const ExpertLoad& load, std::int64_t top_k, std::int64_t experts, std::int64_t ranks);

  /// `tokens` >= 1 of the whole group. O(1) when balanced, else O(experts) and up to 0.2 ms.
  [[nodiscard]] RankLoad at(std::int64_t tokens) const;

 private:
  /// An expert of one draw.
  struct Expert {
    double u = 0.0;
    std::size_t index = 0;
    std::size_t rank = 0;
  };
  [[nodiscard]] RankLoad balanced_at(double pairs) const;
  [[nodiscard]] RankLoad drawn_at(std::int64_t tokens) const;
  [[nodiscard]] RankLoad shares_at(double pairs) const;
  void settle(const std::vector<Expert>& draw, double left, std::vector<double>& rows) const;

  ExpertLoad::Kind kind_ = ExpertLoad::Kind::balanced;
  double alpha_ = 0.0;
  ExpertLoad::Ties ties_ = ExpertLoad::Ties::by_draw;
  std::int64_t top_k_ = 1;
  std::int64_t experts_ = 1;
  std::int64_t ranks_ = 1;
  std::vector<std::vector<Expert>> draws_;  // each by descending u
  std::vector<double> local_shares_;        // of the GPU with the largest sum
};

}  // namespace spillway::hwmodels
