// Two small policies: what a published system would do with holders, runs and moves.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "policies/parts/fcfs_queue.hpp"
#include "sim/api/registry.hpp"

namespace spillway::oracle {

/// Answers of a space from two counts: blocks that a request lacks on the GPU, and blocks that could be free there.
class CountingSpace : public OffloadPolicy {
 public:
  explicit CountingSpace(const View& view) : view_(view) {}
  [[nodiscard]] Fit admits(const RequestView& request, Tokens upto) const override { return fits(request, upto); }
  [[nodiscard]] Fit grows(const RequestView& request, Tokens upto) const override { return fits(request, upto); }
  [[nodiscard]] Fit decodes(std::int64_t count) const override {
    return view_.decode_growth(count) <= obtainable(-1) ? Fit::now : Fit::later;
  }
  [[nodiscard]] Fit resumes(const RequestView& request) const override {
    return view_.batch().decode_growth + missing(holder(request.id), request.known) <= obtainable(-1) ? Fit::now
                                                                                                      : Fit::later;
  }
  [[nodiscard]] Leave preempts(const RequestView& request) const override {
    return request.held <= view_.tier(kHostTier).free ? Leave::preempt_swap : Leave::preempt_recompute;
  }

 protected:
  [[nodiscard]] Fit fits(const RequestView& request, Tokens upto) const {
    if (blocks_for(request.input + request.max_new_tokens, view_.block_tokens()) > view_.tier(kGpuTier).most) {
      return Fit::never;
    }
    const Blocks lacks = missing(holder_of_conversation(request.conversation), std::max(request.known, upto));
    return lacks <= obtainable(request.conversation) ? Fit::now : Fit::later;
  }
  /// Blocks of a context of `tokens` that are not on the GPU.
  [[nodiscard]] Blocks missing(const Holder& holder, Tokens tokens) const {
    const Blocks end = blocks_for(tokens, view_.block_tokens());
    Blocks missing = end;
    Blocks first;
    for (const KvRun& run : view_.runs(holder)) {
      const Blocks last = std::min(end, first + run.blocks);
      if (run.on(kGpuTier) && last > first) missing -= last - first;
      first += run.blocks;
    }
    return missing;
  }
  /// Blocks of the GPU that are free, or can be freed at once without those of one conversation.
  [[nodiscard]] virtual Blocks obtainable(std::int64_t /*but*/) const { return view_.tier(kGpuTier).free; }

  const View& view_;
};

/// Keeps the KV of a conversation when a turn ends. When less than a quarter of the GPU is free, it copies the blocks
/// of the conversation that rested longest to the host; the next shortage takes their places on the GPU. On a full host
/// the longest resting is dropped. A turn of an even conversation waits for its KV outside the batch; each layer of an
/// odd one waits for its share.
class ToyRetention final : public CountingSpace {
 public:
  using CountingSpace::CountingSpace;
  [[nodiscard]] Fit admits(const RequestView& request, Tokens upto) const override {
    const Fit fit = fits(request, upto);
    bool on_host = false;
    visit(holder_of_conversation(request.conversation), [&](const KvRun& run, const BlockRange& range) {
      const bool wanted = range.first < blocks_for(request.known, view_.block_tokens());
      on_host = on_host || (wanted && (run.tier == kHostTier || run.to == kGpuTier));
    });
    return fit == Fit::now && on_host && request.conversation % 2 == 0 ? Fit::after_moves : fit;
  }
  void fetches(const View&, const RequestView& request, Placement& placement) override {
    const Holder kept = holder_of_conversation(request.conversation);
    const Blocks lacks = missing(kept, request.known);
    if (lacks > view_.tier(kGpuTier).free)
      make_room(lacks - view_.tier(kGpuTier).free, request.conversation, placement);
    bring(kept, request.known, Waits::request, placement);
  }
  void returns(const View&, const RequestView& request, Placement& placement) override {
    const Blocks lacks = missing(holder(request.id), request.known);
    if (lacks > view_.tier(kGpuTier).free) make_room(lacks - view_.tier(kGpuTier).free, -1, placement);
    bring(holder(request.id), request.known, Waits::layers, placement);
  }
  void leaves(const View&, const RequestView& request, Placement& placement) override {
    visit(holder(request.id), [&](const KvRun& run, const BlockRange& range) {
      if (run.moving()) return;
      if (run.on(kHostTier)) placement.drop(holder(request.id), range, kGpuTier);
      if (run.on(kHostTier)) return;
      placement.move({holder(request.id), range, kGpuTier, kHostTier, false, CopyMechanism::many, Waits::iteration});
    });
  }
  [[nodiscard]] bool keeps(const View&, const RequestView& request, Outcome outcome) override {
    std::erase(resting_, request.conversation);
    if (outcome == Outcome::finished) resting_.push_back(request.conversation);
    return outcome == Outcome::finished;
  }
  void makes_room(const View&, Blocks blocks, Placement& placement) override { make_room(blocks, -1, placement); }
  void places(const View&, Placement& placement) override {
    std::erase_if(resting_, [&](std::int64_t one) { return view_.kept(one) == Tokens(0); });
    if (view_.tier(kGpuTier).free.count() * 4 >= view_.tier(kGpuTier).total.count()) return;
    for (const std::int64_t one : resting_) {
      bool moved = false;
      visit(holder_of_conversation(one), [&](const KvRun& run, const BlockRange& range) {
        if (moved || run.moving() || run.tier != kGpuTier || run.copy != kNoTier) return;
        if (run.blocks > view_.tier(kHostTier).free) return;
        placement.move({holder_of_conversation(one), range, kGpuTier, kHostTier, true, CopyMechanism::gather});
        moved = true;
      });
      if (moved) return;
    }
    if (resting_.empty() || view_.tier(kHostTier).free > Blocks(0)) return;
    const Holder oldest = holder_of_conversation(resting_.front());
    Blocks all;
    for (const KvRun& run : view_.runs(oldest)) all += run.blocks;
    placement.drop(oldest, {Blocks(0), all}, kNoTier);
  }

 private:
  template <class Visit>
  void visit(const Holder& holder, Visit visit) const {
    const auto shown = view_.runs(holder);
    Blocks first;
    for (const KvRun& run : std::vector<KvRun>(shown.begin(), shown.end())) {
      visit(run, BlockRange{first, first + run.blocks});
      first += run.blocks;
    }
  }
  void bring(const Holder& holder, Tokens known, Waits waits, Placement& placement) {
    const Blocks end = blocks_for(known, view_.block_tokens());
    visit(holder, [&](const KvRun& run, const BlockRange& range) {
      if (run.tier != kHostTier || run.moving() || range.first >= end) return;
      placement.move(
          {holder, {range.first, std::min(range.end, end)}, kHostTier, kGpuTier, true, CopyMechanism::gather, waits});
    });
  }
  void make_room(Blocks blocks, std::int64_t but, Placement& placement) {
    for (const std::int64_t one : resting_) {
      if (one == but) continue;
      visit(holder_of_conversation(one), [&](const KvRun& run, const BlockRange& range) {
        const Blocks part = std::min(blocks, run.blocks);
        if (!run.on(kGpuTier) || run.moving() || part == Blocks(0)) return;
        placement.drop(holder_of_conversation(one), {range.first, range.first + part},
                       run.copy == kNoTier ? kNoTier : kGpuTier);
        blocks -= part;
      });
    }
  }
  [[nodiscard]] Blocks obtainable(std::int64_t but) const override {
    Blocks blocks = view_.tier(kGpuTier).free;
    for (const std::int64_t one : resting_) {
      for (const KvRun& run : view_.runs(holder_of_conversation(one))) {
        blocks += one != but && run.on(kGpuTier) && !run.moving() ? run.blocks : Blocks(0);
      }
    }
    return blocks;
  }

  std::vector<std::int64_t> resting_;  // conversations, the one that rested longest first
};

/// First come, first served, whole prompts; on shortage the request that joined last is preempted.
class ToyFcfs final : public Scheduler {
 public:
  void arrived(const RequestView& request) override { waiting_.push_back(request.id); }
  void ended(RequestId, Outcome) override {}
  void decide(const View& view, const KvSpace& kv, Decision& decision) override {
    bool preempted = false;
    for (; kv.decodes(view.batch().decoding) != Fit::now; preempted = true) {
      const RequestId victim = view.last_joined();
      const Leave how = kv.preempts(view.request(victim));
      decision.leave(victim, how);
      (how == Leave::preempt_swap ? swapped_ : waiting_).push_front(victim);
    }
    for (RequestId head = swapped_.head(view); !preempted && head.valid(); head = swapped_.head(view)) {
      if (kv.resumes(view.request(head)) != Fit::now) break;
      decision.resume(head);
      swapped_.pop_front();
      if (view.request(head).phase == Phase::prefilling) decision.chunk(head, view.request(head).remaining());
    }
    decision.decodes(view.batch().decoding);
    if (!preempted && !swapped_.head(view).valid()) admit(view, kv, decision);
    if (view.batch().running == 0) decision.idle();
  }

 private:
  void admit(const View& view, const KvSpace& kv, Decision& decision) {
    for (RequestId head = waiting_.head(view); head.valid(); head = waiting_.head(view)) {
      const Fit fit = kv.admits(view.request(head), view.request(head).known);
      if (fit == Fit::after_moves) decision.fetch(head);
      if (fit == Fit::later || fit == Fit::after_moves) return;
      waiting_.pop_front();
      if (fit == Fit::never) {
        decision.reject(head);
        continue;
      }
      decision.join(head);
      decision.chunk(head, view.request(head).remaining());
    }
  }

  FcfsQueue waiting_;
  FcfsQueue swapped_;
};

/// Completely fair: in slices of a few iterations those run that have generated the fewest tokens, as many as fit.
class ToyCfs final : public Scheduler {
 public:
  void arrived(const RequestView& request) override { all_.push_back(request.id); }
  void ended(RequestId id, Outcome) override { std::erase(all_, id); }
  void decide(const View& view, const KvSpace& kv, Decision& decision) override {
    const bool goes_on = view.batch().running > 0 && slice_-- > 0 && kv.decodes(view.batch().decoding) == Fit::now;
    if (goes_on) return;
    slice_ = kSlice - 1;
    const auto served = [&](RequestId id) { return view.request(id).known - view.request(id).input; };
    std::ranges::stable_sort(all_, {}, served);
    Blocks left = view.tier(kGpuTier).total;
    const auto chosen = std::ranges::find_if(all_, [&](RequestId id) {
      left -= blocks_for(view.request(id).known + Tokens(1), view.block_tokens());
      return left < Blocks(0);
    });
    for (auto id = chosen; id != all_.end(); ++id) {
      const RequestView request = view.request(*id);
      const bool runs = request.phase == Phase::prefilling || request.phase == Phase::decoding;
      if (runs) decision.leave(*id, kv.preempts(request));
    }
    for (auto id = all_.begin(); id != chosen; ++id) {
      if (view.request(*id).phase == Phase::swapped) decision.resume(*id);
      if (view.request(*id).phase == Phase::waiting) decision.join(*id);
      if (view.request(*id).phase == Phase::prefilling) decision.chunk(*id, view.request(*id).remaining());
    }
  }

 private:
  static constexpr int kSlice = 3;
  std::vector<RequestId> all_;
  int slice_ = 0;
};

/// Requests leave for the memory that another GPU lends, in one gathered copy, and for the host when that is full.
class ToyPeerSwap final : public CountingSpace {
 public:
  using CountingSpace::CountingSpace;
  static constexpr TierId kPeer{2};
  [[nodiscard]] Leave preempts(const RequestView& request) const override {
    const Blocks most = std::max(view_.tier(kHostTier).free, view_.tier(kPeer).free);
    return request.held <= most ? Leave::preempt_swap : Leave::preempt_recompute;
  }
  void leaves(const View&, const RequestView& request, Placement& placement) override {
    const TierId to = request.held <= view_.tier(kPeer).free ? kPeer : kHostTier;
    placement.move(
        {holder(request.id), {Blocks(0), request.held}, kGpuTier, to, false, CopyMechanism::gather, Waits::iteration});
  }
};

template <class Scheduling, class Space>
PolicyInfo toy_policy(const char* name) {
  PolicyInfo info;
  info.name = name;
  info.make = [](const PolicyContext& context) {
    return Policy{std::make_unique<Scheduling>(), std::make_unique<Space>(context.view)};
  };
  return info;
}

}  // namespace spillway::oracle
