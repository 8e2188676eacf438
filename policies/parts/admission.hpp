// Admission of waiting requests: first come, first served, until one does not fit.
#pragma once

#include <algorithm>
#include <vector>

#include "policies/parts/fcfs_queue.hpp"
#include "sim/api/scheduler.hpp"

namespace spillway {

/// What a waiting request needs to enter in this iteration.
struct Entry {
  Tokens upto{};       // blocks for its first `upto` tokens must be free
  bool hold = false;   // true: it takes these blocks at once; false: only blocks for the tokens computed now
  Tokens compute{};    // known tokens computed now, without cached tokens; <= 0: the token budget is spent
  bool never = false;  // too long for any iteration
  bool placed = true;  // false: no place for its blocks now, even if enough are free
};

/// For an engine that takes the blocks of a whole prompt at once. With `pieces` it computes as much of the prompt as
/// the iteration's `budget` allows. Without, it computes whole prompts, so a prompt above `most`, the largest budget of
/// an iteration, can never run.
[[nodiscard]] inline Entry prompt_entry(const RequestView& request, Tokens budget, Tokens most, bool pieces) {
  const bool fits = pieces || request.remaining() <= budget;
  return Entry{.upto = request.known,
               .hold = true,
               .compute = fits ? std::min(request.remaining(), budget) : Tokens(0),
               .never = !pieces && request.remaining() > most};
}

/// A request may enter with blocks for `upto` tokens as `fit` says, the answer of `ask()`. If copies must bring its KV
/// or make room first, they start, and the question is asked again: what finds no place elsewhere is dropped at once.
template <class Ask>
Fit fetch_and_ask(RequestId id, Tokens upto, Fit fit, Decision& decision, Ask ask) {
  if (fit != Fit::after_moves) return fit;
  decision.fetch(id, upto);
  return ask();
}

/// The head of a queue does not fit now, as `fit` says.
inline void wait_for_memory(Fit fit, Decision& decision) {
  decision.blocked(Blocked::kv_capacity);
  if (fit == Fit::after_moves) decision.idle();  // in case nothing else runs
}

/// Brings back the requests of `swapped`, preempted with their KV or suspended, in order, as long as the batch has a
/// seat and memory for them and the iteration has some of the token `budget` left. Call it before the decodes are
/// staged. `resumed(request)` is called for each; if some KV of it was dropped, its prompt is incomplete.
template <class Resumed>
void resume_in_order(FcfsQueue& swapped, std::int64_t max_num_seqs, const View& view, const KvSpace& kv,
                     Decision& decision, const Tokens& budget, Resumed resumed) {
  for (RequestId head = swapped.head(view); head.valid(); head = swapped.head(view)) {
    if (view.batch().running >= max_num_seqs) return decision.blocked(Blocked::batch_size);
    if (budget <= Tokens(0)) return decision.blocked(Blocked::token_budget);
    const auto ask = [&] { return kv.resumes(view.request(head), view.request(head).known); };
    const Fit fit = fetch_and_ask(head, view.request(head).known, ask(), decision, ask);
    if (fit != Fit::now) return wait_for_memory(fit, decision);
    swapped.pop_front();
    decision.resume(head);
    resumed(view.request(head));
  }
}

/// Admits the head of `waiting` as long as the batch has a seat, tokens and memory for it. Fetches the KV of a head
/// that must come first, and rejects heads that can never run. A head whose blocks are in the engine's host tier
/// fetches them and keeps its position; meanwhile the requests behind it are admitted. `entry_of(request)` returns what
/// a request needs. `joined(request, tokens)` is called for each admitted request after its first `tokens` are staged.
/// Returns true when a request was admitted.
template <class EntryOf, class Joined>
bool admit_in_order(FcfsQueue& waiting, std::int64_t max_num_seqs, const View& view, const KvSpace& kv,
                    Decision& decision, EntryOf entry_of, Joined joined) {
  bool admitted = false;
  std::vector<RequestId> passed;  // their blocks are on their way from the engine's host tier
  for (RequestId head = waiting.head(view); head.valid(); head = waiting.head(view)) {
    const RequestView request = view.request(head);
    if (request.fetching) {
      waiting.pop_front();
      passed.push_back(head);
      continue;
    }
    const Entry entry = entry_of(request);
    const auto ask = [&] { return kv.admits(request, entry.upto); };
    Fit fit = entry.never ? Fit::never : ask();
    if (fit == Fit::never) {
      waiting.pop_front();
      decision.reject(head);
      continue;
    }
    if (view.batch().running >= max_num_seqs) {
      decision.blocked(Blocked::batch_size);
      break;
    }
    if (entry.compute <= Tokens(0)) {
      decision.blocked(Blocked::token_budget);
      break;
    }
    if (const Blocks found = decision.look_up(head); found > Blocks(0)) {
      const Blocks there = blocks_for(view.cached_prefix(head).tokens, view.block_tokens()) + found;
      if (kv.admits(request, std::max(entry.upto, view.block_tokens() * there.count())) != Fit::now) {
        decision.blocked(Blocked::kv_capacity);
        break;
      }
      decision.fetch(head, entry.upto);
      continue;
    }
    if (entry.placed) fit = fetch_and_ask(head, entry.upto, fit, decision, ask);
    if (fit != Fit::now || !entry.placed) {
      wait_for_memory(fit, decision);
      break;
    }
    waiting.pop_front();
    decision.join(head);
    if (entry.hold) decision.reserve(head, entry.upto);
    const RequestView inside = view.request(head);
    const Tokens tokens = std::min(inside.remaining(), entry.compute);
    decision.chunk(head, tokens);
    joined(inside, tokens);
    admitted = true;
  }
  std::for_each(passed.rbegin(), passed.rend(), [&](RequestId id) { waiting.push_front(id); });
  return admitted;
}

}  // namespace spillway
