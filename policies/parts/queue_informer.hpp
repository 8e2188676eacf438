// AQUA's informer: an instance that serves an LLM lends memory while few requests wait.
#pragma once

#include <algorithm>

#include "sim/api/informer.hpp"

namespace spillway {

struct LendingThresholds {
  Blocks retained{};             // KV memory that the instance keeps
  std::int64_t offer_at = 2;     // it offers while at most so many requests wait
  std::int64_t reclaim_at = 10;  // and reclaims once so many do
  /// Of so much KV memory.
  [[nodiscard]] Blocks lendable(Blocks all) const { return std::max(Blocks(0), all - retained); }
};

/// It asks itself at the end of each iteration:
///  * Nothing is lent, at most `offer_at` requests wait, and less is used than it retains: it offers the rest.
///  * Something is lent, and `reclaim_at` requests wait: it wants all of that back.
/// A request waits as long as it is not in the batch.
///
/// One rule is not AQUA's. A request may need more than is retained for itself. The public code does not see it, and
/// the request would never end. So the memory is reclaimed for it, and none offered before a request has ended.
///
/// Source: AQUA (arXiv 2407.21255), sections 4 and 6; aquaml/aqua (0ed7c15), aqua/informers/llm.py. O(1) per call.
class QueueInformer final : public Informer {
 public:
  explicit QueueInformer(LendingThresholds thresholds) : thresholds_(thresholds) {}

  [[nodiscard]] LendingDecision iteration_ended(const LenderView& view) override {
    if (view.lent > Blocks(0)) return {.reclaim = view.waiting >= thresholds_.reclaim_at};
    if (needs_all_ || view.waiting > thresholds_.offer_at || view.used >= thresholds_.retained) return {};
    return {.offer = thresholds_.lendable(view.all)};
  }
  [[nodiscard]] LendingDecision memory_lacking(const LenderView& view) override {
    if (view.lent == Blocks(0)) return {};
    needs_all_ = true;
    return {.reclaim = true};
  }
  void request_ended() override { needs_all_ = false; }

 private:
  const LendingThresholds thresholds_;
  bool needs_all_ = false;  // a request does, as far as is known
};

[[nodiscard]] inline MakeInformer queue_informer(LendingThresholds thresholds) {
  return [thresholds] { return std::make_unique<QueueInformer>(thresholds); };
}

}  // namespace spillway
