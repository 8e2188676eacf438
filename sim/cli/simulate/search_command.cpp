#include "sim/cli/simulate/search_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <memory>
#include <utility>

#include "sim/api/key_owners.hpp"
#include "sim/cli/grid_arguments.hpp"
#include "sim/cli/page_file.hpp"
#include "sim/cli/progress.hpp"
#include "sim/cli/simulate/compare_command.hpp"
#include "sim/cli/table_metrics.hpp"
#include "sim/core/interrupt.hpp"
#include "sim/core/printable.hpp"
#include "sim/core/text.hpp"
#include "sim/io/lines.hpp"
#include "sim/io/output.hpp"
#include "sim/report/search.hpp"
#include "sim/study/assemble.hpp"
#include "sim/study/parameter_table.hpp"
#include "sim/study/perturb.hpp"
#include "sim/study/result_store.hpp"
#include "traces/workload.hpp"

namespace spillway::cli {
namespace {

constexpr std::int64_t kMostSearches = 1000;

/// Keys that choose the traffic sample or the limits, not the system: a search over them is meaningless.
bool decides_what_is_measured(const std::string& key) {
  constexpr std::array<std::string_view, 4> kKeys{"seed", "replications", "until", "workload.requests"};
  return key.starts_with("slo.") || std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end();
}

/// The contents of the command line, checked.
struct Plan {
  PointGrid arguments;
  Parameter key;
  Criterion criterion;
  EdgeSearch::Settings settings;
  SearchReport report;
};

class Planner {
 public:
  explicit Planner(const SearchOptions& options) : options_(options), problems_(options.problems) {}

  Plan plan() {
    const std::vector<std::string> metrics = parse_metrics(options_.metrics, problems_);
    plan_.report.tolerance = parse_fraction(options_.tolerance, "--tolerance", 1e-4, 0.5, problems_);
    plan_.criterion.attainment = parse_fraction(options_.attainment, "--attainment", 1e-2, 1.0, problems_);
    if (options_.perturb) plan_.report.perturbation = parse_perturbation(*options_.perturb, problems_);
    choose_key();
    plan_.arguments = grid_arguments(options_.arguments, options_.slos, options_.zips, std::move(problems_),
                                     {.all_policies = true,
                                      .replications = kReplications,
                                      .most_points = kMostSearches,
                                      .fix_for_size = "give fewer values: each point is a search of its own"});
    problems_.clear();
    take_key_from_arguments();
    const ResolvedConfig config = resolve_config(parameter_table(), first_point(), {});
    read_criterion(config, plan_.criterion, "search", problems_);
    bounds(config);
    if (!problems_.empty()) throw ConfigError(std::move(problems_));
    plan_.report.key = plan_.key.name;
    plan_.report.axes = plan_.arguments.grid.keys();
    plan_.report.unit = plan_.key.unit;
    plan_.report.largest = plan_.settings.goal == EdgeSearch::Goal::largest;
    plan_.report.replications = config.settings.get<std::int64_t>("replications");
    plan_.report.conditions = plan_.criterion.texts();
    plan_.report.metrics = metrics.empty() ? standard_metrics(plan_.arguments) : metrics;
    plan_.report.other_localities = !options_.fixed_locality;
    plan_.settings.tolerance = plan_.report.tolerance;
    return std::move(plan_);
  }

 private:
  void choose_key() {
    const bool max = !options_.max_key.empty();
    if (max == !options_.min_key.empty()) {
      problems_.push_back(
          {"a search needs either --max KEY or --min KEY", "arguments", "give for example --max workload.rate"});
      return;
    }
    const std::string& name = max ? options_.max_key : options_.min_key;
    plan_.settings.goal = max ? EdgeSearch::Goal::largest : EdgeSearch::Goal::smallest;
    const std::vector<Parameter> table = parameter_table();
    const Parameter* parameter = find_parameter(table, name);
    where_ = (max ? "--max " : "--min ") + name;
    if (parameter == nullptr) {
      std::vector<std::string> names;
      std::ranges::transform(table, std::back_inserter(names), &Parameter::name);
      for (const KeyOwner& owner : key_owners()) {
        for (const Parameter& one : *owner.parameters) names.push_back(one.name);
      }
      problems_.push_back({fmt::format("unknown key \"{}\"", name), where_,
                           suggestion(name, names) + "all keys: spillway config show"});
    } else if (!is_numeric(*parameter)) {
      problems_.push_back({fmt::format("{} is not a number, so it cannot be searched", name), where_,
                           "search a rate, a size, a length or a count"});
    } else if (decides_what_is_measured(parameter->name)) {
      problems_.push_back({fmt::format("{} has no largest or smallest useful value: it decides what is measured", name),
                           where_, "search a key that changes the load, the engine or the memory"});
    } else {
      plan_.key = *parameter;
      plan_.settings.whole = parameter->type != ParameterType::real;
    }
  }

  /// A value of the searched key is the start of the search.
  void take_key_from_arguments() {
    const std::vector<std::string> axes = plan_.arguments.grid.keys();
    if (std::find(axes.begin(), axes.end(), plan_.key.name) != axes.end()) {
      throw ConfigError(fmt::format("{} is searched, so it cannot have several values", plan_.key.name), where_,
                        "give it one value, where the search starts, or none");
    }
    auto& shared = plan_.arguments.shared;
    const auto given = std::find_if(shared.begin(), shared.end(),
                                    [&](const Assignment& one) { return one.key == plan_.key.name && one.text; });
    if (given == shared.end()) return;
    start_ = numeric_value(plan_.key, *given->text);
    given_at_ = given->where;
    if (!start_ || *start_ <= 0.0) {
      throw ConfigError(fmt::format("a search cannot start at {}={}", plan_.key.name, brief(*given->text)),
                        given->where, "give a number above 0");
    }
    shared.erase(given);
  }

  /// A point that resolves. It includes the searched key, which the configuration may require.
  [[nodiscard]] std::vector<Assignment> first_point() const {
    std::vector<Assignment> assignments = plan_.arguments.point(0).assignments;
    if (start_) {
      assignments.push_back({plan_.key.name, numeric_text(plan_.key, *start_), Origin::argument, given_at_, {}});
    }
    return assignments;
  }

  void bounds(const ResolvedConfig& config) {
    EdgeSearch::Settings& settings = plan_.settings;
    const Parameter& key = plan_.key;
    if (std::isfinite(key.minimum) && key.minimum > 0.0 && !key.above_minimum) settings.low = key.minimum;
    if (std::isfinite(key.maximum)) settings.high = key.maximum;
    settings.zero = key.type == ParameterType::integer && key.minimum == 0.0 && !key.above_minimum && !options_.from;
    if (const auto low = bound(options_.from, "--from")) settings.low = *low;
    if (const auto high = bound(options_.to, "--to")) settings.high = *high;
    if (settings.high > 0.0 && settings.low > settings.high) {
      problems_.push_back({"--from is above --to", "--from " + options_.from.value_or(""), "swap the two values"});
      return;
    }
    if (settings.whole) {
      settings.low = std::ceil(settings.low);
      const double high = std::floor(settings.high);
      if (settings.high > 0.0 && std::max(settings.low, 1.0) > high) {
        problems_.push_back({fmt::format("there is no whole number from {} to {}", options_.from.value_or("1"),
                                         options_.to.value_or("the limit")),
                             where_, "give bounds with a whole number between them"});
        return;
      }
      settings.high = high;
    }
    std::optional<double> start = start_;
    if (!start) start = numeric_value(key, config.key(key.name).text);
    if (!start && options_.from && options_.to) start = std::sqrt(settings.low * settings.high);
    if (!start && key.name == "workload.rate") start = traces::kDefaultRate;
    if (!start && key.type == ParameterType::integer && settings.low >= 1.0) start = settings.low;
    if (!start) {
      problems_.push_back({fmt::format("the search has no value of {} to start at", key.name), where_,
                           fmt::format("give one, as in {}=VALUE, or --from and --to", key.name)});
      return;
    }
    settings.start = std::max(*start, settings.low);
    if (settings.high > 0.0) settings.start = std::min(settings.start, settings.high);
  }

  std::optional<double> bound(const std::optional<std::string>& text, const std::string& flag) {
    if (!text) return std::nullopt;
    const auto value = numeric_value(plan_.key, *text);
    if (value && *value > 0.0) return value;
    problems_.push_back({fmt::format("\"{}\" is not a value of {} above 0", brief(*text), plan_.key.name),
                         flag + " " + brief(*text), fmt::format("give {} above 0", describe_form(plan_.key))});
    return std::nullopt;
  }

  const SearchOptions& options_;
  std::vector<Problem> problems_;
  Plan plan_;
  std::string where_;
  std::optional<double> start_;
  std::string given_at_;
};

std::string render(const SearchReport& report, const std::string& format) {
  if (format == "csv") return to_search_csv(report);
  if (format == "json") return to_search_json(report);
  return to_search_table(report);
}

}  // namespace

double parse_fraction(const std::string& text, const std::string& flag, double least, double most,
                      std::vector<Problem>& problems) {
  const bool percent = text.ends_with('%');
  const auto number = parse_number(percent ? text.substr(0, text.size() - 1) : text);
  const double value = number.value_or(-1.0) / (percent ? 100.0 : 1.0);
  if (value >= least && value <= most) return value;
  problems.push_back(
      {fmt::format("\"{}\" is not a fraction from {:.6g}% to {:.6g}%", brief(text), 100.0 * least, 100.0 * most), flag,
       fmt::format("write it as {:.6g}%", 100.0 * std::clamp(0.01, least, most))});
  return most;
}

void read_criterion(const ResolvedConfig& config, Criterion& criterion, const std::string& what,
                    std::vector<Problem>& problems) {
  for (const ResolvedKey& key : config.keys) {
    if (!key.parameter.name.starts_with("slo.") || !config.settings.has(key.parameter.name)) continue;
    if (key.parameter.name == "slo.run") {
      criterion.conditions = parse_conditions(key.text, "slo.run", false, problems);
    } else {
      criterion.single_requests = true;
    }
  }
  if (criterion.conditions.empty() && !criterion.single_requests) {
    problems.push_back({fmt::format("{} needs an SLO", what == "search" ? "a search" : what), "arguments",
                        "give one, as in --slo \"p99_ttft_ms<1000,p99_itl_ms<100\" or --slo \"ttft_ms<500\""});
  }
}

ExitCode search(const SearchOptions& options) {
  Plan plan = Planner(options).plan();
  if (options.dry_run) {
    print_result(fmt::format("{} search{} from {}={}.\nNothing was run (--dry-run).\n", plan.arguments.grid.size(),
                             plan.arguments.grid.size() == 1 ? "" : "es", plan.key.name,
                             numeric_text(plan.key, plan.settings.start)));
    return ExitCode::ok;
  }
  const std::unique_ptr<ResultStore> store =
      options.directory.empty() ? nullptr : std::make_unique<ResultStore>(options.directory);
  PageFile page(options.html);
  SearchProgressLine progress(options.progress == "auto");
  PointRunner runner({.jobs = options.jobs,
                      .store = store.get(),
                      .stop = &stop_on_interrupt(),
                      .on_progress = [&](const PointsProgress& p) { progress.update(p); }});
  Search run(configurations_of(plan.arguments), std::move(plan.key), std::move(plan.criterion), std::move(plan.report),
             plan.settings, runner, [&](const std::string& step) { progress.begin(step); });
  const bool all = run.run();
  progress.finish();
  if (!all) {
    fmt::print(
        stderr, "interrupted: {}\n",
        store ? "finished runs are kept; the same command continues from there" : "nothing is kept without -o DIR");
    return ExitCode::interrupted;
  }
  const SearchReport& report = run.report();
  const auto found =
      std::count_if(report.edges.begin(), report.edges.end(), [](const FoundEdge& e) { return e.value; });
  const bool none_ran = std::none_of(report.edges.begin(), report.edges.end(),
                                     [](const FoundEdge& edge) { return edge.closest() != nullptr; });
  if (none_ran && run.failure()) {
    print_problems(run.failure()->problems, fmt::format("no value of {} could be run", report.key));
    return run.failure()->code;
  }
  if (store) store->write("search.json", to_search_json(report));
  if (page.wanted()) page.write({.name = "search", .json = to_search_json(report)});
  print_result(render(report, options.format));
  return found == std::ssize(report.edges) ? ExitCode::ok : ExitCode::gate;
}

}  // namespace spillway::cli
