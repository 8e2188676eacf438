// The command line of commands that run a grid of configurations.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "sim/study/point_grid.hpp"

namespace spillway::cli {

/// Common flags of these commands.
struct GridOptions {
  std::vector<std::string> arguments;  // CONFIG.json and key=value, some with several values; policy=all: every policy
  std::vector<std::string> slos;
  std::vector<std::string> zips;
  std::vector<std::string> metrics;  // columns of the table; empty: default columns
  std::string format = "table";
  std::string directory;  // -o; empty: keep nothing
  std::string html;       // --html; empty: no page
  std::string progress = "auto";
  int jobs = 1;
  bool dry_run = false;
  bool fixed_locality = false;    // no runs with half and twice of experts.locality
  std::vector<Problem> problems;  // found while reading the command line
};

/// Settings that differ between commands.
struct GridDefaults {
  bool all_policies = false;  // policy=all stands for every policy
  int replications = 0;       // default replications; 0: as in `run`
  std::int64_t most_points = 10'000'000;
  std::string fix_for_size = "give fewer values";  // advice for a grid that is too large
};

/// Reads CONFIG.json, key=value, --slo and the environment as `run` does. A key with several values (see axis_values;
/// in a file, a JSON list) is an axis. Axes of the file come first, then axes of the arguments, in their order. An
/// argument replaces all values of the file. For `zips` see zip_axes. Throws ConfigError with every problem (unknown
/// keys, empty ranges, keys given twice). A grid of more than most_points is a problem too; its size is checked before
/// its values are made.
[[nodiscard]] PointGrid grid_arguments(const std::vector<std::string>& arguments, const std::vector<std::string>& slos,
                                       const std::vector<std::string>& zips, std::vector<Problem> problems,
                                       const GridDefaults& defaults = {});

/// The same for assignments that were read elsewhere: what `slos` and the environment set is among them.
[[nodiscard]] PointGrid grid_of(std::vector<Assignment> given, const std::vector<std::string>& zips,
                                std::vector<Problem> problems, const GridDefaults& defaults = {});

/// Checks up to 256 points of the grid. If none of them resolves, all points share a fault: throws the problems of the
/// last.
void refuse_if_none_resolves(const PointGrid& arguments);

/// "; 3 points also with experts.locality halved and doubled (not with --fixed-locality)", as a plan says it of these
/// points, where one of them is a `point`; empty: none. Looks at no more than 256 of them, and counts none of more.
[[nodiscard]] std::string other_localities_text(const PointGrid& arguments, std::span<const std::int64_t> points,
                                                const std::string& point);

}  // namespace spillway::cli
