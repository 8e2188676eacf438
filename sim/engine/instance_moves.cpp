// Where the KV of requests and conversations is, and how it moves.
#include <algorithm>
#include <string>
#include <utility>

#include "sim/engine/instance.hpp"

namespace spillway {

// --- View
// -------------------------------------------------------------------------------------------------------------

std::span<const KvRun> Instance::runs(const Holder& holder) const {
  const Residency::Key key = key_of(holder);
  const bool request = holder.request.valid();
  const bool all_in_books = key >= 0 && !(request && in_batch(members_[table_[holder.request].member]));
  if (all_in_books) return residency_.runs(key);
  if (!request) return {};
  shown_runs_.clear();
  Blocks counted;
  if (key >= 0) {
    shown_runs_ = residency_.runs(key);
    counted = residency_.blocks(key);
  }
  const std::int32_t m = table_[holder.request].member;
  const Blocks rest = m < 0 ? Blocks(0) : members_.held(members_[m]) - counted;
  if (rest == Blocks(0)) return shown_runs_;
  const KvRun others{.blocks = rest, .tier = tier_of(members_[m])};
  const bool goes_on = !shown_runs_.empty() && shown_runs_.back() == KvRun{shown_runs_.back().blocks, others.tier};
  if (goes_on) {
    shown_runs_.back().blocks += rest;
  } else {
    shown_runs_.push_back(others);
  }
  return shown_runs_;
}

Tokens Instance::kept(std::int64_t conversation) const {
  const Kept* const there = find_kept(conversation);
  return there == nullptr ? Tokens(0) : there->tokens;
}

const Instance::Kept* Instance::find_kept(std::int64_t conversation) const { return conversations_.find(conversation); }

void Instance::count_cached(ConversationCounts& counts) {
  residency_.visit_changed([this](Residency::Key key) {
    const auto at = static_cast<std::size_t>(key);
    if (at >= counted_.size() || !counted_[at].kept) return;
    const auto any_on = [&](TierId tier) {
      return std::ranges::any_of(residency_.runs(key), [tier](const KvRun& run) { return run.on(tier); });
    };
    const auto count = [](bool& before, bool now, std::int64_t& sum) {
      sum += (now ? 1 : 0) - (std::exchange(before, now) ? 1 : 0);
    };
    count(counted_[at].on_gpu, any_on(kGpuTier), counted_on_gpu_);
    count(counted_[at].on_host, any_on(kHostTier), counted_on_host_);
  });
  counts.cached += static_cast<std::int64_t>(conversations_.size());
  counts.cached_on_gpu += counted_on_gpu_;
  counts.cached_on_host += counted_on_host_;
}

Residency::Key Instance::key_of(const Holder& holder) const {
  if (holder.request.valid()) {
    const std::int32_t m = table_.alive(holder.request) ? table_[holder.request].member : -1;
    return m < 0 ? -1 : members_[m].holder;
  }
  if (holder.contexts) return contexts_;
  const Kept* const there = find_kept(holder.conversation);
  return there == nullptr ? -1 : there->key;
}

std::string Instance::name_of_holder(const Holder& holder) {
  if (holder.request.valid()) return "request " + std::to_string(holder.request.serial);
  if (holder.contexts) return "the contexts";
  return "conversation " + std::to_string(holder.conversation);
}

// --- Placement
// --------------------------------------------------------------------------------------------------------

void Instance::move(const Move& move) {
  const auto refuse = [&](const std::string& why) {
    broken(kMove,
           "move blocks " + std::to_string(move.range.first.count()) + " to " + std::to_string(move.range.end.count()) +
               " of " + name_of_holder(move.holder) + " from " + name_of_tier(move.from) + " to " +
               name_of_tier(move.to),
           why);
  };
  const auto route =
      std::ranges::find_if(graph_.routes, [&](const Route& one) { return one.from == move.from && one.to == move.to; });
  if (route == graph_.routes.end()) refuse("no route joins the two tiers");
  if (move.holder.request.valid() && table_.alive(move.holder.request)) {
    const std::int32_t m = table_[move.holder.request].member;
    if (m >= 0 && in_batch(members_[m])) {
      const Blocks full(quotient(members_.computed(members_[m]).count(), kv_.block_tokens.count()));
      if (!move.keep || move.from != kGpuTier || move.range.end > full || members_[m].missing > Tokens(0)) {
        refuse("it is in the batch, so only full blocks can be copied from the GPU");
      }
      if (cached_) refuse("its blocks are in the prefix cache");
      if (members_[m].on_host) refuse("the CPU attends for it");
      absorb(m, members_.held(members_[m]));
    }
  }
  if (move.yields && move.waits != Waits::nobody) refuse("a move that yields is one that nobody waits for");
  if (move.in_turn && move.waits != Waits::iteration) refuse("a move in turn is one that an iteration waits for");
  if (cached_ && (move.keep || move.waits != Waits::iteration)) {
    refuse("beside a prefix cache whole requests move, and the iteration waits");
  }
  const Residency::Key key = key_of(move.holder);
  if (key < 0) refuse("it holds nothing");
  if (!residency_.may_move_at_once(key, move.range, move.from, move.to)) {
    const std::string problem = residency_.problem(key, move.range, move.from, move.to);
    if (!problem.empty()) refuse(problem);
  }
  Move copied = move;
  const auto pass_on = [&](Residency::MoveKey ticket) {
    if (copied.range.count() == Blocks(0)) return;
    runner_.move(static_cast<std::size_t>(route - graph_.routes.begin()), copied, ticket);
  };
  if (move.holder.contexts) {
    if (move.range.count() != kv_.host_cache_blocks) refuse("contexts move together");
    runner_.place_cache(move.to == borrowed_tier_);
    if (host_ && !move.whole) copied.range.end = copied.range.first + host_->filled();
  }
  if (move.waits == Waits::iteration) {
    residency_.relocate(key, move.range, move.from, move.to, move.keep);
    return pass_on(-1);
  }
  const Residency::MoveKey started = residency_.start(key, move.range, move.from, move.to, move.keep);
  if (move.waits == Waits::layers) {
    of_layers_.push_back(started);
    return pass_on(-1);
  }
  if (const auto at = static_cast<std::size_t>(started); at >= under_way_at_.size()) under_way_at_.resize(at + 1);
  under_way_at_[static_cast<std::size_t>(started)] = under_way_.size();
  under_way_.push_back({move, started});
  pass_on(started);
}

void Instance::drop(const Holder& holder, const BlockRange& range, TierId tier) {
  const auto refuse = [&](const std::string& why) {
    broken(kDrop,
           "drop blocks " + std::to_string(range.first.count()) + " to " + std::to_string(range.end.count()) + " of " +
               name_of_holder(holder),
           why);
  };
  const Residency::Key key = key_of(holder);
  if (key < 0) refuse("it holds nothing, or runs with all of it on the GPU");
  if (holder.request.valid() && in_batch(members_[table_[holder.request].member])) refuse("it is in the batch");
  if (cached_) refuse("beside a prefix cache whole requests move");
  if (!residency_.may_drop_at_once(key, range, tier)) {
    const std::string problem = residency_.drop_problem(key, range, tier);
    if (!problem.empty()) refuse(problem);
  }
  residency_.drop(key, range, tier);
  const auto gone = [](const KvRun& run) { return run.tier == kNoTier; };
  if (!holder.request.valid() && std::ranges::all_of(residency_.runs(key), gone)) {
    forget_conversation(holder.conversation);
  }
}

void Instance::fetch(RequestId id, Tokens upto) {
  const std::int32_t m = member_of(id, kJoin);
  if (m >= 0 && in_batch(members_[m]) && (connector_ || takes_over())) broken(kJoin, id, state_of(id));
  if (connector_) return fetch_from_tier(id);
  if (takes_over()) return take_over(id);
  policy_.space->fetches(*this, request(id), upto, *this);
}

// --- out of the batch and back
// ---------------------------------------------------------------------------------------

void Instance::absorb(std::int32_t m, Blocks held) {
  Member& member = members_[m];
  if (member.holder < 0) member.holder = residency_.add();
  residency_.append(member.holder, held - residency_.blocks(member.holder), tier_of(member),
                    /*taken=*/true);
  member.held = held;
}

std::vector<Instance::Gap> Instance::gaps_of(Residency::Key key, Tokens context) const {
  std::vector<Gap> gaps;
  if (residency_.complete(key)) return gaps;
  Tokens first;
  for (const KvRun& run : residency_.runs(key)) {
    const Tokens end = std::min(context, first + kv_.block_tokens * run.blocks.count());
    if (run.tier == kNoTier && end > first) gaps.push_back({first, end - first});
    first = end;
  }
  return gaps;
}

void Instance::drop_gaps(std::int32_t m) {
  Member& member = members_[m];
  if (member.missing == Tokens(0)) return;
  absorb(m, member.held);
  // A block that was recomputed in part is dropped as a whole.
  for (const Gap& gap : gaps_.at(m)) {
    residency_.drop(member.holder,
                    {Blocks(quotient(gap.first.count(), kv_.block_tokens.count())),
                     blocks_for(gap.first + gap.count, kv_.block_tokens)},
                    kNoTier);
  }
  gaps_.erase(m);
  member.computed += member.missing;
  member.missing = Tokens(0);
}

void Instance::check_return(std::int32_t m) const {
  const Member& member = members_[m];
  const auto refuse = [&](const std::string& why) {
    broken(kReturn, "let " + name_of_holder(holder(member.id)) + " return", why);
  };
  for (const KvRun& run : residency_.runs(member.holder)) {
    if (member.on_host && (!run.on(kHostTier) || run.moving()))
      refuse("the CPU attends for it, and blocks of it are not there");
    const bool arrives = member.on_host || run.on(kGpuTier) || run.to == kGpuTier;
    if (run.tier != kNoTier && !arrives) {
      const bool one = run.blocks == Blocks(1);
      refuse(std::to_string(run.blocks.count()) + (one ? " block of it stays on " : " blocks of it stay on ") +
             name_of_tier(run.tier));
    }
  }
  for (const UnderWay& one : under_way_) {
    if (one.move.holder != holder(member.id)) continue;
    if (member.on_host) refuse("blocks of it are on their way");
    if (one.move.to == kGpuTier) refuse("blocks of it are still on their way to the GPU");
    if (one.move.from == kGpuTier && !one.move.keep) refuse("blocks of it are leaving the GPU");
  }
}

// Its `computed` is the length of its context, dropped parts included.
void Instance::bring_back(std::int32_t m) {
  const RequestId id = members_[m].id;
  refresh();
  policy_.space->returns(*this, request(id), *this);
  check_return(m);
  const Residency::Key key = members_[m].holder;
  if (members_[m].on_host) {
    members_[m].held = residency_.detach(key, kHostTier);
    residency_.remove(key);
    members_[m].holder = -1;
    return;
  }
  if (cached_) {
    const Blocks blocks = residency_.blocks(key);
    residency_.remove(key);
    members_[m].holder = -1;
    members_[m].held = Blocks(0);
    take_blocks(m, blocks, kReturn);
    return;
  }
  // A context whose end was dropped is a shorter context.
  if (const std::vector<KvRun>& runs = residency_.runs(key); !runs.empty() && runs.back().tier == kNoTier) {
    residency_.shorten(key, residency_.blocks(key) - runs.back().blocks);
    members_[m].computed = std::min(members_[m].computed, kv_.block_tokens * residency_.blocks(key).count());
  }
  const Blocks blocks = residency_.blocks(key);
  std::vector<Gap> gaps = gaps_of(key, members_[m].computed);
  for (const Gap& gap : gaps) {
    const BlockRange range{Blocks(quotient(gap.first.count(), kv_.block_tokens.count())),
                           blocks_for(gap.first + gap.count, kv_.block_tokens)};
    if (range.count() > make_room(range.count())) {
      broken(kReturn, id,
             "dropped blocks of it need " + std::to_string(range.count().count()) + " and the GPU has " +
                 std::to_string(tier(kGpuTier).free.count()) + " free");
    }
    residency_.restore(key, range);
  }
  Member& member = members_[m];
  // The last block changes when the context grows, so a copy of it is out of date. While it is on its way to the GPU it
  // changes with the iteration.
  if (member.computed != kv_.block_tokens * blocks.count() && blocks > Blocks(0)) {
    const bool arrives = residency_.runs(key).back().to == kGpuTier;
    if (arrives) {
      changing_.emplace_back(id, blocks - Blocks(1));
    } else {
      residency_.changes(key, blocks - Blocks(1));
    }
  }
  member.held = blocks;
  for (const Gap& gap : gaps) member.missing += gap.count;
  member.computed -= member.missing;
  if (!gaps.empty()) gaps_[m] = std::move(gaps);
  const KvRun all_on_gpu{.blocks = blocks, .tier = kGpuTier};
  if (blocks == Blocks(0) || (residency_.runs(key).size() == 1 && residency_.runs(key).front() == all_on_gpu)) {
    static_cast<void>(residency_.detach(key, kGpuTier));
    residency_.remove(key);
    member.holder = -1;
  }
}

void Instance::adopt_conversation(std::int32_t m, bool new_turn) {
  Member& member = members_[m];
  const RequestSlot& slot = table_[member.id];
  const std::int64_t conversation = conversation_of(slot);
  const Kept* const found = conversations_.find(conversation);
  if (found == nullptr) {
    if (new_turn && keeps_conversations_) count_history(m);
    return;
  }
  const Kept there = *found;
  rename_moves(holder_of_conversation(conversation), holder(member.id));
  erase_kept(conversation, there.key);
  member.computed = usable(there, slot);
  const Tokens context = std::min({there.tokens, repeats(slot), Tokens(slot.input)});
  residency_.shorten(there.key, blocks_for(context, kv_.block_tokens));
  member.holder = there.key;
  member.held = residency_.blocks(there.key);
  if (new_turn && keeps_conversations_) count_history(m);
  bring_back(m);
}

void Instance::count_history(std::int32_t m) {
  const Member& member = members_[m];
  Tokens on_gpu;
  Tokens on_host;
  Tokens first;
  if (member.holder >= 0) {
    for (const KvRun& run : residency_.runs(member.holder)) {
      const Tokens end = std::min(member.computed, first + kv_.block_tokens * run.blocks.count());
      if (run.on(kGpuTier)) {
        on_gpu += end - first;
      } else if (run.tier != kNoTier) {
        on_host += end - first;
      }
      first = end;
    }
  }
  const RequestSlot& slot = table_[member.id];
  const bool stated = repeats(slot) != RequestTraits{}.repeats;
  const Tokens asked = stated ? std::min(repeats(slot), Tokens(slot.input - 1)) : member.computed;
  ledger_.asked_history(asked, on_gpu, on_host);
}

void Instance::keep(std::int32_t m) {
  Member& member = members_[m];
  drop_gaps(m);
  absorb(m, member.held);
  residency_.shorten(member.holder, blocks_for(member.computed, kv_.block_tokens));
  const std::int64_t conversation = conversation_of(table_[member.id]);
  if (conversations_.find(conversation) != nullptr) forget_conversation(conversation);
  rename_moves(holder(member.id), holder_of_conversation(conversation));
  conversations_[conversation] = {member.holder, member.computed};
  if (const auto at = static_cast<std::size_t>(member.holder); at >= counted_.size()) counted_.resize(at + 1);
  counted_[static_cast<std::size_t>(member.holder)].kept = true;
  residency_.note_change(member.holder);
  member.holder = -1;
  member.held = Blocks(0);
}

void Instance::forget_conversation(std::int64_t conversation) {
  rename_moves(holder_of_conversation(conversation), Holder{});
  const Residency::Key key = conversations_.find(conversation)->key;
  residency_.remove(key);
  erase_kept(conversation, key);
}

void Instance::erase_kept(std::int64_t conversation, Residency::Key key) {
  const Counted counted = std::exchange(counted_[static_cast<std::size_t>(key)], {});
  counted_on_gpu_ -= counted.on_gpu ? 1 : 0;
  counted_on_host_ -= counted.on_host ? 1 : 0;
  conversations_.erase(conversation);
}

// --- moves that end, context that is computed again
// ------------------------------------------------------------------

void Instance::rename_moves(const Holder& from, const Holder& to) {
  for (UnderWay& one : under_way_) {
    if (one.move.holder == from) one.move.holder = to;
  }
}

bool Instance::collect_ended(SimTime now) {
  bool any = disk() != nullptr && advance_disk(now);
  for (const std::int32_t ticket : runner_.take_ended(now)) {
    if (ticket == IterationRunner::kStored) {
      host_->stored();
      continue;
    }
    if (ticket >= kFirstTransfer) {
      end_transfer(ticket - kFirstTransfer);
      any = true;
      continue;
    }
    const std::size_t at = under_way_at_[static_cast<std::size_t>(ticket)];
    const Move move = under_way_[at].move;
    under_way_[at] = under_way_.back();
    under_way_at_[static_cast<std::size_t>(under_way_[at].key)] = at;
    under_way_.pop_back();
    residency_.end(ticket);
    any = true;
    // Nobody is told of a move whose holder has gone.
    if (move.holder != Holder{}) policy_.space->moved(*this, move);
  }
  return any;
}

void Instance::end_moves_of_layers() {
  for (const Residency::MoveKey move : of_layers_) residency_.end(move);
  of_layers_.clear();
  for (const auto& [id, block] : changing_) {
    const Residency::Key key = key_of(holder(id));
    if (key >= 0) residency_.changes(key, block);
  }
  changing_.clear();
}

void Instance::add_ranges(const Member& member, const std::vector<Gap>& gaps, BatchShape& shape) {
  const std::size_t before = chunks_.size();
  const auto add = [&](Tokens first, Tokens count) {
    if (count == Tokens(0)) return;
    PrefillChunk* const last = chunks_.size() > before ? &chunks_.back() : nullptr;
    if (last != nullptr && last->context + last->new_tokens == first) {
      last->new_tokens += count;
    } else {
      chunks_.push_back({count, first});
    }
  };
  Tokens left = member.staged;
  for (const Gap& gap : gaps) {
    const Tokens part = std::min(left, gap.count);
    add(gap.first, part);
    left -= part;
  }
  add(member.computed + member.missing, left);
  shape.continued_chunks += static_cast<std::int64_t>(chunks_.size() - before) - 1;
}

void Instance::fill_gaps(std::int32_t m, Tokens count) {
  members_[m].missing -= count;
  std::vector<Gap>& gaps = gaps_.at(m);
  while (count > Tokens(0)) {
    Gap& gap = gaps.front();
    const Tokens part = std::min(count, gap.count);
    gap.first += part;
    gap.count -= part;
    count -= part;
    if (gap.count == Tokens(0)) gaps.erase(gaps.begin());
  }
  if (gaps.empty()) gaps_.erase(m);
}

}  // namespace spillway
