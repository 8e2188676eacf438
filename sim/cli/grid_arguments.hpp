// The command line of commands that run many configurations.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sim/study/point_grid.hpp"

namespace spillway::cli {

/// The flags that these commands share.
struct GridOptions {
  std::vector<std::string> arguments;  // CONFIG.json and key=value, some with several values; policy=all: every policy
  std::vector<std::string> slos;
  std::vector<std::string> zips;
  std::vector<std::string> metrics;  // of the table; empty: a choice
  std::string format = "table";
  std::string directory;  // -o; empty: nothing is kept
  std::string progress = "auto";
  int jobs = 1;
  bool dry_run = false;
  std::vector<Problem> problems;  // found while the command line was read
};

/// Differences between commands.
struct GridDefaults {
  bool all_policies = false;  // policy=all stands for every policy
  int replications = 0;       // the default; 0: as `run`
  std::int64_t most_points = 10'000'000;
  std::string fix_for_size = "give fewer values";  // what to do about a larger grid
};

/// Reads CONFIG.json, key=value, --slo and the environment as `run` does. A key with several values (see axis_values;
/// in a file, a JSON list) is an axis: first the axes of the file, then of the arguments, in their order. An argument
/// replaces all values of the file. `zips`: see zip_axes. Throws ConfigError with every problem (unknown keys, empty
/// ranges, keys given twice), or for a grid of more than most_points, which is counted before its values are made.
[[nodiscard]] PointGrid grid_arguments(const std::vector<std::string>& arguments, const std::vector<std::string>& slos,
                                       const std::vector<std::string>& zips, std::vector<Problem> problems,
                                       const GridDefaults& defaults = {});

/// Checks up to 256 points of the grid. If none resolves, the fault lies not in single points: throws the problems of
/// the last.
void refuse_if_none_resolves(const PointGrid& arguments);

}  // namespace spillway::cli
