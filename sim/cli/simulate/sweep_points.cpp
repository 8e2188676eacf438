#include "sim/cli/simulate/sweep_points.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "sim/core/text.hpp"
#include "sim/io/output.hpp"

namespace spillway::cli {
namespace {

/// Identifies a sweep by its grid and its common settings.
std::string definition_of(const PointGrid& arguments) {
  nlohmann::ordered_json json;
  std::vector<std::pair<std::string, std::string>> shared;
  for (const Assignment& one : arguments.shared) shared.emplace_back(one.key, one.text.value_or("null"));
  std::sort(shared.begin(), shared.end());
  json["shared"] = shared;
  for (const Axis& axis : arguments.grid.axes()) json["axes"].push_back({{"keys", axis.keys}, {"values", axis.values}});
  if (!arguments.other_localities) json["fixed_locality"] = true;
  return sha256_hex(json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)).substr(0, 16);
}

/// The work of a point relative to others: requests, replications and output lengths, as far as the grid sets them.
double size_of(const Grid& grid, std::int64_t point) {
  double size = 1.0;
  const std::vector<std::string> keys = grid.keys();
  const std::vector<std::string> values = grid.values(point);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] != "workload.requests" && keys[i] != "replications" && keys[i] != "workload.output_tokens") continue;
    size *= std::max(1.0, parse_number(values[i]).value_or(1.0));
  }
  return size;
}

}  // namespace

Schedule largest_first(const Grid& grid, const Shard& shard) {
  std::vector<std::pair<double, std::int64_t>> points;
  for (std::int64_t i = shard.index - 1; i < grid.size(); i += shard.count) points.emplace_back(size_of(grid, i), i);
  std::stable_sort(points.begin(), points.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  Schedule schedule;
  for (const auto& [size, point] : points) {
    schedule.order.push_back(point);
    schedule.sizes.push_back(size);
  }
  return schedule;
}

Sweep new_sweep(const PointGrid& arguments, const std::optional<Shard>& shard) {
  Sweep sweep;
  sweep.tool_version = tool_version();
  sweep.tool_build = tool_build();
  sweep.definition = definition_of(arguments);
  sweep.axes = arguments.grid.axes();
  sweep.shard = shard;
  sweep.points = arguments.grid.size();
  sweep.keys = arguments.grid.keys();
  return sweep;
}

bool run_sweep(const PointGrid& arguments, const Schedule& schedule, PointRunner& runner, Sweep& sweep,
               SweepCount& count) {
  const bool all = runner.run(
      schedule.order, schedule.sizes, [&](std::int64_t i) { return arguments.point(i); },
      [&](std::int64_t i, const PointOutcome& outcome) {
        ++count.done;
        count.stored += outcome.stored ? 1 : 0;
        add_outcome(sweep, {.point = i, .values = arguments.grid.values(i)}, outcome);
      });
  sweep.sort();
  return all;
}

}  // namespace spillway::cli
