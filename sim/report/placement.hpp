// The result of `place` as text and JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/study/placer/cluster_file.hpp"
#include "sim/study/placer/placement.hpp"
#include "sim/study/placer/profiler.hpp"
#include "sim/study/placer/worth.hpp"

namespace spillway {

struct PlacementReport {
  const placer::Cluster* cluster = nullptr;
  bool compat = false;
  std::vector<placer::ProfiledModel> profiled;  // elements that the profiler measured
  placer::Placement placement;
  std::optional<std::vector<placer::ConsumerWorth>> worth;  // empty: not simulated
};

[[nodiscard]] std::string to_placement_table(const PlacementReport& report);
[[nodiscard]] std::string to_placement_json(const PlacementReport& report);

}  // namespace spillway
