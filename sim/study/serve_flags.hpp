// The command line of a serving engine for a configuration.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace spillway {

/// Flags that make an engine run as simulated.
struct ServeFlags {
  std::string engine;   // "vLLM"
  std::string command;  // "vllm serve MODEL --max-num-seqs 512"
  std::string source;   // whose options these are, with the version
};

/// The flags for a result: of the keys that an engine has an option for, those that differ from what the engine would
/// do by itself. Empty: no engine is known to have the policy. `result` is a complete result.json.
///
/// Sources: vLLM 0.19 `vllm serve --help` (ParallelConfig, SchedulerConfig, CacheConfig; kv_offloading_size is in GiB,
/// summed over the ranks); TensorRT-LLM 1.0 `trtllm-serve --help` and KvCacheConfig; for the policies that place
/// weights, what PolicyInfo::engine_flags says.
[[nodiscard]] std::optional<ServeFlags> serve_flags(const nlohmann::json& result);

}  // namespace spillway
