// The state of a search for a placement: how many models of each class are on each server.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "sim/study/placer/placement.hpp"

namespace spillway::placer {

/// Models that nothing distinguishes: a placement is as good with any two of them exchanged.
struct ModelClass {
  std::int64_t balance = 0;  // bytes
  std::int64_t gpus = 1;
  std::int64_t sign = 0;              // 1: a producer, -1: a consumer, 0: neither
  std::vector<std::size_t> models{};  // positions in the problem; in `compat` a model once for each GPU
};

/// What is to be placed, with equal models together. In `compat` each GPU of a model is one of its own.
struct Classes {
  std::vector<ModelClass> list;  // by GPUs, then by size of the balance, largest first
  std::int64_t servers = 1;
  std::int64_t gpus_per_server = 1;
  std::int64_t gpu_memory = 0;
  bool compat = false;

  explicit Classes(const PlacementProblem& problem);
  [[nodiscard]] std::int64_t total_balance() const;
  [[nodiscard]] std::int64_t total_sign() const;
  /// The common divisor of all balances; what a server has left to lend is a multiple of it.
  [[nodiscard]] std::int64_t balance_unit() const;
  /// The common divisor of all balances and the memory of a GPU; the objective is a multiple of it.
  [[nodiscard]] std::int64_t unit() const;
  /// A bound of each maximum, from the means over servers.
  [[nodiscard]] std::int64_t least_memory() const;
  [[nodiscard]] std::int64_t least_surplus() const;
};

/// The objective of two maxima in bytes. Where `compat` forbids them, kForbidden or more: the larger, the further below
/// 0.
inline constexpr std::int64_t kForbidden = std::int64_t{1} << 60U;
[[nodiscard]] std::int64_t objective_value(const Classes& classes, std::int64_t memory, std::int64_t surplus);

/// Models of each class on each server, and what they add up to.
class ServerLoads {
 public:
  struct Load {
    std::int64_t memory = 0;
    std::int64_t surplus = 0;
    std::int64_t gpus = 0;
  };

  explicit ServerLoads(const Classes& classes);

  void add(std::size_t model_class, std::size_t server, std::int64_t count);
  [[nodiscard]] std::int64_t count(std::size_t model_class, std::size_t server) const {
    return counts_[server][model_class];
  }
  [[nodiscard]] const Load& load(std::size_t server) const { return loads_[server]; }
  [[nodiscard]] std::size_t servers() const { return loads_.size(); }
  [[nodiscard]] bool fits(std::size_t model_class, std::size_t server) const;
  /// The objective in bytes. O(servers).
  [[nodiscard]] std::int64_t value() const;

 private:
  const Classes* classes_;
  std::vector<std::vector<std::int64_t>> counts_;  // by server, then class
  std::vector<Load> loads_;
};

/// Puts every model on a server that has room, the largest first; empty when some model finds none, which does not mean
/// that no packing exists. O(models * servers).
[[nodiscard]] std::optional<ServerLoads> greedy_placement(const Classes& classes);

/// Moves and swaps models while that lowers the objective, or balances servers at the same objective; then shakes the
/// best placement and descends again, until it meets the bound or has evaluated `moves`. Deterministic.
[[nodiscard]] ServerLoads improve(const Classes& classes, ServerLoads loads, std::int64_t moves);

/// The outcome of GLPK.
struct ExactOutcome {
  std::optional<ServerLoads> better;  // than what it was given
  std::int64_t bound = 0;             // no placement has a lower objective; only of `solvable` problems
  bool solvable = true;               // false: it has proven that there is no placement
};
/// Branch and bound over the number of models of each class on each server. `best`: a placement to beat; empty: none is
/// known. Ends at `pivots`, counted in simplex iterations times rows.
[[nodiscard]] ExactOutcome solve_exactly(const Classes& classes, const std::optional<ServerLoads>& best,
                                         std::int64_t pivots);

}  // namespace spillway::placer
