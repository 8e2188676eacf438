#include "sim/cli/simulate/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "sim/cli/arguments.hpp"
#include "sim/cli/page_file.hpp"
#include "sim/cli/progress.hpp"
#include "sim/cli/simulate/recordings.hpp"
#include "sim/core/interrupt.hpp"
#include "sim/core/printable.hpp"
#include "sim/io/atomic_file.hpp"
#include "sim/io/output.hpp"
#include "sim/io/work_done.hpp"
#include "sim/report/report.hpp"
#include "sim/report/requests.hpp"
#include "sim/report/run_charts.hpp"
#include "sim/study/assemble.hpp"
#include "sim/study/perturb.hpp"
#include "sim/study/replicated_run.hpp"
#include "sim/study/run_plan.hpp"
#include "sim/study/what_if.hpp"

namespace spillway::cli {
namespace {

std::string render(const Result& result, const std::string& format) {
  if (format == "json") return to_json(result);
  if (format == "csv") return to_csv(result);
  if (format == "vllm") return to_vllm(result);
  return to_table(result);
}

/// The output files of a run. Each file is opened before the run, so an unwritable location is reported early. A file
/// gets its name after the run. Without `commit` nothing remains, not even a new folder.
class OutputFiles {
 public:
  OutputFiles(const RunOptions& options, const TimelineLimits& limits, const Assembly& assembly)
      : directory_(options.directory) {
    if (!directory_.empty()) {
      std::error_code error;
      created_ = std::filesystem::create_directories(directory_, error);
      if (error) {
        throw ConfigError(fmt::format("cannot create the folder {}: {}", directory_, error.message()), directory_,
                          "choose a writable folder");
      }
    }
    try {
      if (!directory_.empty()) {
        result_ = std::make_unique<AtomicFile>(in_directory("result.json"));
        config_ = std::make_unique<AtomicFile>(in_directory("config.resolved.json"));
        charts_ = std::make_unique<AtomicFile>(in_directory("charts.json"));
      }
      page_ = std::make_unique<PageFile>(options.html);
      std::vector<std::string> names;
      for (const AssembledKind& kind : assembly.kinds) names.push_back(kind.name);
      if (!options.requests_file.empty()) {
        requests_ = std::make_unique<RequestsFile>(options.requests_file, std::move(names));
      }
      recordings_ = std::make_unique<Recordings>(options.recordings, limits, instance_names(assembly), charted());
    } catch (...) {
      discard();
      throw;
    }
  }
  ~OutputFiles() { discard(); }
  OutputFiles(const OutputFiles&) = delete;
  OutputFiles& operator=(const OutputFiles&) = delete;

  [[nodiscard]] RequestsFile* requests() { return requests_.get(); }
  [[nodiscard]] Recordings& recordings() { return *recordings_; }
  /// The result is shown with distributions and time series.
  [[nodiscard]] bool charted() const { return charts_ != nullptr || page_->wanted(); }
  void commit(const Result& result, const std::vector<LatencyCurve>& curves) {
    std::string charts;
    if (charted()) {
      const auto replications = result.config.settings.get<std::int64_t>("replications");
      charts = to_charts_json(curves, *recordings_->series(), recordings_->names(), replications, to_json(result));
    }
    if (result_) {
      charts_->write(charts);
      result_->write(to_json(result));
      config_->write(to_resolved_config(result));
    }
    if (requests_) requests_->commit();
    recordings_->commit();
    if (page_->wanted()) page_->write({.name = "run", .json = to_json(result), .charts = charts});
    if (result_) {
      charts_->commit();
      config_->commit();
      result_->commit();
    }
    created_ = false;
  }

 private:
  [[nodiscard]] std::string in_directory(const char* name) const {
    return (std::filesystem::path(directory_) / name).string();
  }
  void discard() {
    recordings_.reset();
    requests_.reset();
    page_.reset();
    charts_.reset();
    result_.reset();
    config_.reset();
    std::error_code ignored;  // remove fails, as it should, if the folder is no longer empty
    if (created_) std::filesystem::remove(directory_, ignored);
    created_ = false;
  }

  std::string directory_;
  bool created_ = false;
  std::unique_ptr<AtomicFile> result_;
  std::unique_ptr<AtomicFile> config_;
  std::unique_ptr<AtomicFile> charts_;
  std::unique_ptr<PageFile> page_;
  std::unique_ptr<RequestsFile> requests_;
  std::unique_ptr<Recordings> recordings_;
};

/// Prints failed gates on stderr. A metric without a value fails its gate: a missing value is not a pass.
bool gates_hold(const std::vector<Condition>& gates, const RunStatistics& statistics) {
  bool hold = true;
  for (const Condition& gate : gates) {
    const Verdict verdict = judge(gate, statistics);
    if (verdict.value && !verdict.met) continue;
    hold = false;
    fmt::print(stderr, "gate: --fail-if {}: {}\n", gate.text,
               verdict.value ? fmt::format("{} is {}", gate.metric, *verdict.value)
                             : fmt::format("{} has no value in this run", gate.metric));
  }
  return hold;
}

/// Prints notes that formats with figures only leave out.
void print_left_out(const traces::Workload& workload, const Result& result, const std::string& format) {
  if (workload.skipped_rows > 0) {
    fmt::print(stderr, "warning: {} invalid rows of {} were skipped\n", workload.skipped_rows,
               printable(workload.name));
  }
  if (result.perturbation) {
    fmt::print(stderr, "note: {} contains only the base run; use --format table or json for the perturbed runs\n",
               format);
  }
}

/// Simulations and checks that are requested besides the configuration.
struct Extras {
  std::vector<Condition> gates;
  RunPlan plan;
  std::vector<double> curve_percentiles;  // for the charts; the result does not list them
};

std::vector<ReplicationResults> simulate_all(Assembly& assembly, const RunOptions& options, const Extras& extras,
                                             OutputFiles& files) {
  ProgressLine progress(options.progress == "auto", assembly.setup.requests,
                        planned_simulations(assembly, extras.plan));
  ReplicationHooks hooks;
  if (RequestsFile* requests = files.requests()) {
    hooks.on_request = [requests](std::int64_t r, const RequestRecord& record) { requests->write(r, record); };
    hooks.on_done = [requests](std::int64_t r) { requests->finish(r); };
  }
  if (Recordings& recordings = files.recordings(); recordings.any()) {
    hooks.observer = [&recordings](std::size_t replica) { return recordings.observer(replica); };
  }
  hooks.on_progress = [&progress](std::int64_t run, const Progress& p) { progress.update(run, p); };
  hooks.stop = &stop_on_interrupt();
  std::vector<double> percentiles = percentiles_of(extras.gates);
  percentiles.insert(percentiles.end(), extras.curve_percentiles.begin(), extras.curve_percentiles.end());
  auto results = simulate_plan(assembly, extras.plan, options.jobs, percentiles, hooks);
  progress.finish();
  files.recordings().finish();
  return results;
}

ExitCode run_assembled(Assembly& assembly, const RunOptions& options, const Extras& extras, OutputFiles& files) {
  std::vector<ReplicationResults> runs = simulate_all(assembly, options, extras, files);
  const std::vector<LatencyCurve> curves = latency_curves(runs.front().statistics.metrics);
  for (ReplicationResults& one : runs) {
    remove_percentiles(extras.curve_percentiles, one.statistics.metrics);
    for (RunStatistics& kind : one.kinds) remove_percentiles(extras.curve_percentiles, kind.metrics);
  }
  const Result result = planned_result(assembly, extras.plan, std::move(runs));
  files.commit(result, curves);
  if (options.format == "csv" || options.format == "vllm") print_left_out(assembly.workload, result, options.format);
  print_result(render(result, options.format));
  if (!result.complete) {
    fmt::print(stderr, "interrupted: the result is marked incomplete\n");
    return ExitCode::interrupted;
  }
  return gates_hold(extras.gates, result.statistics) ? ExitCode::ok : ExitCode::gate;
}

}  // namespace

ExitCode run(const RunOptions& options) {
  std::vector<Problem> problems = options.problems;
  Extras extras;
  for (const std::string& gate : options.gates) {
    for (Condition& condition : parse_conditions(gate, "--fail-if " + gate, false, problems)) {
      extras.gates.push_back(std::move(condition));
    }
  }
  if (options.perturb) extras.plan.perturbation = parse_perturbation(*options.perturb, problems);
  const TimelineLimits limits = timeline_limits(options.recordings, problems);
  Assembly assembly = assemble(resolve_arguments(options.arguments, options.slos, std::move(problems)));
  const bool shown = options.format == "table" || options.format == "json" || !options.directory.empty();
  if (shown && !options.fixed_locality) plan_localities(assembly, extras.plan);
  if (options.dry_run) {
    Result result = setup_result(assembly);
    result.locality = extras.plan.locality;
    if (extras.plan.perturbation) result.perturbation = Robustness{*extras.plan.perturbation, {}};
    print_result(options.format == "json" ? to_setup_json(result) : to_setup_table(result));
    return ExitCode::ok;
  }
  OutputFiles files(options, limits, assembly);
  if (files.charted()) {
    std::vector<double> known = percentiles_of(extras.gates);
    const std::vector<double> of_slos = percentiles_of(assembly.run_slos);
    known.insert(known.end(), of_slos.begin(), of_slos.end());
    extras.curve_percentiles = curve_percentiles(known);
  }
  try {
    return run_assembled(assembly, options, extras, files);
  } catch (const UserError& error) {
    print_problems(error.problems(), work_done("nothing was run"));
    return error.code();
  }
}

}  // namespace spillway::cli
