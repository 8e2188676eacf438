#include "sim/cli/simulate/advise_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <initializer_list>
#include <memory>
#include <utility>

#include "hwmodels/catalog.hpp"
#include "sim/cli/arguments.hpp"
#include "sim/cli/page_file.hpp"
#include "sim/cli/progress.hpp"
#include "sim/cli/simulate/compare_command.hpp"
#include "sim/cli/simulate/search_command.hpp"
#include "sim/core/interrupt.hpp"
#include "sim/core/printable.hpp"
#include "sim/io/output.hpp"
#include "sim/report/advice.hpp"
#include "sim/study/advice.hpp"
#include "sim/study/parameter_table.hpp"
#include "sim/study/perturb.hpp"
#include "sim/study/result_store.hpp"

namespace spillway::cli {
namespace {

constexpr std::int64_t kMostAdvised = 200;
const char* const kRate = "workload.rate";

/// Keys that say how many replicas there are, which the advice decides, or that the rate depends on.
void refuse_keys(const PointGrid& arguments, std::vector<Problem>& problems) {
  constexpr std::array<std::array<const char*, 3>, 6> kRefused{
      {{"replicas", "advise finds the number of replicas", "leave it out, and give workload.rate"},
       {"servers", "advise finds the number of replicas", "leave it out, and give workload.rate"},
       {"prefill_replicas", "advise ranks replicas of one kind", "compare pools with spillway search --min replicas"},
       {"decode_replicas", "advise ranks replicas of one kind", "compare pools with spillway search --min replicas"},
       {"instances", "advise ranks replicas of one kind", "use spillway search or spillway compare"},
       {"workload.concurrency", "advise searches the rate, which a closed loop does not have",
        "leave it out, or use spillway search --max workload.concurrency"}}};
  for (const auto& [key, what, fix] : kRefused) {
    const auto is_given = [&name = key](const Assignment& one) { return one.key == name && one.text; };
    const auto shared = std::ranges::find_if(arguments.shared, is_given);
    if (shared != arguments.shared.end()) problems.push_back({fmt::format("{}: {}", key, what), shared->where, fix});
    const std::vector<std::string> axes = arguments.grid.keys();
    if (std::ranges::find(axes, key) != axes.end()) {
      problems.push_back({fmt::format("{}: {}", key, what), fmt::format("argument {}", key), fix});
    }
  }
}

/// Takes the rate to serve out of the settings.
std::optional<double> take_rate(PointGrid& arguments, const Parameter& key) {
  const std::vector<std::string> axes = arguments.grid.keys();
  if (std::ranges::find(axes, kRate) != axes.end()) {
    throw ConfigError("workload.rate has several values, but advise serves one rate", "argument workload.rate",
                      "give it one value, or none for the rate of one replica");
  }
  const auto given = std::ranges::find(arguments.shared, kRate, &Assignment::key);
  if (given == arguments.shared.end()) return std::nullopt;
  std::optional<double> rate;
  if (given->text) {
    rate = numeric_value(key, *given->text);
    if (!rate || *rate <= 0.0) {
      throw ConfigError(fmt::format("no replicas can be found for {}={}", kRate, brief(*given->text)), given->where,
                        "give a number above 0");
    }
  }
  arguments.shared.erase(given);
  return rate;
}

/// Adds `addition` unless the user gives one of `keys`.
void add_unless_given(const std::vector<Assignment>& given, std::initializer_list<const char*> keys,
                      const std::string& addition, std::vector<std::string>& arguments) {
  const bool has = std::ranges::any_of(given, [&](const Assignment& one) {
    return std::ranges::any_of(keys, [&](const char* key) { return one.key == key; });
  });
  if (!has) arguments.push_back(addition);
}

AdviceTask task_of(const AdviseOptions& options, const std::vector<std::string>& arguments, const std::string& what) {
  std::vector<Problem> problems = options.problems;
  AdviceTask task;
  task.quick = options.quick;
  task.other_localities = !options.fixed_locality;
  task.tolerance = parse_fraction(options.tolerance, "--tolerance", 1e-3, 0.2, problems);
  task.criterion.attainment = parse_fraction(options.attainment, "--attainment", 1e-2, 1.0, problems);
  if (options.perturb) {
    task.perturbation = parse_perturbation(*options.perturb, problems);
  } else if (!options.quick) {
    task.perturbation = 0.05;
  }
  task.grid = grid_arguments(arguments, options.slos, options.zips, std::move(problems),
                             {.all_policies = true,
                              .replications = options.quick ? 1 : kReplications,
                              .most_points = kMostAdvised,
                              .fix_for_size = "give fewer values: a capacity is searched for each point"});
  problems.clear();
  const std::vector<Parameter> table = parameter_table();
  task.key = *find_parameter(table, kRate);
  refuse_keys(task.grid, problems);
  if (!problems.empty()) throw ConfigError(std::move(problems));
  task.rate = take_rate(task.grid, task.key);
  read_criterion(resolve_config(table, task.grid.point(0).assignments, {}), task.criterion, what, problems);
  if (!problems.empty()) throw ConfigError(std::move(problems));
  return task;
}

/// How the result is written.
struct Writers {
  const char* command;
  const char* file;
  std::string (*json)(const Advice&);
  std::string (*csv)(const Advice&);
  std::string (*table)(const Advice&);
};

ExitCode carry_out(const AdviseOptions& options, AdviceTask task, const Writers& write,
                   const std::function<bool(const Advice&)>& succeeded) {
  if (options.dry_run) {
    std::string text = fmt::format("{} configurations:\n", task.grid.grid.size());
    for (std::int64_t i = 0; i < task.grid.grid.size(); ++i) {
      text += fmt::format("  {}\n", printable(task.grid.grid.label(i)));
    }
    print_result(text + "Nothing was run (--dry-run).\n");
    return ExitCode::ok;
  }
  const std::unique_ptr<ResultStore> store =
      options.directory.empty() ? nullptr : std::make_unique<ResultStore>(options.directory);
  PageFile page(options.html);
  StepsProgressLine progress(options.progress == "auto");
  PointRunner runner({.jobs = options.jobs, .store = store.get(), .stop = &stop_on_interrupt()});
  Adviser adviser(std::move(task), runner,
                  [&](const std::string& phase, double fraction) { progress.update(phase, fraction); });
  const bool all = adviser.run();
  progress.finish();
  if (!all) {
    fmt::print(
        stderr, "interrupted: {}\n",
        store ? "finished runs are kept; the same command continues from there" : "nothing is kept without -o DIR");
    return ExitCode::interrupted;
  }
  const Advice& advice = adviser.advice();
  if (adviser.failure()) {
    print_problems(adviser.failure()->problems, "no configuration could be run");
    return adviser.failure()->code;
  }
  if (store) store->write(write.file, write.json(advice));
  if (page.wanted()) page.write({.name = write.command, .json = write.json(advice)});
  print_result(options.format == "csv"    ? write.csv(advice)
               : options.format == "json" ? write.json(advice)
                                          : write.table(advice));
  return succeeded(advice) ? ExitCode::ok : ExitCode::gate;
}

}  // namespace

ExitCode advise(const AdviseOptions& options) {
  std::vector<Problem> repeated;  // grid_arguments finds them again
  std::vector<std::string> arguments = options.arguments;
  const std::vector<Assignment> given = given_arguments(arguments, options.slos, repeated);
  add_unless_given(given, {"policy", "policy.name"}, "policy=all", arguments);
  return carry_out(options, task_of(options, arguments, "advice"),
                   {"advise", "advice.json", to_advice_json, to_advice_csv, to_advice_table},
                   [](const Advice& advice) { return advice.winner() != nullptr; });
}

ExitCode plan(const PlanOptions& options) {
  std::vector<Problem> repeated;  // grid_arguments finds them again
  std::vector<std::string> arguments = options.arguments;
  const std::vector<Assignment> given = given_arguments(arguments, options.slos, repeated);
  add_unless_given(given, {"hardware"}, fmt::format("hardware={}", fmt::join(hwmodels::gpu_names(), ",")), arguments);
  add_unless_given(given, {"tensor_parallel", "data_parallel", "expert_parallel"}, "tensor_parallel=1,2,4,8",
                   arguments);
  AdviceTask task = task_of(options, arguments, "a plan");
  if (!task.rate) {
    throw ConfigError("a plan needs the rate to serve", "arguments", "give it, as in workload.rate=50");
  }
  task.prune = task.tune = task.explain = false;
  return carry_out(options, std::move(task), {"plan", "plan.json", to_plan_json, to_plan_csv, to_plan_table},
                   [](const Advice& advice) {
                     return std::ranges::any_of(advice.configurations, [](const AdvisedConfiguration& one) {
                       return one.fleet && one.fleet->holds;
                     });
                   });
}

}  // namespace spillway::cli
