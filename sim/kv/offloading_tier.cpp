#include "sim/kv/offloading_tier.hpp"

#include <algorithm>
#include <ranges>
#include <utility>

#include "sim/core/error.hpp"

namespace spillway {

void OffloadingTier::touch(std::span<const BlockHash> blocks) {
  counts_.touched += std::ssize(blocks);
  for (const BlockHash hash : std::views::reverse(blocks)) {
    const auto found = entries_.find(hash);
    if (found == entries_.end()) continue;
    Entry& entry = found->second;
    if (entry.loading == 0) evictable_.erase(entry.used);
    entry.used = uses_++;
    if (entry.loading == 0) evictable_.emplace(entry.used, hash);
  }
}

Blocks OffloadingTier::look_up(std::span<const BlockHash> blocks, Blocks on_gpu) {
  const auto begin = static_cast<std::size_t>(on_gpu.count());
  touch(blocks);
  if (begin >= blocks.size()) return Blocks(0);
  std::int64_t hits = 0;
  for (const BlockHash hash : blocks.subspan(begin)) {
    ++counts_.lookups;
    const auto found = entries_.find(hash);
    if (found == entries_.end() || found->second.loading < 0) break;
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
  std::vector<BlockHash> fresh;
  if (request.next >= blocks.size()) return fresh;
  const auto range = blocks.subspan(request.next);
  counts_.lookups += std::ssize(range);
  std::ranges::copy_if(range, std::back_inserter(fresh), [this](BlockHash hash) { return !entries_.contains(hash); });
  const Blocks missing = Blocks(std::ssize(fresh)) - (slots_ - held());
  if (missing > Blocks(std::ssize(evictable_))) {
    refused = true;
    ++counts_.refused_stores;
    counts_.scanned += std::ssize(entries_) - std::ssize(evictable_);
    fresh.clear();
    return fresh;
  }
  for (std::int64_t i = 0; i < missing.count(); ++i) evict_first();
  for (const BlockHash hash : fresh) entries_.emplace(hash, Entry{.used = uses_++});
  counts_.stored += Blocks(std::ssize(fresh));
  request.next = blocks.size();
  request.entered.insert(request.entered.end(), fresh.begin(), fresh.end());
  touch(blocks);
  return fresh;
}

void OffloadingTier::ready(std::span<const BlockHash> blocks) {
  for (const BlockHash hash : blocks) {
    Entry& entry = entries_.at(hash);
    entry.loading = 0;
    evictable_.emplace(entry.used, hash);
  }
}

void OffloadingTier::evict_first() {
  const auto first = evictable_.begin();
  entries_.erase(first->second);
  evictable_.erase(first);
  counts_.evicted += Blocks(1);
}

std::vector<BlockHash> OffloadingTier::order() const {
  std::vector<std::pair<std::int64_t, BlockHash>> uses;
  for (const auto& [hash, entry] : entries_) uses.emplace_back(entry.used, hash);
  std::ranges::sort(uses);
  std::vector<BlockHash> hashes;
  for (const auto& [use, hash] : uses) hashes.push_back(hash);
  return hashes;
}

}  // namespace spillway
