// One replay of a request stream through one or more instances: the event loop.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "sim/api/request_source.hpp"
#include "sim/engine/handover.hpp"
#include "sim/engine/instance_config.hpp"
#include "sim/engine/lending.hpp"
#include "sim/engine/pool_config.hpp"
#include "sim/metrics/metrics.hpp"

namespace spillway {

/// The figures of the progress line.
struct Progress {
  SimTime now{};
  std::int64_t submitted = 0;
  std::int64_t ended = 0;
  std::int64_t running = 0;
  std::int64_t waiting = 0;
  std::int64_t iterations = 0;
};

/// All instances at one instant, after everything that happens at that instant.
struct Observation {
  SimTime now{};
  std::int64_t running = 0;  // in the batch
  std::int64_t waiting = 0;  // not in the batch: on their way to the scheduler, in its queue, or preempted
  Blocks gpu_blocks_used{};  // held by requests
};

/// A replica goes down, or comes up again as it was at the start.
struct ReplicaEvent {
  SimTime at{};
  std::size_t replica = 0;
  bool up = false;
};

struct SimulationConfig {
  std::vector<InstanceConfig> instances;  // at least one
  /// Divides the instances, in order, into several kinds, each behind a router of its own; a request goes to those that
  /// its traits name. Empty: all are of one kind, behind `router`.
  std::vector<PoolConfig> pools{};
  /// Links that copies of one or several instances cross: totals of a server's GPUs or of its host.
  std::vector<BytesPerSecond> links{};
  /// Of memory. An instance borrows once, and from one that does not borrow; each GPU lends to one.
  std::vector<Loan> loans{};
  /// Makes the router of the instances, or of those that compute prompts; they are numbered from 0, and the view is
  /// valid for the whole run. Empty: the first instance serves everything.
  MakeRouter router{};
  /// The first instances compute prompts and the others generate the answers: all, or those of one kind. Their
  /// configurations have the phases.
  std::optional<Handover> handover{};
  /// In order of time. A replica that goes down loses its KV, its caches and its requests.
  std::vector<ReplicaEvent> events{};
  /// The requests that a replica loses are sent again, as if they were new; else they are lost. Latencies count from
  /// when a client sent its request first; what was generated before does not count.
  bool retry = true;
  RequestSource* source = nullptr;
  /// Between a client and the scheduler, both ways together: a request reaches the scheduler so long after it was sent.
  /// Its latencies count from when it was sent. A client gives up only after that.
  Duration front_end{};
  std::optional<Duration> request_timeout{};  // the client gives up this long after arrival
  std::optional<SimTime> until{};             // horizon; requests that are live then are unfinished
  MetricsConfig metrics{};
  std::function<void(const RequestRecord&)> on_request{};  // every request as it ends, in order of ending
  std::function<void(const Progress&)> on_progress{};      // about every `progress_iterations` iterations
  std::int64_t progress_iterations = 1 << 14;
  /// At 0, then every `observe_every` (> 0) until the last request has ended.
  std::function<void(const Observation&)> on_observation{};
  Duration observe_every{1'000'000'000};
  /// The observer of each replica; null: nobody follows it. It must outlive the simulation.
  std::function<InstanceObserver*(std::size_t replica)> observer{};
  const std::atomic<bool>* stop = nullptr;  // true: the run stops at the next iteration, and its result is incomplete
};

/// The result of a run.
struct SimulationResult {
  /// Of all instances together. Sums of the engine add; its peaks are those of the instance with the highest. Fairness
  /// between clients is measured within an instance, so with several it is said of each.
  RunStatistics statistics;
  /// With SimulationConfig::pools the same of each, in the same measured span. Conversations are counted of all
  /// together.
  std::vector<RunStatistics> pools;
  std::vector<EngineTotals> instances;  // of each instance
  /// The first request that was rejected because it can never fit, for the warning that names it.
  std::optional<RequestRecord> first_rejected;
  std::int64_t refused = 0;  // requests that were rejected for the sake of others (RequestRecord::refused)
};

/// Instances whose routes have a link in common share it max-min fairly, and so do those that others tie together. They
/// are stepped: each iteration of theirs stops where a transfer may start or end. All other instances execute an
/// iteration in one call.
///
/// What nobody waits for may be computed later than it happens (Instance::put_off); the result is the same.
///
/// Runs to the end of the source (or `until`). Throws DataError from the source, and InvariantError when the policy or
/// the engine breaks a promise (the message names policy, simulated time and request).
[[nodiscard]] SimulationResult simulate(const SimulationConfig& config);

}  // namespace spillway
