#include "traces/engine_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>

#include "traces/engine_log_parts.hpp"
#include "traces/readers/reader.hpp"

namespace spillway::traces {
namespace {

std::string in_folder(const std::string& folder, const char* name) {
  return (std::filesystem::path(folder) / name).string();
}
bool is_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

/// The rows of a trace reader whose format states what a client measured.
void read_measured(EngineLog& log, TraceReader& reader, const std::string& format) {
  if (!reader.has_times()) {
    throw DataError(fmt::format("the requests of this {} file state no time at which they were sent", format),
                    log.requests_file,
                    "map one with workload.columns (arrival_s=...); vllm bench serve writes start_times since 2025");
  }
  for (TraceRow row; reader.next(row);) {
    const std::string where = fmt::format("{}, row {}", log.requests_file, reader.row());
    if (!row.ttft || !row.e2e) {
      throw DataError(fmt::format("the request states no time of its {} token, so there is nothing to compare",
                                  row.ttft ? "last" : "first"),
                      where,
                      "give files with the times of first and last tokens, or map them with workload.columns "
                      "(ttft_s or first_token_s, e2e_s or end_s)");
    }
    if (row.output > Tokens(1) && *row.e2e == *row.ttft) {
      throw DataError(fmt::format("the first and the last of {} output tokens have the same time", row.output.count()),
                      where, "give the time of the last token");
    }
    LoggedRequest request;
    request.id = fmt::format("row {}", reader.row());
    request.line = reader.row();
    request.input = row.input;
    request.output = row.output;
    request.queued = request.scheduled = to_seconds(row.arrival - SimTime{});
    request.first_token = request.queued + to_seconds(*row.ttft);
    request.last_token = request.queued + to_seconds(*row.e2e);
    log.requests.push_back(std::move(request));
  }
  if (log.requests.empty()) throw DataError("the file holds no request", log.requests_file);
  const std::vector<std::string> warnings = reader.warnings();
  log.warnings.insert(log.warnings.end(), warnings.begin(), warnings.end());
  log.engine = fmt::format("a server ({})", format);
  log.client_stamps = true;
  log.waits_known = false;
}

/// A file without a folder says nothing of the engine.
EngineLog read_file(const std::string& path, const EngineLogOptions& options) {
  EngineLog log;
  log.folder = log.requests_file = path;
  log.sha256 = file_sha256(path, kLogWords);
  const OpenedTrace trace = open_trace(path, "auto", {.columns = options.columns});
  if (trace.format == "engine-log" || trace.format == "requests-jsonl") {
    (void)read_log_requests(log, options);
  } else {
    read_measured(log, *trace.reader, trace.format);
  }
  log.warnings.emplace_back(
      "the file does not say how the engine ran: give memory.gpu_kv (\"N blocks\", as the engine prints it), policy, "
      "engine, tensor_parallel, engine.max_num_seqs and engine.max_num_batched_tokens as it had them; keys that are "
      "not given have their defaults");
  return log;
}

}  // namespace

EngineLog read_engine_log(const std::string& folder, const EngineLogOptions& options) {
  std::error_code ignored;
  if (is_file(folder)) return read_file(folder, options);
  if (!std::filesystem::is_directory(folder, ignored)) {
    throw DataError(fmt::format("\"{}\" is neither a folder nor a file", folder), folder,
                    "give a folder that holds requests.jsonl and meta.json, or a file of measured requests");
  }
  if (!options.columns.empty()) {
    throw ConfigError("workload.columns is for a file, and this is a folder with requests.jsonl", "workload.columns",
                      "leave it out");
  }
  EngineLog log;
  log.folder = folder;
  const std::string plain = in_folder(folder, "requests.jsonl");
  log.requests_file = !is_file(plain) && is_file(plain + ".gz") ? plain + ".gz" : plain;
  Complaints complaints;
  std::string started_at;
  const std::string meta = in_folder(folder, "meta.json");
  if (is_file(meta) || !is_run_log(log.requests_file)) {
    complaints.collect([&] { started_at = read_log_meta(log, meta, complaints); });
  } else {
    log.warnings.push_back(
        fmt::format("{} is not there: give model, hardware, policy, memory.gpu_kv and engine.* as the run of the log "
                    "had them; keys that are not given have their defaults",
                    meta));
  }
  std::optional<double> first_arrival;
  complaints.collect([&] {
    log.sha256 = file_sha256(log.requests_file, kLogWords);
    first_arrival = read_log_requests(log, options);
  });
  complaints.raise();
  if (const std::string series = in_folder(folder, "timeseries.csv"); is_file(series)) {
    read_log_load(log, series, started_at, first_arrival, complaints);
    complaints.raise();
  }
  return log;
}

}  // namespace spillway::traces
