// The host tier of the prefix cache that vLLM's offloading connector keeps: who is stored, ready, loaded and evicted.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/core/units.hpp"
#include "sim/kv/block_store.hpp"

namespace spillway {

/// Operations of the connector on the scheduler's thread, and what the tier did.
struct OffloadingCounts {
  std::int64_t visits = 0;          // requests of a step
  std::int64_t lookups = 0;         // blocks searched in the tier
  std::int64_t touched = 0;         // blocks moved to the most recent end
  std::int64_t scanned = 0;         // entries that scans of refused stores passed
  std::int64_t refused_stores = 0;  // each attempt counts
  Blocks stored{};                  // blocks that entered the tier
  Blocks evicted{};
  Blocks loaded{};
  bool operator==(const OffloadingCounts&) const = default;
  OffloadingCounts& operator+=(const OffloadingCounts& other) {
    visits += other.visits;
    lookups += other.lookups;
    touched += other.touched;
    scanned += other.scanned;
    refused_stores += other.refused_stores;
    stored += other.stored;
    evicted += other.evicted;
    loaded += other.loaded;
    return *this;
  }
};

/// Blocks by content, least recently used first. A block is being stored (not ready), ready, or being loaded by some
/// requests; only a ready block that nobody loads can be evicted. The class knows neither time nor the engine. Source:
/// vLLM 0.11 to 0.13, vllm/v1/kv_offload/lru_manager.py and
/// vllm/distributed/kv_transfer/kv_connector/v1/offloading_connector.py.
///
/// O(log tier) per block that is touched, stored or loaded. A refused store is O(its blocks), although the engine scans
/// its tier: the scan is counted.
class OffloadingTier {
 public:
  explicit OffloadingTier(Blocks slots) : slots_(slots) {}

  /// What the tier remembers of a request that stores: `next` is its first full block that it has not tried to store,
  /// or was refused.
  struct Storing {
    std::size_t next = 0;
    std::vector<BlockHash> entered;  // blocks of it that are being stored
  };

  /// Can a block be read from the disk behind the tier?
  using OnDisk = std::function<bool(BlockHash)>;

  /// A waiting request with these full blocks is considered; the GPU holds the first `on_gpu` of them. Touches the
  /// blocks that the tier holds. Returns the ready blocks that follow those on the GPU without a gap. Blocks on the
  /// disk count as far as the tier has slots for them.
  Blocks look_up(std::span<const BlockHash> blocks, Blocks on_gpu, const OnDisk& on_disk = {});
  void load_begins(std::span<const BlockHash> blocks);
  void load_ended(std::span<const BlockHash> blocks);
  /// A request of a step has these full blocks when the step ends. Returns the blocks to copy: none when the tier
  /// refuses or holds them all. Sets `refused`.
  [[nodiscard]] std::vector<BlockHash> store(Storing& request, std::span<const BlockHash> blocks, bool& refused);
  /// These blocks come from the disk: each takes a slot, in which it is not ready. look_up has found slots for them,
  /// and blocks of the tier that it found with them are being loaded. They are in the order of a request.
  void enter(std::span<const BlockHash> blocks);
  /// A request that stored these blocks has finished or been preempted, and all its copies have ended. Or they have
  /// arrived from the disk.
  void ready(std::span<const BlockHash> blocks);
  /// So many requests take part in a step.
  void visit(std::int64_t requests) { counts_.visits += requests; }

  [[nodiscard]] const OffloadingCounts& counts() const { return counts_; }
  /// What it did since the last call.
  [[nodiscard]] OffloadingCounts take_counts() { return std::exchange(counts_, {}); }
  [[nodiscard]] Blocks held() const { return Blocks(static_cast<std::int64_t>(entries_.size())); }
  [[nodiscard]] bool holds(BlockHash hash) const { return entries_.contains(hash); }
  /// Blocks that the last call of store or enter evicted, in this order.
  [[nodiscard]] const std::vector<BlockHash>& evicted() const { return evicted_; }
  /// Content of the tier, least recently used first.
  [[nodiscard]] std::vector<BlockHash> order() const;

 private:
  struct Entry {
    std::int64_t used = 0;      // sequence number of the last use
    std::int32_t loading = -1;  // requests that load it; -1: being stored
  };
  using Entries = std::unordered_map<BlockHash, Entry>;

  /// Moves blocks that the tier holds to the most recent end, the last one first.
  void touch(std::span<const BlockHash> blocks);
  void evict_first();
  /// Evicts blocks until `count` slots are free.
  void free_slots(Blocks count);

  Blocks slots_;
  Entries entries_;
  std::map<std::int64_t, BlockHash> evictable_;  // by use
  std::vector<BlockHash> evicted_;
  std::int64_t uses_ = 0;
  OffloadingCounts counts_;
};

}  // namespace spillway
