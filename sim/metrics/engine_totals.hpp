// Sums that the engine keeps of a run: what the metrics of an instance are computed from.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "sim/api/figure.hpp"
#include "sim/api/layer_policy.hpp"
#include "sim/core/units.hpp"
#include "sim/kv/disk_tier.hpp"
#include "sim/kv/offloading_tier.hpp"

namespace spillway {

/// What the time of a run is spent on. The shares of the measured span sum to 1.
enum class Resource : std::uint8_t {
  load,           // nothing runs
  kv_capacity,    // the batch is small because KV memory is full
  compute,        // arithmetic of the GPU
  memory,         // HBM bandwidth
  network,        // communication between GPUs
  h2d,            // the GPU waits for a copy from the host
  d2h,            // the GPU waits for a copy to the host
  host,           // CPU time: launches and the engine's own work
  cpu_attention,  // the GPU waits for attention on the CPU
  cpu_experts,    // the GPU waits for experts on the CPU
  peer,           // the GPU waits for a copy from or to another GPU
};
inline constexpr std::size_t kResources = 11;
/// The resource's name in result.json, e.g. "kv_capacity".
[[nodiscard]] std::string_view resource_name(Resource resource);

/// Sums of a policy that streams layers between host and GPU.
struct LayerTotals {
  double capacity_time = 0.0;  // integral of the GPU tier's blocks, block-seconds
  Blocks peak_capacity{};
  Blocks last_capacity{};
  double resident_blocks = 0.0;  // blocks that the GPU would offer if it held every layer's weights and KV
  double stall_time = 0.0;       // seconds in which compute waited for a copy
  Duration h2d_busy{};           // time in which a copy from the host was under way
  Duration d2h_busy{};
  /// The GPU tier offers `capacity` blocks from `at` on.
  struct Change {
    SimTime at{};
    Blocks capacity{};
  };
  static constexpr std::size_t kMostChanges = 4096;
  std::vector<Change> changes{};  // of the whole run: its start, then the first kMostChanges changes

  /// Adds another replication, or another replica: sums add, peaks are the largest. What cannot be added
  /// stays that of the first one: the last capacity and the changes.
  void add(const LayerTotals& other) {
    capacity_time += other.capacity_time;
    peak_capacity = std::max(peak_capacity, other.peak_capacity);
    stall_time += other.stall_time;
    h2d_busy += other.h2d_busy;
    d2h_busy += other.d2h_busy;
  }
};

/// Sums of decodes that attend on the CPU while the GPU computes (sim/exec/cpu_attention.hpp).
struct CpuAttentionTotals {
  Duration busy{};  // of the CPU
  /// Time in which the GPU waited for the first sub-batch's attention on the CPU, queries and outputs on their way
  /// included, and for that of the others.
  std::array<Duration, 2> bubbles{};

  void add(const CpuAttentionTotals& other) {
    busy += other.busy;
    for (std::size_t i = 0; i < bubbles.size(); ++i) bubbles[i] += other.bubbles[i];
  }
};

/// A figure that a policy declares, and its value in a run.
struct PolicyFigure {
  FigureDefinition definition;
  std::optional<double> value{};
};

/// Sums of one run over the measured span. An iteration that a boundary of the span cuts adds its stalls, copying time
/// and bytes in proportion to its part in the span.
struct EngineTotals {
  std::int64_t iterations = 0;  // that ended in the span
  std::int64_t preempted_recompute = 0;
  std::int64_t preempted_swap = 0;
  Bytes moved_h2d{};
  Bytes moved_d2h{};
  Bytes moved_peer_in{};  // from other GPUs
  Bytes moved_peer_out{};
  Bytes read_by_cpu{};  // KV or weights
  // Time in which KV of requests was under way, without copies of layers and of attention on the CPU.
  Duration kv_copied_beside{};  // an iteration ran, whether or not it waited
  Duration kv_waited_for{};     // of that, the time in which the iteration waited for these copies
  Duration kv_copied_idle{};    // no iteration ran
  Tokens prefix_hit{};          // prompt tokens taken from the prefix cache, its host tier included
  Tokens prefix_hit_host{};     // of these, the tokens copied back from the host
  Tokens prefix_hit_disk{};     // and of these, the tokens read from the disk
  Tokens prefix_asked{};        // prompt tokens of admissions with prefix caching on
  Tokens history_asked{};       // tokens that new turns repeat of their conversations, if the policy keeps KV of these
  Tokens history_on_gpu{};      // of these, the tokens found on the GPU
  Tokens history_on_host{};     // and found on the host alone; the others are computed again
  OffloadingCounts offloading{};      // of the engine's KV connector
  DiskCounts disk{};                  // of the disk behind its tier
  double connector_time = 0.0;        // CPU seconds of it on the scheduler's thread
  double connector_start_time = 0.0;  // and on the worker's, which starts its copies
  double batch_time = 0.0;            // integral of running requests over busy time, request-seconds
  double busy_time = 0.0;             // seconds in which an iteration ran
  double waiting_time = 0.0;          // integral of waiting requests, request-seconds
  double kv_time = 0.0;               // integral of used GPU blocks, block-seconds
  double host_kv_time = 0.0;          // integral of used host blocks, block-seconds
  double cached_time = 0.0;           // integral of conversations whose KV is kept, conversation-seconds
  double live_time = 0.0;             // integral of live conversations; of the whole simulation, not of an instance
  // Peaks are of states that last: what decisions undo at the same instant does not count.
  std::int64_t peak_batch = 0;
  std::int64_t peak_waiting = 0;
  Blocks peak_kv{};
  double peak_kv_fraction = 0.0;  // of the capacity at the time
  Blocks peak_host_kv{};
  double peak_host_kv_fraction = 0.0;
  std::int64_t peak_cached = 0;
  std::int64_t peak_live = 0;
  double gpu_time = 0.0;                           // of busy_time, without waits and the engine's CPU time
  double layer_time = 0.0;                         // of busy_time, what layers took, their waits included
  std::optional<LayerTotals> layers{};             // only of a policy that streams layers
  std::optional<CpuAttentionTotals> on_cpu{};      // only where decodes attended on the CPU beside the GPU
  std::array<double, kResources> resource_time{};  // seconds by Resource
  /// What the seconds of Resource::kv_capacity were spent on, by Resource.
  std::array<double, kResources> time_short_of_kv{};
  std::vector<PolicyFigure> figures{};  // of the policy, of the whole run

  /// Adds another replication, or another replica: sums add, peaks are the largest. The policy's figures stay those of
  /// the first one: FigureDefinition::merge says how they become one.
  void add(const EngineTotals& other) {
    iterations += other.iterations;
    preempted_recompute += other.preempted_recompute;
    preempted_swap += other.preempted_swap;
    moved_h2d += other.moved_h2d;
    moved_d2h += other.moved_d2h;
    moved_peer_in += other.moved_peer_in;
    moved_peer_out += other.moved_peer_out;
    read_by_cpu += other.read_by_cpu;
    kv_copied_beside += other.kv_copied_beside;
    kv_waited_for += other.kv_waited_for;
    kv_copied_idle += other.kv_copied_idle;
    prefix_hit += other.prefix_hit;
    prefix_hit_host += other.prefix_hit_host;
    prefix_hit_disk += other.prefix_hit_disk;
    prefix_asked += other.prefix_asked;
    history_asked += other.history_asked;
    history_on_gpu += other.history_on_gpu;
    history_on_host += other.history_on_host;
    offloading += other.offloading;
    disk += other.disk;
    connector_time += other.connector_time;
    connector_start_time += other.connector_start_time;
    batch_time += other.batch_time;
    busy_time += other.busy_time;
    gpu_time += other.gpu_time;
    layer_time += other.layer_time;
    waiting_time += other.waiting_time;
    kv_time += other.kv_time;
    host_kv_time += other.host_kv_time;
    cached_time += other.cached_time;
    live_time += other.live_time;
    peak_batch = std::max(peak_batch, other.peak_batch);
    peak_waiting = std::max(peak_waiting, other.peak_waiting);
    peak_kv = std::max(peak_kv, other.peak_kv);
    peak_kv_fraction = std::max(peak_kv_fraction, other.peak_kv_fraction);
    peak_host_kv = std::max(peak_host_kv, other.peak_host_kv);
    peak_host_kv_fraction = std::max(peak_host_kv_fraction, other.peak_host_kv_fraction);
    peak_cached = std::max(peak_cached, other.peak_cached);
    peak_live = std::max(peak_live, other.peak_live);
    if (!layers) {
      layers = other.layers;
    } else if (other.layers) {
      layers->add(*other.layers);
    }
    if (!on_cpu) {
      on_cpu = other.on_cpu;
    } else if (other.on_cpu) {
      on_cpu->add(*other.on_cpu);
    }
    for (std::size_t i = 0; i < resource_time.size(); ++i) resource_time[i] += other.resource_time[i];
    for (std::size_t i = 0; i < resource_time.size(); ++i) time_short_of_kv[i] += other.time_short_of_kv[i];
  }
};

}  // namespace spillway
