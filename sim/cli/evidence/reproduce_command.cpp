#include "sim/cli/evidence/reproduce_command.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "sim/cli/page_file.hpp"
#include "sim/cli/progress.hpp"
#include "sim/core/interrupt.hpp"
#include "sim/io/output.hpp"
#include "sim/report/claims.hpp"
#include "sim/study/compute_claim.hpp"
#include "sim/study/experiments.hpp"
#include "sim/study/run_sets.hpp"

namespace spillway::cli {
namespace {

/// Progress of the current run set: one rewritten line on a terminal, elsewhere the run set's name and points.
class RunSetProgress {
 public:
  explicit RunSetProgress(bool enabled) : enabled_(enabled), terminal_(isatty(STDERR_FILENO) == 1) {}
  void update(const std::string& run_set, const PointsProgress& progress) {
    if (!enabled_) return;
    if (!line_) {
      if (!terminal_) fmt::print(stderr, "run set {}: {} points\n", run_set, progress.points);
      line_ = std::make_unique<PointsProgressLine>(terminal_);
    }
    line_->update(progress);
    if (progress.done == progress.points) finish();
  }
  void finish() {
    if (line_) line_->finish();
    line_.reset();
  }

 private:
  bool enabled_;
  bool terminal_;
  std::unique_ptr<PointsProgressLine> line_;
};

class Reproduction {
 public:
  explicit Reproduction(const ReproduceOptions& options) : options_(options), progress_(options.progress == "auto") {}

  ExperimentResult run(const ClaimSelection& selection) {
    const Experiment& experiment = selection.experiment.experiment;
    RunSets run_sets(selection.experiment,
                     {.quick = options_.quick,
                      .jobs = options_.jobs,
                      .stop = &stop_on_interrupt(),
                      .on_progress = [this](const std::string& run_set, const PointsProgress& progress) {
                        progress_.update(run_set, progress);
                      }});
    ExperimentResult result{experiment, {}};
    for (const std::size_t place : selection.claims) {
      result.claims.push_back(run_claim(selection.experiment, experiment.claims[place], run_sets));
    }
    return result;
  }

  void clear_progress() { progress_.finish(); }

 private:
  ClaimResult run_claim(const LoadedExperiment& experiment, const Claim& claim, RunSets& run_sets) const {
    ClaimResult result{.claim = claim, .figures = compute_claim(experiment, claim, {}, run_sets, true)};
    const bool skipped = verdict_of(claim, result.figures) == ClaimVerdict::skipped;
    for (const OpenItem* item : experiment.experiment.open_of(claim, options_.quick)) {
      OpenOutcome open{*item, {}};
      for (const auto& value : item->others) {
        open.others.push_back(
            {value, compute_claim(experiment, claim, {{item->name, value}}, run_sets, options_.full && !skipped)});
      }
      result.open.push_back(std::move(open));
    }
    for (const ClaimColumn& column : claim.columns) {
      result.columns.push_back(
          {column.name, compute_claim(experiment, claim, column.constants, run_sets, options_.full && !skipped)});
    }
    return result;
  }

  const ReproduceOptions& options_;
  RunSetProgress progress_;
};

void print_list(const std::vector<ClaimSelection>& selections, bool json) {
  std::vector<Experiment> experiments;
  for (const ClaimSelection& selection : selections) {
    Experiment experiment = selection.experiment.experiment;
    std::vector<Claim> chosen;
    for (const std::size_t place : selection.claims) chosen.push_back(experiment.claims[place]);
    experiment.claims = std::move(chosen);
    experiments.push_back(std::move(experiment));
  }
  print_result(json ? to_claims_list_json(experiments) : to_claims_list(experiments));
}

}  // namespace

ExitCode reproduce(const ReproduceOptions& options) {
  if (options.names.empty() && !options.all && !options.list) {
    throw ConfigError("no claim is named", "reproduce", "name claims, systems or experiments, or give --all or --list");
  }
  if (options.all && !options.names.empty()) {
    throw ConfigError("--all is given together with names", "reproduce", "give either --all or names");
  }
  const std::vector<ClaimSelection> selections = select_claims(options.names);
  if (options.list) {
    print_list(selections, options.json);
    return ExitCode::ok;
  }
  PageFile page(options.html);
  Reproduction reproduction(options);
  std::vector<ExperimentResult> results;
  try {
    for (const ClaimSelection& selection : selections) results.push_back(reproduction.run(selection));
  } catch (const Interrupted&) {
    reproduction.clear_progress();
    fmt::print(stderr, "interrupted: nothing was written\n");
    return ExitCode::interrupted;
  }
  if (page.wanted()) page.write({.name = "reproduce", .json = to_claims_json(results, options.quick)});
  print_result(options.json ? to_claims_json(results, options.quick) : to_claims_table(results, options.quick));
  return count_claims(results).failed > 0 ? ExitCode::gate : ExitCode::ok;
}

}  // namespace spillway::cli
