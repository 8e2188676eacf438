// A real engine's request log, replayed: simulated against measured.
#pragma once

#include <string>
#include <vector>

#include "sim/study/validation.hpp"

namespace spillway {

struct LogReplay {
  std::string folder;                  // LOG_DIR, see traces/engine_log.hpp
  std::vector<std::string> arguments;  // key=value: what the log does not say, or says wrongly
  bool drop_unfinished = false;
};

/// Replays the log's requests as they were queued, on the engine that meta.json describes, and compares both sides.
/// `hardware` defaults to the profile of the logged device, `model` to the bundled model of that name, the KV cache to
/// the logged number of blocks; layer tables and iterations of a profile that does not say whose they are, to the
/// log's. workload.trace is the trace that holds the prompts' token ids; no other workload.* key and no replications
/// are taken. Throws UserError: a log that cannot be used, a device or model without a profile.
[[nodiscard]] Validation validate_log(const LogReplay& options);

}  // namespace spillway
