// Engines that keep running requests in order of arrival: vLLM V0 and its descendants.
#pragma once

#include <algorithm>

#include "policies/parts/admission.hpp"
#include "policies/parts/fcfs_queue.hpp"
#include "policies/parts/prompt_pieces.hpp"
#include "sim/api/scheduler.hpp"

namespace spillway {

/// The waiting, the running and the swapped requests, each in order of arrival. On shortage the running request that
/// arrived last leaves: to the head of the queue, or to the host if the space answers so.
class ArrivalOrder {
 public:
  FcfsQueue waiting;
  FcfsQueue swapped;
  PromptPieces pieces;  // the running requests whose prompt is not complete

  /// Preempts latest arrivals until memory for the next token of `decodes()` requests is free. True if it preempted.
  template <class Decodes>
  bool make_room(const View& view, const KvSpace& kv, Decision& decision, Decodes decodes) {
    running_.trim(view);
    bool any = false;
    while (kv.decodes(decodes()) != Fit::now) {
      preempt(view, kv, decision);
      any = true;
    }
    return any;
  }

  /// admit_in_order(), which takes the tokens of every staged piece off `budget`.
  template <class EntryOf>
  bool admit(std::int64_t max_num_seqs, const View& view, const KvSpace& kv, Decision& decision, Tokens& budget,
             EntryOf entry) {
    return admit_in_order(waiting, max_num_seqs, view, kv, decision, entry,
                          [&](const RequestView& request, Tokens tokens) {
                            running_.insert_by_arrival(request.id);
                            pieces.staged(request, tokens);
                            budget -= tokens;
                          });
  }

  /// Computes further pieces of the incomplete prompts, within the budget.
  void continue_prompts(const View& view, Decision& decision, Tokens& budget) {
    pieces.compute(view, decision, [&](const RequestView& request) {
      const Tokens tokens = std::min(request.remaining(), budget);
      budget -= tokens;
      return tokens;
    });
  }

  /// resume_in_order() of the swapped requests: they decode, or go on with their prompts. Without `cuts_prompts` a
  /// prompt of which some KV was dropped is computed whole, whatever is left of the budget.
  void resume(std::int64_t max_num_seqs, bool cuts_prompts, const View& view, const KvSpace& kv, Decision& decision,
              Tokens& budget) {
    resume_in_order(swapped, max_num_seqs, view, kv, decision, budget, [&](const RequestView& back) {
      running_.insert_by_arrival(back.id);
      const Tokens tokens = cuts_prompts ? std::min(back.remaining(), budget) : back.remaining();
      budget -= tokens;
      if (back.phase != Phase::prefilling) return;
      decision.reserve(back.id, back.known);  // later pieces do not ask for memory
      decision.chunk(back.id, tokens);
      pieces.staged(back, tokens);
    });
  }

 private:
  void preempt(const View& view, const KvSpace& kv, Decision& decision) {
    const RequestId victim = running_.tail(view);
    const Leave how = kv.preempts(view.request(victim));
    running_.pop_back();
    decision.leave(victim, how);
    pieces.forget(victim);
    if (how == Leave::preempt_recompute) {
      waiting.push_front(victim);
    } else {
      swapped.insert_by_arrival(victim);
    }
  }

  FcfsQueue running_;
};

}  // namespace spillway
