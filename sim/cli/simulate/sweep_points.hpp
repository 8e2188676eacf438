// The points behind `spillway sweep`, without its files and its output.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/study/point_grid.hpp"
#include "sim/study/points.hpp"
#include "sim/study/shard.hpp"
#include "sim/study/sweep.hpp"

namespace spillway::cli {

/// The points of a shard with their sizes, the largest first; ties in the order of the grid.
struct Schedule {
  std::vector<std::int64_t> order;
  std::vector<double> sizes;
};

[[nodiscard]] Schedule largest_first(const Grid& grid, const Shard& shard);

/// A sweep without rows.
[[nodiscard]] Sweep new_sweep(const PointGrid& arguments, const std::optional<Shard>& shard);

/// How many of its points have ended, and how many of these were taken from the store.
struct SweepCount {
  std::int64_t done = 0;
  std::int64_t stored = 0;
};

/// Runs the scheduled points and adds their rows, in order of the grid. Returns false when stopped early.
[[nodiscard]] bool run_sweep(const PointGrid& arguments, const Schedule& schedule, PointRunner& runner, Sweep& sweep,
                             SweepCount& count);

}  // namespace spillway::cli
