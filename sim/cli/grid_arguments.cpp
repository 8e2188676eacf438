#include "sim/cli/grid_arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "sim/cli/arguments.hpp"
#include "sim/config/names.hpp"
#include "sim/core/printable.hpp"
#include "sim/study/assemble.hpp"
#include "sim/study/locality.hpp"
#include "sim/study/parameter_table.hpp"

namespace spillway::cli {
namespace {

constexpr std::int64_t kLookedAt = 256;  // points of a large grid

/// The assignments without overridden ones: an argument, for example, overrides the key in a file.
std::vector<Assignment> strongest(std::vector<Assignment> assignments, const std::vector<Parameter>& table) {
  std::map<std::string, Origin> origins;
  const auto name = [&](const Assignment& assignment) {
    const Parameter* parameter = find_parameter(table, assignment.key);
    return parameter != nullptr ? parameter->name : assignment.key;
  };
  for (const Assignment& one : assignments) {
    Origin& origin = origins.try_emplace(name(one), one.origin).first->second;
    origin = std::max(origin, one.origin);
  }
  std::erase_if(assignments, [&](const Assignment& one) { return one.origin < origins[name(one)]; });
  return assignments;
}

class GridReader {
 public:
  GridReader(std::vector<Problem> problems, const GridDefaults& defaults)
      : problems_(std::move(problems)), defaults_(defaults), table_(parameter_table()) {}

  PointGrid read(std::vector<Assignment> given, const std::vector<std::string>& zips) {
    if (defaults_.replications > 0) {
      given.push_back({"replications", fmt::format("{}", defaults_.replications), Origin::standard, "", {}});
    }
    given = strongest(std::move(given), table_);
    check_size(given, zips);
    for (const Assignment& assignment : given) take(assignment);
    for (const std::string& zip : zips) zip_axes(zip, "--zip " + zip, axes_, problems_);
    if (!problems_.empty()) throw ConfigError(std::move(problems_));
    result_.grid = Grid(std::move(axes_));
    for (const std::string& key : result_.grid.keys()) {
      result_.axis_places.push_back(places_.at(key).where);
      result_.axis_origins.push_back(places_.at(key).origin);
    }
    return std::move(result_);
  }

 private:
  /// The number of values of an assignment.
  [[nodiscard]] std::int64_t size_of(const Assignment& assignment) const {
    const Parameter* parameter = find_parameter(table_, assignment.key);
    if (parameter == nullptr) return 1;
    if (assignment.list) return std::ssize(*assignment.list);
    if (!assignment.text || assignment.origin == Origin::environment) return 1;
    if (takes_all(*parameter, *assignment.text)) return std::ssize(parameter->choices);
    return axis_size(*parameter, *assignment.text);
  }

  /// Checks the size of the grid. Zipped keys count as one key.
  void check_size(const std::vector<Assignment>& assignments, const std::vector<std::string>& zips) const {
    std::vector<std::pair<std::vector<std::string>, std::int64_t>> axes;
    for (const Assignment& one : assignments) {
      const std::int64_t values = size_of(one);
      if (values < 2) continue;
      const auto zip = std::find_if(zips.begin(), zips.end(), [&](const std::string& keys) {
        return ("," + keys + ",").find("," + one.key + ",") != std::string::npos;
      });
      const auto joined = std::find_if(axes.begin(), axes.end(), [&](const auto& axis) {
        return zip != zips.end() && ("," + *zip + ",").find("," + axis.first.front() + ",") != std::string::npos;
      });
      if (joined == axes.end()) {
        axes.push_back({{one.key}, values});
      } else {
        joined->first.push_back(one.key);
        joined->second = std::max(joined->second, values);
      }
    }
    std::int64_t points = 1;
    std::string text;
    for (const auto& [keys, values] : axes) {
      points = saturating_product(points, values);
      text += fmt::format("{}{} of {}", text.empty() ? "" : " x ", values, fmt::join(keys, "+"));
    }
    if (points <= defaults_.most_points) return;
    const bool saturated = points == std::numeric_limits<std::int64_t>::max();
    throw ConfigError(fmt::format("the grid has {}{} points: {}", saturated ? "at least " : "", points, text),
                      "arguments", defaults_.fix_for_size);
  }

  [[nodiscard]] bool takes_all(const Parameter& parameter, const std::string& text) const {
    return defaults_.all_policies && parameter.name == "policy" && text == "all";
  }

  void take(const Assignment& assignment) {
    const Parameter* parameter = find_parameter(table_, assignment.key);
    if (parameter == nullptr || assignment.empty_object) return report_faults(assignment);
    std::vector<std::string> values = values_of(*parameter, assignment);
    for (std::string& value : values) value = resolved_name(*parameter, value);
    if (values.size() < 2) {
      if (!values.empty()) result_.shared.push_back(with_text(assignment, values.front()));
      return;
    }
    if (!places_.emplace(parameter->name, assignment).second) {
      problems_.push_back({parameter->name + " is given twice", assignment.where, "keep one"});
      return;
    }
    Axis axis{{parameter->name}, {}};
    for (const std::string& value : values) {
      if (std::ranges::count(values, value) > 1) {
        problems_.push_back({fmt::format("{}: the value {} is given twice", parameter->name, brief(value)),
                             assignment.where, "keep one"});
        return;
      }
      axis.values.push_back({value});
      // Find typing errors now, not after all other points have run.
      if (value != "null") static_cast<void>(parse_value(*parameter, value, assignment.where, problems_));
    }
    axes_.push_back(std::move(axis));
  }

  /// The values of a key; empty after a problem. Environment variables have one value.
  std::vector<std::string> values_of(const Parameter& parameter, const Assignment& assignment) {
    if (assignment.list) {
      if (!assignment.list->empty()) return *assignment.list;
      problems_.push_back({parameter.name + " has an empty list", assignment.where, "give at least one value"});
      return {};
    }
    if (!assignment.text) return {"null"};
    if (takes_all(parameter, *assignment.text)) {
      result_.all_policies = true;
      return parameter.choices;
    }
    if (assignment.origin == Origin::environment) return {*assignment.text};
    return axis_values(parameter, *assignment.text, assignment.where, problems_);
  }

  static Assignment with_text(Assignment assignment, const std::string& text) {
    assignment.text = text == "null" ? std::nullopt : std::optional(text);
    assignment.list.reset();
    return assignment;
  }

  /// Adds the problems that `run` would report for this assignment.
  void report_faults(const Assignment& assignment) {
    try {
      static_cast<void>(resolve_config(table_, {assignment}, {}));
    } catch (const UserError& error) {
      problems_.insert(problems_.end(), error.problems().begin(), error.problems().end());
    }
  }

  std::vector<Problem> problems_;
  const GridDefaults& defaults_;
  std::vector<Parameter> table_;
  std::vector<Axis> axes_;
  std::map<std::string, Assignment> places_;  // by axis key
  PointGrid result_;
};

}  // namespace

PointGrid grid_arguments(const std::vector<std::string>& arguments, const std::vector<std::string>& slos,
                         const std::vector<std::string>& zips, std::vector<Problem> problems,
                         const GridDefaults& defaults) {
  std::vector<Assignment> given = given_arguments(arguments, slos, problems);
  return grid_of(std::move(given), zips, std::move(problems), defaults);
}

PointGrid grid_of(std::vector<Assignment> given, const std::vector<std::string>& zips, std::vector<Problem> problems,
                  const GridDefaults& defaults) {
  return GridReader(std::move(problems), defaults).read(std::move(given), zips);
}

void refuse_if_none_resolves(const PointGrid& arguments) {
  const std::int64_t size = arguments.grid.size();
  const std::int64_t looks = std::min(size, kLookedAt);
  const std::vector<Parameter> table = parameter_table();
  for (std::int64_t i = 0; i < looks; ++i) {
    const std::int64_t index = i * (size / looks);
    try {
      static_cast<void>(resolve_config(table, arguments.point(index).assignments, {}));
      return;
    } catch (const UserError&) {
      if (i + 1 == looks) throw;
    }
  }
}

std::string other_localities_text(const PointGrid& arguments, std::span<const std::int64_t> points,
                                  const std::string& point) {
  const std::size_t looks = std::min(points.size(), static_cast<std::size_t>(kLookedAt));
  const std::vector<Parameter> table = parameter_table();
  std::size_t count = 0;
  for (std::size_t i = 0; i < looks; ++i) {
    const Point one = arguments.point(points[i * (points.size() / looks)]);
    if (!one.other_localities) continue;
    try {
      if (may_matter(assumed_localities(resolve_config(table, one.assignments, {})))) ++count;
    } catch (const UserError&) {
      continue;  // running it says why
    }
  }
  if (count == 0) return "";
  const std::string which = looks < points.size() ? fmt::format("{}s whose policy places experts", point)
                                                  : fmt::format("{} {}{}", count, point, count == 1 ? "" : "s");
  return fmt::format("; {} also with experts.locality halved and doubled (not with --fixed-locality)", which);
}

}  // namespace spillway::cli
