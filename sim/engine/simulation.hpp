// One replay of a request stream through one instance: the event loop.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/api/execution_model.hpp"
#include "sim/api/registry.hpp"
#include "sim/api/request_source.hpp"
#include "sim/metrics/metrics.hpp"

namespace spillway {

/// The paged KV memory of one instance. With tensor parallelism every GPU holds its share of each block, so block
/// counts are those of one GPU.
struct KvLayout {
  Blocks gpu_blocks{};  // at the start
  Blocks host_blocks{};
  Tokens block_tokens{16};
  Bytes block_bytes{};                // of one block on one GPU, all layers
  std::int64_t copies_per_block = 1;  // separate host-side copies when a block moves between tiers
  bool prefix_caching = false;
  Blocks host_cache_blocks{};  // host tier of the prefix cache; 0: none
  /// Copies of a block that moves between GPU and host cache. 1: its layers are contiguous (vLLM since 0.12).
  std::int64_t host_cache_copies_per_block = 1;
  Blocks most_gpu_blocks{};  // the largest capacity that a policy may reach; 0: gpu_blocks
  [[nodiscard]] Blocks most() const { return std::max(gpu_blocks, most_gpu_blocks); }
};

/// The figures of the progress line.
struct Progress {
  SimTime now{};
  std::int64_t submitted = 0;
  std::int64_t ended = 0;
  std::int64_t running = 0;
  std::int64_t waiting = 0;
  std::int64_t iterations = 0;
};

/// The instance at one instant, after everything that happens at that instant.
struct Observation {
  SimTime now{};
  std::int64_t running = 0;  // in the batch
  std::int64_t waiting = 0;  // not in the batch, preempted ones included
  Blocks gpu_blocks_used{};  // held by requests
};

struct SimulationConfig {
  const ExecutionModel* model = nullptr;
  const PolicyInfo* policy = nullptr;
  const Settings* settings = nullptr;  // every key of the run; the policy reads its own
  RequestSource* source = nullptr;
  KvLayout kv{};
  Deployment deployment{};
  Tokens max_model_len{};                     // longer requests (input + max_new_tokens) are rejected on arrival
  std::optional<Duration> request_timeout{};  // the client gives up this long after arrival
  std::optional<SimTime> until{};             // horizon; requests that are live then are unfinished
  MetricsConfig metrics{};
  std::function<void(const RequestRecord&)> on_request{};  // every request as it ends, in order of ending
  std::function<void(const Progress&)> on_progress{};      // about every `progress_iterations` iterations
  std::int64_t progress_iterations = 1 << 14;
  /// At 0, then every `observe_every` (> 0) until the last request has ended.
  std::function<void(const Observation&)> on_observation{};
  Duration observe_every{1'000'000'000};
  const std::atomic<bool>* stop = nullptr;  // true: the run stops at the next iteration, and its result is incomplete
};

/// The result of a run.
struct SimulationResult {
  RunStatistics statistics;
  /// The first request that was rejected because it can never fit, for the warning that names it.
  std::optional<RequestRecord> first_rejected;
};

/// Runs to the end of the source (or `until`). Throws DataError from the source, and InvariantError when the policy or
/// the engine breaks a promise (the message names policy, simulated time and request).
[[nodiscard]] SimulationResult simulate(const SimulationConfig& config);

}  // namespace spillway
