#include "sim/kv/host_cache.hpp"

#include <algorithm>
#include <utility>

#include "sim/core/error.hpp"

namespace spillway {

std::int32_t HostCache::make(BlockHash hash) {
  const std::int32_t present = blocks_.find(hash);
  if (present >= 0 && blocks_.idle(present)) use(present);
  if (present >= 0 || blocks_.free() == Blocks(0)) return -1;
  const std::int32_t block = blocks_.allocate();
  filled_ = std::min(filled_ + Blocks(1), capacity_);  // a full cache has evicted a block
  blocks_.name(block, hash);
  return block;
}

void HostCache::store(BlockHash hash) {
  const std::int32_t block = make(hash);
  if (block < 0) return;
  on_the_way_.push_back(block);
  ++queued_;
}

void HostCache::put(BlockHash hash) {
  const std::int32_t block = make(hash);
  if (block >= 0) blocks_.release(block);
}

Blocks HostCache::take_stores() {
  if (queued_ > 0) copies_.push_back(queued_);
  return Blocks(std::exchange(queued_, 0));
}

void HostCache::stored() {
  SPILLWAY_CHECK(!copies_.empty(), "a copy to the host cache ended that never began");
  for (std::int64_t left = copies_.front(); left > 0; --left) {
    blocks_.release(on_the_way_.front());
    on_the_way_.pop_front();
  }
  copies_.pop_front();
}

}  // namespace spillway
