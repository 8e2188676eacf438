#include "sim/report/comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "sim/io/columns.hpp"
#include "sim/io/csv_text.hpp"
#include "sim/io/json_values.hpp"
#include "sim/io/lines.hpp"
#include "sim/report/metric_heads.hpp"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

/// "+12.3% +-1.1% worse"; "x57.8 +-3.3 worse" from ten times the baseline; in the metric's own unit where the baseline
/// is 0.
std::string difference_text(const PairedDifference& pair) {
  if (!pair.difference) return "-";
  if (pair.verdict == PairVerdict::same) return "same";
  const bool relative = pair.relative && pair.base && *pair.base != 0.0;
  const double unit = relative ? *pair.difference / *pair.relative : 1.0;
  constexpr double kFactor = 9.0;  // from here on a factor reads better than percent
  if (relative && *pair.relative >= kFactor) {
    std::string factor = "x" + figure(1.0 + *pair.relative);
    if (pair.half_width && *pair.half_width > 0.0) factor += " +-" + figure(std::abs(*pair.half_width / unit));
    return pair.verdict == PairVerdict::no_interval ? factor : fmt::format("{} {}", factor, verdict_text(pair.verdict));
  }
  const auto text = [&](double value, bool sign) {
    const std::string mark = sign && value > 0.0 ? "+" : "";
    return relative ? fmt::format("{}{:.1f}%", mark, 100.0 * value / unit) : mark + figure(value);
  };
  std::string all = text(*pair.difference, true);
  if (pair.half_width && *pair.half_width > 0.0) all += " +-" + text(std::abs(*pair.half_width), false);
  return pair.verdict == PairVerdict::no_interval ? all : fmt::format("{} {}", all, verdict_text(pair.verdict));
}

class ComparisonTable {
 public:
  explicit ComparisonTable(const Comparison& comparison) : comparison_(comparison) {}

  std::string build() {
    if (comparison_.engines_differ()) {
      lines_.add("Engines",
                 "differ: the differences include those of their CPU time and front ends. Set engine to compare the "
                 "policies alone");
    }
    lines_.add("Set-up", comparison_.setup);
    const std::string& engine = comparison_.runs.front().engine;
    if (!comparison_.engines_differ() && !engine.empty()) lines_.add("Engine", engine);
    lines_.add("Traffic", traffic());
    std::string text = lines_.text() + "\n" + values() + "\n" + differences() + "\n";
    lines_ = {};
    for (const ComparedRun& run : comparison_.runs) lines_.add("Bottleneck", run.label + ": " + run.bottleneck);
    for (const ComparedRun& run : comparison_.runs) {
      if (run.assumed_text.empty()) continue;
      lines_.add("Locality",
                 run.label + ": " +
                     locality_text(run.assumed_text, locality_run(1.0, run.assumed, run.metrics), run.locality));
    }
    for (const std::string& metric : comparison_.metrics) ranking(metric);
    robustness();
    for (const SkippedRun& one : comparison_.skipped) lines_.add("Skipped", one.label + ": " + one.reason);
    warnings();
    return text + lines_.text();
  }

 private:
  [[nodiscard]] std::string traffic() const {
    if (comparison_.replications == 1) return "the same for all; no intervals with one replication (set replications)";
    if (!comparison_.random_traffic) return "the same for all and in every replication, so differences are exact";
    return fmt::format("the same for all, {} replications; +- is the 95% t-interval; differences are paired by seed",
                       comparison_.replications);
  }

  [[nodiscard]] std::string values() const {
    Columns table;
    table.add("", true);
    for (const std::string& metric : comparison_.metrics) table.add(metric_head(metric));
    const bool engines = comparison_.engines_differ();
    if (engines) table.add("engine", true);
    for (const ComparedRun& run : comparison_.runs) {
      const bool marked = !run.steadiness.empty() && run.steadiness != "steady";
      std::vector<std::string> cells{marked ? fmt::format("{} ({})", shown(run.label), run.steadiness)
                                            : shown(run.label)};
      for (const std::string& metric : comparison_.metrics) {
        const Metric& one = metric_or_none(run.metrics, metric);
        cells.push_back(figure_with_interval(one.value, one.half_width));
      }
      if (engines) cells.push_back(shown(run.engine));
      table.row(std::move(cells));
    }
    return table.text(kColumns);
  }

  [[nodiscard]] std::string differences() const {
    Columns table;
    table.add("against " + shown(comparison_.runs[comparison_.baseline].label), true);
    for (const std::string& metric : comparison_.metrics) table.add(metric_head(metric));
    for (std::size_t i = 0; i < comparison_.runs.size(); ++i) {
      if (i == comparison_.baseline) continue;
      std::vector<std::string> cells{shown(comparison_.runs[i].label)};
      for (const std::string& metric : comparison_.metrics) {
        cells.push_back(difference_text(comparison_.difference(i, metric)));
      }
      table.row(std::move(cells));
    }
    return table.text(kColumns);
  }

  void ranking(const std::string& metric) {
    const std::vector<std::size_t> order = comparison_.ranking(metric);
    if (order.size() < 3) return;  // the difference already ranks two configurations
    std::string text = fmt::format("{}, best first (~: noise): {}", metric, comparison_.runs[order[0]].label);
    for (std::size_t i = 1; i < order.size(); ++i) {
      const auto& before = metric_or_none(comparison_.runs[order[i - 1]].metrics, metric);
      const auto pair = paired_difference(before, metric_or_none(comparison_.runs[order[i]].metrics, metric));
      const bool apart = pair.verdict != PairVerdict::noise && pair.verdict != PairVerdict::same;
      text += (apart ? ", " : " ~ ") + comparison_.runs[order[i]].label;
    }
    lines_.add("Ranking", text);
  }

  void robustness() {
    if (!comparison_.perturbation) return;
    const std::vector<MetricFlip> flips = comparison_.flips();
    const std::string runs =
        fmt::format("{} changes of {:.6g}%", comparison_.perturbations.size(), 100.0 * *comparison_.perturbation);
    for (const MetricFlip& flip : flips) {
      lines_.add("Flips",
                 fmt::format("{}: {} falls behind {} at {}", flip.metric, flip.before, flip.behind, flip.perturbation));
    }
    if (flips.empty()) {
      lines_.add("Robust", fmt::format("none of {} changes the order of two configurations that differ by more than "
                                       "noise",
                                       runs));
    }
  }

  void warnings() {
    std::vector<const Trust*> trusts;
    for (const ComparedRun& run : comparison_.runs) trusts.push_back(&run.trust);
    add_trust(trusts, lines_);
    std::vector<std::string> said;
    for (const ComparedRun& run : comparison_.runs) {
      for (const std::string& warning : run.warnings) {
        if (std::ranges::count(run.trust.accuracy, warning) > 0) continue;
        if (std::find(said.begin(), said.end(), warning) != said.end()) continue;
        said.push_back(warning);
        const bool all = std::all_of(comparison_.runs.begin(), comparison_.runs.end(), [&](const ComparedRun& other) {
          return std::find(other.warnings.begin(), other.warnings.end(), warning) != other.warnings.end();
        });
        lines_.add_short("Warning", all ? warning : run.label + ": " + warning);
      }
    }
    if (!said.empty()) lines_.add("", "use --json to see all text");
  }

  const Comparison& comparison_;
  Lines lines_;
};

Json metrics_json(const std::vector<Metric>& metrics) {
  Json json = Json::object();
  for (const Metric& metric : metrics) {
    json[metric.name] = {{"value", nullable(metric.value)}, {"unit", metric.unit}, {"n", metric.n}};
    if (metric.half_width) json[metric.name]["half_width"] = *metric.half_width;
  }
  return json;
}

Json differences_json(const Comparison& comparison, std::size_t run) {
  Json json = Json::object();
  for (const Metric& metric : comparison.runs[comparison.baseline].metrics) {
    const PairedDifference pair = comparison.difference(run, metric.name);
    json[metric.name] = {{"difference", nullable(pair.difference)},
                         {"half_width", nullable(pair.half_width)},
                         {"relative", nullable(pair.relative)},
                         {"n", pair.n},
                         {"verdict", verdict_text(pair.verdict)}};
  }
  return json;
}

Json robustness_json(const Comparison& comparison) {
  Json flips = Json::array();
  for (const MetricFlip& flip : comparison.flips()) {
    flips.push_back({{"metric", flip.metric},
                     {"perturbation", flip.perturbation},
                     {"before", flip.before},
                     {"behind", flip.behind}});
  }
  Json runs = Json::array();
  for (std::size_t p = 0; p < comparison.perturbations.size(); ++p) {
    Json values = Json::object();
    for (const ComparedRun& run : comparison.runs) {
      for (const std::string& metric : comparison.metrics) {
        values[run.label][metric] = nullable(metric_or_none(run.perturbed[p], metric).value);
      }
    }
    runs.push_back({{"label", comparison.perturbations[p]}, {"metrics", values}});
  }
  return {{"fraction", *comparison.perturbation}, {"flips", flips}, {"runs", runs}};
}

}  // namespace

std::string to_comparison_table(const Comparison& comparison) { return ComparisonTable(comparison).build(); }

std::string to_comparison_json(const Comparison& comparison) {
  Json json{{"schema_version", 1},
            {"setup", comparison.setup},
            {"engines_differ", comparison.engines_differ()},
            {"baseline", comparison.runs[comparison.baseline].label},
            {"replications", comparison.replications},
            {"random_traffic", comparison.random_traffic}};
  json["runs"] = Json::array();
  for (std::size_t i = 0; i < comparison.runs.size(); ++i) {
    const ComparedRun& run = comparison.runs[i];
    json["runs"].push_back({{"label", run.label},
                            {"id", run.id},
                            {"engine", run.engine},
                            {"bottleneck", run.bottleneck},
                            {"steady_state", run.steadiness.empty() ? Json() : Json(run.steadiness)},
                            {"warnings", run.warnings},
                            {"trust", trust_json(run.trust)},
                            {"metrics", metrics_json(run.metrics)}});
    if (run.assumed) json["runs"].back()["expert_locality"] = assumed_locality_json(*run.assumed);
    if (run.locality) json["runs"].back()["other_localities"] = locality_check_json(*run.locality);
    if (i != comparison.baseline) json["runs"].back()["differences"] = differences_json(comparison, i);
  }
  json["skipped"] = Json::array();
  for (const SkippedRun& one : comparison.skipped) {
    json["skipped"].push_back({{"label", one.label}, {"reason", one.reason}});
  }
  json["rankings"] = Json::object();
  for (const std::string& metric : comparison.metrics) {
    for (const std::size_t run : comparison.ranking(metric)) {
      json["rankings"][metric].push_back(comparison.runs[run].label);
    }
  }
  if (comparison.perturbation) json["perturbation"] = robustness_json(comparison);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string to_comparison_csv(const Comparison& comparison) {
  const auto number = [](const std::optional<double>& value) { return value ? fmt::format("{}", *value) : ""; };
  std::string csv =
      "configuration,metric,unit,value,half_width,difference,difference_half_width,relative_difference,verdict,"
      "steady_state\n";
  for (std::size_t i = 0; i < comparison.runs.size(); ++i) {
    for (const Metric& metric : comparison.runs[i].metrics) {
      csv += fmt::format("{},{},{},{},{}", csv_text(comparison.runs[i].label), metric.name, metric.unit,
                         number(metric.value), number(metric.half_width));
      if (i == comparison.baseline) {
        csv += fmt::format(",,,,baseline,{}\n", comparison.runs[i].steadiness);
        continue;
      }
      const PairedDifference pair = comparison.difference(i, metric.name);
      csv += fmt::format(",{},{},{},{},{}\n", number(pair.difference), number(pair.half_width), number(pair.relative),
                         verdict_text(pair.verdict), comparison.runs[i].steadiness);
    }
  }
  return csv;
}

}  // namespace spillway
