// The command line of the commands that run many configurations.
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

/// What a command takes beyond that.
struct GridDefaults {
  bool all_policies = false;  // policy=all stands for every policy
  int replications = 0;       // when the user does not say; 0: as `run`
};

/// Reads CONFIG.json, key=value, --slo and the environment as `run` does; a key with several values (see axis_values;
/// in a file, a JSON list) is an axis, the file's first, then in the order of the arguments. A key that both give has
/// the argument's values alone. `zips`: see zip_axes. Throws ConfigError with every problem: unknown keys, empty
/// ranges, keys given twice.
[[nodiscard]] PointGrid grid_arguments(const std::vector<std::string>& arguments, const std::vector<std::string>& slos,
                                       const std::vector<std::string>& zips, std::vector<Problem> problems,
                                       const GridDefaults& defaults = {});

/// Throws what the configuration has to say when no point of the grid, of up to 256 that are looked at, could be run:
/// then the fault is not one of single points.
void refuse_if_none_resolves(const PointGrid& arguments);

}  // namespace spillway::cli
