// The books of all KV that is not simply on the GPU: what each holder has on which tier, and what is on its way.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sim/api/residency.hpp"
#include "sim/core/units.hpp"

namespace spillway {

/// A holder's context is a list of runs; neighbours in the same place are one run. Every call costs O(runs of the
/// holder). Memory is O(holders + runs).
///
/// A block on its way occupies both tiers. If its holder drops it, or its content changes, before the move has ended,
/// both places stay occupied until then, and the arriving content is discarded.
class Residency {
 public:
  using Key = std::int32_t;
  using MoveKey = std::int32_t;

  /// `pool_on_gpu`: another pool counts the blocks of kGpuTier and sets its `free`.
  /// The tiers come from `memory`, which must outlive the books.
  explicit Residency(const std::vector<TierSpec>& tiers, bool pool_on_gpu = false,
                     std::pmr::memory_resource* memory = std::pmr::get_default_resource());

  [[nodiscard]] std::span<const TierState> tiers() const { return tiers_; }
  [[nodiscard]] TierState& tier(TierId id) { return tiers_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] const TierState& tier(TierId id) const { return tiers_[static_cast<std::size_t>(id)]; }
  /// The tier has `total` blocks from now on; blocks in use stay.
  void resize(TierId id, Blocks total);

  /// A holder without blocks.
  [[nodiscard]] Key add();
  /// Drops all blocks of a holder and forgets it.
  void remove(Key key);
  [[nodiscard]] const std::vector<KvRun>& runs(Key key) const { return holders_[index(key)].runs; }
  /// Every block is on some tier.
  [[nodiscard]] bool complete(Key key) const {
    for (const KvRun& run : runs(key)) {
      if (run.tier == kNoTier) return false;
    }
    return true;
  }
  /// Lets the next visit_changed() visit a holder whose runs have not changed.
  void note_change(Key key) {
    Held& context = holders_[index(key)];
    if (std::exchange(context.changed, true)) return;
    changed_.push_back(key);
  }
  /// Calls visit(key) for each holder whose runs have changed since the call before, in any order. Some may be gone.
  template <class Visit>
  void visit_changed(Visit visit) {
    for (const Key key : changed_) {
      holders_[index(key)].changed = false;
      visit(key);
    }
    changed_.clear();
  }
  /// Length of the context.
  [[nodiscard]] Blocks blocks(Key key) const;
  /// Blocks of the context on a tier, those on their way to it included.
  [[nodiscard]] Blocks blocks_on(Key key, TierId id) const;
  /// The context goes on with `count` blocks on a tier. `taken`: the tier has counted them already. Otherwise it must
  /// have room.
  void append(Key key, Blocks count, TierId id, bool taken = false);
  /// The content of a block is about to change on kGpuTier: copies of it elsewhere are dropped.
  void changes(Key key, Blocks block);
  /// The context ends after `count` blocks.
  void shorten(Key key, Blocks count);
  /// Dropped blocks of the range get places on kGpuTier, which must have room.
  void restore(Key key, const BlockRange& range);
  /// The holder forgets its runs; their blocks on a tier stay in use and others are given back. Returns how many stay.
  [[nodiscard]] Blocks detach(Key key, TierId id);

  /// The range is a part of one run and may move: the common case of a range without problem().
  [[nodiscard]] bool may_move_at_once(Key key, const BlockRange& range, TierId from, TierId to) const {
    const KvRun* const run = run_around(key, range);
    return run != nullptr && *run == KvRun{run->blocks, from} && fits(to, range.count());
  }
  /// Why blocks cannot move; empty: they can.
  [[nodiscard]] std::string problem(Key key, const BlockRange& range, TierId from, TierId to) const;
  /// A move without a problem() that takes no time: start() and end().
  void relocate(Key key, const BlockRange& range, TierId from, TierId to, bool keep);
  /// Starts a move without a problem().
  [[nodiscard]] MoveKey start(Key key, const BlockRange& range, TierId from, TierId to, bool keep);
  void end(MoveKey move);

  /// The range is a part of one run and may be dropped: the common case of a range without drop_problem().
  [[nodiscard]] bool may_drop_at_once(Key key, const BlockRange& range, TierId id) const {
    const KvRun* const run = run_around(key, range);
    return run != nullptr && (id == kNoTier || (run->on(id) && !run->moving()));
  }
  /// Why blocks cannot be dropped from a tier; empty: they can.
  [[nodiscard]] std::string drop_problem(Key key, const BlockRange& range, TierId id) const;
  /// Blocks of the range that are on `id` leave it. kNoTier: they leave every tier.
  void drop(Key key, const BlockRange& range, TierId id);

 private:
  struct Held {
    std::vector<KvRun> runs;
    std::vector<MoveKey> moves;  // by run; -1: not on its way
    bool changed = false;        // it is in changed_
  };
  struct Moving {
    Key key = -1;
    TierId from = kNoTier;
    TierId to = kNoTier;
    bool keep = false;
    bool live = false;
    // Places that are free once the move has ended, because no holder wants the content any more.
    Blocks lost_from{};
    Blocks lost_to{};
  };
  static std::size_t index(std::int32_t key) { return static_cast<std::size_t>(key); }
  [[nodiscard]] bool fits(TierId id, Blocks count) const {
    return (pool_on_gpu_ && id == kGpuTier) || count <= tier(id).free;
  }
  void take(TierId id, Blocks count);
  /// The run has come from one tier to another.
  void arrive(KvRun& run, TierId from, TierId to, bool keep);
  void give_back(TierId id, Blocks count);
  /// The run that the range is a part of; null: it is none, or is a part of several.
  [[nodiscard]] const KvRun* run_around(Key key, const BlockRange& range) const {
    Blocks end;
    for (const KvRun& run : runs(key)) {
      const Blocks first = end;
      end += run.blocks;
      if (range.first < end)
        return first <= range.first && range.first < range.end && range.end <= end ? &run : nullptr;
    }
    return nullptr;
  }
  /// Splits runs so that one starts at `block`; returns its index, or the number of runs.
  static std::size_t split(Held& held, Blocks block);
  /// A run that follows run number `at` is in the same place and goes with the same move.
  [[nodiscard]] static bool joins(const Held& held, std::size_t at, const KvRun& run, MoveKey move);
  static void merge(Held& held);
  /// Run number `at` has changed and joins the runs before and after it if it can. Returns its number then.
  static std::size_t join_neighbours(Held& held, std::size_t at);
  /// A holder whose runs will change.
  [[nodiscard]] Held& held(Key key) {
    note_change(key);
    return holders_[index(key)];
  }
  /// change() where the range is one run or the head of one. False: it is not, and nothing has happened.
  template <class Visit>
  static bool change_head(Held& held, const BlockRange& range, Visit visit);
  /// Calls visit(run, move) for the runs of a range, after splitting those at its ends, and merges neighbours.
  template <class Visit>
  void change(Key key, const BlockRange& range, Visit visit);
  /// The text that `problem_of` gives for the first run of the range that has one.
  template <class ProblemOf>
  [[nodiscard]] std::string first_problem(Key key, const BlockRange& range, ProblemOf problem_of) const;

  std::pmr::vector<TierState> tiers_;
  bool pool_on_gpu_;
  std::vector<Held> holders_;
  std::vector<Key> free_holders_;
  std::vector<Key> changed_;
  std::vector<Moving> moves_;
  std::vector<MoveKey> free_moves_;
};

}  // namespace spillway
