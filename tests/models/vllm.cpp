// vLLM's V1 scheduler from its rule: one token budget for whatever runs, in order of admission,
// then for what waits; memory for the tokens of the step alone; on shortage the last request goes.
#include <memory>
#include <utility>

#include "tests/models/plain_policy.hpp"
#include "tests/models/plain_space.hpp"

namespace spillway::oracle {
namespace {

class PlainVllm final : public Scheduler {
 public:
  explicit PlainVllm(const Settings& settings) : settings_(settings) {}

  void arrived(const RequestView& request) override { waiting_.push_back(request.id); }
  void ended(RequestId id, Outcome) override {
    remove(waiting_, id);
    remove(running_, id);
  }

  void decide(const View& view, const KvSpace&, Decision& decision) override {
    std::int64_t budget = settings_.get<std::int64_t>("engine.max_num_batched_tokens");
    if (schedule_running(view, decision, budget)) schedule_waiting(view, decision, budget);
  }

 private:
  struct Share {
    RequestId id;
    bool decodes = false;
    Tokens tokens{};
  };

  /// Step 1 of the rule. False when a request was preempted.
  bool schedule_running(const View& view, Decision& decision, std::int64_t& budget) {
    std::vector<Share> shares;
    std::int64_t promised = 0;  // free blocks that the shares will take
    bool preempted = false;
    for (std::size_t i = 0; i < running_.size() && budget > 0; ++i) {
      const RequestView request = view.request(running_[i]);
      const std::int64_t tokens = std::min(request.remaining().count(), budget);
      const std::int64_t lacking = blocks_lacking(view, request, tokens);
      bool itself = false;
      while (!itself && lacking > free_blocks(view) - promised) {
        const RequestId victim = running_.back();
        itself = victim == request.id;
        decision.leave(victim, Leave::preempt_recompute);
        remove(running_, victim);
        push_front(waiting_, victim);
        preempted = true;
      }
      if (itself) break;
      promised += lacking;
      budget -= tokens;
      shares.push_back({request.id, request.phase == Phase::decoding, Tokens(tokens)});
    }
    decision.decodes(std::count_if(shares.begin(), shares.end(), [](const Share& share) { return share.decodes; }));
    for (const Share& share : shares) {
      if (!share.decodes) decision.chunk(share.id, share.tokens);
    }
    return !preempted;
  }

  /// Step 2 of the rule.
  void schedule_waiting(const View& view, Decision& decision, std::int64_t& budget) {
    const bool cuts_prompts = settings_.get<bool>("engine.chunked_prefill");
    while (!waiting_.empty()) {
      const RequestView head = view.request(waiting_.front());
      // Without chunked prefill what is longer than any step can never be computed.
      if (!cuts_prompts && head.remaining().count() > settings_.get<std::int64_t>("engine.max_num_batched_tokens")) {
        remove(waiting_, head.id);
        decision.reject(head.id);
        continue;
      }
      if (static_cast<std::int64_t>(running_.size()) >= settings_.get<std::int64_t>("engine.max_num_seqs")) {
        return decision.blocked(Blocked::batch_size);
      }
      const Tokens there = std::max(head.computed, view.cached_prefix(head.id).tokens);
      const std::int64_t missing = (head.known - there).count();
      if (budget == 0 || (!cuts_prompts && missing > budget)) return decision.blocked(Blocked::token_budget);
      const std::int64_t tokens = std::min(missing, budget);
      const bool whole = settings_.get<bool>("policy.reserve_full_input");
      const std::int64_t upto = whole ? head.known.count() : there.count() + tokens;
      if (blocks_taken(view, head.id, upto) > free_blocks(view)) return decision.blocked(Blocked::kv_capacity);
      remove(waiting_, head.id);
      running_.push_back(head.id);
      decision.join(head.id);
      decision.chunk(head.id, Tokens(tokens));
      budget -= tokens;
    }
  }

  const Settings settings_;
  Ids waiting_;
  Ids running_;  // in order of admission
};

const RegisterPlain kRegistered{
    PlainPolicy{.name = "vllm",
                .make =
                    [](const PolicyContext& context) {
                      return Policy{std::make_unique<PlainVllm>(context.settings), std::make_unique<UnaskedSpace>()};
                    },
                .explains_waiting = true}};

}  // namespace
}  // namespace spillway::oracle
