// Memory that this instance borrows, or lends out of that for its own KV.
#include <algorithm>

#include "sim/engine/instance.hpp"

namespace spillway {

void Instance::borrow() {
  const TierState& peer = tier(borrowed_tier_);
  const Blocks lent = std::min(peer.most, Blocks(borrows_->available() / kv_.block_bytes));
  if (lent != peer.total) residency_.resize(borrowed_tier_, lent);
}

void Instance::report_held(bool copying) {
  const TierState& peer = tier(borrowed_tier_);
  const Bytes of_layers = policy_.layers ? policy_.layers->held_of_lender() : Bytes(0);
  const Blocks cache = kv_.cache_is_lent ? kv_.host_cache_blocks : Blocks(0);
  const Bytes held = of_layers + kv_.block_bytes * (cache + peer.total - peer.free).count();
  borrows_->hold(copying ? std::max(held, borrows_->held()) : held, now_);
}

Blocks Instance::retained() const { return Blocks(lending_rule_->retained / kv_.block_bytes); }

void Instance::inform() {
  const TierState& gpu = tier(kGpuTier);
  if (lends_->offered() == Bytes(0)) {
    const Blocks spare = kv_.gpu_blocks - retained();
    if (needs_all_ || waiting() > lending_rule_->offer_at || gpu.total - gpu.free >= retained() || spare <= Blocks(0))
      return;
    return lends_->offer(kv_.block_bytes * spare.count(), now_);
  }
  if (waiting() >= lending_rule_->reclaim_at) lends_->reclaim(now_);
  if (lends_->reclaimed()) static_cast<void>(lends_->take_back(now_));
}

bool Instance::reclaim_for_large_request() {
  if (lends_->offered() == Bytes(0)) return false;
  needs_all_ = true;
  lends_->reclaim(now_);
  return lends_->take_back(now_);
}

}  // namespace spillway
