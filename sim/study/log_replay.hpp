// Replays a real engine's request log: simulated against measured.
#pragma once

#include <string>
#include <vector>

#include "sim/study/validation.hpp"

namespace spillway {

struct LogReplay {
  std::string folder;                  // LOG, a folder or a file: see traces/engine_log.hpp
  std::vector<std::string> arguments;  // key=value: settings that the log does not state, or states wrongly
  bool drop_unfinished = false;
};

/// Replays the log's requests as they were queued, on the engine that meta.json describes, and compares both sides.
/// Defaults: `hardware` is the profile of the logged device. `model` is the bundled model of the logged name. The KV
/// cache has the logged number of blocks. Layer tables and iterations of a profile that names no model belong to the
/// logged model. workload.trace names the trace with the prompts' token ids; other workload.* keys and replications are
/// refused. Throws UserError for an unusable log, or for a device or model without a profile.
[[nodiscard]] Validation validate_log(const LogReplay& options);

}  // namespace spillway
