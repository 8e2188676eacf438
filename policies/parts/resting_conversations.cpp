#include "policies/parts/resting_conversations.hpp"

#include <algorithm>
#include <utility>

namespace spillway {

RestingConversations::Counts& RestingConversations::Counts::operator+=(const Counts& other) {
  dirty += other.dirty;
  leaving += other.leaving;
  clean += other.clean;
  on_host += other.on_host;
  return *this;
}

RestingConversations::Counts& RestingConversations::Counts::operator-=(const Counts& other) {
  dirty -= other.dirty;
  leaving -= other.leaving;
  clean -= other.clean;
  on_host -= other.on_host;
  return *this;
}

RestingConversations::RestingConversations(const View& view, Blocks chunk, Candidate candidate)
    : view_(view), chunk_(chunk), candidate_(std::move(candidate)) {}

void RestingConversations::rests(const RequestView& request) {
  ends(request.conversation);
  if (free_.empty()) {
    free_.push_back(resting_.size());
    resting_.emplace_back();
  }
  const std::size_t slot = free_.back();
  free_.pop_back();
  slots_.emplace(request.conversation, slot);
  const bool stale = resting_[slot].stale;
  resting_[slot] = {
      .conversation = request.conversation, .since = view_.now(), .tokens = request.computed, .stale = stale};
  update(slot, view_.runs(holder(request.id)));
}

void RestingConversations::ends(std::int64_t conversation) {
  const auto found = slots_.find(conversation);
  if (found == slots_.end()) return;
  const std::size_t slot = found->second;
  slots_.erase(found);
  counts_ -= resting_[slot].counts;
  resting_[slot].conversation = kNone;
  withdraw(slot);
  free_.push_back(slot);
}

void RestingConversations::changed(std::int64_t conversation) {
  if (const auto found = slots_.find(conversation); found != slots_.end()) refresh(found->second);
}

void RestingConversations::pin(std::int64_t conversation) {
  const auto found = slots_.find(conversation);
  if (found == slots_.end()) return;
  resting_[found->second].pinned = true;
  withdraw(found->second);
}

RestingConversations::Counts RestingConversations::counts_without(std::int64_t conversation) const {
  Counts counts = counts_;
  if (const auto found = slots_.find(conversation); found != slots_.end()) counts -= resting_[found->second].counts;
  return counts;
}

std::optional<RestingConversations::Chunk> RestingConversations::first(RetentionOrder& order, First Resting::*kind) {
  offer_stale();
  const std::optional<std::size_t> slot = order.least(view_.now());
  if (!slot) return {};
  const Resting& resting = resting_[*slot];
  return Chunk{holder_of_conversation(resting.conversation), (resting.*kind).range, order.at(*slot), *slot};
}

void RestingConversations::update(std::size_t slot, std::span<const KvRun> runs) {
  Resting& resting = resting_[slot];
  resting.pinned = false;
  counts_ -= std::exchange(resting.counts, {});
  resting.dirty.range = resting.clean.range = resting.on_host.range = {};
  const Blocks end = blocks_for(resting.tokens, view_.block_tokens());
  const auto note = [this](BlockRange& first, const BlockRange& range) {
    if (first.count() > Blocks(0)) return;
    const Blocks chunk_end((range.first.count() / chunk_.count() + 1) * chunk_.count());
    first = {range.first, std::min(range.end, chunk_end)};
  };
  Blocks at;
  for (const KvRun& run : runs) {
    const BlockRange range{at, std::min(end, at + run.blocks)};
    at = range.end;
    if (range.count() <= Blocks(0)) break;
    if (run.moving()) {
      resting.counts.leaving += range.count();
      continue;
    }
    if (run.on(kHostTier)) {
      resting.counts.on_host += range.count();
      note(resting.on_host.range, range);
    }
    if (!run.on(kGpuTier)) continue;
    const bool clean = run.on(kHostTier);
    (clean ? resting.counts.clean : resting.counts.dirty) += range.count();
    note((clean ? resting.clean : resting.dirty).range, range);
  }
  counts_ += resting.counts;
  if (!std::exchange(resting.stale, true)) stale_.push_back(slot);
}

void RestingConversations::refresh(std::size_t slot) {
  const std::int64_t conversation = resting_[slot].conversation;
  const std::span<const KvRun> runs = view_.runs(holder_of_conversation(conversation));
  runs.empty() ? ends(conversation) : update(slot, runs);
}

void RestingConversations::withdraw(std::size_t slot) {
  Resting& resting = resting_[slot];
  resting.dirty.offered = resting.clean.offered = resting.on_host.offered = {};
  dirty_.remove(slot);
  clean_.remove(slot);
  on_host_.remove(slot);
}

void RestingConversations::offer_stale() {
  for (const std::size_t slot : stale_) {
    Resting& resting = resting_[slot];
    resting.stale = false;
    if (resting.conversation == kNone || resting.pinned) continue;
    offer(dirty_, slot, &Resting::dirty);
    offer(clean_, slot, &Resting::clean);
    offer(on_host_, slot, &Resting::on_host);
  }
  stale_.clear();
}

void RestingConversations::offer(RetentionOrder& order, std::size_t slot, First Resting::*kind) {
  Resting& resting = resting_[slot];
  const BlockRange& range = (resting.*kind).range;
  if (std::exchange((resting.*kind).offered, range) == range) return;
  if (range.count() == Blocks(0)) return order.remove(slot);
  const Tokens context = std::min(resting.tokens, view_.block_tokens() * range.end.count());
  RetentionCandidate candidate = candidate_(resting.conversation, resting.since, context);
  candidate.position = range.first.count();
  candidate.owner = resting.conversation;
  order.put(slot, candidate);
}

}  // namespace spillway
