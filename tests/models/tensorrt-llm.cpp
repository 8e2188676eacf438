// TensorRT-LLM in plain words. Rules: NVIDIA/TensorRT-LLM v0.9, batch_manager.md.
//
//  1. Every decoding request takes a token. Under MAX_UTILIZATION they may lack blocks for it: then the running request
//     that arrived last pauses, whether it decodes or not, and its KV is dropped, until those that are left have room.
//  2. What decodes leave of the token budget goes to prompts that were begun, in order of arrival.
//  3. Then waiting requests enter in order of arrival, until one does not: it must find a seat, tokens and room for the
//     whole prompt, and under GUARANTEED_NO_EVICT room for the last token of everything that runs. Nobody enters in
//     a step in which somebody had to pause. Without chunked prefill a prompt is computed whole.
//  4. What can never run is rejected when it is the first in the queue.
//
// Requests run in order of arrival and pause from the other end, so that the running ones always come before the
// waiting ones: one list of all of them is enough.
#include <algorithm>
#include <memory>

#include "tests/models/counting.hpp"
#include "tests/models/plain_policy.hpp"

namespace spillway::oracle {
namespace {

class TensorRtLlm final : public Scheduler {
 public:
  explicit TensorRtLlm(const Settings& settings)
      : guaranteed_(settings.get<std::string>("policy.batch_scheduler_policy") == "guaranteed_no_evict"),
        most_tokens_(settings.get<std::int64_t>("engine.max_num_batched_tokens")),
        seats_(settings.get<std::int64_t>("engine.max_num_seqs")),
        cuts_prompts_(settings.get<bool>("engine.chunked_prefill")) {}

  void arrived(const RequestView& request) override { all_.push_back(request.id); }
  void ended(RequestId id, Outcome) override { remove(all_, id); }

  void decide(const View& view, const KvSpace&, Decision& decision) override {
    bool paused = false;
    for (; lacking(decoding(all_, view), view) > free_blocks(view); paused = true) {
      decision.leave(running(all_, view).back(), Leave::preempt_recompute);
    }
    const std::int64_t decodes = count(decoding(all_, view));
    decision.decodes(decodes);
    std::int64_t tokens = most_tokens_ - decodes;
    for (const RequestId id : running(all_, view)) {
      const RequestView request = view.request(id);
      if (request.phase == Phase::decoding) continue;
      const std::int64_t piece = std::min(request.remaining().count(), tokens);
      if (piece > 0) decision.chunk(id, Tokens(piece));
      tokens -= piece;
    }
    if (!paused) enter(view, decision, tokens);
  }

 private:
  void enter(const View& view, Decision& decision, std::int64_t tokens) {
    const Ids waiting = such(all_, view, [](const RequestView& request) { return !runs(request); });
    for (const RequestId id : waiting) {
      const RequestView request = view.request(id);
      const std::int64_t prompt = request.remaining().count();
      if (can_never_run(request, view)) {
        decision.reject(id);
        remove(all_, id);
        continue;
      }
      if (count(running(all_, view)) == seats_) return decision.blocked(Blocked::batch_size);
      if (tokens < (cuts_prompts_ ? 1 : prompt)) return decision.blocked(Blocked::token_budget);
      if (!has_room(request, view)) return decision.blocked(Blocked::kv_capacity);
      decision.join(id);
      decision.reserve(id, request.known);
      const std::int64_t piece = std::min(view.request(id).remaining().count(), tokens);  // cached tokens are there
      decision.chunk(id, Tokens(piece));
      tokens -= piece;
    }
  }

  [[nodiscard]] bool can_never_run(const RequestView& request, const View& view) const {
    return blocks_of(view, request.known.count()) > view.tier(kGpuTier).most.count() ||
           (!cuts_prompts_ && request.remaining().count() > most_tokens_);
  }
  [[nodiscard]] bool has_room(const RequestView& request, const View& view) const {
    if (guaranteed_) {
      const auto at_its_end = [&](const RequestView& one) {
        return blocks_of(view, (one.input + one.max_new_tokens).count());
      };
      std::int64_t all = at_its_end(request);
      for (const RequestId id : running(all_, view)) all += at_its_end(view.request(id));
      if (all > view.tier(kGpuTier).total.count()) return false;
    }
    return blocks_taken(view, request.id, request.known.count()) <= free_blocks(view);
  }

  const bool guaranteed_;
  const std::int64_t most_tokens_;
  const std::int64_t seats_;
  const bool cuts_prompts_;
  Ids all_;  // live ones, in order of arrival
};

const RegisterPlain kRegistered{PlainPolicy{.name = "tensorrt-llm",
                                            .make =
                                                [](const PolicyContext& context) {
                                                  Policy policy;
                                                  policy.scheduler = std::make_unique<TensorRtLlm>(context.settings);
                                                  policy.space = std::make_unique<UnaskedSpace>();
                                                  return policy;
                                                },
                                            .explains_waiting = true}};

}  // namespace
}  // namespace spillway::oracle
