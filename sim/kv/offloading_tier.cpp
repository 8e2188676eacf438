#include "sim/kv/offloading_tier.hpp"

#include <algorithm>
#include <utility>

#include "sim/core/error.hpp"

namespace spillway {

void OffloadingTier::touch(std::span<const BlockHash> blocks) {
  counts_.touched += std::ssize(blocks);
  std::for_each(blocks.rbegin(), blocks.rend(), [this](BlockHash hash) {
    const auto found = entries_.find(hash);
    if (found == entries_.end()) return;
    Entry& entry = found->second;
    if (entry.loading == 0) evictable_.erase(entry.used);
    entry.used = uses_++;
    if (entry.loading == 0) evictable_.emplace(entry.used, hash);
  });
}

Blocks OffloadingTier::look_up(std::span<const BlockHash> blocks, Blocks on_gpu, const OnDisk& on_disk) {
  const auto begin = static_cast<std::size_t>(on_gpu.count());
  touch(blocks);
  if (begin >= blocks.size()) return Blocks(0);
  std::int64_t hits = 0;
  // A block from the disk needs a slot, and a block that the request loads cannot be evicted for it.
  Blocks slots = slots_ - held() + Blocks(std::ssize(evictable_));
  for (const BlockHash hash : blocks.subspan(begin)) {
    ++counts_.lookups;
    const auto found = entries_.find(hash);
    const bool held = found != entries_.end();
    if (held && found->second.loading < 0) break;
    if (!held) {
      if (!on_disk) break;
      ++counts_.lookups;
      if (!on_disk(hash)) break;
    }
    if (!held || found->second.loading == 0) {
      if (slots == Blocks(0)) break;
      slots -= Blocks(1);
    }
    ++hits;
  }
  return Blocks(hits);
}

void OffloadingTier::load_begins(std::span<const BlockHash> blocks) {
  for (const BlockHash hash : blocks) {
    Entry& entry = entries_.at(hash);
    SPILLWAY_CHECK(entry.loading >= 0, "a block is loaded that is not ready");
    if (entry.loading++ == 0) evictable_.erase(entry.used);
  }
  counts_.loaded += Blocks(std::ssize(blocks));
}

void OffloadingTier::load_ended(std::span<const BlockHash> blocks) {
  for (const BlockHash hash : blocks) {
    Entry& entry = entries_.at(hash);
    if (--entry.loading == 0) evictable_.emplace(entry.used, hash);
  }
}

std::vector<BlockHash> OffloadingTier::store(Storing& request, std::span<const BlockHash> blocks, bool& refused) {
  refused = false;
  evicted_.clear();
  std::vector<BlockHash> fresh;
  if (request.next >= blocks.size()) return fresh;
  const auto range = blocks.subspan(request.next);
  counts_.lookups += std::ssize(range);
  std::ranges::copy_if(range, std::back_inserter(fresh), [this](BlockHash hash) { return !entries_.contains(hash); });
  const Blocks wanted(std::ssize(fresh));
  if (wanted > slots_ - held() + Blocks(std::ssize(evictable_))) {
    refused = true;
    ++counts_.refused_stores;
    counts_.scanned += std::ssize(entries_) - std::ssize(evictable_);
    fresh.clear();
    return fresh;
  }
  free_slots(wanted);
  for (const BlockHash hash : fresh) entries_.emplace(hash, Entry{.used = uses_++});
  counts_.stored += Blocks(std::ssize(fresh));
  request.next = blocks.size();
  request.entered.insert(request.entered.end(), fresh.begin(), fresh.end());
  touch(blocks);
  return fresh;
}

void OffloadingTier::enter(std::span<const BlockHash> blocks) {
  evicted_.clear();
  free_slots(Blocks(std::ssize(blocks)));
  const auto take_slot = [this](BlockHash hash) { entries_.emplace(hash, Entry{.used = uses_++}); };
  std::for_each(blocks.rbegin(), blocks.rend(), take_slot);
}

void OffloadingTier::ready(std::span<const BlockHash> blocks) {
  for (const BlockHash hash : blocks) {
    Entry& entry = entries_.at(hash);
    entry.loading = 0;
    evictable_.emplace(entry.used, hash);
  }
}

void OffloadingTier::free_slots(Blocks count) {
  while (slots_ - held() < count) evict_first();
}

void OffloadingTier::evict_first() {
  const auto first = evictable_.begin();
  evicted_.push_back(first->second);
  entries_.erase(first->second);
  evictable_.erase(first);
  counts_.evicted += Blocks(1);
}

std::vector<BlockHash> OffloadingTier::order() const {
  std::vector<std::pair<std::int64_t, BlockHash>> uses;
  for (const auto& [hash, entry] : entries_) uses.emplace_back(entry.used, hash);
  std::ranges::sort(uses);
  std::vector<BlockHash> hashes;
  hashes.reserve(uses.size());
  for (const auto& [use, hash] : uses) hashes.push_back(hash);
  return hashes;
}

}  // namespace spillway
