// Memory that this instance borrows, or lends out of that for its own KV.
#include <algorithm>

#include "sim/engine/instance.hpp"

namespace spillway {

void Instance::borrow() {
  const TierState& peer = tier(borrowed_tier_);
  const Blocks lent = std::min(peer.most, Blocks(borrows_->available() / kv_.block_bytes));
  if (lent != peer.total) residency_.resize(borrowed_tier_, lent);
}

void Instance::hold_contexts() {
  if (borrows_ != nullptr) borrow();
  const bool lent = borrows_ != nullptr && kv_.host_cache_blocks <= tier(borrowed_tier_).free;
  contexts_ = residency_.add();
  residency_.append(contexts_, kv_.host_cache_blocks, lent ? borrowed_tier_ : kHostTier);
  runner_.place_cache(lent);
}

void Instance::report_held(bool copying) {
  const TierState& peer = tier(borrowed_tier_);
  const Bytes of_layers = policy_.layers ? policy_.layers->held_of_lender() : Bytes(0);
  const Blocks cache = kv_.cache_is_lent ? kv_.host_cache_blocks : Blocks(0);
  const Bytes held = of_layers + kv_.block_bytes * (cache + peer.total - peer.free).count();
  borrows_->hold(copying ? std::max(held, borrows_->held()) : held, now_);
}

Blocks Instance::lent() const { return Blocks(lends_->offered() / kv_.block_bytes); }

LenderView Instance::lender_view() const {
  const TierState& gpu = tier(kGpuTier);
  return {.waiting = waiting(), .all = kv_.gpu_blocks, .used = gpu.total - gpu.free, .lent = lent()};
}

bool Instance::lend(const LendingDecision& decision) {
  if (decision.offer > Blocks(0)) {
    SPILLWAY_CHECK(lender_view().used + decision.offer <= kv_.gpu_blocks, "an informer offers memory that is in use");
    lends_->offer(kv_.block_bytes * decision.offer.count(), now_);
  }
  if (decision.reclaim) lends_->reclaim(now_);
  return waits_for_memory() && lends_->take_back(now_);
}

}  // namespace spillway
