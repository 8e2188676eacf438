// A grid of configurations as points to run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/study/axes.hpp"
#include "sim/study/points.hpp"

namespace spillway {

/// A grid of configurations: what all share, and what differs.
struct PointGrid {
  std::vector<Assignment> shared;
  Grid grid{{}};
  std::vector<std::string> axis_places;  // by key of the grid: where its values were given
  std::vector<Origin> axis_origins;
  bool all_policies = false;  // policy=all was given: those that cannot run are to be passed over

  /// The configuration of combination `index`.
  [[nodiscard]] Point point(std::int64_t index) const;
};

}  // namespace spillway
