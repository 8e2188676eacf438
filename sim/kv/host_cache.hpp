// The host tier of the prefix cache: full KV blocks that outlive the GPU's.
#pragma once

#include <cstdint>
#include <deque>

#include "sim/core/units.hpp"
#include "sim/kv/block_store.hpp"

namespace spillway {

/// Blocks by content, the least recently used first out. A block is written through: it is copied once, after the
/// iteration that filled it, while later iterations run, from a staging buffer, so that the GPU may reuse its place
/// meanwhile. It can be found when its copy has ended; arriving, being stored again and being loaded count as use.
/// Source: the shape of vLLM's native KV offloading (vllm/v1/kv_offload, LRU) and LMCache's local CPU backend.
///
/// All O(1) expected; memory O(capacity), fixed at construction.
class HostCache {
 public:
  explicit HostCache(Blocks capacity) : blocks_(capacity) {}

  [[nodiscard]] bool holds(BlockHash hash) const {
    const std::int32_t block = blocks_.find(hash);
    return block >= 0 && blocks_.idle(block);
  }
  /// A block that it holds is used.
  void touch(BlockHash hash) { use(blocks_.find(hash)); }
  /// Puts a block down for the next copy; the least recently used one makes room. One that is there already is only
  /// used. Nothing happens while all the room is taken by blocks on their way.
  void store(BlockHash hash);
  /// Blocks put down since the last call, which now go to the host in one copy.
  [[nodiscard]] Blocks take_stores();
  /// The oldest of these copies has ended.
  void stored();

 private:
  void use(std::int32_t block) {
    blocks_.share(block);
    blocks_.release(block);
  }

  CachedBlocks blocks_;                  // a block on its way is in use, so nothing takes its place
  std::deque<std::int32_t> on_the_way_;  // in the order of their copies
  std::deque<std::int64_t> copies_;      // blocks of each copy
  std::int64_t put_down_ = 0;            // blocks at the end of on_the_way_ that no copy has taken yet
};

}  // namespace spillway
