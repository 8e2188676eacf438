// A policy for tests, in which decoding requests rest: no published policy uses everything that a Decision allows.
#pragma once

#include <cstdint>
#include <memory>

#include "policies/parts/fcfs_queue.hpp"
#include "policies/parts/paged_space.hpp"
#include "sim/api/registry.hpp"
#include "tests/oracle/whole_prompts.hpp"

namespace spillway::oracle {

/// First come, first served, whole prompts. In each iteration a different number of decoding requests runs, in batch
/// order. On shortage, the request that joined last is preempted.
class RestingScheduler final : public Scheduler {
 public:
  explicit RestingScheduler(const Settings& settings)
      : max_num_seqs_(settings.get<std::int64_t>("engine.max_num_seqs")) {}

  void arrived(const RequestView& request) override { waiting_.push_back(request.id); }
  void ended(RequestId, Outcome) override {}
  void decide(const View& view, const KvSpace& kv, Decision& decision) override {
    bool preempted = false;
    for (; view.batch().decoding > 0 && kv.decodes(1) != Fit::now; preempted = true) {
      const RequestId victim = view.last_joined();
      decision.leave(victim, Leave::preempt_recompute);
      waiting_.push_front(victim);
    }
    if (const std::int64_t decoding = view.batch().decoding; decoding > 0) {
      std::int64_t steps = 1 + turn_++ % decoding;
      while (kv.decodes(steps) != Fit::now) --steps;
      decision.decodes(steps);
    }
    if (!preempted) admit_whole_prompts(waiting_, view, kv, decision, max_num_seqs_);
  }

 private:
  const std::int64_t max_num_seqs_;
  FcfsQueue waiting_;
  std::int64_t turn_ = 0;
};

inline PolicyInfo resting_policy() {
  PolicyInfo info;
  info.name = "resting";
  info.rests_decodes = true;
  info.make = [](const PolicyContext& context) {
    return Policy{std::make_unique<RestingScheduler>(context.settings),
                  std::make_unique<PagedSpace>(context.view, PagedSpaceOptions{})};
  };
  return info;
}

}  // namespace spillway::oracle
