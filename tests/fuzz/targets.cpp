#include "tests/fuzz/targets.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "hwmodels/calibration/calibration.hpp"
#include "hwmodels/calibration/consistency.hpp"
#include "hwmodels/calibration/profile_check.hpp"
#include "hwmodels/calibration/profile_writer.hpp"
#include "hwmodels/catalog.hpp"
#include "hwmodels/models/execution_models.hpp"
#include "sim/cli/arguments.hpp"
#include "sim/core/error.hpp"
#include "sim/study/assemble.hpp"
#include "sim/study/parameter_table.hpp"
#include "tests/fuzz/sealed_mutation.hpp"
#include "tests/support/paths.hpp"
#include "traces/engine_log.hpp"
#include "traces/length.hpp"
#include "traces/readers/reader.hpp"

namespace spillway::fuzz {
namespace {

using traces::TraceRow;

void require(bool condition, const std::string& what) {
  if (!condition) throw Failure(what);
}

/// The whole text that a user sees of a refusal.
std::string text_of(const UserError& error) {
  require(error.code() == ExitCode::usage || error.code() == ExitCode::data,
          fmt::format("a UserError of exit code {}", static_cast<int>(error.code())));
  require(!error.problems().empty(), "a UserError without problems");
  std::string text = fmt::format("exit {}", static_cast<int>(error.code()));
  for (const Problem& problem : error.problems()) {
    require(!problem.what.empty() && !problem.where.empty(), "a problem without text or place");
    text += fmt::format("\n{} | {} | {}", problem.what, problem.where, problem.fix);
  }
  return text;
}

/// Result of one reading of a file.
struct Reading {
  std::string format;
  std::vector<TraceRow> rows;
  std::int64_t skipped = 0;
  std::string error;  // empty: the file was read to its end

  bool operator==(const Reading&) const = default;
};

/// `stored_facts`: the file states times, classes and counts of its source, which a mutation may change.
void check_row(const TraceRow& row, const traces::TraceReader& reader, bool stored_facts) {
  const auto is_length = [](Tokens tokens) { return tokens >= Tokens(1) && tokens <= Tokens(traces::kMaxTokens); };
  require(is_length(row.input), fmt::format("input of {} tokens", row.input.count()));
  require(is_length(row.output), fmt::format("output of {} tokens", row.output.count()));
  require(is_length(row.max_new_tokens) && row.max_new_tokens >= row.output,
          fmt::format("max_new_tokens {} for an output of {}", row.max_new_tokens.count(), row.output.count()));
  require(reader.has_inputs() || row.input == Tokens(1), "a length in a trace without inputs");
  require(stored_facts || reader.has_times() || row.arrival == kNever, "a time in a trace without times");
  require(row.turn >= 0, fmt::format("turn {}", row.turn));
  require(!row.think || *row.think >= Duration(0), "a think time below 0");
  require(row.prefix_id_tokens >= 0, fmt::format("prefix_id_tokens {}", row.prefix_id_tokens));
  const std::size_t classes = reader.class_names().size();
  require(stored_facts || classes == 0 || row.service_class <= classes,
          fmt::format("service class {} has no name", row.service_class));
}

Reading read(const std::string& path, const std::string& format, bool skip_bad_rows) {
  Reading reading;
  try {
    traces::ReaderOptions options;
    options.skip_bad_rows = skip_bad_rows;
    const traces::OpenedTrace trace = traces::open_trace(path, format, options);
    traces::TraceReader& reader = *trace.reader;
    reading.format = trace.format;
    TraceRow row;
    std::optional<SimTime> latest;
    // Logs and results of benchmarks are sorted by arrival, so their line numbers may go back.
    const bool sorted = trace.format == "engine-log" || trace.format.starts_with("requests-") ||
                        trace.format == "vllm-bench-json" || trace.format == "guidellm-json" ||
                        trace.format == "aiperf-jsonl";
    const bool stored_facts = trace.format == "native-binary";
    std::int64_t line = 0;
    while (reader.next(row)) {
      check_row(row, reader, stored_facts);
      if (row.arrival != kNever) {
        require(!latest || row.arrival >= *latest - traces::kReorderWindow, "a time before the window");
        latest = std::max(latest.value_or(row.arrival), row.arrival);
      }
      require(reader.row() >= (sorted ? 1 : std::max<std::int64_t>(line, 1)), "row numbers that go back");
      line = reader.row();
      reading.rows.push_back(row);
    }
    for (int again = 0; again < 3; ++again) require(!reader.next(row), "a row after the end");
    reading.skipped = reader.skipped();
    // native-binary reports the rows that were skipped in its source.
    require(skip_bad_rows || reading.skipped == 0 || stored_facts, "rows skipped although they are not to be");
    require(stored_facts || (reading.skipped > 0) == !reader.first_skipped().empty(),
            "skipped rows and the first complaint disagree");
    require(stored_facts || reader.zero_outputs() <= static_cast<std::int64_t>(reading.rows.size()),
            fmt::format("{} zero outputs", reader.zero_outputs()));
    (void)reader.warnings();
    (void)reader.files();
  } catch (const UserError& error) {
    reading.error = text_of(error);
  }
  return reading;
}

Outcome check_trace(const std::string& path, const std::string& format) {
  const Reading strict = read(path, format, false);
  require(read(path, format, false) == strict, "two readings differ");
  const Reading lenient = read(path, format, true);
  require(read(path, format, true) == lenient, "two readings that skip bad rows differ");
  if (strict.error.empty()) require(lenient == strict, "skipping bad rows changes a trace that has none");
  if (!strict.error.empty() && lenient.error.empty()) {
    require(lenient.skipped > 0, "nothing was skipped of a trace that is refused: " + strict.error);
  }
  if (format == "auto" && !strict.format.empty()) {
    require(read(path, strict.format, false) == strict, "the format that was found reads otherwise when it is set");
  }
  return strict.error.empty() ? Outcome::accepted : Outcome::refused;
}

/// Does the same as `spillway config check FILE`, without printing.
Outcome check_config(const std::string& path) {
  try {
    ResolvedConfig config = cli::resolve_arguments({path}, {}, {});
    const std::string canonical = canonical_config(config).dump();
    std::vector<Problem> problems;
    const std::vector<Assignment> assignments = parse_config(canonical, "canonical", problems);
    const ResolvedConfig again = resolve_config(parameter_table(), assignments, std::move(problems));
    require(canonical_config(again).dump() == canonical, "the canonical form does not resolve to itself");
    (void)assemble(std::move(config));
    return Outcome::accepted;
  } catch (const UserError& error) {
    (void)text_of(error);
    return Outcome::refused;
  }
}

/// Checks a loader of hwmodels.
template <class Load>
std::function<Outcome(const std::string&)> check_with(Load load) {
  return [load](const std::string& path) {
    try {
      (void)load(path);
      return Outcome::accepted;
    } catch (const UserError& error) {
      (void)text_of(error);
      return Outcome::refused;
    }
  };
}

/// Every latency model of an accepted profile returns valid times or is refused.
hwmodels::Hardware check_hardware(const std::string& path) {
  static const hwmodels::LlmModel kLlm = hwmodels::load_llm("llama-3.1-8b");
  static const hwmodels::EngineProfile kEngine = hwmodels::load_engine("vllm-0.19");
  const std::array<PrefillChunk, 2> chunks{{{Tokens(500), Tokens(0)}, {Tokens(1500), Tokens(100'000)}}};
  const std::array<BatchShape, 3> shapes{{{.decode_sequences = 7,
                                           .decode_context = Tokens(200'000),
                                           .decode_longest = Tokens(131'072),
                                           .chunks = chunks,
                                           .sampled_sequences = 8},
                                          {.decode_sequences = 1, .decode_context = Tokens(1), .sampled_sequences = 1},
                                          {.chunks = chunks}}};
  hwmodels::Hardware hardware = hwmodels::load_hardware(path);
  const auto is_time = [](Duration time) { return time >= Duration(0) && time <= Duration(100'000'000'000'000); };
  for (const char* name : {"auto", "fitted", "tables", "iterations", "roofline"}) {
    try {
      const auto model = hwmodels::make_execution_model(hardware.gpu, kLlm, kEngine, {name, 1, 2});
      for (const BatchShape& shape : shapes) {
        const IterationTime time = model->iteration(shape);
        require(is_time(time.before) && is_time(time.layer) && is_time(time.after), "an iteration without a time");
      }
      for (const Stream direction : {Stream::h2d, Stream::d2h}) {
        const CopyTime time = model->copy(direction, 64, Bytes(4'194'304), CopyMechanism::many);
        require(is_time(time.launch) && is_time(time.transfer), "a copy without a time");
      }
      require(!hwmodels::validity_text(hardware.gpu, hwmodels::resolved_latency_model(hardware.gpu, kLlm, {name, 1, 2}))
                   .empty(),
              "a model without a word on its error");
    } catch (const UserError& error) {
      (void)text_of(error);
    }
  }
  return hardware;
}

/// Rows that do not contradict each other are fitted or refused; the fit is checked against its own rows.
void check_fits(hwmodels::Measurements rows) {
  try {
    hwmodels::merge_repeats(rows);
    (void)hwmodels::drop_inconsistent(rows, {});
    hwmodels::GpuProfile profile;
    profile.fitted = hwmodels::calibrate(rows, {}, {});
    (void)hwmodels::profile_text({.name = "x", .stands_for = "x", .base = {}, .path = "fitted.json"}, rows,
                                 profile.fitted);
    for (const hwmodels::CheckLine& line : hwmodels::check_profile(profile, rows).lines) {
      require(line.error.n > 0 && line.error.p95 >= line.error.median && line.error.median >= 0.0,
              "errors that are none");
    }
  } catch (const UserError& error) {
    (void)text_of(error);
  }
}

/// Two readings of measurements must be equal; every problem needs a text and a location; rows are fitted or refused.
void check_measurements(const std::string& path) {
  const std::vector<hwmodels::MeasurementInput> input{{path, std::nullopt}};
  const hwmodels::Measurements rows = hwmodels::read_measurements(input);
  require(hwmodels::read_measurements(input).files.at(0).rows == rows.files.at(0).rows, "two readings differ");
  require(rows.files.at(0).rows > 0, "a file without rows is accepted");
  for (const hwmodels::GemmRow& row : rows.gemm) {
    require(std::isfinite(row.seconds) && row.seconds > 0.0, "a time that is none");
  }
  for (const Problem& problem : hwmodels::inconsistencies(rows, {})) {
    require(!problem.what.empty() && !problem.where.empty(), "a problem without text or place");
  }
  check_fits(rows);
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// A request log in one text: meta.json in the first line, requests.jsonl in the others. An accepted log has ordered
/// stamps.
void check_engine_log(const std::string& path) {
  const std::string text = content_of(path);
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::filesystem::path folder = path + ".log";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "meta.json", std::ios::binary) << text.substr(0, end);
  std::ofstream(folder / "requests.jsonl", std::ios::binary) << text.substr(std::min(end + 1, text.size()));
  const traces::EngineLog log = traces::read_engine_log(folder.string(), {.drop_unfinished = true});
  require(!log.requests.empty(), "a log without requests is accepted");
  double queued = 0.0;
  for (const traces::LoggedRequest& request : log.requests) {
    require(queued <= request.queued && request.queued <= request.scheduled &&
                request.scheduled <= request.first_token && request.first_token <= request.last_token,
            "stamps out of order");
    queued = request.queued;
  }
  const auto source = traces::replay(log, {});
  RequestSpec spec;
  for (std::size_t i = 0; i < log.requests.size(); ++i) {
    require(
        source->next_arrival() != kNever && source->next(spec) && spec.input >= Tokens(1) && spec.output >= Tokens(1),
        "a request that cannot be replayed");
  }
  require(source->next_arrival() == kNever, "more requests than the log has");
}

/// A trace as native-binary.
std::string converted(const std::string& path) {
  const traces::OpenedTrace trace = traces::open_trace(path, "auto");
  std::vector<TraceRow> rows;
  for (TraceRow row; trace.reader->next(row);) rows.push_back(row);
  return native_binary_of(path, rows, *trace.reader);
}

/// A row takes about 8 bytes, and a block ends at 64 KiB.
std::string native_binary_of_several_blocks() {
  const traces::OpenedTrace trace = traces::open_trace(source_dir() + "/traces/samples/native.csv", "auto");
  std::vector<TraceRow> rows(20'000);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto number = static_cast<std::int64_t>(i);
    rows[i].arrival = SimTime(number * 1'000'000);
    rows[i].input = Tokens(1 + number % 5000);
    rows[i].output = rows[i].max_new_tokens = Tokens(1 + number % 300);
  }
  return native_binary_of("blocks", rows, *trace.reader);
}

std::vector<std::filesystem::path> files_of(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// Replaces @samples@ by the folder of the samples, whose path the configurations do not know.
std::string with_samples(std::string text, const std::string& folder) {
  constexpr std::string_view kMark = "@samples@";
  for (std::size_t at = text.find(kMark); at != std::string::npos; at = text.find(kMark)) {
    text.replace(at, kMark.size(), folder);
  }
  return text;
}

/// Every key with its default, for every policy. On a server, as some policies need a host. This also covers keys that
/// no sample file names.
std::vector<std::string> canonical_configs() {
  std::vector<std::string> texts;
  for (const PolicyInfo* info : PolicyRegistry::instance().all()) {
    std::vector<std::string> keys{"policy=" + info->name, "hardware=a100-nvlink-2"};
    if (info->places_experts) keys = {keys.front(), "hardware=hgx-h100-8", "model=qwen3-30b-a3b"};
    texts.push_back(canonical_config(cli::resolve_arguments(keys, {}, {})).dump(1));
  }
  return texts;
}

}  // namespace

std::vector<Target> all_targets() {
  const std::string source = source_dir();
  const std::string samples = source + "/traces/samples";
  std::vector<Target> targets;
  for (const std::string& format : traces::trace_format_choices()) {
    targets.push_back({format, "readers", {}, [format](const std::string& path) { return check_trace(path, format); }});
  }
  std::vector<std::string> binary = {native_binary_of_several_blocks()};
  for (const auto& path : files_of(samples)) {
    const std::string format = traces::open_trace(path.string(), "auto").format;
    for (Target& target : targets) {
      if (target.name == format || target.name == "auto") target.samples.push_back(content_of(path));
    }
    binary.push_back(converted(path.string()));
  }
  const auto native =
      std::find_if(targets.begin(), targets.end(), [](const Target& target) { return target.name == "native-binary"; });
  native->samples = std::move(binary);
  native->mutate = sealed_mutation;
  Target config{"config", "settings", canonical_configs(), check_config};
  for (const auto& path : files_of(source + "/tests/fuzz/configs")) {
    config.samples.push_back(with_samples(content_of(path), samples));
  }
  targets.push_back(std::move(config));
  const auto add = [&](const char* name, const auto& load, std::initializer_list<const char*> folders) {
    Target& target = targets.emplace_back(Target{name, "settings", {}, check_with(load)});
    for (const char* folder : folders) {
      for (const auto& path : files_of(source + folder)) target.samples.push_back(content_of(path));
    }
  };
  add("model", hwmodels::load_llm, {"/hwmodels/llms", "/tests/fuzz/models"});
  add("hardware", check_hardware, {"/hwmodels/profiles", "/hwmodels/servers", "/tests/fuzz/profiles"});
  add("host", hwmodels::load_host, {"/hwmodels/hosts"});
  add("engine", hwmodels::load_engine, {"/hwmodels/engines"});
  add("measurements", check_measurements, {"/tests/fuzz/measurements"});
  Target& logs = targets.emplace_back(Target{"log-folder", "readers", {}, check_with(check_engine_log)});
  const std::string log = source + "/experiments/validation/sample-log/";
  logs.samples.push_back(nlohmann::json::parse(content_of(log + "meta.json")).dump() + "\n" +
                         content_of(log + "requests.jsonl"));
  return targets;
}

}  // namespace spillway::fuzz
