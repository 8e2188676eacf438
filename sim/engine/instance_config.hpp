// What an instance is built from.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "sim/api/execution_model.hpp"
#include "sim/api/informer.hpp"
#include "sim/api/kv_window.hpp"
#include "sim/api/link_traffic.hpp"
#include "sim/api/padding.hpp"
#include "sim/api/phases.hpp"
#include "sim/api/registry.hpp"
#include "sim/api/request_source.hpp"
#include "sim/api/residency.hpp"
#include "sim/core/units.hpp"
#include "sim/exec/copy_links.hpp"
#include "sim/exec/expert_draw.hpp"
#include "sim/kv/disk_tier.hpp"
#include "sim/kv/offloading_tier.hpp"

namespace spillway {

/// CPU time of the offloading connector: on the scheduler's thread by operation, and on the worker's.
struct ConnectorTimes {
  double visit = 0.0;     // s, per request of a step
  double lookup = 0.0;    // s, per block searched in the tier
  double touch = 0.0;     // s, per block moved to the most recent end
  double scan = 0.0;      // s, per entry that a refused store passes
  double warning = 0.0;   // s, per refused store: a line in the log
  double launches = 0.0;  // share of the time that copies take to start for which the worker's thread is busy
  [[nodiscard]] double of(const OffloadingCounts& counts) const {
    const auto times = [](std::int64_t count, double each) { return static_cast<double>(count) * each; };
    return times(counts.visits, visit) + times(counts.lookups, lookup) + times(counts.touched, touch) +
           times(counts.scanned, scan) + times(counts.refused_stores, warning);
  }
};

/// The disk behind the host tier. With tensor parallelism, the share of one GPU.
struct DiskLayout {
  Blocks blocks{};
  DiskSpeed speed{};
};

/// The paged KV memory of one instance. With tensor parallelism every GPU holds its share of each block, so block
/// counts are those of one GPU.
struct KvLayout {
  Blocks gpu_blocks{};  // at the start
  Blocks host_blocks{};
  Tokens block_tokens{16};
  Bytes block_bytes{};                // of one block on one GPU, all layers
  std::int64_t copies_per_block = 1;  // separate host-side copies when a block moves between tiers
  bool prefix_caching = false;
  Blocks host_cache_blocks{};  // memory below the prefix cache, on the host or lent; 0: none
  /// Copies of a block that moves between GPU and host cache. 1: its layers are contiguous (vLLM since 0.12).
  std::int64_t host_cache_copies_per_block = 1;
  CopyMechanism host_cache_mechanism = CopyMechanism::many;
  bool cache_is_lent = false;  // its host tier is in memory that other GPUs lend, for the whole run
  /// Its host tier is a holder, the contexts, on kPeerTier if that has room for all of it at first, else on kHostTier.
  /// The offload policy moves it.
  bool cache_moves = false;
  Blocks most_gpu_blocks{};  // the largest capacity that a policy may reach; 0: gpu_blocks
  /// Tiers beyond kGpuTier and kHostTier, and the routes to and from them.
  TierGraph further{};
  /// The host tier is that of vLLM's offloading connector, with these CPU times; empty: an ideal write-through tier.
  std::optional<ConnectorTimes> connector{};
  std::optional<DiskLayout> disk{};  // only behind the connector's tier
  /// Empty: every layer keeps all blocks. Not beside a prefix cache, or KV on another tier or instance.
  std::optional<KvWindow> window{};
  /// Memory that other GPUs lend; 0: none.
  [[nodiscard]] Blocks peer_blocks() const {
    const TierId peer = further.find(kPeerTier);
    return peer == kNoTier ? Blocks(0) : further.tiers[static_cast<std::size_t>(peer)].blocks;
  }
  [[nodiscard]] Blocks most() const { return std::max(gpu_blocks, most_gpu_blocks); }
  /// All tiers and routes. Those of the connector come last: in, then out.
  [[nodiscard]] TierGraph graph() const {
    TierGraph graph{
        {{"gpu", gpu_blocks, most()}, {"host", host_blocks, host_blocks}},
        {{kHostTier, kGpuTier, Stream::h2d, copies_per_block}, {kGpuTier, kHostTier, Stream::d2h, copies_per_block}}};
    graph.tiers.insert(graph.tiers.end(), further.tiers.begin(), further.tiers.end());
    graph.routes.insert(graph.routes.end(), further.routes.begin(), further.routes.end());
    if (!connector) return graph;
    graph.routes.push_back({kHostTier, kGpuTier, Stream::h2d, host_cache_copies_per_block});
    graph.routes.push_back({kGpuTier, kHostTier, Stream::d2h, host_cache_copies_per_block});
    return graph;
  }
};

class InstanceObserver;
class LentMemory;

/// One model replica: a policy over a device group. The pointers must outlive the instance.
struct InstanceConfig {
  const ExecutionModel* model = nullptr;
  const PolicyInfo* policy = nullptr;
  const Settings* settings = nullptr;  // every key of the run; the policy reads its own
  KvLayout kv{};
  Deployment deployment{};
  std::optional<ExpertChoice> experts{};  // how routers choose, for a policy that places experts
  Tokens max_model_len{};                 // longer requests (input + max_new_tokens) are rejected on arrival
  CopyRoute route{};                      // of its copies, over SimulationConfig::links
  OnBus on_bus{};                         // set by the simulation, from the routes of all
  std::vector<LinkTraffic> traffic{};     // of others, on its own links
  Phases phases = Phases::both;
  /// With a phase: KV comes from an instance that computed the prompt, and takes its time (sim/engine/handover.hpp).
  /// Else it is there when the request joins.
  bool hands_over = false;
  std::optional<Padding> padding{};  // empty: requests are not padded
  /// The engine decides on an iteration when the one before it starts, so that the GPU never waits for a decision: the
  /// scheduler hears of a request that arrives during an iteration once the next one has been decided on.
  bool schedules_ahead = false;
  /// The memory behind its tier kPeerTier; null: that tier is all its own, if it has one. It outlives the instance.
  LentMemory* borrows = nullptr;
  /// The memory that it lends out of that for its own KV; null: it lends none. It outlives the instance.
  LentMemory* lends = nullptr;
  MakeInformer informer{};  // decides when; only beside `lends`
  /// Tells a policy that knows the future when the next turns of conversations arrive. Null for all others.
  const RequestSource* future = nullptr;
  InstanceObserver* observer = nullptr;  // set by the simulation; null: nobody follows it
};

/// Sets what the keys of a run state about an instance and no policy decides.
inline void read_surroundings(const Settings& settings, InstanceConfig& instance) {
  if (const auto traffic = link_traffic(settings)) instance.traffic.push_back(*traffic);
  instance.phases = phases(settings);
  instance.padding = padding(settings);
}

}  // namespace spillway
