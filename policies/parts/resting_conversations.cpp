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
  slots_[request.conversation] = slot;
  const bool stale = resting_[slot].stale;
  resting_[slot] = {.conversation = request.conversation,
                    .since = view_.now(),
                    .tokens = request.computed,
                    .blocks = blocks_for(request.computed, view_.block_tokens()),
                    .stale = stale};
  update(slot, view_.runs(holder(request.id)));
}

void RestingConversations::ends(std::int64_t conversation) {
  const std::size_t* const found = slots_.find(conversation);
  if (found == nullptr) return;
  const std::size_t slot = *found;
  slots_.erase(conversation);
  counts_ -= resting_[slot].counts;
  resting_[slot].conversation = kNone;
  withdraw(slot);
  free_.push_back(slot);
}

void RestingConversations::changed(std::int64_t conversation) {
  if (const std::size_t* const slot = slots_.find(conversation)) refresh(*slot);
}

// The next chunk of its kind takes its place. Where the next one, a whole chunk as this one, is in the same place, no
// other kind has changed: a whole chunk that is on the host alone now can only follow whole chunks there.
void RestingConversations::changed(const Chunk& chunk, Became what) {
  Resting& resting = resting_[chunk.slot];
  First& first = resting.*chunk.kind;
  const Blocks gone = chunk.range.count();
  const BlockRange next{chunk.range.end, chunk.range.end + chunk_};
  if (first.range.count() != chunk_ || next.end > first.end) return refresh(chunk.slot);
  Counts change;
  if (chunk.kind == &Resting::on_host) {
    change.on_host -= gone;
  } else {
    (chunk.kind == &Resting::clean ? change.clean : change.dirty) -= gone;
    if (what == Became::leaving) change.leaving += gone;
  }
  resting.counts += change;
  counts_ += change;
  first.range = next;
  mark_stale(chunk.slot);
}

void RestingConversations::pin(std::int64_t conversation) {
  const std::size_t* const slot = slots_.find(conversation);
  if (slot == nullptr) return;
  resting_[*slot].pinned = true;
  withdraw(*slot);
}

RestingConversations::Counts RestingConversations::counts_without(std::int64_t conversation) const {
  Counts counts = counts_;
  if (const std::size_t* const slot = slots_.find(conversation)) counts -= resting_[*slot].counts;
  return counts;
}

std::optional<RestingConversations::Chunk> RestingConversations::first(RetentionOrder& order, First Resting::*kind) {
  offer_stale();
  const std::optional<std::size_t> slot = order.least(view_.now());
  if (!slot) return {};
  const Resting& resting = resting_[*slot];
  return Chunk{holder_of_conversation(resting.conversation), (resting.*kind).range, order.at(*slot), *slot, kind};
}

std::optional<RestingConversations::Chunk> RestingConversations::first_clean(Blocks wanted) {
  std::optional<Chunk> chunk = first(clean_, &Resting::clean);
  if (!chunk || chunk->range.count() != chunk_) return chunk;
  const Resting& resting = resting_[chunk->slot];
  const RetentionCandidate* const other = clean_.runner_up(view_.now());
  BlockRange& range = chunk->range;
  while (range.count() < wanted && range.end + chunk_ <= resting.clean.end) {
    const BlockRange next{range.end, range.end + chunk_};
    if (other != nullptr && !evicted_before(candidate(resting, next), *other, view_.now())) break;
    range.end = next.end;
  }
  return chunk;
}

RetentionCandidate RestingConversations::candidate(const Resting& resting, const BlockRange& range) const {
  const Tokens context = std::min(resting.tokens, view_.block_tokens() * range.end.count());
  RetentionCandidate candidate = candidate_(resting.conversation, resting.since, context);
  candidate.position = range.first.count();
  candidate.owner = resting.conversation;
  return candidate;
}

void RestingConversations::update(std::size_t slot, std::span<const KvRun> runs) {
  Resting& resting = resting_[slot];
  resting.pinned = false;
  Counts counts;
  resting.dirty.range = resting.clean.range = resting.on_host.range = {};
  const auto note = [this](First& first, const BlockRange& range, bool of_one_kind = true) {
    if (first.range.count() > Blocks(0)) return;
    const Blocks chunk_end((quotient(range.first.count(), chunk_.count()) + 1) * chunk_.count());
    first.range = {range.first, std::min(range.end, chunk_end)};
    first.end = of_one_kind ? range.end : first.range.end;
  };
  Blocks at;
  for (const KvRun& run : runs) {
    const BlockRange range{at, std::min(resting.blocks, at + run.blocks)};
    at = range.end;
    if (range.count() <= Blocks(0)) break;
    if (run.moving()) {
      counts.leaving += range.count();
      continue;
    }
    if (run.on(kHostTier)) {
      counts.on_host += range.count();
      note(resting.on_host, range, !run.on(kGpuTier));
    }
    if (!run.on(kGpuTier)) continue;
    const bool clean = run.on(kHostTier);
    (clean ? counts.clean : counts.dirty) += range.count();
    note(clean ? resting.clean : resting.dirty, range);
  }
  counts_ -= std::exchange(resting.counts, counts);
  counts_ += counts;
  mark_stale(slot);
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
  order.put(slot, candidate(resting, range));
}

}  // namespace spillway
