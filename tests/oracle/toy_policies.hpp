// Two small policies: what a published system would do with holders, runs and moves.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "policies/parts/fcfs_queue.hpp"
#include "sim/api/registry.hpp"
#include "sim/api/runs.hpp"
#include "tests/oracle/whole_prompts.hpp"

namespace spillway::oracle {

/// Answers of a space from two counts: blocks that a request lacks on the GPU, and blocks that could be free there.
class CountingSpace : public OffloadPolicy {
 public:
  explicit CountingSpace(const View& view) : view_(view) {}
  [[nodiscard]] Fit admits(const RequestView& request, Tokens upto) const override {
    if (blocks(request.input + request.max_new_tokens) > view_.tier(kGpuTier).most) return Fit::never;
    const Holder kept = holder_of_conversation(request.conversation);
    return fits(missing(kept, std::max(request.known, upto)), request.conversation);
  }
  [[nodiscard]] Fit grows(const RequestView& request, Tokens upto) const override {
    return fits(missing(holder(request.id), upto));
  }
  [[nodiscard]] Fit decodes(std::int64_t count) const override { return fits(view_.decode_growth(count)); }
  [[nodiscard]] Fit resumes(const RequestView& request, Tokens upto) const override {
    return fits(view_.batch().decode_growth + missing(holder(request.id), upto));
  }
  [[nodiscard]] Leave preempts(const RequestView& request) const override {
    return request.held <= view_.tier(kHostTier).free ? Leave::preempt_swap : Leave::preempt_recompute;
  }

 protected:
  [[nodiscard]] Blocks blocks(Tokens tokens) const { return blocks_for(tokens, view_.block_tokens()); }
  /// Blocks of a context of `tokens` that are not on the GPU.
  [[nodiscard]] Blocks missing(const Holder& holder, Tokens tokens) const {
    return blocks(tokens) - blocks_on(view_, holder, kGpuTier, blocks(tokens));
  }
  /// Blocks of the GPU that are free, or can be freed at once without those of one conversation.
  [[nodiscard]] virtual Blocks obtainable(std::int64_t /*but*/) const { return view_.tier(kGpuTier).free; }

  const View& view_;

 private:
  [[nodiscard]] Fit fits(Blocks blocks, std::int64_t but = -1) const {
    return blocks <= obtainable(but) ? Fit::now : Fit::later;
  }
};

/// Keeps the KV of a conversation when a turn ends. When less than a quarter of the GPU is free, it copies the blocks
/// of the conversation that rested longest to the host; the next shortage takes their places on the GPU. On a full host
/// the longest resting is dropped. A turn of an even conversation waits for its KV outside the batch; each layer of an
/// odd one waits for its share.
class ToyRetention final : public CountingSpace {
 public:
  using CountingSpace::CountingSpace;
  [[nodiscard]] Fit admits(const RequestView& request, Tokens upto) const override {
    const Fit fit = CountingSpace::admits(request, upto);
    const Blocks away = blocks_elsewhere(view_, holder_of_conversation(request.conversation), blocks(request.known));
    const bool moves_hold_it = fit == Fit::later && view_.batch().running == 0;
    const bool waits = fit == Fit::now && request.conversation % 2 == 0 && away > Blocks(0);
    return moves_hold_it || waits ? Fit::after_moves : fit;
  }
  [[nodiscard]] Fit resumes(const RequestView& request, Tokens upto) const override {
    const Fit fit = CountingSpace::resumes(request, upto);
    return fit == Fit::later && view_.batch().running == 0 ? Fit::after_moves : fit;
  }
  void fetches(const View&, const RequestView& request, Tokens, Placement& placement) override {
    if (request.phase == Phase::swapped || CountingSpace::admits(request, request.known) != Fit::now) return;
    bring(holder_of_conversation(request.conversation), request.known, Waits::request, placement);
  }
  void returns(const View&, const RequestView& request, Placement& placement) override {
    bring(holder(request.id), request.known, Waits::layers, placement);
  }
  [[nodiscard]] bool keeps(const View&, const RequestView& request, Outcome outcome) override {
    std::erase(resting_, request.conversation);
    if (outcome == Outcome::finished) resting_.push_back(request.conversation);
    return outcome == Outcome::finished;
  }
  void makes_room(const View&, Blocks needed, Placement& placement) override { make_room(needed, -1, placement); }
  void places(const View&, Placement& placement) override {
    std::erase_if(resting_, [&](std::int64_t one) { return view_.kept(one) == Tokens(0); });
    if (view_.tier(kGpuTier).free.count() * 4 >= view_.tier(kGpuTier).total.count()) return;
    for (const std::int64_t one : resting_) {
      for (const PlacedRun& run : placed_runs(view_, holder_of_conversation(one))) {
        const bool only_on_gpu = run.on(kGpuTier) && run.copy == kNoTier && !run.moving();
        if (!only_on_gpu || run.blocks > view_.tier(kHostTier).free) continue;
        return placement.move(
            {holder_of_conversation(one), run.range, kGpuTier, kHostTier, true, CopyMechanism::gather});
      }
    }
    if (resting_.empty() || view_.tier(kHostTier).free > Blocks(0)) return;
    const Holder oldest = holder_of_conversation(resting_.front());
    placement.drop(oldest, {Blocks(0), placed_runs(view_, oldest).back().range.end}, kNoTier);
  }

 private:
  /// A context comes to the GPU, if need be in the place of other conversations.
  void bring(const Holder& whose, Tokens known, Waits waits, Placement& placement) {
    make_room(missing(whose, known) - view_.tier(kGpuTier).free, whose.conversation, placement);
    const Move how{.keep = true, .mechanism = CopyMechanism::gather, .waits = waits};
    bring_to_gpu(view_, whose, blocks(known), how, placement);
  }
  void make_room(Blocks needed, std::int64_t but, Placement& placement) {
    for (const std::int64_t one : resting_) {
      if (one != but) needed -= free_blocks(view_, holder_of_conversation(one), kGpuTier, needed, placement);
    }
  }
  [[nodiscard]] Blocks obtainable(std::int64_t but) const override {
    Blocks sum = view_.tier(kGpuTier).free;
    for (const std::int64_t one : resting_) {
      if (one != but) sum += freeable_blocks(view_, holder_of_conversation(one), kGpuTier);
    }
    return sum;
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
      (how == Leave::preempt_recompute ? waiting_ : swapped_).push_front(victim);
    }
    for (RequestId head = swapped_.head(view); !preempted && head.valid(); head = swapped_.head(view)) {
      if (kv.resumes(view.request(head), view.request(head).known) != Fit::now) break;
      decision.resume(head);
      swapped_.pop_front();
      if (view.request(head).phase == Phase::prefilling) decision.chunk(head, view.request(head).remaining());
    }
    decision.decodes(view.batch().decoding);
    if (!preempted && !swapped_.head(view).valid()) admit_whole_prompts(waiting_, view, kv, decision);
    if (view.batch().running == 0) decision.idle();
  }

 private:
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
  /// Two of three come back into the place of those that leave.
  void returns(const View&, const RequestView& request, Placement& placement) override {
    const Move how{
        .mechanism = CopyMechanism::gather, .waits = Waits::iteration, .in_turn = request.id.serial % 3 != 0};
    bring_to_gpu(view_, holder(request.id), kWholeContext, how, placement);
  }
};

/// Two of three requests attend on the CPU as long as the host has room for them; the others, and those, on the GPU.
class ToyCpuSpace final : public CountingSpace {
 public:
  using CountingSpace::CountingSpace;
  [[nodiscard]] TierId attends(const View&, const RequestView& request) const override {
    const bool fits = lacks_on_host(request) <= view_.tier(kHostTier).free - view_.batch().host_growth;
    return request.id.serial % 3 != 0 && fits ? kHostTier : kGpuTier;
  }
  [[nodiscard]] Fit admits(const RequestView& request, Tokens upto) const override {
    const bool on_cpu = attends(view_, request) == kHostTier;
    const Fit fit = CountingSpace::admits(request, upto);
    return on_cpu && fit == Fit::later ? Fit::now : fit;
  }
  [[nodiscard]] Fit decodes(std::int64_t count) const override {
    const bool host_fits = view_.batch().host_growth <= view_.tier(kHostTier).free;
    return host_fits ? CountingSpace::decodes(count) : Fit::later;
  }
  [[nodiscard]] Fit resumes(const RequestView& request, Tokens upto) const override {
    return attends(view_, request) == kHostTier ? Fit::now : CountingSpace::resumes(request, upto);
  }
  [[nodiscard]] Leave preempts(const RequestView& request) const override {
    return request.tier == kHostTier ? Leave::suspend : CountingSpace::preempts(request);
  }

 private:
  /// For its known tokens and the next one.
  [[nodiscard]] Blocks lacks_on_host(const RequestView& request) const {
    return blocks(request.known + Tokens(1)) - blocks_on(view_, holder(request.id), kHostTier);
  }
};

/// Those that attend on the CPU are spread over two sub-batches beside the others, and take turns: now and then one is
/// suspended, and some decodes rest.
class ToyPipeline final : public Scheduler {
 public:
  void arrived(const RequestView& request) override { first_.arrived(request); }
  void ended(RequestId id, Outcome outcome) override { first_.ended(id, outcome); }
  void decide(const View& view, const KvSpace& kv, Decision& decision) override {
    const RequestId last = view.last_decoding();
    if (last.valid() && ++turn_ % 4 != 0) {
      const RequestView request = view.request(last);
      decision.sub_batch(last, request.tier == kHostTier ? 1 + turn_ % 2 : turn_ % 3);
    }
    first_.decide(view, kv, decision);
  }

 private:
  ToyFcfs first_;
  std::int32_t turn_ = 0;
};

template <class Scheduling, class Space>
PolicyInfo toy_policy(const char* name) {
  PolicyInfo info;
  info.name = name;
  info.cpu_attention = std::is_same_v<Space, ToyCpuSpace>;
  info.make = [](const PolicyContext& context) {
    return Policy{std::make_unique<Scheduling>(), std::make_unique<Space>(context.view)};
  };
  return info;
}

}  // namespace spillway::oracle
