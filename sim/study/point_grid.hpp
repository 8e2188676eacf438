// A grid of configurations, as points to run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/study/axes.hpp"
#include "sim/study/points.hpp"

namespace spillway {

/// A grid of configurations: common settings and axes.
struct PointGrid {
  std::vector<Assignment> shared;
  Grid grid{{}};
  std::vector<std::string> axis_places;  // by key of the grid: location of its values
  std::vector<Origin> axis_origins;
  bool all_policies = false;      // policy=all was given: skip policies that cannot run
  bool other_localities = false;  // of each point, unless the grid varies experts.locality

  /// Whether `key` is one of an axis.
  [[nodiscard]] bool varies(std::string_view key) const;
  /// The configuration of combination `index`.
  [[nodiscard]] Point point(std::int64_t index) const;
};

}  // namespace spillway
