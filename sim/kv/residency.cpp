#include "sim/kv/residency.hpp"

#include <algorithm>
#include <utility>

#include "sim/core/error.hpp"

namespace spillway {
namespace {

bool same_place(const KvRun& a, const KvRun& b) { return a.tier == b.tier && a.copy == b.copy && a.to == b.to; }

std::string counted(Blocks blocks) {
  return std::to_string(blocks.count()) + (blocks == Blocks(1) ? " block" : " blocks");
}

std::string text(const BlockRange& range) {
  return "blocks " + std::to_string(range.first.count()) + " to " + std::to_string(range.end.count());
}

}  // namespace

Residency::Residency(const std::vector<TierSpec>& tiers, bool pool_on_gpu, std::pmr::memory_resource* memory)
    : tiers_(memory), pool_on_gpu_(pool_on_gpu) {
  for (const TierSpec& spec : tiers) tiers_.push_back({spec.blocks, spec.blocks, std::max(spec.blocks, spec.most)});
}

void Residency::resize(TierId id, Blocks total) {
  TierState& state = tier(id);
  SPILLWAY_CHECK(total <= state.most, "a tier grows beyond the largest capacity that was announced");
  state.free += total - state.total;
  state.total = total;
}

void Residency::take(TierId id, Blocks count) {
  if (pool_on_gpu_ && id == kGpuTier) return;
  TierState& state = tier(id);
  SPILLWAY_CHECK(count <= state.free, "a tier has " + std::to_string(state.free.count()) + " free blocks of the " +
                                          std::to_string(count.count()) + " that are taken");
  state.free -= count;
}

void Residency::give_back(TierId id, Blocks count) {
  if (id == kNoTier || (pool_on_gpu_ && id == kGpuTier)) return;
  TierState& state = tier(id);
  state.free += count;
  SPILLWAY_CHECK(state.free <= state.total, "more blocks of a tier are given back than it has");
}

Residency::Key Residency::add() {
  if (free_holders_.empty()) {
    free_holders_.push_back(static_cast<Key>(holders_.size()));
    holders_.emplace_back();
  }
  const Key key = free_holders_.back();
  free_holders_.pop_back();
  return key;
}

void Residency::remove(Key key) {
  if (!runs(key).empty()) drop(key, {Blocks(0), blocks(key)}, kNoTier);
  Held& context = held(key);
  context.runs.clear();
  context.moves.clear();
  free_holders_.push_back(key);
}

Blocks Residency::blocks(Key key) const {
  Blocks sum;
  for (const KvRun& run : runs(key)) sum += run.blocks;
  return sum;
}

Blocks Residency::blocks_on(Key key, TierId id) const {
  Blocks sum;
  for (const KvRun& run : runs(key)) sum += run.on(id) || run.to == id ? run.blocks : Blocks(0);
  return sum;
}

void Residency::append(Key key, Blocks count, TierId id, bool taken) {
  if (count == Blocks(0)) return;
  if (!taken) take(id, count);
  held(key).runs.push_back({.blocks = count, .tier = id});
  held(key).moves.push_back(-1);
  if (runs(key).size() > 1) merge(held(key));
}

std::size_t Residency::split(Held& held, Blocks block) {
  std::size_t run = 0;
  Blocks first;
  for (; run < held.runs.size() && first < block; ++run) {
    const Blocks end = first + held.runs[run].blocks;
    if (block < end) {
      KvRun rest = held.runs[run];
      held.runs[run].blocks = block - first;
      rest.blocks = end - block;
      held.runs.insert(held.runs.begin() + static_cast<std::ptrdiff_t>(run) + 1, rest);
      held.moves.insert(held.moves.begin() + static_cast<std::ptrdiff_t>(run) + 1, held.moves[run]);
    }
    first += held.runs[run].blocks;
  }
  return run;
}

bool Residency::joins(const Held& held, std::size_t at, const KvRun& run, MoveKey move) {
  return same_place(held.runs[at], run) && held.moves[at] == move;
}

void Residency::merge(Held& held) {
  std::size_t last = 0;
  while (last + 1 < held.runs.size() && !joins(held, last, held.runs[last + 1], held.moves[last + 1])) ++last;
  for (std::size_t run = last + 1; run < held.runs.size(); ++run) {
    if (joins(held, last, held.runs[run], held.moves[run])) {
      held.runs[last].blocks += held.runs[run].blocks;
      continue;
    }
    ++last;
    held.runs[last] = held.runs[run];
    held.moves[last] = held.moves[run];
  }
  const std::size_t left = std::min(held.runs.size(), last + 1);
  held.runs.resize(left);
  held.moves.resize(left);
}

std::size_t Residency::join_neighbours(Held& held, std::size_t at) {
  const auto erase = [&held](std::size_t run) {
    held.runs.erase(held.runs.begin() + static_cast<std::ptrdiff_t>(run));
    held.moves.erase(held.moves.begin() + static_cast<std::ptrdiff_t>(run));
  };
  if (at + 1 < held.runs.size() && joins(held, at, held.runs[at + 1], held.moves[at + 1])) {
    held.runs[at].blocks += held.runs[at + 1].blocks;
    erase(at + 1);
  }
  if (at == 0 || !joins(held, at - 1, held.runs[at], held.moves[at])) return at;
  held.runs[at - 1].blocks += held.runs[at].blocks;
  erase(at);
  return at - 1;
}

// Contexts are copied, reclaimed and dropped from their start, chunk by chunk: the chunk is the head of a run, and
// joins the run before it or stands alone.
template <class Visit>
bool Residency::change_head(Held& held, const BlockRange& range, Visit visit) {
  std::size_t at = 0;
  Blocks first;
  for (; at < held.runs.size() && first < range.first; ++at) first += held.runs[at].blocks;
  if (first != range.first || at == held.runs.size() || held.runs[at].blocks < range.count()) return false;
  if (held.runs[at].blocks == range.count()) {
    visit(held.runs[at], held.moves[at]);
    join_neighbours(held, at);
    return true;
  }
  KvRun head = held.runs[at];
  head.blocks = range.count();
  MoveKey move = held.moves[at];
  visit(head, move);
  if (joins(held, at, head, move)) return true;
  held.runs[at].blocks -= head.blocks;
  if (at > 0 && joins(held, at - 1, head, move)) {
    held.runs[at - 1].blocks += head.blocks;
    return true;
  }
  held.runs.insert(held.runs.begin() + static_cast<std::ptrdiff_t>(at), head);
  held.moves.insert(held.moves.begin() + static_cast<std::ptrdiff_t>(at), move);
  return true;
}

template <class Visit>
void Residency::change(Key key, const BlockRange& range, Visit visit) {
  Held& context = held(key);
  if (change_head(context, range, visit)) return;
  std::size_t run = split(context, range.first);
  const std::size_t end = split(context, range.end);
  for (; run < end; ++run) visit(context.runs[run], context.moves[run]);
  merge(context);
}

void Residency::shorten(Key key, Blocks count) {
  const Blocks all = blocks(key);
  if (count >= all) return;
  drop(key, {count, all}, kNoTier);
  Held& context = held(key);
  const std::size_t left = split(context, count);
  context.runs.resize(left);
  context.moves.resize(left);
}

void Residency::restore(Key key, const BlockRange& range) {
  change(key, range, [&](KvRun& run, MoveKey&) {
    SPILLWAY_CHECK(run.tier == kNoTier, "a block that exists gets a second place on the GPU");
    take(kGpuTier, run.blocks);
    run.tier = kGpuTier;
  });
}

Blocks Residency::detach(Key key, TierId id) {
  Blocks stay;
  for (const KvRun& run : runs(key)) {
    SPILLWAY_CHECK(!run.moving(), "a holder that is on its way gives up its runs");
    for (const TierId tier : {run.tier, run.copy}) {
      if (tier == id) {
        stay += run.blocks;
      } else {
        give_back(tier, run.blocks);
      }
    }
  }
  Held& context = held(key);
  context.runs.clear();
  context.moves.clear();
  return stay;
}

void Residency::changes(Key key, Blocks block) {
  const std::vector<KvRun>& context = runs(key);
  const bool in_one_place = context.size() == 1 && context.front() == KvRun{context.front().blocks, kGpuTier};
  if (in_one_place && block < context.front().blocks) return;
  change(key, {block, block + Blocks(1)}, [&](KvRun& run, MoveKey& move) {
    SPILLWAY_CHECK(run.tier == kGpuTier, "a block changes that is not on the GPU");
    give_back(std::exchange(run.copy, kNoTier), run.blocks);
    if (!run.moving()) return;
    Moving& moving = moves_[index(move)];
    SPILLWAY_CHECK(moving.keep, "a block changes that leaves the GPU");
    moving.lost_to += run.blocks;
    run.to = kNoTier;
    move = -1;
  });
}

template <class ProblemOf>
std::string Residency::first_problem(Key key, const BlockRange& range, ProblemOf problem_of) const {
  if (range.first < Blocks(0) || range.first >= range.end || range.end > blocks(key)) {
    return "it has " + counted(blocks(key)) + ", and " + text(range) + " are asked for";
  }
  Blocks first;
  for (const KvRun& run : runs(key)) {
    const Blocks end = first + run.blocks;
    if (first < range.end && end > range.first) {
      if (std::string problem = problem_of(run); !problem.empty()) return text({first, end}) + " " + problem;
    }
    first = end;
  }
  return {};
}

std::string Residency::problem(Key key, const BlockRange& range, TierId from, TierId to) const {
  std::string problem = first_problem(key, range, [&](const KvRun& run) -> std::string {
    if (run.moving()) return "are on their way";
    if (run.tier != from) return "are not on the tier that they leave";
    return run.copy != kNoTier ? "have a copy already" : "";
  });
  if (!problem.empty()) return problem;
  if (!fits(to, range.count())) {
    return "they need " + counted(range.count()) + " and the tier has " + std::to_string(tier(to).free.count()) +
           " free";
  }
  return {};
}

void Residency::relocate(Key key, const BlockRange& range, TierId from, TierId to, bool keep) {
  take(to, range.count());
  change(key, range, [&](KvRun& run, MoveKey&) { arrive(run, from, to, keep); });
}

void Residency::arrive(KvRun& run, TierId from, TierId to, bool keep) {
  if (keep) {
    run.tier = std::min(from, to);
    run.copy = std::max(from, to);
  } else {
    give_back(from, run.blocks);
    run.tier = to;
  }
  run.to = kNoTier;
}

Residency::MoveKey Residency::start(Key key, const BlockRange& range, TierId from, TierId to, bool keep) {
  if (free_moves_.empty()) {
    free_moves_.push_back(static_cast<MoveKey>(moves_.size()));
    moves_.emplace_back();
  }
  const MoveKey started = free_moves_.back();
  free_moves_.pop_back();
  moves_[index(started)] = {.key = key, .from = from, .to = to, .keep = keep, .live = true};
  take(to, range.count());
  change(key, range, [&](KvRun& run, MoveKey& move) {
    run.to = to;
    move = started;
  });
  return started;
}

void Residency::end(MoveKey ended) {
  Moving& moving = moves_[index(ended)];
  SPILLWAY_CHECK(moving.live, "a move ends twice");
  give_back(moving.from, moving.lost_from);
  give_back(moving.to, moving.lost_to);
  Held& context = held(moving.key);
  for (std::size_t run = 0; run < context.runs.size(); ++run) {
    if (context.moves[run] != ended) continue;
    arrive(context.runs[run], moving.from, moving.to, moving.keep);
    context.moves[run] = -1;
    run = join_neighbours(context, run);
  }
  moving = {};
  free_moves_.push_back(ended);
}

std::string Residency::drop_problem(Key key, const BlockRange& range, TierId id) const {
  return first_problem(key, range, [&](const KvRun& run) -> std::string {
    if (id == kNoTier) return {};
    if (run.moving()) return "are on their way";
    return run.on(id) ? "" : "are not on the tier that they leave";
  });
}

void Residency::drop(Key key, const BlockRange& range, TierId id) {
  change(key, range, [&](KvRun& run, MoveKey& move) {
    if (run.moving()) {
      Moving& moving = moves_[index(move)];
      moving.lost_from += run.blocks;
      moving.lost_to += run.blocks;
      run = {.blocks = run.blocks};
      move = -1;
      return;
    }
    if (id == kNoTier || run.copy == id) give_back(std::exchange(run.copy, kNoTier), run.blocks);
    if (id == kNoTier || run.tier == id) {
      give_back(run.tier, run.blocks);
      run.tier = std::exchange(run.copy, kNoTier);
    }
  });
}

}  // namespace spillway
