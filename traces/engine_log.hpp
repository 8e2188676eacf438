// A real engine's request log: a folder that says what the engine was asked, and when it answered.
//
//   requests.jsonl   one JSON object per finished request; may be compressed as requests.jsonl.gz. Keys of an engine:
//                      request_id                        any text; numbered ones ("bench-12") can get token ids
//                      input_toks, output_toks           tokens, the first output token included
//                      queued_ts, scheduled_ts,
//                      first_token_ts, last_token_ts     seconds on one clock of the engine, with any zero
//                      arrival_time                      optional: seconds on the client's clock; only checked
//                      finish_reason                     optional: abort, aborted, cancelled and error mean unfinished
//                    Or what `spillway run --requests-out` writes: index, input_tokens, generated_tokens, arrival_ns,
//                    first_scheduled_ns, first_token_ns, end_ns and outcome. Only the replication of the first row
//                    counts.
//   meta.json        the engine: model, vllm_version, and settings under engine_kwargs, kv_cache and resolved_config
//                    with vLLM's names. All are optional; missing settings have their defaults, and model and hardware
//                    must then be given. A folder with the requests of a run needs no meta.json.
//                    A file alone, such as requests.jsonl or the results of a benchmark, names no settings either.
//   timeseries.csv   optional: t,running,waiting and perhaps kv_cache_pct as the engine logs them, t in seconds since
//                    meta.json's started_at
// Other keys and columns are ignored. The layout is that of LLMServingSim's benchmark of vLLM
// (casys-kaist/LLMServingSim, bench/, MIT).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/api/request_source.hpp"
#include "sim/core/units.hpp"

namespace spillway::traces {

/// Stamps in seconds since the first request of the log was queued; queued <= scheduled <= first_token <= last_token.
struct LoggedRequest {
  std::string id;
  std::int64_t line = 0;  // of requests.jsonl, from 1
  Tokens input{};
  Tokens output{};
  double queued = 0.0;
  double scheduled = 0.0;
  double first_token = 0.0;
  double last_token = 0.0;
};

/// One row of timeseries.csv, `seconds` on the clock of the stamps.
struct LoggedLoad {
  double seconds = 0.0;
  double running = 0.0;
  double waiting = 0.0;
  std::optional<double> kv_fraction{};
};

/// A key of a run that the log answers.
struct LoggedSetting {
  std::string key;
  std::string text;   // as in key=value
  std::string where;  // location in meta.json
};

struct EngineLog {
  std::string folder;           // or file, as the user named it
  std::string requests_file;    // path
  std::string sha256;           // of that file
  std::string engine = "vLLM";  // who served the requests, with the version if known: "vLLM 0.19.0", "Spillway"
  std::string model;            // as the log names it: "meta-llama/Llama-3.1-8B"; empty: not stated
  std::string version;          // of vLLM: "0.19.0"; empty: not stated
  std::string device;           // "NVIDIA GeForce RTX 4090"; empty: not stated
  bool waits_known = true;      // false: the log does not say when a request left the queue
  bool client_stamps = false;   // a client stamped the requests, so their times include the front end
  std::optional<Blocks> gpu_blocks{};
  bool prefix_caching = false;
  /// Keys of a run that the settings determine, policy and engine included.
  std::vector<LoggedSetting> settings;
  std::vector<LoggedRequest> requests;  // in order of queueing; at least one
  std::vector<LoggedLoad> load;         // empty without timeseries.csv
  std::vector<std::string> warnings;
};

struct EngineLogOptions {
  bool drop_unfinished = false;  // leave unfinished requests out and count them
  std::string columns{};         // workload.columns, for a file of measured requests
};

/// Reads a log folder; or one file: its requests.jsonl, or measured requests in any trace format that states the times
/// of first and last tokens (results of vllm bench serve, GuideLLM and AIPerf; CSV and JSON lines by options.columns).
/// A file says nothing of the engine. O(requests) memory. Throws DataError with all problems, up to ten: a file that is
/// missing or broken, missing keys (by name), stamps out of order (they are of different clocks), arrival times and
/// stamps whose spans differ by more than a tenth and 5 s, unfinished requests unless they are dropped, an engine of
/// several replicas or pipeline stages.
[[nodiscard]] EngineLog read_engine_log(const std::string& folder, const EngineLogOptions& options);

/// Ids of the leading whole blocks of each request's prompt, in the order of `log.requests`. Row i of the trace `path`,
/// from 0, belongs to the request whose id ends in i; their lengths must agree. Throws DataError.
[[nodiscard]] std::vector<std::vector<std::uint64_t>> prefix_ids_from(const EngineLog& log, const std::string& path,
                                                                      const std::string& format, Tokens block_tokens);

/// The requests of the log at the times at which they were queued, each asking for the output that it got;
/// `prefix_ids` may be empty.
[[nodiscard]] std::unique_ptr<RequestSource> replay(const EngineLog& log,
                                                    std::vector<std::vector<std::uint64_t>> prefix_ids);

}  // namespace spillway::traces
