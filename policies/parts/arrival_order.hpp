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

  /// The first of the swapped requests runs again: it decodes, or goes on with its prompt within the budget (> 0).
  void resume(RequestId id, const View& view, Decision& decision, Tokens& budget) {
    swapped.pop_front();
    decision.resume(id);
    running_.insert_by_arrival(id);
    const RequestView back = view.request(id);
    const Tokens tokens = std::min(back.remaining(), budget);
    budget -= tokens;
    if (back.phase != Phase::prefilling) return;
    decision.chunk(id, tokens);
    pieces.staged(back, tokens);
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
