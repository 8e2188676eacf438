// The command line of the commands that run many configurations.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sim/study/axes.hpp"
#include "sim/study/points.hpp"

namespace spillway::cli {

/// A grid of configurations: what all share, and what differs.
struct GridArguments {
  std::vector<Assignment> shared;
  Grid grid{{}};
  std::vector<std::string> axis_places;  // by key of the grid: where its values were given
  std::vector<Origin> axis_origins;
  bool all_policies = false;  // policy=all was given: those that cannot run are to be passed over

  /// The configuration of combination `index`.
  [[nodiscard]] Point point(std::int64_t index) const;
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
[[nodiscard]] GridArguments grid_arguments(const std::vector<std::string>& arguments,
                                           const std::vector<std::string>& slos, const std::vector<std::string>& zips,
                                           std::vector<Problem> problems, const GridDefaults& defaults = {});

/// Throws what the configuration has to say when no point of the grid, of up to 256 that are looked at, could be run:
/// then the fault is not one of single points.
void refuse_if_none_resolves(const GridArguments& arguments);

}  // namespace spillway::cli
