#include "sim/cli/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "sim/cli/assemble.hpp"
#include "sim/cli/output.hpp"
#include "sim/cli/perturb.hpp"
#include "sim/cli/progress.hpp"
#include "sim/cli/replications.hpp"
#include "sim/printable.hpp"
#include "sim/report/atomic_file.hpp"
#include "sim/report/report.hpp"
#include "sim/report/requests.hpp"

namespace spillway::cli {
namespace {

std::atomic<bool> g_stop{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

/// The first Ctrl-C ends the run cleanly; the second one kills. So does SIGTERM, which a batch system sends first.
void stop_on_interrupt() {
  struct sigaction action {};
  action.sa_handler = [](int) { g_stop.store(true); };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

std::string render(const Result& result, const std::string& format) {
  if (format == "json") return to_json(result);
  if (format == "csv") return to_csv(result);
  if (format == "vllm") return to_vllm(result);
  return to_table(result);
}

/// The files of a run. Each is opened before the run, so that an unwritable place is known before it, and gets its name
/// after it. Without `commit` nothing is left behind, a new folder included.
class OutputFiles {
 public:
  explicit OutputFiles(const RunOptions& options) : directory_(options.directory) {
    if (!directory_.empty()) {
      std::error_code error;
      created_ = std::filesystem::create_directories(directory_, error);
      if (error) {
        throw ConfigError(fmt::format("cannot create the folder {}: {}", directory_, error.message()), directory_,
                          "choose a place that may be written to");
      }
    }
    try {
      if (!directory_.empty()) {
        result_ = std::make_unique<AtomicFile>(in_directory("result.json"));
        config_ = std::make_unique<AtomicFile>(in_directory("config.resolved.json"));
      }
      if (!options.requests_file.empty()) requests_ = std::make_unique<RequestsFile>(options.requests_file);
    } catch (...) {
      discard();
      throw;
    }
  }
  ~OutputFiles() { discard(); }
  OutputFiles(const OutputFiles&) = delete;
  OutputFiles& operator=(const OutputFiles&) = delete;

  [[nodiscard]] RequestsFile* requests() { return requests_.get(); }
  void commit(const Result& result) {
    if (result_) {
      result_->write(to_json(result));
      config_->write(to_resolved_config(result));
    }
    if (requests_) requests_->commit();
    if (result_) {
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
    requests_.reset();
    result_.reset();
    config_.reset();
    std::error_code ignored;  // a folder that others use by now is not empty and stays
    if (created_) std::filesystem::remove(directory_, ignored);
    created_ = false;
  }

  std::string directory_;
  bool created_ = false;
  std::unique_ptr<AtomicFile> result_;
  std::unique_ptr<AtomicFile> config_;
  std::unique_ptr<RequestsFile> requests_;
};

/// "request 13 (row 13 of x.csv) asks for 9000 + 100 tokens; ...": what was rejected and against which limit.
std::string rejection(const Assembly& assembly, const RequestRecord& first) {
  const Setup& setup = assembly.setup;
  return fmt::format(
      "request {} of {} is the first: {} prompt + {} output tokens; the longest request that can run is {} tokens, the "
      "KV "
      "cache holds {} tokens",
      first.index + 1, assembly.workload.name, first.input.count(), first.output.count(), setup.max_model_len.count(),
      setup.kv_capacity().count());
}

/// Does the policy take prompts in pieces, if asked to?
bool can_chunk(const Assembly& assembly) {
  if (!assembly.config.policy->check) return true;
  Settings settings = assembly.config.settings;
  settings.set("engine.chunked_prefill", true);
  return assembly.config.policy->check(settings).empty();
}

std::string rejection_fix(const Assembly& assembly, const RequestRecord& first) {
  const std::string more_memory =
      "give the KV cache more memory: raise memory.gpu_kv, engine.gpu_memory_utilization or tensor_parallel, or choose "
      "hardware with more memory";
  const Setup& setup = assembly.setup;
  const Settings& settings = assembly.config.settings;
  if (first.input + first.output <= std::min(setup.max_model_len, setup.kv_capacity())) {
    const bool chunked = settings.get<bool>("engine.chunked_prefill");
    if (!chunked && first.input.count() > settings.get<std::int64_t>("engine.max_num_batched_tokens")) {
      return fmt::format("policy {} never admits such a prompt: raise engine.max_num_batched_tokens{}", setup.policy,
                         can_chunk(assembly) ? ", or set engine.chunked_prefill=true" : "");
    }
    return fmt::format("policy {} never admits a request of this size: {}{}", setup.policy,
                       settings.has("policy.watermark") ? "lower policy.watermark, or " : "", more_memory);
  }
  if (setup.max_model_len == setup.model_positions) return "use a model with a longer context";
  return setup.max_model_len < setup.kv_capacity() ? "raise engine.max_model_len" : more_memory;
}

void refuse_empty_run(const Assembly& assembly, const ReplicationResults& results) {
  const OutcomeCounts& all = results.statistics.all;
  if (all.submitted == 0 && results.complete) {
    throw ConfigError("no request arrives before the run ends", assembly.config.place("until"), "raise until");
  }
  if (all.submitted == 0 || all.rejected < all.submitted || !results.first_rejected) return;
  throw DataError(fmt::format("all {} requests were rejected for their size: {}", all.rejected,
                              rejection(assembly, *results.first_rejected)),
                  assembly.config.place("workload.trace"), rejection_fix(assembly, *results.first_rejected));
}

void add_warnings(const Assembly& assembly, const ReplicationResults& results, std::vector<std::string>& warnings) {
  const OutcomeCounts& all = results.statistics.all;
  if (all.rejected > 0 && results.first_rejected) {
    warnings.push_back(fmt::format("{} of {} requests were rejected for their size: {}; {}", all.rejected,
                                   all.submitted, rejection(assembly, *results.first_rejected),
                                   rejection_fix(assembly, *results.first_rejected)));
  }
  if (all.timed_out > 0) {
    warnings.push_back(
        fmt::format("{} of {} requests timed out and are not in the latencies", all.timed_out, all.submitted));
  }
  if (results.unsent > 0) {
    warnings.push_back(
        fmt::format("{} later turns were never sent, because an earlier turn of their conversation was not answered",
                    results.unsent));
  }
  if (results.shortened > 0) {
    warnings.push_back(fmt::format(
        "{} of {} turns were cut, the oldest part of the context first, so that prompt and answer fit {} ({} tokens)",
        results.shortened, all.submitted + results.unsent,
        assembly.config.settings.has("workload.max_context") ? "workload.max_context"
                                                             : "the longest request that can run",
        assembly.config.settings.has("workload.max_context")
            ? assembly.config.settings.get<std::int64_t>("workload.max_context")
            : assembly.setup.max_model_len.count()));
  }
  if (all.unfinished > 0) {
    warnings.push_back(fmt::format("{} of {} requests were unfinished at the end and are not in the latencies",
                                   all.unfinished, all.submitted));
  }
  const auto growth = results.growth.growth();
  if (growth && assembly.workload.arrival != "all-at-once") {
    warnings.push_back(fmt::format(
        "saturated: the queue kept growing (requests of the second quarter waited {:.3g} s, of the last {:.3g} s), so "
        "latencies depend on the length of the run; lower workload.rate",
        growth->early_seconds, growth->late_seconds));
  }
  if (results.statistics.measured.finished == 0) {
    warnings.emplace_back(
        "no measured request finished: there are no latencies; see warmup, until and "
        "engine.request_timeout");
  }
}

Result make_result(Assembly& assembly) {
  Result result;
  result.tool_version = tool_version();
  result.setup = assembly.setup;
  result.inputs = assembly.inputs;
  result.warnings = assembly.warnings;
  result.request_slos = assembly.request_slos;
  return result;
}

/// Says on stderr which gates fail. A metric without value fails: nobody should take it for a pass.
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

/// What the formats that hold figures alone do not say.
void print_left_out(const traces::Workload& workload, const Result& result, const std::string& format) {
  if (workload.skipped_rows > 0) {
    fmt::print(stderr, "warning: {} rows of {} were skipped because they are no requests\n", workload.skipped_rows,
               printable(workload.name));
  }
  if (result.perturbation) {
    fmt::print(stderr, "note: {} holds the base run alone; the perturbed ones are in the table and in JSON\n", format);
  }
}

/// What to run and to check beside the configuration.
struct Extras {
  std::vector<Condition> gates;
  std::optional<double> perturbation;
};

std::vector<ReplicationResults> simulate_all(Assembly& assembly, const RunOptions& options, const Extras& extras,
                                             OutputFiles& files) {
  const auto replications = assembly.config.settings.get<std::int64_t>("replications");
  const std::vector<OpScales> variants = perturbed_scales(extras.perturbation);
  ProgressLine progress(options.progress == "auto", assembly.setup.requests,
                        replications * static_cast<std::int64_t>(variants.size()));
  ReplicationHooks hooks;
  if (RequestsFile* requests = files.requests()) {
    hooks.on_request = [requests](std::int64_t r, const RequestRecord& record) { requests->write(r, record); };
    hooks.on_done = [requests](std::int64_t r) { requests->finish(r); };
  }
  hooks.on_progress = [&progress](std::int64_t run, const Progress& p) { progress.update(run, p); };
  hooks.stop = &g_stop;
  stop_on_interrupt();
  auto results = run_variants(assembly, variants, replications, options.jobs, percentiles_of(extras.gates), hooks);
  progress.finish();
  return results;
}

ExitCode run_assembled(Assembly& assembly, const RunOptions& options, const Extras& extras, OutputFiles& files) {
  std::vector<ReplicationResults> runs = simulate_all(assembly, options, extras, files);
  Result result = make_result(assembly);
  result.complete = std::all_of(runs.begin(), runs.end(), [](const ReplicationResults& one) { return one.complete; });
  if (extras.perturbation && result.complete) result.perturbation = robustness_of(*extras.perturbation, runs);
  ReplicationResults& base = runs.front();
  refuse_empty_run(assembly, base);
  add_warnings(assembly, base, result.warnings);
  result.unsent = base.unsent;
  result.outside_range = base.outside_range();
  result.statistics = std::move(base.statistics);
  for (const Condition& condition : assembly.run_slos) result.run_slos.push_back(judge(condition, result.statistics));
  result.config = std::move(assembly.config);
  files.commit(result);
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
  if (options.perturb) extras.perturbation = parse_perturbation(*options.perturb, problems);
  Assembly assembly = assemble(resolve_arguments(options.arguments, options.slos, std::move(problems)));
  if (options.dry_run) {
    Result result = make_result(assembly);
    result.config = std::move(assembly.config);
    if (extras.perturbation) result.perturbation = Robustness{*extras.perturbation, {}};
    print_result(options.format == "json" ? to_setup_json(result) : to_setup_table(result));
    return ExitCode::ok;
  }
  OutputFiles files(options);
  try {
    return run_assembled(assembly, options, extras, files);
  } catch (const UserError& error) {
    print_problems(error.problems(), "nothing was written");
    return error.code();
  }
}

}  // namespace spillway::cli
