// SwiftLLM in plain words. Rules: interestingLSY/swiftLLM (682cf9a), swiftllm/server/scheduler.py; NEO's GPU-only base
// (NEO-MLSys25/NEO, b55aaab) for policy.piggyback.
//
//  1. Nobody is swapped out: waiting requests enter first come, first served, as far as seats, tokens and blocks of
//     whole prompts go. If any could, the iteration computes prompts alone.
//  2. Else all running requests decode. As long as they lack blocks for their next tokens, the last of the running list
//     goes to the host; where the host has no room for it, it drops its KV and waits at the head of the queue.
//  3. Had nobody to go, those that are swapped out come back, the first one first, as long as the blocks of their known
//     tokens are free beside what the running requests need for theirs.
//  4. piggyback: instead of 1., waiting requests enter after 3., with the tokens that decodes leave; provided that
//     nobody was swapped out when the step began, nor during it.
//
//  5. Blocks that leave or come back together go as one copy, or each layer's K and V of each block on its own.
//
// A prompt above the token limit can never run, and is rejected at the head of the queue.
#include <memory>

#include "sim/api/runs.hpp"
#include "tests/models/counting.hpp"
#include "tests/models/plain_policy.hpp"

namespace spillway::oracle {
namespace {

class SwiftLlm final : public Scheduler {
 public:
  explicit SwiftLlm(const Settings& settings)
      : most_tokens_(settings.get<std::int64_t>("engine.max_num_batched_tokens")),
        seats_(settings.get<std::int64_t>("engine.max_num_seqs")),
        piggyback_(settings.get<bool>("policy.piggyback")) {}

  void arrived(const RequestView& request) override { waiting_.push_back(request.id); }
  void ended(RequestId, Outcome) override {}

  void decide(const View& view, const KvSpace&, Decision& decision) override {
    for (Ids* queue : {&waiting_, &running_, &swapped_}) forget_ended(*queue, view);
    const bool all_here = swapped_.empty();
    if (!piggyback_ && all_here && enter(view, decision, most_tokens_)) return decision.decodes(0);
    bool somebody_left = false;
    for (; lacking(running_, view) > free_blocks(view); somebody_left = true) {
      const RequestId last = running_.back();
      const bool room = view.request(last).held <= view.tier(kHostTier).free;
      running_.pop_back();
      decision.leave(last, room ? Leave::preempt_swap : Leave::preempt_recompute);
      push_front(room ? swapped_ : waiting_, last);
    }
    if (!somebody_left) come_back(view, decision);
    decision.decodes(count(running_));
    if (piggyback_ && all_here && !somebody_left) enter(view, decision, most_tokens_ - count(running_));
  }

 private:
  void come_back(const View& view, Decision& decision) {
    while (!swapped_.empty()) {
      const RequestId first = swapped_.front();
      const std::int64_t blocks = blocks_of(view, view.request(first).known.count());
      if (count(running_) == seats_) return decision.blocked(Blocked::batch_size);
      if (blocks + lacking(running_, view) > free_blocks(view)) return decision.blocked(Blocked::kv_capacity);
      decision.resume(first);
      running_.push_back(first);
      remove(swapped_, first);
    }
  }

  /// Returns true if anybody could.
  bool enter(const View& view, Decision& decision, std::int64_t tokens) {
    Ids entered;
    while (!waiting_.empty()) {
      const RequestId id = waiting_.front();
      const std::int64_t prompt = view.request(id).remaining().count();
      if (prompt > most_tokens_ || blocks_of(view, prompt) > view.tier(kGpuTier).most.count()) {
        decision.reject(id);
        remove(waiting_, id);
        continue;
      }
      const bool no_seat = count(running_) == seats_;
      const bool no_tokens = prompt > tokens;
      if (no_seat || no_tokens || blocks_taken(view, id, prompt) > free_blocks(view)) {
        decision.blocked(no_seat ? Blocked::batch_size : no_tokens ? Blocked::token_budget : Blocked::kv_capacity);
        break;
      }
      decision.join(id);
      decision.reserve(id, Tokens(prompt));
      const Tokens computed = view.request(id).remaining();  // all that is not cached
      decision.chunk(id, computed);
      tokens -= computed.count();
      running_.push_back(id);
      entered.push_back(id);
      remove(waiting_, id);
    }
    return !entered.empty();
  }

  const std::int64_t most_tokens_;
  const std::int64_t seats_;
  const bool piggyback_;
  Ids waiting_;  // the first one first, as in the other two
  Ids running_;
  Ids swapped_;
};

class Swapping final : public UnaskedSpace {
 public:
  explicit Swapping(bool merged)
      : how_{.mechanism = merged ? CopyMechanism::single : CopyMechanism::many, .waits = Waits::iteration} {}

  void leaves(const View& view, const RequestView& request, Placement& placement) override {
    Move out = how_;
    out.to = kHostTier;
    send_from_gpu(view, holder(request.id), out, placement);
  }
  void returns(const View& view, const RequestView& request, Placement& placement) override {
    bring_to_gpu(view, holder(request.id), kWholeContext, how_, placement);
  }

 private:
  const Move how_;
};

const RegisterPlain kRegistered{PlainPolicy{
    .name = "swiftllm",
    .make =
        [](const PolicyContext& context) {
          Policy policy;
          policy.scheduler = std::make_unique<SwiftLlm>(context.settings);
          policy.space =
              std::make_unique<Swapping>(context.settings.get<std::string>("policy.swap_copies") == "merged");
          return policy;
        },
    .explains_waiting = true}};

}  // namespace
}  // namespace spillway::oracle
