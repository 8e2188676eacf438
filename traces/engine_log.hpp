// A real engine's request log: a folder that says what the engine was asked, and when it answered.
//
//   requests.jsonl   a JSON object per finished request; .gz as well
//                      request_id                        any text; numbered ones ("bench-12") can take token ids
//                      input_toks, output_toks           tokens, the first output token included
//                      queued_ts, scheduled_ts, first_token_ts, last_token_ts
//                                                        seconds on one clock of the engine, with any zero
//                      arrival_time                      seconds on the client's clock; optional, only checked
//                      finish_reason                     optional; abort, aborted, cancelled and error: did not finish
//   meta.json        the engine: model, vllm_version, and settings under engine_kwargs, kv_cache and resolved_config
//   with
//                    vLLM's names. All are optional but `model`; what is missing keeps the default.
//   timeseries.csv   optional: t,running,waiting and perhaps kv_cache_pct as the engine logs them, t in seconds since
//                    meta.json's started_at
// Other keys and columns are passed by. The layout is that of LLMServingSim's benchmark of vLLM
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
  std::string text;   // as key=value would have it
  std::string where;  // its place in meta.json
};

struct EngineLog {
  std::string folder;         // as the user named it
  std::string requests_file;  // path
  std::string sha256;         // of that file
  std::string model;          // as the log names it: "meta-llama/Llama-3.1-8B"
  std::string version;        // of vLLM: "0.19.0"; empty: not said
  std::string device;         // "NVIDIA GeForce RTX 4090"; empty: not said
  std::optional<Blocks> gpu_blocks{};
  bool prefix_caching = false;
  /// Keys of a run that the settings come to, policy and engine included.
  std::vector<LoggedSetting> settings;
  std::vector<LoggedRequest> requests;  // in order of queueing; at least one
  std::vector<LoggedLoad> load;         // empty without timeseries.csv
  std::vector<std::string> warnings;
};

struct EngineLogOptions {
  bool drop_unfinished = false;  // leave requests out that did not finish, and count them
};

/// Reads a log. O(requests) memory. Throws DataError with all that is wrong, up to ten problems: a file that is missing
/// or broken, a stamp that is missing, stamps out of order (they are of different clocks), arrival times and stamps
/// whose spans differ by more than a tenth and 5 s, requests that did not finish unless they are dropped, an engine of
/// several replicas or pipeline stages.
[[nodiscard]] EngineLog read_engine_log(const std::string& folder, const EngineLogOptions& options);

/// Ids of the leading whole blocks of each request's prompt, in the order of `log.requests`: row i of the trace `path`,
/// from 0, belongs to the request whose id ends in i. Lengths must agree. Throws DataError.
[[nodiscard]] std::vector<std::vector<std::uint64_t>> prefix_ids_from(const EngineLog& log, const std::string& path,
                                                                      const std::string& format, Tokens block_tokens);

/// The requests of the log as they were queued, each asking for what it got; `prefix_ids` may be empty.
[[nodiscard]] std::unique_ptr<RequestSource> replay(const EngineLog& log,
                                                    std::vector<std::vector<std::uint64_t>> prefix_ids);

}  // namespace spillway::traces
