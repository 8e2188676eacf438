// The host tier of the prefix cache: full KV blocks that outlive the GPU's.
#pragma once

#include <boost/multi_index/hashed_index.hpp>
#include <boost/multi_index/member.hpp>
#include <boost/multi_index/sequenced_index.hpp>
#include <boost/multi_index_container.hpp>
#include <cstdint>
#include <deque>

#include "sim/kv/block_store.hpp"
#include "sim/units.hpp"

namespace spillway {

/// Blocks by content, the least recently used first out. A block is written through: it is copied once, after the
/// iteration that filled it, while later iterations run, from a staging buffer, so that the GPU may reuse its place
/// meanwhile. It can be found when its copy has ended, and counts as used when it is stored or loaded.
/// Source: the shape of vLLM's native KV offloading (vllm/v1/kv_offload, LRU) and LMCache's local CPU backend.
///
/// All O(1) expected; memory O(blocks stored).
class HostCache {
 public:
  explicit HostCache(Blocks capacity) : capacity_(capacity) {}

  [[nodiscard]] bool holds(BlockHash hash) const;
  /// A block that it holds is used.
  void touch(BlockHash hash);
  /// Puts a block down for the next copy; the least recently used one makes room. One that is there already is only
  /// used. Nothing happens while the least recently used one is itself on its way.
  void store(BlockHash hash);
  /// Blocks put down since the last call, which now go to the host in one copy.
  [[nodiscard]] Blocks take_stores();
  /// The oldest of these copies has ended.
  void stored();

 private:
  struct Entry {
    BlockHash hash = 0;
    bool there = false;  // false: on its way
  };
  using Entries = boost::multi_index_container<
      Entry, boost::multi_index::indexed_by<boost::multi_index::sequenced<>,
                                            boost::multi_index::hashed_unique<boost::multi_index::member<
                                                Entry, BlockHash, &Entry::hash>>>>;  // by use, by content

  Blocks capacity_;
  Entries entries_;
  std::deque<BlockHash> on_the_way_;  // in the order of their copies
  std::deque<std::int64_t> copies_;   // blocks of each copy
  std::int64_t put_down_ = 0;         // blocks at the end of on_the_way_ that no copy has taken yet
};

}  // namespace spillway
