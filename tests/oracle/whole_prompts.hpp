// Admission of whole prompts, for the schedulers of tests.
#pragma once

#include <cstdint>
#include <limits>

#include "policies/parts/fcfs_queue.hpp"
#include "sim/api/scheduler.hpp"

namespace spillway::oracle {

/// Admits the head of `waiting` and computes its whole prompt, as long as the batch has fewer than `most` requests and
/// the head fits. A head whose KV must be moved first is fetched; one that never fits is rejected.
inline void admit_whole_prompts(FcfsQueue& waiting, const View& view, const KvSpace& kv, Decision& decision,
                                std::int64_t most = std::numeric_limits<std::int64_t>::max()) {
  for (RequestId head = waiting.head(view); head.valid(); head = waiting.head(view)) {
    if (view.batch().running >= most) return;
    const Fit fit = kv.admits(view.request(head), view.request(head).known);
    if (fit == Fit::after_moves) decision.fetch(head, view.request(head).known);
    if (fit == Fit::later || fit == Fit::after_moves) return;
    waiting.pop_front();
    if (fit == Fit::never) {
      decision.reject(head);
      continue;
    }
    decision.join(head);
    decision.chunk(head, view.request(head).remaining());
  }
}

}  // namespace spillway::oracle
