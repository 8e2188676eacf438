// What a policy sees of an instance (View) and how it changes the standing batch (Decision).
#include <algorithm>
#include <cmath>
#include <string>

#include "sim/engine/instance.hpp"

namespace spillway {
namespace {

/// "1 block", "2 blocks".
std::string counted(std::int64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string name_of(RequestId id) { return "request " + std::to_string(id.serial); }

std::string name_of(Phase phase) {
  switch (phase) {
    case Phase::waiting:
      return "waiting";
    case Phase::prefilling:
      return "prefilling";
    case Phase::decoding:
      return "decoding";
    case Phase::swapped:
      break;
  }
  return "swapped";
}

}  // namespace

// --- View
// -------------------------------------------------------------------------------------------------------------

RequestView Instance::request(RequestId id) const {
  const RequestSlot& slot = table_[id];
  RequestView view;
  bool elsewhere = !conversations_.empty();  // KV of it may be
  view.id = id;
  view.client = slot.client;
  view.arrival = slot.arrival;
  view.input = padding_ ? padding_->input : Tokens(slot.input);
  view.max_new_tokens = padding_ ? padding_->output : Tokens(slot.max_new);
  view.known = view.input;
  if (slot.member >= 0) {
    const Member& member = members_[slot.member];
    view.phase = member.phase;
    view.known = members_.known(member);
    view.computed = members_.computed(member);
    view.held = members_.held(member);
    view.tier = tier_of(member);
    view.sub_batch = member.sub_batch;
    view.fetching = member.fetching;
    elsewhere = elsewhere || member.holder >= 0;
  } else {
    view.computed = delivered(slot);
  }
  view.conversation = conversation_of(slot);
  if (elsewhere && !in_batch(view.phase)) show_computed(slot, view);
  return view;
}

void Instance::show_computed(const RequestSlot& slot, RequestView& view) const {
  const Kept* const kept = view.phase == Phase::waiting ? find_kept(view.conversation) : nullptr;
  Residency::Key key = slot.member < 0 ? -1 : members_[slot.member].holder;
  if (kept != nullptr) {
    key = kept->key;
    view.computed = usable(*kept, slot);
    view.reusable = std::min({kept->tokens, repeats(slot), Tokens(slot.input)});
  }
  if (key < 0 || residency_.complete(key)) return;
  for (const Gap& gap : gaps_of(key, view.computed)) view.computed -= gap.count;
}

RequestId Instance::last_joined() const { return members_.last() < 0 ? kNoRequest : members_[members_.last()].id; }

Blocks Instance::decode_growth(std::int64_t decodes) const {
  if (staged_decodes_ >= 0) return Blocks(0);
  if (decodes >= members_.decoding()) return members_.growth();
  Blocks growth;
  visit_decodes(decodes, [&](std::int32_t m) {
    growth += Blocks(members_.grows_next(members_[m]) && !members_[m].on_host ? 1 : 0);
  });
  return growth;
}

RequestId Instance::last_decoding() const {
  std::int32_t m = members_.last();
  while (m >= 0 && members_[m].phase != Phase::decoding) m = members_[m].prev;
  return m < 0 ? kNoRequest : members_[m].id;
}

SimTime Instance::waiting_since() const {
  SimTime since = now_;
  const auto waits = [&](std::int32_t m) {
    const Member& member = members_[m];
    const SimTime first = member.prompted != kNever ? member.prompted : table_[member.id].arrival;
    since = std::min(since, member.first_token == kNever ? first : members_.last_token(member));
  };
  for (const std::int32_t m : chunk_members_) waits(m);
  visit_decodes(staged_decodes_, waits);
  return since;
}

bool Instance::grows_next(RequestId id) const {
  const std::int32_t m = table_[id].member;
  return m >= 0 && members_.grows_next(members_[m]);
}

BlockHash Instance::block_hash(const RequestSlot& slot, BlockHash parent, std::int64_t block) const {
  constexpr std::uint64_t kPrivate = 0xD1B54A32D192ED03ULL;  // content that no other request shares
  if (slot.details >= 0) {
    const auto& ids = details_[static_cast<std::size_t>(slot.details)].prefix_ids;
    if (block < static_cast<std::int64_t>(ids.size())) return chain_hash(parent, ids[static_cast<std::size_t>(block)]);
  }
  return chain_hash(chain_hash(parent, kPrivate), slot.content);
}

View::CachedPrefix Instance::cached_prefix(RequestId id) const {
  CachedPrefix prefix;
  if (!cached_) return prefix;
  const RequestSlot& slot = table_[id];
  if (connector_ && slot.member >= 0 && members_[slot.member].held > Blocks(0)) {
    prefix.tokens = members_.computed(members_[slot.member]);
    return prefix;
  }
  const Tokens known = slot.member >= 0 ? members_.known(members_[slot.member]) : Tokens(slot.input);
  visit_cached_prefix(slot, known, [&](BlockHash, std::int32_t block) {
    prefix.tokens += kv_.block_tokens;
    if (block < 0) {
      prefix.host_blocks += Blocks(1);
    } else if (cached_->idle(block)) {
      prefix.idle_blocks += Blocks(1);
    }
  });
  return prefix;
}

void Instance::refresh() {
  batch_.running = members_.size();
  batch_.decoding = members_.decoding();
  batch_.decode_context = members_.decode_context();
  batch_.promised = promised_;
  batch_.decode_growth = staged_decodes_ >= 0 ? Blocks() : members_.growth();
  batch_.host_growth = staged_decodes_ >= 0 ? Blocks() : members_.host_growth();
  if (cached_) residency_.tier(kGpuTier).free = cached_->free();
}

// --- Decision
// ---------------------------------------------------------------------------------------------------------

const Instance::Deed Instance::kJoin{"join", "decision.hpp: join() takes a waiting request"};
const Instance::Deed Instance::kResume{
    "resume", "decision.hpp: resume() takes a swapped request before the decodes are staged, and needs free blocks"};
const Instance::Deed Instance::kChunk{
    "compute a chunk of",
    "decision.hpp: chunk() computes 1 to all remaining known tokens of a prefilling request, once, in free blocks"};
const Instance::Deed Instance::kReserve{"reserve blocks for",
                                        "decision.hpp: reserve() holds free blocks for a prefilling request, up to its "
                                        "known tokens or for its whole answer"};
const Instance::Deed Instance::kLeave{"take out",
                                      "decision.hpp: leave() takes a request out of the batch before its chunk or the "
                                      "decodes are staged; padding forbids "
                                      "it"};
const Instance::Deed Instance::kSubBatch{
    "choose a sub-batch for",
    "decision.hpp: sub_batch() takes a request of the batch, before its tokens are staged, and a number below "
    "kMostSubBatches"};
const Instance::Deed Instance::kAttend{"attend for", "scheduler.hpp: attends() returns kGpuTier or kHostTier"};
const Instance::Deed Instance::kReject{"reject", "decision.hpp: reject() ends a waiting request"};
const Instance::Deed Instance::kDecodes{
    "decodes", "decision.hpp: decodes() is called at most once, for 0 to all decoding requests, in free blocks"};
const Instance::Deed Instance::kNothing{"idle",
                                        "decision.hpp: a decision that runs nothing while requests are unfinished "
                                        "calls idle(), and an event must be to come"};
const Instance::Deed Instance::kProgress{"progress",
                                         "decision.hpp: decisions lead to tokens while requests are unfinished"};
const Instance::Deed Instance::kMove{"move",
                                     "residency.hpp: a Move takes blocks from a tier that has them to one with room"};
const Instance::Deed Instance::kDrop{
    "drop", "decision.hpp: drop() takes blocks of a conversation, or of a request outside the batch, from a tier"};
const Instance::Deed Instance::kReturn{
    "return", "scheduler.hpp: returns() brings every block of a request to the GPU, or leaves it dropped"};
const Instance::Deed Instance::kRetain{"value blocks of", "scheduler.hpp: a Retention gives numbers"};
const Instance::Deed Instance::kFigures{"report", "registry.hpp: PolicyInfo::figures declares every figure"};
const Instance::Deed Instance::kOffer{"capacity", "layer_policy.hpp: capacity() is at most Layout::most"};

void Instance::broken(const Deed& deed, const std::string& what, const std::string& why) const {
  throw BrokenPromise("policy " + policy_name_ + " decided to " + what + " at " + std::to_string(now_.ns()) +
                      " ns, but " + why + ". Rule of sim/api/" + deed.rule);
}

void Instance::broken(const Deed& deed, RequestId id, const std::string& why) const {
  broken(deed, std::string(deed.what) + " " + name_of(id), why);
}

std::string Instance::state_of(RequestId id) const {
  if (!table_.alive(id)) return name_of(id) + " has ended";
  const std::int32_t m = table_[id].member;
  return name_of(id) + " is " + name_of(m < 0 ? Phase::waiting : members_[m].phase);
}

std::int32_t Instance::member_of(RequestId id, const Deed& deed) const {
  if (!table_.alive(id)) broken(deed, id, state_of(id));
  return table_[id].member;
}

std::int32_t Instance::member_in(RequestId id, Phase phase, const Deed& deed) const {
  const std::int32_t m = member_of(id, deed);
  if (m < 0 || members_[m].phase != phase) broken(deed, id, state_of(id));
  return m;
}

void Instance::take_blocks(std::int32_t m, Blocks count, const Deed& deed) {
  if (members_[m].on_host) {
    TierState& host = residency_.tier(kHostTier);
    if (count > host.free) {
      broken(deed, members_[m].id,
             "it needs " + counted(count.count(), "block") + " and the host has " + std::to_string(host.free.count()) +
                 " free");
    }
    host.free -= count;
    members_[m].held += count;
    return;
  }
  TierState& gpu = residency_.tier(kGpuTier);
  if (count > make_room(count)) {
    broken(deed, members_[m].id,
           "it needs " + counted(count.count(), "block") + " and the GPU has " + std::to_string(gpu.free.count()) +
               " free");
  }
  members_[m].held += count;
  if (cached_) {
    for (std::int64_t i = 0; i < count.count(); ++i) members_[m].blocks.push_back(cached_->allocate());
    gpu.free = cached_->free();
  } else {
    gpu.free -= count;
  }
}

Blocks Instance::make_room(Blocks needed) {
  const TierState& gpu = tier(kGpuTier);
  if (needed > gpu.free) policy_.space->makes_room(*this, needed - gpu.free, *this);
  return gpu.free;
}

void Instance::release_blocks(std::int32_t m) {
  Member& member = members_[m];
  TierState& gpu = residency_.tier(kGpuTier);
  if (member.missing > Tokens(0)) {
    gaps_.erase(m);
    member.missing = Tokens(0);
  }
  if (cached_) forget_table(m);
  if (window_) {
    members_.windows()->change(member.computed, Tokens(0));
    settle_windows();
  }
  if (!cached_ || member.on_host) residency_.tier(tier_of(member)).free += member.held;
  if (member.holder >= 0) {
    // The books give back the blocks that they count.
    if (!cached_) residency_.tier(tier_of(member)).free -= residency_.blocks(member.holder);
    rename_moves(holder(member.id), Holder{});
    residency_.remove(member.holder);
    member.holder = -1;
  }
  member.held = Blocks();
  SPILLWAY_CHECK(gpu.free <= gpu.total, "more GPU blocks freed than there are");
}

void Instance::forget_table(std::int32_t m) {
  release_cached(m);
  members_[m].named = 0;
  members_[m].chain = 0;
}

void Instance::release_cached(std::int32_t m) {
  std::vector<std::int32_t>& blocks = members_[m].blocks;
  // In reverse order, so that the end of a sequence is reused before its beginning.
  if (!retention_) {
    for (; !blocks.empty(); blocks.pop_back()) cached_->release(blocks.back());
  } else {
    const RequestView leaving = request(members_[m].id);
    for (; !blocks.empty(); blocks.pop_back()) {
      const auto value = [&](std::int64_t hits) {
        const double worth = retention_(*this, {leaving, Blocks(std::ssize(blocks) - 1), hits});
        if (std::isnan(worth)) broken(kRetain, leaving.id, "their value is not a number");
        return worth;
      };
      cached_->release(blocks.back(), value);
    }
  }
  residency_.tier(kGpuTier).free = cached_->free();
}

void Instance::grow_to(std::int32_t m, Tokens tokens, const Deed& deed) {
  const Blocks missing = blocks_for(tokens, kv_.block_tokens) - members_[m].held;
  if (missing > Blocks()) take_blocks(m, missing, deed);
}

void Instance::name_blocks(std::int32_t m, Tokens computed) {
  Member& member = members_[m];
  // Blocks on the host are in no cache of the GPU.
  if (member.on_host && !host_) return;
  const auto full = static_cast<std::size_t>(quotient(computed.count(), kv_.block_tokens.count()));
  const RequestSlot& slot = table_[member.id];
  for (; member.named < full; ++member.named) {
    member.chain = block_hash(slot, member.chain, static_cast<std::int64_t>(member.named));
    if (member.on_host) {
      named_on_host_.push_back(member.chain);
      continue;
    }
    cached_->name(member.blocks[member.named], member.chain);
    if (host_) named_.push_back(member.chain);
    if (connector_) connector_->filled.push_back(m);
  }
}

void Instance::take_cached_prefix(std::int32_t m) {
  Member& member = members_[m];
  std::vector<std::pair<std::size_t, BlockHash>> loads;
  visit_cached_prefix(table_[member.id], member.known, [&](BlockHash hash, std::int32_t block) {
    if (block >= 0) {
      cached_->share(block);
    } else {
      loads.emplace_back(member.blocks.size(), hash);
    }
    member.blocks.push_back(block);
    member.chain = hash;
  });
  // Only now that every block found on the GPU is in use: a new block may take the place of an unused one.
  const Blocks loaded(static_cast<std::int64_t>(loads.size()));
  if (loaded > cached_->free()) {
    broken(kJoin, member.id,
           "its prefix in the host's cache needs " + counted(loaded.count(), "block") + " and the GPU has " +
               std::to_string(cached_->free().count()) + " free");
  }
  for (const auto& [at, hash] : loads) {
    member.blocks[at] = cached_->allocate();
    cached_->name(member.blocks[at], hash);
    host_->touch(hash);
  }
  runner_.load(loaded);
  member.named = member.blocks.size();
  member.computed = kv_.block_tokens * std::ssize(member.blocks);
  // What attends on the CPU has all of its own blocks there.
  if (!member.on_host) member.held = Blocks(std::ssize(member.blocks));
  member.cached += member.computed;
  ledger_.asked_prefix(member.known, {.all = member.computed, .on_host = kv_.block_tokens * loaded.count()});
  residency_.tier(kGpuTier).free = cached_->free();
}

void Instance::take_delivered(std::int32_t m) {
  const RequestSlot& slot = table_[members_[m].id];
  if (takes_over()) broken(kJoin, members_[m].id, "its KV has not been fetched");
  members_[m].delivered = true;
  members_[m].computed = delivered(slot);
  grow_to(m, delivered(slot), kJoin);
  if (cached_) name_blocks(m, delivered(slot));
}

std::int32_t Instance::make_member(RequestId id) {
  RequestSlot& slot = table_[id];
  if (slot.member >= 0) return slot.member;
  slot.member = members_.create(id);
  Member& fresh = members_[slot.member];
  fresh.client_number = slot.client_number;
  const RequestView view = request(id);
  fresh.input = fresh.known = view.input;
  fresh.output = padding_ ? padding_->output : Tokens(slot.output);
  fresh.promised = blocks_for(view.input + view.max_new_tokens, kv_.block_tokens);
  return slot.member;
}

void Instance::join(RequestId id) {
  if (const std::int32_t m = member_of(id, kJoin); m >= 0) static_cast<void>(member_in(id, Phase::waiting, kJoin));
  RequestSlot& slot = table_[id];
  const bool first_time = slot.member < 0 || members_[slot.member].first_scheduled == kNever;
  if (slot.member >= 0 && members_[slot.member].fetching) broken(kJoin, id, "its blocks are on their way");
  fairness_.joined(slot.client_number, Tokens(first_time ? slot.input : 0));
  const std::int32_t m = make_member(id);
  if (first_time) members_[m].first_scheduled = now_;
  if (observer_ != nullptr) observer_->joined(id.serial, now_);
  if (first_time && hands_over_ && phases_ == Phases::prefill) sink_.begins_prompt(id);
  decide_tier(m);
  if (conversation_of(slot) >= 0) adopt_conversation(m, first_time);
  members_[m].phase = Phase::prefilling;
  members_.append(m);
  const bool took_over = takes_over() && members_[m].held > Blocks(0);
  if (!took_over) promised_ += members_[m].promised;
  if (took_over) {
    std::erase(taken_over_, id);
  } else if (connector_ && members_[m].held > Blocks(0)) {
    take_fetched(m);
  } else {
    if (cached_) {
      const bool takes = policy_.space->takes_prefix(*this, request(id));
      takes ? take_cached_prefix(m) : ledger_.asked_prefix(members_[m].known, {});
    }
    if (first_time && phases_ == Phases::decode && !members_[m].handed_over) take_delivered(m);
  }
  refresh();
}

void Instance::resume(RequestId id) {
  const std::int32_t m = member_in(id, Phase::swapped, kResume);
  Member& member = members_[m];
  decide_tier(m);
  const auto decodes = [&member] { return member.known > member.input && member.known - member.computed == Tokens(1); };
  // A prompt that was computed again up to its last token has a block for that token already, without KV. As a decode
  // it takes this block anew.
  if (decodes()) keep_computed(member, member.held);
  bring_back(m);  // some of its KV may have been dropped
  member.phase = Phase::prefilling;
  if (cached_) name_blocks(m, member.computed);
  members_.append(m);
  if (observer_ != nullptr) observer_->joined(id.serial, now_);
  promised_ += member.promised;
  fairness_.joined(member.client_number, Tokens(0));
  if (decodes()) {
    if (staged_decodes_ >= 0) broken(kResume, id, "the decodes are staged");
    members_.start_decoding(m);
    fairness_.started_decoding(member.client_number);
    members_.mark_late(m, member.last_token);
  }
  refresh();
}

void Instance::keep_computed(Member& member, Blocks held) {
  member.held = std::min(held, blocks_for(member.computed, kv_.block_tokens));
  residency_.shorten(member.holder, member.held);
}

void Instance::decide_tier(std::int32_t m) {
  if (!cpu_attention_) return;
  const RequestId id = members_[m].id;
  const TierId tier = policy_.space->attends(*this, request(id));
  if (tier != kGpuTier && tier != kHostTier) broken(kAttend, id, name_of_tier(tier) + " has no processor");
  members_[m].on_host = tier == kHostTier;
}

void Instance::sub_batch(RequestId id, std::int32_t number) {
  const std::int32_t m = member_of(id, kSubBatch);
  if (m < 0 || !in_batch(members_[m])) broken(kSubBatch, id, state_of(id));
  if (number < 0 || number >= kMostSubBatches)
    broken(kSubBatch, id, "sub-batch " + std::to_string(number) + " is none");
  const bool staged = members_[m].staged != Tokens() || (members_[m].phase == Phase::decoding && staged_decodes_ >= 0);
  if (staged) broken(kSubBatch, id, "its tokens are staged");
  members_.set_sub_batch(m, number);
}

void Instance::chunk(RequestId id, Tokens tokens) {
  const std::int32_t m = member_in(id, Phase::prefilling, kChunk);
  Member& member = members_[m];
  const Tokens remaining = member.known - member.computed;
  if (member.staged != Tokens()) broken(kChunk, id, "a chunk of it is staged");
  if (tokens < Tokens(1) || tokens > remaining) {
    broken(kChunk, "compute " + counted(tokens.count(), "token") + " of " + name_of(id),
           "it has " + counted(remaining.count(), "known token") + " left");
  }
  if (member.on_host) {
    if (tokens < remaining) broken(kChunk, id, "the CPU attends for it, so its prompt is computed in one chunk");
    runner_.send_out(member.known, blocks_for(member.known, kv_.block_tokens));
  }
  chunks_apart_ = chunks_apart_ || member.on_host || member.sub_batch > 0;
  // What was dropped has its blocks already, and comes first.
  const Tokens computed = member.computed + std::max(tokens, member.missing);
  grow_to(m, computed, kChunk);
  members_[m].staged = tokens;
  if (cached_) name_blocks(m, computed);
  chunk_members_.push_back(m);
  refresh();
}

void Instance::reserve(RequestId id, Tokens upto) {
  grow_to(member_in(id, Phase::prefilling, kReserve), upto, kReserve);
  refresh();
}

void Instance::leave(RequestId id, Leave why) {
  const std::int32_t m = member_of(id, kLeave);
  if (m < 0 || (members_[m].phase != Phase::decoding && members_[m].phase != Phase::prefilling)) {
    broken(kLeave, id, state_of(id));
  }
  if (padding_) broken(kLeave, id, "its policy pads requests");
  if (members_[m].phase == Phase::decoding) {
    if (staged_decodes_ >= 0) broken(kLeave, id, "the decodes are staged");
    members_.stop_decoding(m, Phase::prefilling);
    fairness_.stopped_decoding(members_[m].client_number);
  }
  Member& member = members_[m];
  if (member.staged != Tokens()) broken(kLeave, id, "a chunk of it is staged");
  changed_ = true;
  if (informer_ && members_.size() == 1) static_cast<void>(lend(informer_->memory_lacking(lender_view())));
  members_.unlink(m);
  if (observer_ != nullptr) observer_->left(id.serial, why, now_);
  promised_ -= member.promised;
  fairness_.left(member.client_number);
  if (why != Leave::preempt_recompute) {
    const Blocks held = member.held;
    drop_gaps(m);
    member.phase = Phase::swapped;
    if (cached_) member.on_host ? forget_table(m) : release_blocks(m);
    absorb(m, held);
    if (why == Leave::suspend) keep_computed(member, held);
    member.on_host = false;
    member.sub_batch = 0;
    refresh();
    policy_.space->leaves(*this, request(id), *this);
    if (cached_ && residency_.blocks_on(member.holder, kGpuTier) > Blocks(0)) {
      broken(kMove, id, "its KV stays on the GPU, whose blocks are in the prefix cache");
    }
    member.preempted_swap += why == Leave::preempt_swap ? 1 : 0;
  } else {
    member.phase = Phase::waiting;
    if (connector_) preempt_stores(m);
    release_blocks(m);
    member.on_host = false;
    member.sub_batch = 0;
    member.computed = Tokens();
    member.delivered = false;
    ++member.preempted_recompute;
  }
  if (why != Leave::suspend) ledger_.preempted(why);
  refresh();
}

void Instance::reject(RequestId id) {
  if (const std::int32_t m = member_of(id, kReject); m >= 0) static_cast<void>(member_in(id, Phase::waiting, kReject));
  changed_ = true;
  for (LayerPolicy* const layers : {policy_.layers.get(), policy_.weights.get()}) {
    if (layers == nullptr || layers->admits(request(id))) continue;
    layers->refused(sink_.sends_on(id.serial));
    table_[id].refused = true;
    break;
  }
  end_request(id, Outcome::rejected, now_);
}

void Instance::decodes(std::int64_t count) {
  const auto what = [count] { return "let " + counted(count, "request") + " decode"; };
  if (staged_decodes_ >= 0) broken(kDecodes, what(), "the decodes are staged");
  if (count < 0 || count > members_.decoding()) {
    broken(kDecodes, what(), std::to_string(members_.decoding()) + " are decoding");
  }
  TierState& gpu = residency_.tier(kGpuTier);
  Blocks host_growth = members_.host_growth();
  if (count < members_.decoding()) {
    host_growth = Blocks(0);
    visit_decodes(count, [&](std::int32_t m) {
      host_growth += Blocks(members_.grows_next(members_[m]) && members_[m].on_host ? 1 : 0);
    });
  }
  TierState& host = residency_.tier(kHostTier);
  if (host_growth > Blocks(0) && host_growth > host.free) {
    broken(kDecodes, what(),
           "their next tokens need " + counted(host_growth.count(), "block") + " and the host has " +
               std::to_string(host.free.count()) + " free");
  }
  host.free -= host_growth;
  const Blocks growth = decode_growth(count);
  if (growth > make_room(growth)) {
    broken(kDecodes, what(),
           "their next tokens need " + counted(growth.count(), "block") + " and the GPU has " +
               std::to_string(gpu.free.count()) + " free");
  }
  if (!cached_) {
    gpu.free -= growth;
  } else if (count == members_.decoding()) {
    for (const std::int32_t m : members_.growing()) {
      if (!members_[m].on_host) members_[m].blocks.push_back(cached_->allocate());
    }
    for (const std::int32_t m : members_.filling()) name_blocks(m, members_.computed(members_[m]) + Tokens(1));
  } else {
    visit_decodes(count, [&](std::int32_t m) {
      const bool on_gpu = !members_[m].on_host;
      if (on_gpu && members_.grows_next(members_[m])) members_[m].blocks.push_back(cached_->allocate());
    });
    visit_decodes(count, [&](std::int32_t m) { name_blocks(m, members_.computed(members_[m]) + Tokens(1)); });
  }
  staged_decodes_ = count;
  refresh();
}

}  // namespace spillway
