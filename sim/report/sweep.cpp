#include "sim/report/sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "sim/io/columns.hpp"
#include "sim/io/csv_text.hpp"
#include "sim/io/json_values.hpp"
#include "sim/io/lines.hpp"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kWarnings = 6;  // shown in the table

/// The metrics of all rows, ordered by first appearance.
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

std::string csv_number(const std::optional<double>& value) { return value ? fmt::format("{}", *value) : ""; }

bool has_intervals(const Sweep& sweep) {
  return std::any_of(sweep.rows.begin(), sweep.rows.end(), [](const SweepRow& row) {
    return std::any_of(row.figures.begin(), row.figures.end(), [](const SweepFigure& f) { return f.half_width; });
  });
}

/// Rows name the locality that they assumed, unless the sweep varies it.
bool names_locality(const Sweep& sweep) {
  const auto& keys = sweep.keys;
  return std::ranges::find(keys, kLocalityKey) == keys.end() &&
         std::ranges::any_of(sweep.rows, [](const SweepRow& row) { return row.locality.has_value(); });
}

bool has_other_localities(const Sweep& sweep) {
  return std::ranges::any_of(
      sweep.rows, [](const SweepRow& row) { return row.other_localities && !row.other_localities->runs.empty(); });
}

/// The row's run with half (0) or twice (1) of its locality; null: there is none.
const LocalityRun* other_locality(const SweepRow& row, std::size_t at) {
  const auto& check = row.other_localities;
  return check && at < check->runs.size() ? &check->runs[at] : nullptr;
}

constexpr std::array<const char*, 2> kOtherLocalities{"halved", "doubled"};  // as kLocalityTimes

/// The warnings and the number of points with each, the most frequent first.
std::vector<std::pair<std::string, std::int64_t>> counted_warnings(const Sweep& sweep) {
  std::map<std::string, std::int64_t> counts;
  for (const SweepRow& row : sweep.rows) {
    for (const std::string& warning : row.warnings) {
      if (std::ranges::count(row.trust.accuracy, warning) == 0) ++counts[warning];
    }
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
  if (!warnings.empty()) lines.add("", "use --json to see all text, by point");
}

}  // namespace

std::string to_sweep_table(const Sweep& sweep, const std::vector<std::string>& metrics) {
  Columns table;
  table.add("point");
  for (const std::string& key : sweep.keys) table.add(key, true);
  for (const std::string& metric : metrics) table.add(metric);
  const bool locality = names_locality(sweep);
  if (locality) table.add(kLocalityKey);
  const bool others = has_other_localities(sweep);
  for (const char* const other : kOtherLocalities) {
    if (others) table.add(other);
  }
  table.add("bottleneck", true);
  for (const SweepRow& row : sweep.rows) {
    std::vector<std::string> cells{fmt::format("{}", row.point)};
    for (const std::string& value : row.values) cells.push_back(shown(value));
    if (row.error.empty()) {
      for (const std::string& metric : metrics) {
        const SweepFigure one = figure_of(row, metric);
        cells.push_back(figure_with_interval(one.value, one.half_width));
      }
      if (locality) cells.push_back(row.locality ? fmt::format("{:g}", *row.locality) : "-");
      for (std::size_t i = 0; others && i < kOtherLocalities.size(); ++i) {
        const LocalityRun* const run = other_locality(row, i);
        cells.push_back(run == nullptr ? "-"
                                       : fmt::format("{} / {}", shown_figure(run->output_tokens_per_s),
                                                     shown_figure(run->p50_tpot_ms)));
      }
      const bool marked = !row.steadiness.empty() && row.steadiness != "steady";
      cells.push_back(marked ? fmt::format("{} ({})", row.bottleneck, row.steadiness) : row.bottleneck);
    } else {
      cells.push_back("failed: " + shown(row.error));
    }
    table.row(std::move(cells));
  }
  Lines lines;
  if (has_intervals(sweep)) lines.raw("Means over replications; +- is the 95% t-interval.");
  if (others)
    lines.raw("halved, doubled: output tokens/s / p50 TPOT (ms) with half and twice of experts.locality, at most 1.");
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
  const bool locality = names_locality(sweep);
  if (locality) cells.emplace_back(kLocalityKey);
  const bool others = has_other_localities(sweep);
  for (const char* const other : kOtherLocalities) {
    if (!others) continue;
    cells.push_back(fmt::format("{}_locality_{}", other, kTokensPerSecond));
    cells.push_back(fmt::format("{}_locality_{}", other, kTpot));
  }
  cells.emplace_back("bottleneck");
  cells.emplace_back("steady_state");
  for (const std::string& column : columns) {
    cells.push_back(column);
    if (intervals) cells.push_back("half_width_" + column);
  }
  std::string csv = fmt::format("{},error,id\n", fmt::join(cells, ","));
  for (const SweepRow& row : sweep.rows) {
    cells = {fmt::format("{}", row.point)};
    for (const std::string& value : row.values) cells.push_back(csv_text(value));
    if (locality) cells.push_back(csv_number(row.locality));
    for (std::size_t i = 0; others && i < kOtherLocalities.size(); ++i) {
      const LocalityRun* const run = other_locality(row, i);
      cells.push_back(run == nullptr ? "" : csv_number(run->output_tokens_per_s));
      cells.push_back(run == nullptr ? "" : csv_number(run->p50_tpot_ms));
    }
    cells.push_back(row.bottleneck);
    cells.push_back(row.steadiness);
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
  Json json = sweep_head_json(sweep);
  json["failed_points"] = sweep.failed();
  json["points"] = Json::array();
  for (const SweepRow& row : sweep.rows) {
    Json point = sweep_row_json(sweep, row);
    if (row.error.empty()) {
      point["bottleneck"] = row.bottleneck;
      if (!row.steadiness.empty()) point["steady_state"] = row.steadiness;
      if (row.locality) point["expert_locality"] = *row.locality;
      if (row.other_localities) point["other_localities"] = locality_check_json(*row.other_localities);
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

std::string render(const Sweep& sweep, const std::string& format, const std::vector<std::string>& metrics) {
  if (format == "csv") return to_sweep_csv(sweep);
  if (format == "json") return to_sweep_json(sweep);
  return to_sweep_table(sweep, metrics);
}

void write_results(const ResultStore& store, const Sweep& sweep) {
  store.write("sweep.csv", to_sweep_csv(sweep));
  store.write("sweep.json", to_sweep_manifest(sweep, true));
}

}  // namespace spillway
