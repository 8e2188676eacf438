#include "traces/engine_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "sim/core/text.hpp"
#include "sim/io/file_reader.hpp"
#include "sim/io/line_reader.hpp"
#include "traces/length.hpp"
#include "traces/readers/prefix_blocks.hpp"
#include "traces/readers/reader.hpp"

namespace spillway::traces {
namespace {

using nlohmann::json;

constexpr std::size_t kMostProblems = 10;
constexpr FileWords kLogWords{"log", "request"};
constexpr double kNs = 1e-9;

std::string in_folder(const std::string& folder, const char* name) {
  return (std::filesystem::path(folder) / name).string();
}
bool is_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

/// Everything that is wrong with a log, until there is enough of it.
class Complaints {
 public:
  void add(std::string what, std::string where, std::string fix) {
    if (problems_.size() < kMostProblems) problems_.push_back({std::move(what), std::move(where), std::move(fix)});
  }
  [[nodiscard]] bool full() const { return problems_.size() >= kMostProblems; }
  void raise() {
    if (!problems_.empty()) throw DataError(std::exchange(problems_, {}));
  }
  /// Adds what `step` throws.
  template <class Step>
  void collect(const Step& step) {
    try {
      step();
    } catch (const DataError& error) {
      for (const Problem& problem : error.problems()) add(problem.what, problem.where, problem.fix);
    }
  }

 private:
  std::vector<Problem> problems_;
};

// --- meta.json ------------------------------------------------------------------------------------------------------

std::string read_all(const std::string& path) {
  FileReader file(path, kLogWords);
  std::string text;
  std::array<char, 1 << 16> buffer{};
  while (const std::size_t n = file.read(buffer.data(), buffer.size())) text.append(buffer.data(), n);
  return text;
}

/// meta.json, looked into by JSON pointers. Engines write a setting in several places; the first one counts.
class Meta {
 public:
  Meta(std::string path, Complaints& complaints) : path_(std::move(path)), complaints_(complaints) {
    const std::string text = read_all(path_);
    document_ = json::parse(text, nullptr, false);
    if (document_.is_object()) return;
    throw DataError(document_.is_discarded() ? "is not valid JSON" : "is not a JSON object", path_,
                    "meta.json is what describes the engine: {\"model\": ..., \"engine_kwargs\": {...}}");
  }

  [[nodiscard]] std::string where(const std::string& pointer) const { return fmt::format("{} ({})", path_, pointer); }

  /// The first of these places that holds more than null; none: null.
  [[nodiscard]] std::pair<const json*, std::string> find(std::initializer_list<const char*> pointers) const {
    for (const char* pointer : pointers) {
      const json::json_pointer at(pointer);
      if (document_.contains(at) && !document_[at].is_null()) return {&document_[at], pointer};
    }
    return {nullptr, {}};
  }
  [[nodiscard]] bool has(std::initializer_list<const char*> pointers) const { return find(pointers).first != nullptr; }

  [[nodiscard]] std::string text(std::initializer_list<const char*> pointers) const {
    const auto [value, at] = find(pointers);
    if (value == nullptr) return {};
    if (value->is_string()) return value->get<std::string>();
    complaints_.add(fmt::format("must be a text, not {}", value->dump()), where(at), {});
    return {};
  }
  [[nodiscard]] std::optional<std::int64_t> whole(std::initializer_list<const char*> pointers) const {
    const auto [value, at] = find(pointers);
    if (value == nullptr) return std::nullopt;
    if (value->is_number_integer() && *value > 0) return value->get<std::int64_t>();
    complaints_.add(fmt::format("must be a whole number above 0, not {}", value->dump()), where(at), {});
    return std::nullopt;
  }
  [[nodiscard]] std::optional<bool> flag(std::initializer_list<const char*> pointers) const {
    const auto [value, at] = find(pointers);
    if (value == nullptr) return std::nullopt;
    if (value->is_boolean()) return value->get<bool>();
    complaints_.add(fmt::format("must be true or false, not {}", value->dump()), where(at), {});
    return std::nullopt;
  }

 private:
  std::string path_;
  Complaints& complaints_;
  json document_;
};

struct Version {
  int major = 0;
  int minor = 0;
};
std::optional<Version> version_of(const std::string& text) {
  Version version;
  if (std::sscanf(text.c_str(), "%d.%d", &version.major, &version.minor) == 2) return version;  // NOLINT(cert-err34-c)
  return std::nullopt;
}

/// vLLM's name of a KV cache's number format as memory.kv_dtype has it.
std::string kv_dtype_of(const std::string& format) {
  if (format.starts_with("fp8")) return "fp8";
  if (format == "float16") return "fp16";
  return format == "bfloat16" ? "bf16" : format;
}

class MetaReader {
 public:
  MetaReader(EngineLog& log, const Meta& meta) : log_(log), meta_(meta) {}

  void read(Complaints& complaints) {
    log_.model = meta_.text({"/model", "/engine_kwargs/model", "/resolved_config/model_config/model"});
    log_.version = meta_.text({"/vllm_version"});
    log_.device = meta_.text({"/hardware/device_name"});
    read_engine();
    read_memory();
    refuse_several(complaints);
    warn_of_what_is_not_modelled();
  }

 private:
  void set(const char* key, std::string text, const std::string& pointer) {
    log_.settings.push_back({key, std::move(text), meta_.where(pointer)});
  }
  void take_whole(const char* key, std::initializer_list<const char*> pointers) {
    if (const auto value = meta_.whole(pointers)) set(key, fmt::format("{}", *value), meta_.find(pointers).second);
  }
  void take_flag(const char* key, std::initializer_list<const char*> pointers) {
    if (const auto value = meta_.flag(pointers)) set(key, *value ? "true" : "false", meta_.find(pointers).second);
  }

  void read_engine() {
    const std::optional<Version> version = version_of(log_.version);
    // The V1 scheduler is the default since 0.8.0.
    const bool v0 = version && version->major == 0 && version->minor < 8;
    set("policy", v0 ? "vllm-v0" : "vllm", "/vllm_version");
    if (!v0) {
      set("engine", "vllm-0.19", "/vllm_version");
      if (version && (version->major != 0 || version->minor != 19)) {
        log_.warnings.push_back(fmt::format(
            "the log is of vLLM {}: its host side and scheduler are taken to be those of 0.19", log_.version));
      }
      take_flag("policy.reserve_full_input", {"/resolved_config/scheduler_config/scheduler_reserve_full_isl",
                                              "/engine_kwargs/scheduler_reserve_full_isl"});
    }
    take_whole("tensor_parallel",
               {"/resolved_config/parallel_config/tensor_parallel_size", "/engine_kwargs/tensor_parallel_size"});
    take_whole("engine.max_num_seqs",
               {"/resolved_config/scheduler_config/max_num_seqs", "/engine_kwargs/max_num_seqs"});
    take_whole("engine.max_num_batched_tokens",
               {"/resolved_config/scheduler_config/max_num_batched_tokens", "/engine_kwargs/max_num_batched_tokens"});
    take_whole("engine.max_model_len", {"/resolved_config/model_config/max_model_len", "/engine_kwargs/max_model_len"});
    take_flag("engine.chunked_prefill",
              {"/resolved_config/scheduler_config/enable_chunked_prefill", "/engine_kwargs/enable_chunked_prefill"});
  }

  void read_memory() {
    if (const auto blocks = meta_.whole({"/kv_cache/num_gpu_blocks", "/resolved_config/cache_config/num_gpu_blocks"})) {
      log_.gpu_blocks = Blocks(*blocks);
    }
    take_whole("memory.block_tokens",
               {"/kv_cache/block_size", "/resolved_config/cache_config/block_size", "/engine_kwargs/block_size"});
    const std::initializer_list<const char*> utilization{"/kv_cache/gpu_memory_utilization",
                                                         "/resolved_config/cache_config/gpu_memory_utilization",
                                                         "/engine_kwargs/gpu_memory_utilization"};
    if (const auto [value, at] = meta_.find(utilization); value != nullptr) {
      set("engine.gpu_memory_utilization", value->dump(), at);
    }
    const std::initializer_list<const char*> format_at{"/resolved_config/cache_config/cache_dtype",
                                                       "/engine_kwargs/kv_cache_dtype"};
    if (const std::string format = meta_.text(format_at); !format.empty()) {
      set("memory.kv_dtype", kv_dtype_of(format), meta_.find(format_at).second);
    }
    log_.prefix_caching =
        meta_
            .flag({"/kv_cache/enable_prefix_caching", "/resolved_config/cache_config/enable_prefix_caching",
                   "/engine_kwargs/enable_prefix_caching"})
            .value_or(false);
  }

  void refuse_several(Complaints& complaints) {
    for (const auto& pointers :
         {std::array{"/resolved_config/parallel_config/pipeline_parallel_size",
                     "/engine_kwargs/pipeline_parallel_size"},
          std::array{"/resolved_config/parallel_config/data_parallel_size", "/engine_kwargs/data_parallel_size"}}) {
      const auto size = meta_.whole({pointers[0], pointers[1]});
      if (size.value_or(1) == 1) continue;
      complaints.add(fmt::format("{} is not modelled", *size),
                     meta_.where(meta_.find({pointers[0], pointers[1]}).second),
                     "log an engine of one replica and one pipeline stage");
    }
  }

  void warn_of_what_is_not_modelled() {
    struct Feature {
      const char* pointer;
      const char* what;
    };
    for (const Feature& feature : {Feature{"/resolved_config/speculative_config", "speculative decoding"},
                                   Feature{"/resolved_config/lora_config", "LoRA"},
                                   Feature{"/resolved_config/kv_transfer_config", "KV transfer"},
                                   Feature{"/resolved_config/quant_config", "quantised weights"}}) {
      if (!meta_.has({feature.pointer})) continue;
      log_.warnings.push_back(fmt::format("the engine ran with {}, which the log does not let be simulated: {}",
                                          feature.what, meta_.where(feature.pointer)));
    }
    const std::string order = meta_.text({"/resolved_config/scheduler_config/policy"});
    if (!order.empty() && order != "fcfs") {
      log_.warnings.push_back(
          fmt::format("the engine scheduled by \"{}\", the simulation first come, first served", order));
    }
    if (meta_.flag({"/resolved_config/model_config/enforce_eager", "/engine_kwargs/enforce_eager"}).value_or(false)) {
      log_.warnings.emplace_back(
          "the engine ran eager, without CUDA graphs: engine=FILE with its launch_floor states what that costs");
    }
  }

  EngineLog& log_;
  const Meta& meta_;
};

// --- requests.jsonl -------------------------------------------------------------------------------------------------

class RequestsReader {
 public:
  RequestsReader(EngineLog& log, const EngineLogOptions& options, Complaints& complaints)
      : log_(log), options_(options), complaints_(complaints) {}

  void read() {
    LineReader lines(log_.requests_file, kLogWords);
    std::string_view line;
    while (!complaints_.full() && lines.next(line)) {
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      line_ = lines.row();
      read_row(line);
    }
    complaints_.raise();
    if (log_.requests.empty()) {
      throw DataError(unfinished_ > 0 ? "no request finished" : "holds no request", log_.requests_file,
                      "log at least one finished request");
    }
    if (unfinished_ > 0) {
      log_.warnings.push_back(
          fmt::format("{} requests that did not finish are left out, on both sides: what the engine did for them is "
                      "missing from the simulation",
                      unfinished_));
    }
    sort_and_shift();
    compare_clocks();
  }
  /// The first request's arrival on the client's clock.
  [[nodiscard]] std::optional<double> first_arrival() const {
    return arrivals_.empty() ? std::nullopt : arrivals_.front();
  }

 private:
  [[nodiscard]] std::string where() const { return fmt::format("{} line {}", log_.requests_file, line_); }
  void complain(std::string what, std::string fix) { complaints_.add(std::move(what), where(), std::move(fix)); }

  void read_row(std::string_view line) {
    const json row = json::parse(line, nullptr, false);
    if (!row.is_object()) return complain("is not a JSON object", "write one finished request per line");
    LoggedRequest request;
    request.line = line_;
    const auto id = row.find("request_id");
    request.id = id == row.end()   ? fmt::format("line {}", line_)
                 : id->is_string() ? id->get<std::string>()
                                   : id->dump();
    const std::string unfinished = why_unfinished(row);
    if (!unfinished.empty()) {
      ++unfinished_;
      if (options_.drop_unfinished) return;
      return complain(fmt::format("request {} {}", excerpt(request.id), unfinished),
                      "latencies are compared of finished requests; --drop-unfinished leaves the others out");
    }
    const auto input = length(row, "input_toks");
    const auto output = length(row, "output_toks");
    const auto queued = stamp(row, "queued_ts");
    const auto scheduled = stamp(row, "scheduled_ts");
    const auto first = stamp(row, "first_token_ts");
    const auto last = stamp(row, "last_token_ts");
    if (!input || !output || !queued || !scheduled || !first || !last) return;
    request.input = Tokens(*input);
    request.output = Tokens(*output);
    request.queued = *queued;
    request.scheduled = *scheduled;
    request.first_token = *first;
    request.last_token = *last;
    if (!in_order(request)) return;
    const auto arrival = row.find("arrival_time");
    arrivals_.push_back(arrival != row.end() && arrival->is_number() ? std::optional(arrival->get<double>())
                                                                     : std::nullopt);
    log_.requests.push_back(std::move(request));
  }

  static std::string why_unfinished(const json& row) {
    const auto reason = row.find("finish_reason");
    if (reason != row.end() && reason->is_string()) {
      const auto text = reason->get<std::string>();
      for (const char* bad : {"abort", "aborted", "cancelled", "error"}) {
        if (text == bad) return fmt::format("did not finish: its finish_reason is \"{}\"", text);
      }
    }
    if (const auto output = row.find("output_toks"); output != row.end() && *output == 0) {
      return "did not finish: it has no output token";
    }
    for (const char* name : {"first_token_ts", "last_token_ts"}) {
      const auto value = row.find(name);
      if (value == row.end() || value->is_null())
        return fmt::format("did not finish, or was cut off: it has no {}", name);
    }
    return {};
  }

  std::optional<std::int64_t> length(const json& row, const char* name) {
    const auto value = row.find(name);
    const bool good = value != row.end() && value->is_number_integer() && *value >= 1 && *value <= kMaxTokens;
    if (good) return value->get<std::int64_t>();
    complain(value == row.end()
                 ? fmt::format("has no {}", name)
                 : fmt::format("{} is not a whole number from 1 to {}: {}", name, kMaxTokens, value->dump()),
             "log the tokens of prompt and answer");
    return std::nullopt;
  }

  std::optional<double> stamp(const json& row, const char* name) {
    const auto value = row.find(name);
    if (value != row.end() && value->is_number()) {
      const double seconds = value->get<double>();
      if (std::isfinite(seconds)) return seconds;
    }
    complain(value == row.end() || value->is_null()
                 ? fmt::format("has no {}", name)
                 : fmt::format("{} is not a number of seconds: {}", name, excerpt(value->dump())),
             "log queued_ts, scheduled_ts, first_token_ts and last_token_ts of every request, in seconds");
    return std::nullopt;
  }

  bool in_order(const LoggedRequest& r) {
    const std::array<std::pair<const char*, double>, 4> stamps{{{"queued_ts", r.queued},
                                                                {"scheduled_ts", r.scheduled},
                                                                {"first_token_ts", r.first_token},
                                                                {"last_token_ts", r.last_token}}};
    for (std::size_t i = 1; i < stamps.size(); ++i) {
      if (stamps[i].second >= stamps[i - 1].second) continue;
      complain(fmt::format("{} {:.6f} lies before {} {:.6f}", stamps[i].first, stamps[i].second, stamps[i - 1].first,
                           stamps[i - 1].second),
               "the stamps of a request must be of one clock, in seconds");
      return false;
    }
    if (r.output > Tokens(1) && r.last_token == r.first_token) {
      complain(fmt::format("{} output tokens came at one instant, {:.6f}", r.output.count(), r.first_token),
               "last_token_ts must be when the last token came");
      return false;
    }
    constexpr double kYear = 365.0 * 86400.0;
    if (r.last_token - r.queued > kYear) {
      complain(fmt::format("took {:.3g} s", r.last_token - r.queued),
               "stamps are in seconds; the unit is probably wrong");
      return false;
    }
    return true;
  }

  void sort_and_shift() {
    std::vector<std::size_t> order(log_.requests.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return log_.requests[a].queued < log_.requests[b].queued; });
    std::vector<LoggedRequest> sorted;
    std::vector<std::optional<double>> arrivals;
    sorted.reserve(order.size());
    for (const std::size_t i : order) {
      sorted.push_back(std::move(log_.requests[i]));
      arrivals.push_back(arrivals_[i]);
    }
    const double zero = sorted.front().queued;
    for (LoggedRequest& r : sorted) {
      for (double* seconds : {&r.queued, &r.scheduled, &r.first_token, &r.last_token}) *seconds -= zero;
    }
    log_.requests = std::move(sorted);
    arrivals_ = std::move(arrivals);
  }

  /// Clients and engine may use different clocks, but not different lengths of a second.
  void compare_clocks() {
    if (!std::all_of(arrivals_.begin(), arrivals_.end(), [](const auto& a) { return a.has_value(); })) return;
    const auto [first, last] = std::minmax_element(arrivals_.begin(), arrivals_.end());
    const double sent = **last - **first;
    const double queued = log_.requests.back().queued;
    constexpr double kSlack = 5.0;
    if (std::abs(sent - queued) <= 0.1 * std::max(sent, queued) + kSlack) return;
    throw DataError(fmt::format("the clocks disagree: by arrival_time the requests came within {:.6g} s, by queued_ts "
                                "within {:.6g} s",
                                sent, queued),
                    log_.requests_file, "log both in seconds, or leave arrival_time out");
  }

  EngineLog& log_;
  const EngineLogOptions& options_;
  Complaints& complaints_;
  std::vector<std::optional<double>> arrivals_;  // of the requests
  std::int64_t line_ = 0;
  std::int64_t unfinished_ = 0;
};

// --- timeseries.csv -------------------------------------------------------------------------------------------------

/// Seconds since 1970 of "2026-08-20T23:19:39.992496Z".
std::optional<double> seconds_of(const std::string& text) {
  int year = 0;
  unsigned month = 0;
  unsigned day = 0;
  int hour = 0;
  int minute = 0;
  double second = 0.0;
  // NOLINTNEXTLINE(cert-err34-c): what does not fit is refused by the checks below
  if (std::sscanf(text.c_str(), "%d-%u-%uT%d:%d:%lf", &year, &month, &day, &hour, &minute, &second) != 6) return {};
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(month), std::chrono::day(day)};
  if (!date.ok() || hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0.0 || second >= 61.0) return {};
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  return static_cast<double>(days) * 86400.0 + hour * 3600.0 + minute * 60.0 + second;
}

std::vector<std::string_view> cells_of(std::string_view line) {
  std::vector<std::string_view> cells;
  for (;;) {
    const std::size_t comma = line.find(',');
    cells.push_back(line.substr(0, comma));
    if (comma == std::string_view::npos) return cells;
    line.remove_prefix(comma + 1);
  }
}

/// `shift` is what the series' clock shows when the first request is queued.
void read_load(EngineLog& log, const std::string& path, double shift, Complaints& complaints) {
  LineReader lines(path, {"log", "sample"});
  std::string_view line;
  if (!lines.next(line)) return;
  const std::vector<std::string_view> names = cells_of(line);
  const auto column = [&](std::string_view name) -> std::optional<std::size_t> {
    const auto it = std::find(names.begin(), names.end(), name);
    if (it == names.end()) return std::nullopt;
    return static_cast<std::size_t>(it - names.begin());
  };
  const std::array<std::optional<std::size_t>, 4> columns{column("t"), column("running"), column("waiting"),
                                                          column("kv_cache_pct")};
  if (!columns[0] || !columns[1] || !columns[2]) {
    return complaints.add("needs the columns t, running and waiting", path + " line 1", "or delete the file");
  }
  const std::size_t width = names.size();
  while (!complaints.full() && lines.next(line)) {
    const std::vector<std::string_view> cells = cells_of(line);
    std::array<double, 4> values{};
    bool good = cells.size() == width;
    for (std::size_t i = 0; i < values.size() && good; ++i) {
      if (!columns[i]) continue;
      const std::string_view cell = cells[*columns[i]];
      const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), values[i]);
      good = error == std::errc() && end == cell.data() + cell.size() && std::isfinite(values[i]) && values[i] >= 0.0;
    }
    if (!good) {
      complaints.add(fmt::format("\"{}\" is no sample", excerpt(line)), fmt::format("{} line {}", path, lines.row()),
                     "every column needs a number of at least 0");
      continue;
    }
    LoggedLoad load{values[0] - shift, values[1], values[2], {}};
    if (columns[3]) load.kv_fraction = values[3] / 100.0;
    log.load.push_back(load);
  }
}

// --- Requests to replay ---------------------------------------------------------------------------------------------

class LogSource final : public RequestSource {
 public:
  LogSource(const EngineLog& log, std::vector<std::vector<std::uint64_t>> prefix_ids)
      : requests_(log.requests), prefix_ids_(std::move(prefix_ids)) {}

  [[nodiscard]] SimTime next_arrival() override {
    return at_ < requests_.size() ? SimTime(std::llround(requests_[at_].queued / kNs)) : kNever;
  }
  bool next(RequestSpec& request) override {
    const LoggedRequest& logged = requests_[at_];
    request = {};
    request.arrival = next_arrival();
    request.input = logged.input;
    request.output = request.max_new_tokens = logged.output;
    if (!prefix_ids_.empty()) request.prefix_ids = prefix_ids_[at_];
    ++at_;
    return true;
  }
  [[nodiscard]] std::int64_t expected() const override { return static_cast<std::int64_t>(requests_.size()); }

 private:
  std::vector<LoggedRequest> requests_;
  std::vector<std::vector<std::uint64_t>> prefix_ids_;
  std::size_t at_ = 0;
};

/// The number at the end of "bench-12".
std::optional<std::size_t> number_of(std::string_view id) {
  const std::size_t digits = id.find_last_not_of("0123456789") + 1;
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(id.data() + digits, id.data() + id.size(), number);
  return error == std::errc() && digits < id.size() ? std::optional(number) : std::nullopt;
}

}  // namespace

EngineLog read_engine_log(const std::string& folder, const EngineLogOptions& options) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    throw DataError("is not a folder", folder, "give the folder that holds requests.jsonl and meta.json");
  }
  EngineLog log;
  log.folder = folder;
  const std::string plain = in_folder(folder, "requests.jsonl");
  log.requests_file = !is_file(plain) && is_file(plain + ".gz") ? plain + ".gz" : plain;
  Complaints complaints;
  std::optional<Meta> meta;
  complaints.collect([&] {
    meta.emplace(in_folder(folder, "meta.json"), complaints);
    MetaReader(log, *meta).read(complaints);
  });
  RequestsReader requests(log, options, complaints);
  complaints.collect([&] {
    log.sha256 = file_sha256(log.requests_file, kLogWords);
    requests.read();
  });
  complaints.raise();
  if (const std::string series = in_folder(folder, "timeseries.csv"); is_file(series)) {
    const auto started = seconds_of(meta->text({"/started_at"}));
    const auto arrival = requests.first_arrival();
    read_load(log, series, started && arrival ? *arrival - *started : 0.0, complaints);
    complaints.raise();
  }
  return log;
}

std::vector<std::vector<std::uint64_t>> prefix_ids_from(const EngineLog& log, const std::string& path,
                                                        const std::string& format, Tokens block_tokens) {
  OpenedTrace trace = open_trace(path, format);
  std::vector<Tokens> inputs;
  std::vector<std::vector<std::uint64_t>> by_row;
  bool any = false;
  for (TraceRow row; trace.reader->next(row);) {
    inputs.push_back(row.input);
    by_row.emplace_back();
    block_ids(row, row.input, block_tokens, by_row.back());
    any = any || !by_row.back().empty();
  }
  if (!any) {
    throw DataError("names no token ids and no prefixes", path, "give the trace whose prompts the engine was sent");
  }
  Complaints complaints;
  std::vector<std::vector<std::uint64_t>> ids;
  for (const LoggedRequest& request : log.requests) {
    const std::string where = fmt::format("{} line {}", log.requests_file, request.line);
    const auto number = number_of(request.id);
    if (!number || *number >= by_row.size()) {
      complaints.add(number ? fmt::format("request {} would be row {} of {}, which has {}", excerpt(request.id),
                                          *number, path, by_row.size())
                            : fmt::format("request \"{}\" has no number", excerpt(request.id)),
                     where, "row i of the trace, from 0, belongs to the request whose id ends in i");
    } else if (inputs[*number] != request.input) {
      complaints.add(fmt::format("request {} has {} input tokens, row {} of {} has {}", excerpt(request.id),
                                 request.input.count(), *number, path, inputs[*number].count()),
                     where, "give the trace whose prompts the engine was sent");
    } else {
      ids.push_back(by_row[*number]);
    }
    if (complaints.full()) break;
  }
  complaints.raise();
  return ids;
}

std::unique_ptr<RequestSource> replay(const EngineLog& log, std::vector<std::vector<std::uint64_t>> prefix_ids) {
  return std::make_unique<LogSource>(log, std::move(prefix_ids));
}

}  // namespace spillway::traces
