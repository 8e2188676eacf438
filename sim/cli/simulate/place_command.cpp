#include "sim/cli/simulate/place_command.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <utility>
#include <vector>

#include "sim/cli/progress.hpp"
#include "sim/core/interrupt.hpp"
#include "sim/io/output.hpp"
#include "sim/report/placement.hpp"

namespace spillway::cli {
namespace {

ExitCode interrupted(PointsProgressLine& progress) {
  progress.finish();
  fmt::print(stderr, "interrupted: nothing is kept\n");
  return ExitCode::interrupted;
}

placer::Placement place_models(const placer::Cluster& cluster, bool compat) {
  try {
    return placer::place(cluster.problem(compat));
  } catch (const ConfigError& error) {
    std::vector<Problem> problems = error.problems();
    for (Problem& problem : problems) problem.where = cluster.place_of(problem.where);
    throw ConfigError(std::move(problems));
  }
}

}  // namespace

ExitCode place(const PlaceOptions& options) {
  placer::Cluster cluster = placer::read_cluster(options.cluster);
  PointsProgressLine progress(options.progress == "auto", false);
  PointRunner runner({.jobs = options.jobs,
                      .store = nullptr,
                      .stop = &stop_on_interrupt(),
                      .on_progress = [&](const PointsProgress& p) { progress.update(p); }});
  PlacementReport report{.cluster = &cluster, .compat = options.compat, .profiled = {}, .placement = {}, .worth = {}};
  auto profiled = placer::profile(cluster, runner);
  if (!profiled) return interrupted(progress);
  report.profiled = std::move(*profiled);
  placer::require_paths(cluster);
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  report.placement = place_models(cluster, options.compat);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (!options.place_only) {
    report.worth = placer::simulate_worth(cluster, report.placement, runner);
    if (!report.worth) return interrupted(progress);
  }
  progress.finish();
  // Not part of the result, which is the same on every machine.
  fmt::print(stderr, "placed in {:.3f} s\n", seconds);
  print_result(options.format == "json" ? to_placement_json(report) : to_placement_table(report));
  return ExitCode::ok;
}

}  // namespace spillway::cli
