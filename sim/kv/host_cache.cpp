#include "sim/kv/host_cache.hpp"

#include <utility>

#include "sim/core/error.hpp"

namespace spillway {

void HostCache::store(BlockHash hash) {
  const std::int32_t present = blocks_.find(hash);
  if (present >= 0) {
    if (blocks_.idle(present)) use(present);
    return;
  }
  if (blocks_.free() == Blocks(0)) return;
  const std::int32_t block = blocks_.allocate();
  blocks_.name(block, hash);
  on_the_way_.push_back(block);
  ++queued_;
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
