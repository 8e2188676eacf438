// AQUA's placer: which model runs on which server, and which model lends memory to which (AQUA section 5).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/core/units.hpp"

namespace spillway::placer {

/// A model to place. A positive balance is memory that a producer lends, a negative one memory that a consumer borrows,
/// of all GPUs of the model together.
struct PlacedModel {
  std::string name;
  std::int64_t gpus = 1;  // tensor_parallel
  Bytes balance{};
};

/// Equal servers, each with `gpus_per_server` GPUs of `gpu_memory`.
struct PlacementProblem {
  std::vector<PlacedModel> models{};
  std::int64_t servers = 1;
  std::int64_t gpus_per_server = 1;
  Bytes gpu_memory{};  // of one GPU, as in the published code; it weighs a surplus of producers
  /// As the published code does it (aqua_placer/allocate.py): no rule keeps the GPUs of a model on one server, so each
  /// is a model of its own with its part of the balance; and neither maximum may be below 0, because both are variables
  /// whose lower bound is the solver's default. A problem whose servers are all net consumers has then no solution.
  bool compat = false;
};

/// What the placer minimises: max over servers of the memory left to lend, plus gpu_memory times max over servers of
/// producers minus consumers. The two maxima may be on different servers.
struct PlacementObjective {
  Bytes memory{};
  std::int64_t surplus = 0;
  [[nodiscard]] Bytes value(Bytes gpu_memory) const { return memory + gpu_memory * surplus; }
  bool operator==(const PlacementObjective&) const = default;
};

/// A producer and the consumer that borrows from it, on one server.
struct LendingPair {
  std::size_t producer = 0;  // positions in PlacementProblem::models
  std::size_t consumer = 0;
  bool operator==(const LendingPair&) const = default;
};

struct Placement {
  /// The server of each model, from 0, in the order of the problem. In `compat` one server for each of its GPUs.
  std::vector<std::vector<std::int64_t>> servers;
  PlacementObjective objective;
  Bytes value{};  // of the objective
  Bytes bound{};  // no placement has a lower value
  std::vector<LendingPair> pairs;
  std::vector<std::size_t> unmatched;  // consumers that page to host DRAM, ascending

  /// No placement is better.
  [[nodiscard]] bool optimal() const { return value == bound; }
  /// (value - bound) / the larger of their absolute values; 0 when optimal. The true gap is at most this.
  [[nodiscard]] double gap() const;
};

/// How much to compute. Limits count operations, so that a placement does not depend on the machine.
struct PlacementEffort {
  std::int64_t moves = 20'000'000;  // that the local search evaluates: about 0.5 s
  std::int64_t pivots = 200'000;    // of GLPK's simplex method, times rows of the program: about 2 s
};

/// The best placement found: local search, then GLPK's branch and bound, which ends when it has proven that none is
/// better or at the limit of the effort. GLPK does not run where the local search meets the bound that the means over
/// servers give, each mean rounded up to what sums of balances and of signs can be; nor, once there is a placement, for
/// more than 10,000 classes times servers.
///
/// Throws ConfigError naming the constraint when there is no placement: a model that lends more than its GPUs have or
/// takes more GPUs than a server has, more models than GPUs, models that no packing keeps on one server each, or in
/// `compat` servers that are all net consumers.
///
/// Memory O(classes * servers), where models of equal balance and GPUs are one class.
[[nodiscard]] Placement place(const PlacementProblem& problem, const PlacementEffort& effort = {});

/// The objective of `servers`, one list per model as in Placement. O(models + servers).
[[nodiscard]] PlacementObjective objective_of(const PlacementProblem& problem,
                                              const std::vector<std::vector<std::int64_t>>& servers);

/// Pairs producers and consumers of each server one to one: both by size, largest first, ties in the problem's order
/// (section 3.2 of the rules takes this for the paper's stable matching). Sets `pairs` and `unmatched`.
/// O(models log models).
void pair_up(const PlacementProblem& problem, Placement& placement);

}  // namespace spillway::placer
