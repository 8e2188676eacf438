// The host tier of the prefix cache: full KV blocks that outlive their GPU copies.
#pragma once

#include <cstdint>
#include <deque>

#include "sim/core/units.hpp"
#include "sim/kv/block_store.hpp"

namespace spillway {

/// Blocks by content; a full cache evicts the least recently used block, whatever order a policy chose for the GPU
/// (OffloadPolicy::retention). A block is copied once, after the iteration that filled it. The copy reads a staging
/// buffer while later iterations run, so the GPU may reuse the block meanwhile. The block can be found once its copy
/// has ended. Arriving, being stored again and being loaded count as use. Source: the shape of vLLM's native KV
/// offloading (vllm/v1/kv_offload, LRU) and LMCache's local CPU backend.
///
/// All O(1) expected; memory O(capacity), fixed at construction.
class HostCache {
 public:
  explicit HostCache(Blocks capacity) : blocks_(capacity), capacity_(capacity) {}

  [[nodiscard]] bool holds(BlockHash hash) const {
    const std::int32_t block = blocks_.find(hash);
    return block >= 0 && blocks_.idle(block);
  }
  /// Blocks that hold something, or to which something is on its way.
  [[nodiscard]] Blocks filled() const { return filled_; }
  /// Uses a block that it holds.
  void touch(BlockHash hash) { use(blocks_.find(hash)); }
  /// Queues a block for the next copy. A full cache evicts its least recently used block. A block already stored only
  /// counts as used. Does nothing while blocks on their way fill the cache.
  void store(BlockHash hash);
  /// Stores a block that is in the host's memory already, so no link copies it. Otherwise as store().
  void put(BlockHash hash);
  /// Blocks queued since the last call; they now go to the host in one copy.
  [[nodiscard]] Blocks take_stores();
  /// The oldest of these copies has ended.
  void stored();

 private:
  /// A block for content that the cache does not have, in use; -1: it has it, or has no room.
  std::int32_t make(BlockHash hash);
  void use(std::int32_t block) {
    blocks_.share(block);
    blocks_.release(block);
  }

  CachedBlocks blocks_;  // a block on its way is in use, so it is not evicted
  Blocks capacity_;
  Blocks filled_{};
  std::deque<std::int32_t> on_the_way_;  // in the order of their copies
  std::deque<std::int64_t> copies_;      // blocks of each copy
  std::int64_t queued_ = 0;              // blocks at the end of on_the_way_ that no copy has taken yet
};

}  // namespace spillway
