// KV that one instance computes and another one goes on with: what each of the two keeps for it.
#include <algorithm>
#include <utility>

#include "sim/engine/instance.hpp"

namespace spillway {

// --- the instance that computed it
// --------------------------------------------------------------------------------------

void Instance::park(std::int32_t m) {
  Member& member = members_[m];
  Parked& parked = parked_[member.id.serial];
  parked.count = members_.held(member);
  if (cached_) {
    parked.blocks = std::move(member.blocks);
    member.blocks.clear();
    release_blocks(m);
  } else {
    release_blocks(m);
    residency_.tier(kGpuTier).free -= parked.count;
  }
}

void Instance::let_go(std::uint32_t serial, SimTime now) {
  const auto found = parked_.find(serial);
  SPILLWAY_CHECK(found != parked_.end(), "KV that was not kept is let go");
  keep_books(now);
  now_ = now;
  TierState& gpu = residency_.tier(kGpuTier);
  if (cached_) {
    release_gpu_blocks(found->second.blocks);
    gpu.free = cached_->free();
  } else {
    gpu.free += found->second.count;
  }
  parked_.erase(found);
  silent_iterations_ = 0;
}

void Instance::report_handover(std::uint32_t index, Bytes bytes, bool came, SimTime began, SimTime now) const {
  if (observer_ != nullptr) observer_->handed_over(index, bytes, came, began, now);
}

// Each iteration computes a token at least. After as many as the memory has tokens, what is computed is lost again.
bool Instance::rests_for_handovers() const {
  return !parked_.empty() && silent_iterations_ >= (kv_.block_tokens * tier(kGpuTier).total.count()).count();
}

// --- the instance that goes on
// ------------------------------------------------------------------------------------------

Blocks Instance::missing_kv(const RequestSlot& slot) const {
  Blocks there;
  if (cached_) visit_cached_prefix(slot, Tokens(slot.input), [&](BlockHash, std::int32_t) { there += Blocks(1); });
  return blocks_for(delivered(slot), kv_.block_tokens) - there;
}

// At least one, for the token that it computes first, so that it never joins before its prompt has been computed.
Blocks Instance::to_take_over(const RequestSlot& slot) const {
  if (slot.member >= 0 && members_[slot.member].handed_over) return Blocks(0);
  return std::max(Blocks(1), missing_kv(slot));
}

void Instance::take_over(RequestId id) {
  const std::int32_t m = make_member(id);
  Member& member = members_[m];
  const RequestSlot& slot = table_[id];
  const Blocks missing = missing_kv(slot);
  if (cached_) {
    visit_cached_prefix(slot, Tokens(slot.input), [&](BlockHash hash, std::int32_t block) {
      cached_->share(block);
      member.blocks.push_back(block);
      member.chain = hash;
    });
    member.named = member.blocks.size();
    member.held = Blocks(std::ssize(member.blocks));
  }
  take_blocks(m, std::max(Blocks(1), missing), kJoin);
  promised_ += member.promised;
  member.handed_over = member.fetching = true;
  taken_over_.push_back(id);
  ++awaited_;
  refresh();
  sink_.awaits_kv(id, missing);
}

void Instance::kv_arrived(RequestId id, SimTime prompted, SimTime now) {
  if (!table_.alive(id)) return;
  keep_books(now);
  now_ = now;
  const std::int32_t m = table_[id].member;
  Member& member = members_[m];
  member.fetching = false;
  member.delivered = true;
  member.prompted = prompted;
  member.computed = delivered(table_[id]);
  if (cached_) name_blocks(m, member.computed);
  --awaited_;
  refresh();
}

void Instance::give_back_handed_over(std::int32_t m) {
  Member& member = members_[m];
  if (member.fetching) --awaited_;
  if (member.held > Blocks(0)) promised_ -= member.promised;
  member.fetching = member.delivered = false;
  std::erase(taken_over_, member.id);
  release_blocks(m);
  member.computed = Tokens(0);
}

bool Instance::give_back_last_handed_over() {
  const auto arrived = [this](RequestId id) { return !members_[table_[id].member].fetching; };
  const auto last = std::find_if(taken_over_.rbegin(), taken_over_.rend(), arrived);
  if (last == taken_over_.rend()) return false;
  give_back_handed_over(table_[*last].member);
  refresh();
  return true;
}

}  // namespace spillway
