// The engine's KV connector: what requests load from the host tier and store to it, and when.
#include <algorithm>
#include <utility>

#include "sim/engine/instance.hpp"

namespace spillway {

// --- loads
// ------------------------------------------------------------------------------------------------------------

Blocks Instance::look_up(RequestId id) {
  const RequestSlot& slot = table_[id];
  if (takes_over()) return to_take_over(slot);
  if (!connector_) return Blocks(0);
  if (slot.member >= 0 && members_[slot.member].held > Blocks(0)) return Blocks(0);
  const Tokens known = slot.member >= 0 ? members_.known(members_[slot.member]) : Tokens(slot.input);
  std::vector<BlockHash>& hashes = connector_->looked;
  hashes.clear();
  BlockHash hash = 0;
  for (std::int64_t b = 0; b < quotient(known.count(), kv_.block_tokens.count()); ++b) {
    hashes.push_back(hash = block_hash(slot, hash, b));
  }
  Blocks on_gpu;
  visit_cached_prefix(slot, known, [&](BlockHash, std::int32_t) { on_gpu += Blocks(1); });
  Blocks hits;
  if (DiskTier* const below = disk()) {
    below->touch(hashes);
    hits = connector_->tier.look_up(hashes, on_gpu, [&](BlockHash block) { return below->readable(block); });
  } else {
    hits = connector_->tier.look_up(hashes, on_gpu);
  }
  hashes.erase(hashes.begin(), hashes.begin() + on_gpu.count());
  hashes.resize(static_cast<std::size_t>(hits.count()));
  connector_->looked_up = id;
  return hits;
}

void Instance::fetch_from_tier(RequestId id) {
  Connector& c = *connector_;
  if (c.looked_up != id || c.looked.empty()) broken(kJoin, id, "it found no blocks in the host tier to fetch");
  const std::int32_t m = make_member(id);
  Member& member = members_[m];
  visit_cached_prefix(table_[id], member.known, [&](BlockHash hash, std::int32_t block) {
    cached_->share(block);
    member.blocks.push_back(block);
    member.chain = hash;
  });
  member.named = member.blocks.size();
  member.loaded = Blocks(std::ssize(c.looked));
  if (member.loaded > cached_->free()) broken(kJoin, id, "the GPU has no free blocks for what it fetches");
  for (std::size_t i = 0; i < c.looked.size(); ++i) member.blocks.push_back(cached_->allocate());
  member.held = Blocks(std::ssize(member.blocks));
  member.fetching = true;
  if (member.stores < 0) member.stores = open_stores();
  c.stores[static_cast<std::size_t>(member.stores)].storing.next = member.blocks.size();
  const std::int32_t number =
      add_transfer({.loads = id, .count = member.loaded, .hashes = std::exchange(c.looked, {})});
  c.fetched.push_back(id);
  refresh();
  member.from_disk = Tokens(0);
  Transfer& load = c.transfers[static_cast<std::size_t>(number)];
  std::vector<BlockHash> ready;
  for (const BlockHash hash : load.hashes) (c.tier.holds(hash) ? ready : load.from_disk).push_back(hash);
  c.tier.load_begins(ready);
  if (load.from_disk.empty()) return start_load(number);
  // The last known token is always computed.
  const bool whole = kv_.block_tokens * member.held.count() >= member.known;
  const bool last_from_disk = load.from_disk.back() == load.hashes.back();
  member.from_disk = kv_.block_tokens * std::ssize(load.from_disk) - Tokens(whole && last_from_disk ? 1 : 0);
  c.disk->read(number, load.from_disk);
  c.tier.enter(load.from_disk);
  c.disk->write(c.tier.evicted());
}

void Instance::start_load(std::int32_t number) { start_transfer(graph_.routes.size() - 2, number); }

void Instance::start_transfer(std::size_t route, std::int32_t number) {
  Connector& c = *connector_;
  const Move move{.range = {Blocks(0), c.transfers[static_cast<std::size_t>(number)].count}};
  const double busy = c.times.launches * to_seconds(runner_.start_time(route, move));
  // A worker that runs ahead begins what belongs to an iteration when the one before begins.
  const SimTime earliest = end_ == now_ ? start_ : now_;
  c.worker_free = std::max(c.worker_free, now_) + round_seconds(busy);
  c.ahead_free = std::max(c.ahead_free, earliest) + round_seconds(busy);
  ledger_.started_copies(busy);
  runner_.move(route, move, kFirstTransfer + number);
}

bool Instance::advance_disk(SimTime now) {
  const std::vector<std::int32_t> reads = disk()->advance(now);
  for (const std::int32_t number : reads) disk_read_ended(number);
  ledger_.used_disk(disk()->take_counts());
  return !reads.empty();
}

void Instance::disk_read_ended(std::int32_t number) {
  Connector& c = *connector_;
  Transfer& load = c.transfers[static_cast<std::size_t>(number)];
  const std::vector<BlockHash> arrived = std::exchange(load.from_disk, {});
  c.tier.ready(arrived);
  c.tier.load_begins(arrived);
  if (table_.alive(load.loads)) return start_load(number);
  end_transfer(number);
}

void Instance::take_fetched(std::int32_t m) {
  Member& member = members_[m];
  std::erase(connector_->fetched, member.id);
  const Tokens on_gpu = kv_.block_tokens * (member.held - member.loaded).count();
  member.cached += member.computed;
  const Tokens from_disk = std::exchange(member.from_disk, Tokens(0));
  ledger_.asked_prefix(member.known, {member.computed, member.computed - on_gpu - from_disk, from_disk});
}

void Instance::give_back_fetched(std::int32_t m) {
  Member& member = members_[m];
  if (member.held > Blocks(0)) std::erase(connector_->fetched, member.id);
  if (member.fetching) {
    const auto load = std::ranges::find(connector_->transfers, member.id, &Transfer::loads);
    load->blocks = std::move(member.blocks);
    member.blocks.clear();
    member.fetching = false;
  }
  release_blocks(m);
}

bool Instance::give_back_last_fetched() {
  if (connector_->fetched.empty()) return false;
  const RequestId id = connector_->fetched.back();
  const std::int32_t m = table_[id].member;
  give_back_fetched(m);
  members_[m].computed = Tokens(0);
  refresh();
  return true;
}

// --- stores
// -----------------------------------------------------------------------------------------------------------

std::int32_t Instance::open_stores() {
  Connector& c = *connector_;
  if (c.free_stores.empty()) {
    c.free_stores.push_back(static_cast<std::int32_t>(c.stores.size()));
    c.stores.emplace_back();
  }
  const std::int32_t number = c.free_stores.back();
  c.free_stores.pop_back();
  return number;
}

void Instance::offload() {
  Connector& c = *connector_;
  std::vector<std::int32_t>& members = c.filled;
  members.insert(members.end(), chunk_members_.begin(), chunk_members_.end());
  // A decode that was refused tries again when it takes part in the step.
  std::uint64_t last_decode = 0;
  if (!c.refused.empty()) visit_decodes(staged_decodes_, [&](std::int32_t m) { last_decode = members_[m].order; });
  const std::vector<RequestId> before = std::exchange(c.refused, {});
  for (const RequestId id : before) {
    if (!table_.alive(id)) continue;
    const std::int32_t m = table_[id].member;
    const Member& member = members_[m];
    if (!in_batch(member)) continue;
    const bool takes_part = member.staged > Tokens(0) ||
                            (member.phase == Phase::decoding && staged_decodes_ > 0 && member.order <= last_decode);
    takes_part ? members.push_back(m) : c.refused.push_back(id);
  }
  std::ranges::sort(members, {}, [this](std::int32_t m) { return members_[m].order; });
  members.erase(std::unique(members.begin(), members.end()), members.end());
  for (const std::int32_t m : members) store_full_blocks(m);
  members.clear();
  c.tier.visit(staged_decodes_ + std::ssize(chunk_members_));
  const OffloadingCounts counts = c.tier.take_counts();
  const auto left = [this](SimTime free) { return to_seconds(std::max(free - now_, Duration{})); };
  c.work = {.scheduler = c.times.of(counts), .worker = left(c.worker_free), .worker_ahead = left(c.ahead_free)};
  ledger_.offloaded(counts, c.work.scheduler);
}

void Instance::store_full_blocks(std::int32_t m) {
  Connector& c = *connector_;
  Member& member = members_[m];
  if (member.stores < 0) member.stores = open_stores();
  Stores& stores = c.stores[static_cast<std::size_t>(member.stores)];
  const RequestSlot& slot = table_[member.id];
  const std::int64_t full = quotient(computed_after(member).count(), kv_.block_tokens.count());
  for (std::int64_t b = std::ssize(stores.hashes); b < full; ++b) {
    stores.hashes.push_back(block_hash(slot, b == 0 ? 0 : stores.hashes.back(), b));
  }
  bool refused = false;
  const Blocks stored(std::ssize(c.tier.store(stores.storing, stores.hashes, refused)));
  if (c.disk) c.disk->write(c.tier.evicted());
  if (refused) c.refused.push_back(member.id);
  if (stored == Blocks(0)) return;
  ++stores.copies;
  c.queued.push_back(add_transfer({.stores = member.stores, .count = stored}));
}

void Instance::start_stores() {
  for (const std::int32_t number : connector_->queued) start_transfer(graph_.routes.size() - 1, number);
  connector_->queued.clear();
}

void Instance::close_stores(std::int32_t m, bool keep) {
  Member& member = members_[m];
  if (member.stores < 0) return;
  const std::int32_t number = std::exchange(member.stores, -1);
  Stores& stores = connector_->stores[static_cast<std::size_t>(number)];
  stores.closed = true;
  if (keep && stores.copies > 0) {
    stores.blocks = std::move(member.blocks);
    member.blocks.clear();
  }
  settle_stores(number);
}

void Instance::preempt_stores(std::int32_t m) {
  Member& member = members_[m];
  if (member.stores < 0) return;
  const std::size_t next = connector_->stores[static_cast<std::size_t>(member.stores)].storing.next;
  close_stores(m, /*keep=*/false);
  member.stores = open_stores();
  connector_->stores[static_cast<std::size_t>(member.stores)].storing.next = next;
}

void Instance::settle_stores(std::int32_t number) {
  Stores& stores = connector_->stores[static_cast<std::size_t>(number)];
  if (!stores.closed || stores.copies > 0) return;
  connector_->tier.ready(stores.storing.entered);
  release_gpu_blocks(stores.blocks);
  stores = Stores{};
  connector_->free_stores.push_back(number);
}

// --- transfers
// --------------------------------------------------------------------------------------------------------

std::int32_t Instance::add_transfer(Transfer transfer) {
  Connector& c = *connector_;
  if (c.free_transfers.empty()) {
    c.free_transfers.push_back(static_cast<std::int32_t>(c.transfers.size()));
    c.transfers.emplace_back();
  }
  const std::int32_t number = c.free_transfers.back();
  c.free_transfers.pop_back();
  c.transfers[static_cast<std::size_t>(number)] = std::move(transfer);
  ++c.under_way;
  return number;
}

void Instance::end_transfer(std::int32_t number) {
  Connector& c = *connector_;
  Transfer ended = std::exchange(c.transfers[static_cast<std::size_t>(number)], {});
  c.free_transfers.push_back(number);
  --c.under_way;
  if (ended.stores >= 0) {
    --c.stores[static_cast<std::size_t>(ended.stores)].copies;
    settle_stores(ended.stores);
  } else {
    c.tier.load_ended(ended.hashes);
    release_gpu_blocks(ended.blocks);
    const std::int32_t m = table_.alive(ended.loads) ? table_[ended.loads].member : -1;
    if (m >= 0 && members_[m].fetching) {
      Member& member = members_[m];
      member.fetching = false;
      for (const BlockHash hash : ended.hashes) cached_->name(member.blocks[member.named++], hash);
      member.chain = ended.hashes.back();
      // The last known token is always computed.
      member.computed = std::min(kv_.block_tokens * member.held.count(), member.known - Tokens(1));
    }
  }
  refresh();
}

void Instance::release_gpu_blocks(std::vector<std::int32_t>& blocks) {
  for (; !blocks.empty(); blocks.pop_back()) cached_->release(blocks.back());
}

}  // namespace spillway
