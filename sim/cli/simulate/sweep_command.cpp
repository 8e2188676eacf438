#include "sim/cli/simulate/sweep_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "sim/cli/grid_arguments.hpp"
#include "sim/cli/page_file.hpp"
#include "sim/cli/progress.hpp"
#include "sim/cli/simulate/sweep_points.hpp"
#include "sim/cli/table_metrics.hpp"
#include "sim/core/interrupt.hpp"
#include "sim/core/printable.hpp"
#include "sim/core/text.hpp"
#include "sim/io/lines.hpp"
#include "sim/io/output.hpp"
#include "sim/report/sweep.hpp"
#include "sim/study/points.hpp"
#include "sim/study/result_store.hpp"
#include "sim/study/shard.hpp"
#include "sim/study/slurm.hpp"

namespace spillway::cli {
namespace {

constexpr std::int64_t kMostWithoutYes = 10'000;
constexpr std::int64_t kMostShards = 1000;  // Slurm's default limit for an array (MaxArraySize)

/// `place`: " in DIR", or empty.
std::string finished_text(const Sweep& sweep, std::int64_t stored, const std::string& place) {
  std::string text = fmt::format("{} points{}", sweep.rows.size(), place);
  if (sweep.shard) text = fmt::format("shard {}/{}: ", sweep.shard->index, sweep.shard->count) + text;
  if (stored > 0) text += fmt::format(", {} of them reused", stored);
  if (const std::int64_t failed = sweep.failed(); failed > 0) text += fmt::format(", {} failed", failed);
  return text;
}

class SweepRun {
 public:
  SweepRun(const SweepOptions& options, const PointGrid& arguments, const std::optional<Shard>& shard,
           std::vector<std::string> metrics)
      : options_(options),
        arguments_(arguments),
        sweep_(new_sweep(arguments, shard)),
        schedule_(largest_first(arguments.grid, shard.value_or(Shard{}))),
        metrics_(std::move(metrics)),
        page_(options.html) {
    if (!options.directory.empty()) store_ = std::make_unique<ResultStore>(options.directory);
  }

  ExitCode run() {
    try {
      if (store_) store_->write("sweep.json", to_sweep_manifest(sweep_, false));
      if (!run_points()) return interrupted();
      if (store_) write_results(*store_, sweep_);
      if (page_.wanted()) page_.write({.name = "sweep", .json = to_sweep_json(sweep_)});
    } catch (const UserError& error) {
      print_problems(error.problems(), kept());
      return error.code();
    }
    print_result(render(sweep_, options_.format, metrics_));
    if (options_.directory.empty() && sweep_.failed() == 0) return ExitCode::ok;
    const std::string place = store_ ? " in " + options_.directory : "";
    fmt::print(stderr, "{}\n", finished_text(sweep_, count_.stored, printable(place)));
    return sweep_.failed() > 0 ? ExitCode::partial : ExitCode::ok;
  }

 private:
  /// Returns false when interrupted.
  bool run_points() {
    PointsProgressLine progress(options_.progress == "auto");
    PointRunner runner({.jobs = options_.jobs,
                        .store = store_.get(),
                        .stop = &stop_on_interrupt(),
                        .on_progress = [&](const PointsProgress& p) { progress.update(p); }});
    const bool all = run_sweep(arguments_, schedule_, runner, sweep_, count_);
    progress.finish();
    return all;
  }

  [[nodiscard]] std::string kept() const {
    if (!store_) return "nothing is kept without -o DIR";
    return fmt::format("{} of {} points are in {}; the same command continues from there", count_.done,
                       schedule_.order.size(), printable(options_.directory));
  }

  ExitCode interrupted() {
    fmt::print(stderr, "interrupted: {}\n", kept());
    return ExitCode::interrupted;
  }

  const SweepOptions& options_;
  const PointGrid& arguments_;
  Sweep sweep_;
  Schedule schedule_;
  std::vector<std::string> metrics_;
  PageFile page_;
  std::unique_ptr<ResultStore> store_;
  SweepCount count_;
};

ExitCode emit_slurm(const SweepOptions& options, const PointGrid& arguments) {
  if (options.directory.empty()) {
    throw ConfigError("--emit slurm needs a folder for the results", "--emit slurm", "give -o DIR");
  }
  const std::int64_t points = arguments.grid.size();
  SlurmSweep slurm;
  slurm.program = std::filesystem::read_symlink("/proc/self/exe").string();
  slurm.arguments = options.arguments;
  for (const std::string& slo : options.slos) slurm.arguments.insert(slurm.arguments.end(), {"--slo", slo});
  for (const std::string& zip : options.zips) slurm.arguments.insert(slurm.arguments.end(), {"--zip", zip});
  if (options.yes) slurm.arguments.emplace_back("--yes");
  if (options.fixed_locality) slurm.arguments.emplace_back("--fixed-locality");
  slurm.directory = options.directory;
  slurm.points = points;
  slurm.shards = std::min({points, kMostShards, static_cast<std::int64_t>(options.shards.value_or(16))});
  slurm.jobs = options.jobs;
  print_result(slurm_script(slurm));
  return ExitCode::ok;
}

ExitCode show_plan(const PointGrid& arguments, const std::optional<Shard>& shard) {
  constexpr std::int64_t kShown = 10;
  const Schedule schedule = largest_first(arguments.grid, shard.value_or(Shard{}));
  std::string text;
  for (const Axis& axis : arguments.grid.axes()) {
    text += fmt::format("{}: {} values\n", fmt::join(axis.keys, " and "), axis.values.size());
  }
  text += fmt::format("{} points", arguments.grid.size());
  if (shard) text += fmt::format("; shard {}/{} runs {} of them", shard->index, shard->count, schedule.order.size());
  text += other_localities_text(arguments, schedule.order, "point") + ". In this order:\n";
  for (std::size_t i = 0; i < std::min<std::size_t>(schedule.order.size(), kShown); ++i) {
    text += fmt::format("  {}: {}\n", schedule.order[i], shown(arguments.grid.label(schedule.order[i])));
  }
  if (std::ssize(schedule.order) > kShown) text += fmt::format("  and {} more\n", std::ssize(schedule.order) - kShown);
  print_result(text + "Nothing was run (--dry-run).\n");
  return ExitCode::ok;
}

}  // namespace

ExitCode sweep(const SweepOptions& options) {
  std::vector<Problem> problems = options.problems;
  std::vector<std::string> metrics = parse_metrics(options.metrics, problems);
  const std::optional<Shard> shard = options.emit.empty() ? chosen_shard(options.shard, problems) : std::nullopt;
  GridDefaults limits;
  if (!options.yes) {
    limits.most_points = kMostWithoutYes;
    limits.fix_for_size = fmt::format("give --yes to run more than {}", kMostWithoutYes);
  }
  PointGrid arguments = grid_arguments(options.arguments, options.slos, options.zips, std::move(problems), limits);
  arguments.other_localities = !options.fixed_locality;
  refuse_if_none_resolves(arguments);
  if (!options.emit.empty()) return emit_slurm(options, arguments);
  if (options.dry_run) return show_plan(arguments, shard);
  if (options.metrics.empty()) metrics = standard_metrics(arguments);
  return SweepRun(options, arguments, shard, std::move(metrics)).run();
}

}  // namespace spillway::cli
