#include "sim/study/sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "sim/core/text.hpp"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSweepSchemaVersion = 1;

Json axes_json(const Sweep& sweep) {
  Json axes = Json::array();
  for (const Axis& axis : sweep.axes) axes.push_back({{"keys", axis.keys}, {"values", axis.values}});
  return axes;
}

}  // namespace

Json sweep_head_json(const Sweep& sweep) {
  Json json{{"schema_version", kSweepSchemaVersion},
            {"tool_version", sweep.tool_version},
            {"tool_build", sweep.tool_build},
            {"definition", sweep.definition},
            {"shard", nullptr}};
  if (sweep.shard) json["shard"] = {{"index", sweep.shard->index}, {"count", sweep.shard->count}};
  json["total_points"] = sweep.points;
  json["axes"] = axes_json(sweep);
  return json;
}

Json sweep_row_json(const Sweep& sweep, const SweepRow& row) {
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

void add_outcome(Sweep& sweep, SweepRow row, const PointOutcome& outcome) {
  row.id = outcome.id;
  row.error = outcome.error();
  row.sha256 = outcome.failed() ? "" : sha256_hex(outcome.json);
  if (outcome.locality) row.locality = outcome.locality->value;
  row.other_localities = outcome.other_localities;
  row.bottleneck = outcome.resource;
  row.steadiness = outcome.steadiness;
  row.warnings = outcome.warnings;
  row.trust = outcome.trust;
  sweep.add(std::move(row), outcome.metrics);
}

std::string to_sweep_manifest(const Sweep& sweep, bool complete) {
  Json json = sweep_head_json(sweep);
  json["complete"] = complete;
  json["points"] = Json::array();
  if (complete) {
    for (const SweepRow& row : sweep.rows) {
      json["points"].push_back(sweep_row_json(sweep, row));
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
    if (const Json& version = json.at("schema_version"); version != kSweepSchemaVersion) {
      throw DataError(fmt::format("the sweep has schema version {}, and this program reads version {}", version.dump(),
                                  kSweepSchemaVersion),
                      where, "run it again with this program, or use the one that wrote it");
    }
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
    throw DataError(fmt::format("not a file of a sweep: {}", error.what()), where, "run the sweep again");
  }
  return manifest;
}

}  // namespace spillway
