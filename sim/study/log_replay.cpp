#include "sim/study/log_replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "hwmodels/external_names.hpp"
#include "hwmodels/kv_capacity.hpp"
#include "hwmodels/models/logged_models.hpp"
#include "sim/io/file_reader.hpp"
#include "sim/io/output.hpp"
#include "sim/study/assemble.hpp"
#include "sim/study/parameter_table.hpp"
#include "sim/study/replicated_run.hpp"
#include "traces/engine_log.hpp"

namespace spillway {
namespace {

constexpr double kMs = 1e3;
constexpr double kNs = 1e-9;

/// Keys that the log answers, or that would change the workload.
bool is_taken_by_the_log(const std::string& key) {
  if (key == "workload.trace" || key == "workload.format" || key == "workload.columns") return false;
  return key.starts_with("workload.") || key == "replications" || key == "warmup" || key == "until" ||
         key == "engine.request_timeout";
}

bool names(const std::vector<Assignment>& assignments, const std::string& key) {
  return std::any_of(assignments.begin(), assignments.end(), [&](const Assignment& one) { return one.key == key; });
}

std::string meta_of(const traces::EngineLog& log, const char* pointer) {
  if (log.folder == log.requests_file) return log.folder;
  return fmt::format("{} ({})", (std::filesystem::path(log.folder) / "meta.json").string(), pointer);
}

/// The settings that the log states. The user's settings take precedence.
std::vector<Assignment> settings_of(const traces::EngineLog& log, const std::vector<Assignment>& given,
                                    std::vector<Problem>& problems) {
  std::vector<Assignment> settings;
  // Another policy or engine than the logged one has its own keys and defaults.
  const bool own_policy = names(given, "policy");
  for (const traces::LoggedSetting& one : log.settings) {
    if (!own_policy || (one.key != "policy" && one.key != "engine" && !one.key.starts_with("policy."))) {
      settings.push_back({one.key, one.text, Origin::file, one.where});
    }
  }
  const auto name = [&](const char* key, const char* pointer, const std::string& logged, const auto& known,
                        const char* fix) {
    if (names(given, key)) return;
    if (const auto ours = known(logged)) {
      settings.push_back({key, *ours, Origin::file, meta_of(log, pointer)});
    } else {
      problems.push_back({logged.empty() ? fmt::format("the log does not name its {}", key)
                                         : fmt::format("no bundled {} matches \"{}\"", key, logged),
                          meta_of(log, pointer), fix});
    }
  };
  name("hardware", "/hardware/device_name", log.device, hwmodels::gpu_of_device,
       "give hardware=NAME or hardware=FILE, for example a profile that calibrate fit has written");
  name("model", "/model", log.model, hwmodels::llm_of_repository,
       "give model=FILE, for example the model's own config.json");
  return settings;
}

/// A profile may have layers or iterations without naming their model. In a validation they belong to the logged model.
std::optional<Assignment> unnamed_tables(const std::vector<Assignment>& settings) {
  if (names(settings, "latency_model")) return std::nullopt;
  const auto hardware = std::find_if(settings.begin(), settings.end(),
                                     [](const Assignment& one) { return one.key == "hardware" && one.text; });
  if (hardware == settings.end()) return std::nullopt;
  try {
    const hwmodels::FittedKernels& fitted = hwmodels::load_hardware(*hardware->text).gpu.fitted;
    const bool layers =
        fitted.layers && fitted.layers->model.model.empty() && hwmodels::missing_from(fitted.layers->model).empty();
    const bool iterations = !fitted.complete() && fitted.iteration && fitted.iteration->model.model.empty();
    if (!layers && !iterations) return std::nullopt;
    return Assignment{"latency_model", layers ? "tables" : "iterations", Origin::file, hardware->where};
  } catch (const UserError&) {
    return std::nullopt;  // assemble reports the error
  }
}

/// Sets memory.gpu_kv to the logged number of blocks. The resolved model and formats determine the size of a block.
void set_kv_blocks(const traces::EngineLog& log, const std::vector<Assignment>& given, ResolvedConfig& config,
                   const std::function<ResolvedConfig(const std::vector<Assignment>&)>& resolve) {
  if (!log.gpu_blocks || names(given, "memory.gpu_kv")) return;
  const Settings& settings = config.settings;
  const hwmodels::LlmModel llm = hwmodels::load_llm(settings.get<std::string>("model"));
  const Bytes block =
      llm.kv_bytes_per_token_per_gpu(settings.get<std::int64_t>("tensor_parallel"),
                                     hwmodels::kv_dtype_bytes(settings.get<std::string>("memory.kv_dtype"), llm)) *
      settings.get<std::int64_t>("memory.block_tokens");
  config = resolve({{"memory.gpu_kv", fmt::format("{}B", block.count() * log.gpu_blocks->count()), Origin::file,
                     meta_of(log, "/kv_cache/num_gpu_blocks")}});
}

/// workload.columns among the arguments, whose problems are reported when they are resolved.
std::string columns_in(const std::vector<std::string>& arguments) {
  std::vector<Problem> ignored;
  for (const Assignment& one : parse_arguments(arguments, ignored)) {
    if (one.key == "workload.columns" && one.text) return *one.text;
  }
  return {};
}

ResolvedConfig resolve_log(const traces::EngineLog& log, const std::vector<std::string>& arguments) {
  std::vector<Problem> problems;
  const std::vector<Assignment> given = parse_arguments(arguments, problems);
  for (const Assignment& one : given) {
    if (!is_taken_by_the_log(one.key)) continue;
    problems.push_back({fmt::format("{} cannot be set: the log's requests are replayed unchanged", one.key), one.where,
                        "leave it out; workload.trace=FILE gives the token ids of the prompts"});
  }
  std::vector<Assignment> base = settings_of(log, given, problems);
  const bool hits = log.prefix_caching && names(given, "workload.trace");
  base.push_back({"engine.prefix_caching", hits ? "true" : "false", Origin::file,
                  meta_of(log, "/kv_cache/enable_prefix_caching")});
  std::vector<Assignment> known = base;
  known.insert(known.end(), given.begin(), given.end());
  if (auto tables = unnamed_tables(known)) base.push_back(std::move(*tables));
  const std::vector<Parameter> table = parameter_table();
  const auto resolve = [&](const std::vector<Assignment>& more) {
    std::vector<Assignment> all = base;
    all.insert(all.end(), more.begin(), more.end());
    all.insert(all.end(), given.begin(), given.end());
    return resolve_config(table, all, problems);
  };
  ResolvedConfig config = resolve({});
  set_kv_blocks(log, given, config, resolve);
  return config;
}

/// The log as the traffic of the run.
traces::Workload workload_of(const traces::EngineLog& log, const Settings& settings,
                             const std::optional<std::string>& token_ids) {
  traces::Workload workload;
  std::vector<std::vector<std::uint64_t>> ids;
  if (token_ids) {
    ids = traces::prefix_ids_from(log, *token_ids, settings.get<std::string>("workload.format"),
                                  Tokens(settings.get<std::int64_t>("memory.block_tokens")));
    workload.files.push_back({*token_ids, file_sha256(*token_ids)});
  }
  workload.name = log.requests_file;
  workload.format = "engine-log";
  workload.source_text = fmt::format("requests of {}", log.engine);
  workload.sha256 = log.sha256;
  workload.arrival = "trace";
  workload.requests = static_cast<std::int64_t>(log.requests.size());
  if (const double span = log.requests.back().queued; span > 0.0) {
    workload.rate = static_cast<double>(workload.requests - 1) / span;
  }
  workload.prefix_ids = !ids.empty();
  workload.stream = traces::replay(log, std::move(ids));
  return workload;
}

double seconds(SimTime time) { return static_cast<double>(time.ns()) * kNs; }

RequestLatencies latencies_of(double queued, double first, double last, Tokens output) {
  RequestLatencies latencies{.ttft_ms = (first - queued) * kMs, .e2e_ms = (last - queued) * kMs};
  if (output > Tokens(1)) latencies.tpot_ms = (last - first) * kMs / static_cast<double>(output.count() - 1);
  return latencies;
}

/// The results of a simulation of the log.
struct Replay {
  std::vector<std::optional<RequestRecord>> records;  // finished requests, by position in the log
  std::vector<LoadPoint> load;                        // one point per second
  ReplicationResults results;
};

Replay run_log(Assembly& assembly, std::size_t requests) {
  Replay replay{.records = std::vector<std::optional<RequestRecord>>(requests),
                .load = {},
                .results = {.statistics = {}, .first_rejected = {}, .growth = QueueGrowth(0)}};
  ReplicationHooks hooks;
  hooks.on_request = [&](std::int64_t, const RequestRecord& record) {
    if (record.outcome == Outcome::finished) replay.records[record.index] = record;
  };
  hooks.observe_every = Duration(1'000'000'000);
  hooks.on_observation = [&](std::int64_t, const Observation& seen) {
    replay.load.push_back({seconds(seen.now), static_cast<double>(seen.running), static_cast<double>(seen.waiting),
                           static_cast<double>(seen.gpu_blocks_used.count()) /
                               static_cast<double>(assembly.instance.kv.gpu_blocks.count())});
  };
  replay.results = run_replications(assembly, 1, 1, {}, hooks);
  return replay;
}

void pair_requests(const traces::EngineLog& log, const Replay& replay, Validation& validation) {
  for (std::size_t i = 0; i < log.requests.size(); ++i) {
    const traces::LoggedRequest& logged = log.requests[i];
    if (!replay.records[i]) continue;
    const RequestRecord& record = *replay.records[i];
    validation.requests.push_back(
        {logged.id, latencies_of(logged.queued, logged.first_token, logged.last_token, logged.output),
         latencies_of(seconds(record.arrival), seconds(record.first_token), seconds(record.end), record.output)});
  }
}

/// The load of both sides: the engine's samples against the simulator's, or both from the time stamps of the requests.
void set_load(const traces::EngineLog& log, const Replay& replay, Validation& validation) {
  if (!log.load.empty()) {
    validation.log.load_of = "timeseries.csv";
    for (const traces::LoggedLoad& load : log.load) {
      validation.measured_load.push_back({load.seconds, load.running, load.waiting, load.kv_fraction});
    }
    validation.simulated_load = replay.load;
    return;
  }
  validation.log.load_of = "stamps";
  std::vector<RequestSpan> measured;
  std::vector<RequestSpan> simulated;
  for (std::size_t i = 0; i < log.requests.size(); ++i) {
    const traces::LoggedRequest& logged = log.requests[i];
    measured.push_back({logged.queued, logged.scheduled, logged.last_token});
    if (!replay.records[i]) continue;
    const RequestRecord& record = *replay.records[i];
    const SimTime started = log.waits_known ? record.first_scheduled : record.arrival;
    simulated.push_back({seconds(record.arrival), seconds(started), seconds(record.end)});
  }
  validation.measured_load = load_from_spans(measured);
  validation.simulated_load = load_from_spans(simulated);
}

/// Warns of differences between the two sides' systems.
void add_warnings(const traces::EngineLog& log, bool token_ids, Validation& validation) {
  std::vector<std::string>& warnings = validation.run.warnings;
  warnings.insert(warnings.end(), log.warnings.begin(), log.warnings.end());
  const ResolvedKey& model = validation.run.config.key("latency_model");
  if (model.origin == Origin::file && !model.where.empty()) {
    warnings.push_back(fmt::format(
        "{} does not name the model of its {}: {} is assumed (calibrate fit --model sets the name)",
        validation.run.setup.gpu, model.text == "tables" ? "layers" : "iterations", validation.run.setup.model));
  }
  if (log.prefix_caching && !token_ids) {
    warnings.emplace_back(
        "the engine ran with prefix caching, but no token ids are given, so every prompt is computed in full here: set "
        "workload.trace=FILE to a trace with the prompts' token ids");
  }
  if (!log.prefix_caching && token_ids) {
    warnings.emplace_back("the engine ran without prefix caching, so the token ids are not used");
  }
  const std::size_t missing = log.requests.size() - validation.requests.size();
  if (missing > 0) {
    warnings.push_back(fmt::format("{} of {} requests did not finish in the simulation and are left out of both sides",
                                   missing, log.requests.size()));
  }
}

}  // namespace

Validation validate_log(const LogReplay& options) {
  const traces::EngineLog log =
      traces::read_engine_log(options.folder, {options.drop_unfinished, columns_in(options.arguments)});
  ResolvedConfig config = resolve_log(log, options.arguments);
  std::optional<std::string> token_ids;
  if (config.key("workload.trace").origin != Origin::standard) {
    token_ids = config.settings.get<std::string>("workload.trace");
  }
  Assembly assembly = assemble(std::move(config), [&](const Assembly& assembled) {
    return workload_of(log, assembled.config.settings, token_ids);
  });
  if (!log.client_stamps) assembly.instance.front_end = Duration{};

  Validation validation;
  validation.log = {log.folder, log.engine, log.model, log.device, log.client_stamps ? "client" : "engine", {}};
  Replay replay = run_log(assembly, log.requests.size());
  pair_requests(log, replay, validation);
  set_load(log, replay, validation);
  compare(validation);
  validation.run.tool_version = tool_version();
  validation.run.setup = assembly.setup;
  validation.run.inputs = assembly.inputs;
  validation.run.warnings = assembly.warnings;
  validation.run.statistics = std::move(replay.results.statistics);
  validation.run.outside_range = replay.results.outside_range();
  validation.run.config = std::move(assembly.config);
  add_warnings(log, token_ids.has_value(), validation);
  return validation;
}

}  // namespace spillway
