#include "sim/cli/simulate/compare_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "sim/cli/grid_arguments.hpp"
#include "sim/cli/page_file.hpp"
#include "sim/cli/progress.hpp"
#include "sim/cli/table_metrics.hpp"
#include "sim/config/names.hpp"
#include "sim/core/interrupt.hpp"
#include "sim/core/printable.hpp"
#include "sim/io/output.hpp"
#include "sim/report/comparison.hpp"
#include "sim/study/comparison.hpp"
#include "sim/study/parameter_table.hpp"
#include "sim/study/perturb.hpp"
#include "sim/study/points.hpp"
#include "sim/study/result_store.hpp"

namespace spillway::cli {
namespace {

constexpr std::int64_t kMostConfigurations = 1000;

/// Whether a key changes the requests, their arrivals, or the measured requests.
bool changes_traffic(const std::string& key) {
  return key.starts_with("workload.") || key.starts_with("slo.") || key == "seed" || key == "replications" ||
         key == "warmup" || key == "until";
}

void check_axes(const Grid& grid, std::vector<Problem>& problems) {
  for (const std::string& key : grid.keys()) {
    if (!changes_traffic(key)) continue;
    problems.push_back({fmt::format("{} has several values, but all configurations must see the same traffic", key),
                        "argument " + key, "give it one value, or use spillway sweep"});
  }
  if (grid.size() < 2 && problems.empty()) {
    problems.push_back({"there is nothing to compare: no key has several values", "arguments",
                        "give a key several values, as in policy=vllm,sarathi or policy=all"});
  }
}

/// With policy=all, which sorts policies by name: the first configuration with the default policy. Otherwise the first
/// configuration.
std::int64_t standard_baseline(const PointGrid& arguments) {
  if (!arguments.all_policies) return 0;
  const std::vector<Parameter> table = parameter_table();
  const std::string wanted = find_parameter(table, "policy")->default_value;
  const std::vector<std::string> keys = arguments.grid.keys();
  const auto policy = static_cast<std::size_t>(std::find(keys.begin(), keys.end(), "policy") - keys.begin());
  for (std::int64_t i = 0; i < arguments.grid.size(); ++i) {
    if (arguments.grid.values(i).at(policy) == wanted) return i;
  }
  return 0;
}

/// The configuration that --baseline names, by its label or by one of its values.
std::int64_t baseline_of(const std::string& wanted, const PointGrid& arguments, std::vector<Problem>& problems) {
  if (wanted.empty()) return standard_baseline(arguments);
  const Grid& grid = arguments.grid;
  std::vector<std::string> labels;
  for (std::int64_t i = 0; i < grid.size(); ++i) {
    const std::vector<std::string> values = grid.values(i);
    labels.push_back(grid.label(i));
    const bool named = !match_name(wanted, values, Abbreviations::refused).name.empty();
    if (named || !match_name(wanted, {&labels.back(), 1}, Abbreviations::refused).name.empty()) return i;
  }
  problems.push_back({fmt::format("\"{}\" is not one of the compared configurations", brief(wanted)),
                      "--baseline " + brief(wanted),
                      suggestion(wanted, labels) + fmt::format("choose one of: {}", fmt::join(labels, ", "))});
  return 0;
}

std::string render(const Comparison& comparison, const std::string& format) {
  if (format == "csv") return to_comparison_csv(comparison);
  if (format == "json") return to_comparison_json(comparison);
  return to_comparison_table(comparison);
}

/// A comparison needs two configurations. With fewer, print why the others failed.
ExitCode refuse(const Comparison& comparison, const std::vector<PointOutcome>& outcomes) {
  std::vector<Problem> problems;
  ExitCode code = ExitCode::data;
  for (const PointOutcome& outcome : outcomes) {
    for (const Problem& problem : outcome.problems) {
      const bool said = std::any_of(problems.begin(), problems.end(), [&](const Problem& other) {
        return other.what == problem.what && other.where == problem.where;
      });
      if (!said) problems.push_back(problem);
    }
    if (outcome.failed() && outcome.code != ExitCode::data) code = outcome.code;
  }
  print_problems(problems,
                 fmt::format("a comparison needs 2 configurations that can run, and {} can", comparison.runs.size()));
  return code;
}

}  // namespace

ExitCode compare(const CompareOptions& options) {
  std::vector<Problem> problems = options.problems;
  std::vector<std::string> metrics = parse_metrics(options.metrics, problems);
  std::optional<double> perturbation;
  if (options.perturb) perturbation = parse_perturbation(*options.perturb, problems);
  PointGrid arguments =
      grid_arguments(options.arguments, options.slos, options.zips, std::move(problems),
                     {.all_policies = true,
                      .replications = kReplications,
                      .most_points = kMostConfigurations,
                      .fix_for_size = fmt::format("use spillway sweep for more than {}", kMostConfigurations)});
  arguments.other_localities = !options.fixed_locality;
  problems.clear();
  check_axes(arguments.grid, problems);
  const std::int64_t baseline = baseline_of(options.baseline, arguments, problems);
  if (!problems.empty()) throw ConfigError(std::move(problems));
  std::vector<Point> points = compared_points(arguments, perturbed_scales(perturbation));
  if (options.dry_run) {
    std::string text = fmt::format("{} configurations", arguments.grid.size());
    if (perturbation) text += fmt::format(", {} runs of each", std::ssize(points) / arguments.grid.size());
    std::vector<std::int64_t> all(static_cast<std::size_t>(arguments.grid.size()));
    std::iota(all.begin(), all.end(), 0);
    text += other_localities_text(arguments, all, "configuration") + ":\n";
    for (std::int64_t i = 0; i < arguments.grid.size(); ++i) {
      text += fmt::format("  {}{}\n", printable(arguments.grid.label(i)), i == baseline ? " (baseline)" : "");
    }
    print_result(text + "Nothing was run (--dry-run).\n");
    return ExitCode::ok;
  }
  const std::unique_ptr<ResultStore> store =
      options.directory.empty() ? nullptr : std::make_unique<ResultStore>(options.directory);
  PageFile page(options.html);
  PointsProgressLine progress(options.progress == "auto");
  PointRunner runner({.jobs = options.jobs,
                      .store = store.get(),
                      .stop = &stop_on_interrupt(),
                      .on_progress = [&](const PointsProgress& p) { progress.update(p); }});
  std::vector<PointOutcome> outcomes = runner.run(points);
  progress.finish();
  if (std::any_of(outcomes.begin(), outcomes.end(), [](const auto& o) { return o.code == ExitCode::interrupted; })) {
    fmt::print(
        stderr, "interrupted: {}\n",
        store ? "finished runs are kept; the same command continues from there" : "nothing is kept without -o DIR");
    return ExitCode::interrupted;
  }
  Comparison comparison = comparison_of(arguments, outcomes, perturbation, baseline);
  comparison.metrics = metrics.empty() ? standard_metrics(arguments) : std::move(metrics);
  if (comparison.runs.size() < 2) return refuse(comparison, outcomes);
  if (store) store->write("comparison.json", to_comparison_json(comparison));
  if (page.wanted()) page.write({.name = "compare", .json = to_comparison_json(comparison)});
  print_result(render(comparison, options.format));
  return comparison.skipped.empty() || arguments.all_policies ? ExitCode::ok : ExitCode::partial;
}

}  // namespace spillway::cli
