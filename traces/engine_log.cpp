#include "traces/engine_log.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "traces/engine_log_parts.hpp"

namespace spillway::traces {
namespace {

std::string in_folder(const std::string& folder, const char* name) {
  return (std::filesystem::path(folder) / name).string();
}
bool is_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

}  // namespace

EngineLog read_engine_log(const std::string& folder, const EngineLogOptions& options) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    throw DataError(fmt::format("\"{}\" is not a folder", folder), folder,
                    "give the folder that holds requests.jsonl and meta.json");
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
