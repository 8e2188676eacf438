#include "traces/readers/bench_results.hpp"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "sim/core/text.hpp"
#include "sim/io/file_reader.hpp"
#include "sim/io/line_reader.hpp"
#include "traces/complaints.hpp"
#include "traces/readers/json_cursor.hpp"
#include "traces/readers/measured_row.hpp"
#include "traces/readers/row_checks.hpp"

namespace spillway::traces {
namespace {

using nlohmann::json;

constexpr const char* kOtherLayout =
    "if another version of the tool wrote it, convert it to CSV or JSON lines and set workload.columns";

json whole_file(const std::string& path) {
  FileReader file(path);
  std::string text;
  std::array<char, 1 << 16> buffer{};
  while (const std::size_t n = file.read(buffer.data(), buffer.size())) text.append(buffer.data(), n);
  json document = json::parse(text, nullptr, false);
  if (document.is_object()) return document;
  throw DataError("is not a JSON object", path, "check that it was copied whole");
}

std::optional<double> number(const json& object, const char* name) {
  const auto value = object.find(name);
  return value != object.end() && value->is_number() ? std::optional(value->get<double>()) : std::nullopt;
}
/// The first of these that is a number.
std::optional<double> number(const json& object, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const auto value = number(object, name)) return value;
  }
  return std::nullopt;
}

/// Collects the problems of a file's rows, up to ten.
class Places {
 public:
  explicit Places(std::string path) : path_(std::move(path)) {}
  void add(const std::string& at, std::string what, std::string fix = kCorrectRow) {
    complaints_.add(std::move(what), fmt::format("{}, {}", path_, at), std::move(fix));
  }
  [[nodiscard]] bool full() const { return complaints_.full(); }
  void raise() { complaints_.raise(); }

 private:
  std::string path_;
  Complaints complaints_;
};

const json& list_of(const json& document, const char* name, const std::string& path) {
  const auto list = document.find(name);
  if (list != document.end() && list->is_array()) return *list;
  throw DataError(list == document.end() ? fmt::format("has no list {}", name) : fmt::format("{} is not a list", name),
                  path, "save it with vllm bench serve --save-result --save-detailed");
}

}  // namespace

void LoadedRows::finish(const std::string& path, std::int64_t failed) {
  if (rows_.empty()) {
    throw DataError(failed > 0 ? fmt::format("all {} requests failed", failed) : "the file holds no request", path,
                    "give results with answered requests");
  }
  if (failed == 0) return;
  warnings_.push_back(
      fmt::format("{} of {} requests of {} failed and are left out: the load of their prompts is missing", failed,
                  failed + static_cast<std::int64_t>(rows_.size()), path));
}

bool VllmBenchRows::recognises(std::string_view head) {
  constexpr std::array<std::string_view, 5> kTelling{"model_id", "tokenizer_id", "num_prompts", "request_rate",
                                                     "max_concurrency"};
  return head.starts_with('{') && first_object_has(head, kTelling, 3);
}

VllmBenchRows::VllmBenchRows(const std::string& path, const ReaderOptions& options) {
  static_cast<void>(options);
  const json document = whole_file(path);
  const json& inputs = list_of(document, "input_lens", path);
  const json& outputs = list_of(document, "output_lens", path);
  const json& ttfts = list_of(document, "ttfts", path);
  const json& itls = list_of(document, "itls", path);
  const json starts = document.value("start_times", json());
  const json errors = document.value("errors", json());
  const std::array<std::pair<const char*, const json*>, 5> others{
      {{"output_lens", &outputs}, {"ttfts", &ttfts}, {"itls", &itls}, {"start_times", &starts}, {"errors", &errors}}};
  for (const auto& [name, list] : others) {
    if (list->is_null() || (list->is_array() && list->size() == inputs.size())) continue;
    throw DataError(fmt::format("{} has {} elements, input_lens {}", name, list->size(), inputs.size()), path,
                    kOtherLayout);
  }
  set_timed(!starts.is_null());
  const MeasuredNames names{"input_lens", "output_lens", "start_times", "ttfts", "the sum of ttfts and itls"};
  Places places(path);
  std::int64_t failed = 0;
  const auto at = [](const json& list, std::size_t i) {
    return list[i].is_number() ? std::optional(list[i].get<double>()) : std::nullopt;
  };
  for (std::size_t i = 0; i < inputs.size() && !places.full(); ++i) {
    const std::string place = fmt::format("request {}", i + 1);
    if (errors.is_array() && errors[i].is_string() && !errors[i].get<std::string>().empty()) {
      ++failed;
      continue;
    }
    MeasuredRequest measured{.input = at(inputs, i),
                             .output = at(outputs, i),
                             .sent = {},
                             .first_token = {},
                             .end = {},
                             .ttft = at(ttfts, i),
                             .e2e = at(ttfts, i)};
    if (measured.output == 0.0) {
      ++failed;
      continue;
    }
    if (!measured.ttft || !itls[i].is_array()) {
      places.add(place,
                 fmt::format("{} is not {}", measured.ttft ? "its element of itls" : "its element of ttfts",
                             measured.ttft ? "a list" : "a number"),
                 kOtherLayout);
      continue;
    }
    for (const json& gap : itls[i]) measured.e2e = *measured.e2e + (gap.is_number() ? gap.get<double>() : 0.0);
    if (!starts.is_null()) measured.sent = at(starts, i);
    if (!starts.is_null() && !measured.sent) {
      places.add(place, "its element of start_times is not a number", kOtherLayout);
      continue;
    }
    TraceRow row;
    if (std::string problem = fill(measured, names, row); !problem.empty()) {
      places.add(place, std::move(problem));
    } else {
      add(row, static_cast<std::int64_t>(i) + 1, measured.sent.value_or(0.0));
    }
  }
  places.raise();
  finish(path, failed);
}

bool GuideLlmRows::recognises(std::string_view head) {
  constexpr std::array<std::string_view, 1> kTelling{"benchmarks"};
  return head.starts_with('{') && first_object_has(head, kTelling, 1);
}

GuideLlmRows::GuideLlmRows(const std::string& path, const ReaderOptions& options) {
  static_cast<void>(options);
  const json document = whole_file(path);
  const json benchmarks = document.value("benchmarks", json());
  if (!benchmarks.is_array() || benchmarks.empty()) throw DataError("has no list benchmarks", path, kOtherLayout);
  if (benchmarks.size() > 1) {
    throw DataError(fmt::format("has {} benchmarks, and a trace holds one run", benchmarks.size()), path,
                    "keep one, for example by jq '.benchmarks |= [.[0]]'");
  }
  const json::json_pointer at("/requests/successful");
  if (!benchmarks[0].is_object() || !benchmarks[0].contains(at) || !benchmarks[0][at].is_array()) {
    throw DataError("benchmarks[0] has no list requests.successful", path, kOtherLayout);
  }
  const json& requests = benchmarks[0][at];
  std::int64_t failed = 0;
  for (const char* name : {"errored", "incomplete"}) {
    const json others = benchmarks[0]["requests"].value(name, json());
    failed += others.is_array() ? static_cast<std::int64_t>(others.size()) : 0;
  }
  const MeasuredNames names{"prompt_tokens", "output_tokens", "start_time", "first_token_time", "end_time"};
  Places places(path);
  for (std::size_t i = 0; i < requests.size() && !places.full(); ++i) {
    const json& one = requests[i];
    const std::string place = fmt::format("successful request {}", i + 1);
    if (!one.is_object()) {
      places.add(place, "is not an object", kOtherLayout);
      continue;
    }
    MeasuredRequest measured;
    measured.input = number(one, "prompt_tokens");
    measured.output = number(one, "output_tokens");
    measured.sent = number(one, {"start_time", "request_start_time"});
    measured.first_token = number(one, "first_token_time");
    measured.end = number(one, {"end_time", "request_end_time"});
    if (const auto ms = number(one, "time_to_first_token_ms"); !measured.first_token && ms) measured.ttft = *ms * 1e-3;
    if (!measured.sent) {
      places.add(place, "has neither start_time nor request_start_time", kOtherLayout);
      continue;
    }
    TraceRow row;
    if (std::string problem = fill(measured, names, row); !problem.empty()) {
      places.add(place, std::move(problem));
    } else {
      add(row, static_cast<std::int64_t>(i) + 1, *measured.sent);
    }
  }
  places.raise();
  finish(path, failed);
}

namespace {

/// A metric in tokens or seconds. Adds what is wrong to `problem`.
std::optional<double> metric(const json& metrics, const char* name, std::string& problem) {
  const auto found = metrics.find(name);
  if (found == metrics.end() || !found->is_object()) return std::nullopt;
  const auto value = number(*found, "value");
  const json unit = found->value("unit", json());
  if (!value || !unit.is_string()) {
    problem = fmt::format("metrics.{} has no value and unit", name);
    return std::nullopt;
  }
  constexpr std::array<std::pair<std::string_view, double>, 8> kUnits{{{"tokens", 1.0},
                                                                       {"sec", 1.0},
                                                                       {"s", 1.0},
                                                                       {"seconds", 1.0},
                                                                       {"ms", 1e-3},
                                                                       {"us", 1e-6},
                                                                       {"ns", 1e-9},
                                                                       {"token", 1.0}}};
  for (const auto& [word, factor] : kUnits) {
    if (unit.get<std::string>() == word) return *value * factor;
  }
  problem = fmt::format("metrics.{} is in \"{}\", an unknown unit", name, excerpt(unit.get<std::string>()));
  return std::nullopt;
}

}  // namespace

bool AiPerfRows::recognises(std::string_view head) {
  constexpr std::array<std::string_view, 2> kTelling{"metadata", "metrics"};
  return head.starts_with('{') && first_object_has(head, kTelling, 2);
}

AiPerfRows::AiPerfRows(const std::string& path, const ReaderOptions& options) {
  static_cast<void>(options);
  const MeasuredNames names{"metrics.input_sequence_length", "metrics.output_sequence_length",
                            "metadata.request_start_ns", "metrics.time_to_first_token", "metrics.request_latency"};
  Places places(path);
  std::int64_t failed = 0;
  LineReader lines(path);
  std::string_view line;
  while (!places.full() && lines.next(line)) {
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string place = fmt::format("row {}", lines.row());
    const json one = json::parse(line, nullptr, false);
    if (!one.is_object() || !one.contains("metadata") || !one["metadata"].is_object()) {
      places.add(place, "is not an object with metadata and metrics", kOtherLayout);
      continue;
    }
    const json& metadata = one["metadata"];
    if (metadata.value("benchmark_phase", json("profiling")) != "profiling") continue;
    const json error = one.value("error", json());
    const json metrics = one.value("metrics", json::object());
    if (!error.is_null() || metadata.value("was_cancelled", json(false)) == true) {
      ++failed;
      continue;
    }
    const auto start = number(metadata, "request_start_ns");
    if (!start || !metrics.is_object()) {
      places.add(place, start ? "metrics is not an object" : "has no metadata.request_start_ns", kOtherLayout);
      continue;
    }
    std::string problem;
    MeasuredRequest measured;
    measured.sent = *start * 1e-9;
    measured.input = metric(metrics, "input_sequence_length", problem);
    measured.output = metric(metrics, "output_sequence_length", problem);
    measured.ttft = metric(metrics, "time_to_first_token", problem);
    measured.e2e = metric(metrics, "request_latency", problem);
    TraceRow row;
    if (problem.empty()) problem = fill(measured, names, row);
    if (!problem.empty()) {
      places.add(place, std::move(problem), kOtherLayout);
    } else {
      add(row, lines.row(), *measured.sent);
    }
  }
  places.raise();
  finish(path, failed);
}

}  // namespace spillway::traces
