#include "sim/report/sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "sim/io/columns.hpp"
#include "sim/io/csv_text.hpp"
#include "sim/io/lines.hpp"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchemaVersion = 1;
constexpr std::size_t kWarnings = 6;  // that the table shows

/// The metrics of all rows, each where the first row that has it lists it.
std::vector<std::string> columns_of(const Sweep& sweep) {
  std::vector<std::string> columns;
  const std::vector<std::string>* last = nullptr;
  for (const SweepRow& row : sweep.rows) {
    if (!row.names || row.names.get() == last) continue;
    last = row.names.get();
    for (const std::string& name : *last) {
      if (std::find(columns.begin(), columns.end(), name) == columns.end()) columns.push_back(name);
    }
  }
  return columns;
}

Json nullable(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

std::string csv_number(const std::optional<double>& value) { return value ? fmt::format("{}", *value) : ""; }

bool has_intervals(const Sweep& sweep) {
  return std::any_of(sweep.rows.begin(), sweep.rows.end(), [](const SweepRow& row) {
    return std::any_of(row.figures.begin(), row.figures.end(), [](const SweepFigure& f) { return f.half_width; });
  });
}

Json axes_json(const Sweep& sweep) {
  Json axes = Json::array();
  for (const Axis& axis : sweep.axes) axes.push_back({{"keys", axis.keys}, {"values", axis.values}});
  return axes;
}

Json head_json(const Sweep& sweep) {
  Json json{{"schema_version", kSchemaVersion},
            {"tool_version", sweep.tool_version},
            {"tool_build", sweep.tool_build},
            {"definition", sweep.definition},
            {"shard", nullptr}};
  if (sweep.shard) json["shard"] = {{"index", sweep.shard->index}, {"count", sweep.shard->count}};
  json["total_points"] = sweep.points;
  json["axes"] = axes_json(sweep);
  return json;
}

Json row_json(const Sweep& sweep, const SweepRow& row) {
  Json values = Json::object();
  for (std::size_t i = 0; i < sweep.keys.size(); ++i) values[sweep.keys[i]] = row.values[i];
  Json json{{"point", row.point}, {"values", values}};
  if (row.error.empty()) {
    json["id"] = row.id;
  } else {
    json["error"] = row.error;
  }
  return json;
}

/// The warnings with the number of points that have them, the most frequent first.
std::vector<std::pair<std::string, std::int64_t>> counted_warnings(const Sweep& sweep) {
  std::map<std::string, std::int64_t> counts;
  for (const SweepRow& row : sweep.rows) {
    for (const std::string& warning : row.warnings) ++counts[warning];
  }
  std::vector<std::pair<std::string, std::int64_t>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return sorted;
}

void add_warnings(const Sweep& sweep, Lines& lines) {
  const auto warnings = counted_warnings(sweep);
  for (std::size_t i = 0; i < std::min(warnings.size(), kWarnings); ++i) {
    const auto& [text, points] = warnings[i];
    const bool all = points == static_cast<std::int64_t>(sweep.rows.size());
    lines.add_short("Warning", all ? text : fmt::format("{} of {} points: {}", points, sweep.rows.size(), text));
  }
  if (warnings.size() > kWarnings) {
    lines.add("", fmt::format("and {} others", warnings.size() - kWarnings));
  }
  if (!warnings.empty()) lines.add("", "--json has them in full, by point");
}

}  // namespace

void Sweep::add(SweepRow row, const std::vector<Metric>& metrics) {
  std::vector<std::string> names;
  for (const Metric& metric : metrics) {
    names.push_back(metric.name);
    row.figures.push_back({metric.value, metric.half_width});
  }
  const auto same = std::find_if(rows.rbegin(), rows.rend(),
                                 [&](const SweepRow& other) { return other.names && *other.names == names; });
  row.names = same != rows.rend() ? same->names : std::make_shared<const std::vector<std::string>>(std::move(names));
  rows.push_back(std::move(row));
}

void Sweep::sort() {
  std::sort(rows.begin(), rows.end(), [](const SweepRow& a, const SweepRow& b) { return a.point < b.point; });
}

SweepFigure figure_of(const SweepRow& row, std::string_view metric) {
  if (!row.names) return {};
  const auto name = std::find(row.names->begin(), row.names->end(), metric);
  return name == row.names->end() ? SweepFigure{} : row.figures[static_cast<std::size_t>(name - row.names->begin())];
}

std::int64_t Sweep::failed() const {
  return std::count_if(rows.begin(), rows.end(), [](const SweepRow& row) { return !row.error.empty(); });
}

std::string to_sweep_table(const Sweep& sweep, const std::vector<std::string>& metrics) {
  Columns table;
  table.add("point");
  for (const std::string& key : sweep.keys) table.add(key, true);
  for (const std::string& metric : metrics) table.add(metric);
  table.add("bottleneck", true);
  for (const SweepRow& row : sweep.rows) {
    std::vector<std::string> cells{fmt::format("{}", row.point)};
    for (const std::string& value : row.values) cells.push_back(shown(value));
    if (row.error.empty()) {
      for (const std::string& metric : metrics) {
        const SweepFigure one = figure_of(row, metric);
        cells.push_back(figure_with_interval(one.value, one.half_width));
      }
      cells.push_back(row.bottleneck);
    } else {
      cells.push_back("failed: " + shown(row.error));
    }
    table.row(std::move(cells));
  }
  Lines lines;
  if (has_intervals(sweep)) lines.raw("Means over replications; +- is the 95% t-interval.");
  std::vector<const Trust*> trusts;
  for (const SweepRow& row : sweep.rows) {
    if (row.error.empty()) trusts.push_back(&row.trust);
  }
  add_trust(trusts, lines);
  add_warnings(sweep, lines);
  std::string text = table.text();
  if (lines.size() > 0) text += fmt::format("\n{}", lines.text());
  return text;
}

std::string to_sweep_csv(const Sweep& sweep) {
  const bool intervals = has_intervals(sweep);
  const std::vector<std::string> columns = columns_of(sweep);
  std::vector<std::string> cells{"point"};
  for (const std::string& key : sweep.keys) cells.push_back(csv_text(key));
  cells.emplace_back("bottleneck");
  for (const std::string& column : columns) {
    cells.push_back(column);
    if (intervals) cells.push_back("half_width_" + column);
  }
  std::string csv = fmt::format("{},error,id\n", fmt::join(cells, ","));
  for (const SweepRow& row : sweep.rows) {
    cells = {fmt::format("{}", row.point)};
    for (const std::string& value : row.values) cells.push_back(csv_text(value));
    cells.push_back(row.bottleneck);
    for (const std::string& column : columns) {
      const SweepFigure one = figure_of(row, column);
      cells.push_back(csv_number(one.value));
      if (intervals) cells.push_back(csv_number(one.half_width));
    }
    fmt::format_to(std::back_inserter(csv), "{},{},{}\n", fmt::join(cells, ","), csv_text(row.error), row.id);
  }
  return csv;
}

std::string to_sweep_json(const Sweep& sweep) {
  Json json = head_json(sweep);
  json["failed_points"] = sweep.failed();
  json["points"] = Json::array();
  for (const SweepRow& row : sweep.rows) {
    Json point = row_json(sweep, row);
    if (row.error.empty()) {
      point["bottleneck"] = row.bottleneck;
      point["warnings"] = row.warnings;
      point["trust"] = trust_json(row.trust);
      for (std::size_t c = 0; c < row.figures.size(); ++c) {
        Json& metric = point["metrics"][row.names->at(c)];
        metric = {{"value", nullable(row.figures[c].value)}};
        if (row.figures[c].half_width) metric["half_width"] = *row.figures[c].half_width;
      }
    }
    json["points"].push_back(std::move(point));
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string to_sweep_manifest(const Sweep& sweep, bool complete) {
  Json json = head_json(sweep);
  json["complete"] = complete;
  json["points"] = Json::array();
  if (complete) {
    for (const SweepRow& row : sweep.rows) {
      json["points"].push_back(row_json(sweep, row));
      if (!row.sha256.empty()) json["points"].back()["sha256"] = row.sha256;
    }
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

SweepManifest parse_sweep_manifest(const std::string& text, const std::string& where) {
  SweepManifest manifest;
  try {
    const Json json = Json::parse(text);
    Sweep& sweep = manifest.sweep;
    if (json.at("schema_version") != kSchemaVersion) throw DataError("written by another version", where, "");
    sweep.tool_version = json.at("tool_version");
    sweep.tool_build = json.at("tool_build");
    sweep.definition = json.at("definition");
    if (!json.at("shard").is_null()) sweep.shard = Shard{json["shard"].at("index"), json["shard"].at("count")};
    sweep.points = json.at("total_points");
    for (const Json& axis : json.at("axes")) sweep.axes.push_back({axis.at("keys"), axis.at("values")});
    sweep.keys = Grid(sweep.axes).keys();
    manifest.complete = json.at("complete");
    for (const Json& point : json.at("points")) {
      SweepRow row{.point = point.at("point")};
      for (const std::string& key : sweep.keys) row.values.push_back(point.at("values").at(key));
      row.id = point.value("id", "");
      row.sha256 = point.value("sha256", "");
      row.error = point.value("error", "");
      sweep.rows.push_back(std::move(row));
    }
  } catch (const nlohmann::json::exception& error) {
    throw DataError(fmt::format("not what a sweep writes: {}", error.what()), where, "run the sweep again");
  }
  return manifest;
}

}  // namespace spillway
