// The file of a cluster to place: equal servers, and the models that are to run on them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hwmodels/catalog.hpp"
#include "sim/config/config.hpp"
#include "sim/core/error.hpp"
#include "sim/study/placer/placement.hpp"

namespace spillway::placer {

/// Equal models: one element of the list `models`.
struct ClusterModel {
  std::string name;
  std::string where;  // in the user's file
  std::int64_t copies = 1;
  std::int64_t gpus = 1;  // of each copy: tensor_parallel
  /// > 0: each copy lends; < 0: borrows. Empty: the profiler is to measure it.
  std::optional<Bytes> balance{};
  std::int64_t prompts = 0;  // that it keeps beyond its HBM, each of `context` tokens; 0: not stated
  Tokens context{};
  bool has_workload = false;  // it names a model and keys of a workload, so that it can be simulated
  /// The keys of a run that it has, those beside the list included, and `hardware`.
  std::vector<Assignment> assignments{};
};

struct Cluster {
  std::string hardware_name;  // as the user wrote it
  hwmodels::Hardware hardware;
  std::int64_t servers = 1;
  std::vector<ClusterModel> models;
  std::vector<std::string> warnings;

  /// The balances must be known.
  [[nodiscard]] PlacementProblem problem(bool compat) const;
  /// The element of each model of problem().
  [[nodiscard]] std::vector<std::size_t> elements() const;
  /// The location of a Problem for the user: the name of a model becomes the place of its element, other text stays.
  [[nodiscard]] std::string place_of(const std::string& where) const;
};

/// Reads {"hardware": SERVER, "servers": N, "models": [{"name": ..., "copies": N, "lends": "30GB" or "borrows": "20GB",
/// keys of a run ...}, ...]}. Keys of a run beside the list hold for each element that lacks them. An element that
/// neither lends nor borrows needs a model and a workload, which the profiler measures; or a model, and `prompts` and
/// `context`: how many prompts or shared prefixes it keeps beyond its HBM, and the tokens of the longest.
///
/// Throws ConfigError with every problem found, among them unknown keys, values that a run would refuse, and hardware
/// that is no server.
[[nodiscard]] Cluster read_cluster(const std::string& path);

/// Throws ConfigError when a model borrows and the GPUs of its server have no link to each other. Adds a warning when
/// only some have. The balances must be known.
void require_paths(Cluster& cluster);

}  // namespace spillway::placer
