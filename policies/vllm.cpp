// vLLM today: the V1 scheduler.
//
// Source: vllm-project/vllm v0.19, vllm/v1/core/sched/scheduler.py and vllm/v1/core/kv_cache_manager.py. One token
// budget per step serves decodes and prompt pieces alike. A step takes memory for its own tokens only. On shortage the
// request that was admitted last returns its memory and is recomputed.
#include <algorithm>

#include "policies/parts/admission.hpp"
#include "policies/parts/paged_space.hpp"
#include "policies/parts/prompt_pieces.hpp"
#include "policies/parts/refusals.hpp"
#include "sim/api/registry.hpp"

namespace spillway {
namespace {

class VllmScheduler final : public Scheduler {
 public:
  explicit VllmScheduler(const Settings& settings)
      : token_budget_(settings.get<std::int64_t>("engine.max_num_batched_tokens")),
        max_num_seqs_(settings.get<std::int64_t>("engine.max_num_seqs")),
        chunked_prefill_(settings.get<bool>("engine.chunked_prefill")),
        reserve_full_input_(settings.get<bool>("policy.reserve_full_input")) {}

  void arrived(const RequestView& request) override { waiting_.push_back(request.id); }
  void ended(RequestId id, Outcome) override { pieces_.forget(id); }

  void decide(const View& view, const KvSpace& kv, Decision& decision) override {
    Tokens budget(token_budget_);
    const bool preempted = !schedule_running(view, kv, decision, budget);
    if (!preempted && !swapped_.head(view).valid()) schedule_waiting(view, kv, decision, budget);
  }

 private:
  /// Schedules the requests in the batch, in order of admission. Admission stops when the budget is spent, so at most
  /// one of them is still in prefill, and it is the last. Returns false when it preempted a request.
  bool schedule_running(const View& view, const KvSpace& kv, Decision& decision, Tokens& budget) {
    bool preempted = false;
    const auto decodes = [&] { return std::min(view.batch().decoding, budget.count()); };
    while (kv.decodes(decodes()) != Fit::now) {
      preempt(view.last_joined(), view, kv, decision);
      preempted = true;
    }
    const RequestId unfinished = pieces_.first();
    Tokens prompts;  // of requests that come back
    if (!preempted && !unfinished.valid()) prompts = resume(view, kv, decision, budget - Tokens(decodes()));
    const std::int64_t decoding = decodes();
    decision.decodes(decoding);
    budget -= Tokens(decoding) + prompts;

    if (unfinished.valid() && budget > Tokens(0)) {
      const RequestView request = view.request(unfinished);
      const Tokens tokens = std::min(request.remaining(), budget);
      const Tokens upto = request.computed + tokens;
      const auto ask = [&] { return kv.grows(request, upto); };
      const Fit fit = fetch_and_ask(unfinished, upto, ask(), decision, ask);
      if (fit == Fit::now) {
        decision.chunk(unfinished, tokens);
        pieces_.staged(request, tokens);
        budget -= tokens;
      } else if (fit == Fit::after_moves) {
        // If it left, it would come back as soon as it could, and leave again.
        wait_for_memory(fit, decision);
        budget = Tokens(0);
      } else {
        preempt(unfinished, view, kv, decision);
        preempted = true;
      }
    }
    return !preempted;
  }

  void schedule_waiting(const View& view, const KvSpace& kv, Decision& decision, Tokens& budget) {
    const auto entry = [&](const RequestView& request) {
      const Tokens there = std::max(request.computed, view.cached_prefix(request.id).tokens);
      const Tokens missing = request.known - there;
      const Tokens tokens = std::min(missing, budget);
      return Entry{.upto = reserve_full_input_ ? request.known : there + tokens,
                   .compute = chunked_prefill_ || missing <= budget ? tokens : Tokens(0),
                   .never = !chunked_prefill_ && request.remaining() > Tokens(token_budget_)};
    };
    const auto joined = [&](const RequestView& request, Tokens tokens) {
      pieces_.staged(request, tokens);
      budget -= tokens;
    };
    admit_in_order(waiting_, max_num_seqs_, view, kv, decision, entry, joined);
  }

  /// Where KV leaves for the host, preempted requests come back before new ones, once no prompt is unfinished. Returns
  /// the prompt tokens that are computed for them.
  Tokens resume(const View& view, const KvSpace& kv, Decision& decision, Tokens budget) {
    Tokens prompts;
    resume_in_order(swapped_, max_num_seqs_, view, kv, decision, budget, [&](const RequestView& back) {
      const Tokens tokens = chunked_prefill_ ? std::min(back.remaining(), budget) : back.remaining();
      budget -= tokens;
      if (back.phase != Phase::prefilling) return;
      decision.chunk(back.id, tokens);
      pieces_.staged(back, tokens);
      prompts += tokens;
    });
    return prompts;
  }

  void preempt(RequestId victim, const View& view, const KvSpace& kv, Decision& decision) {
    const Leave how = kv.preempts(view.request(victim));
    decision.leave(victim, how);
    (how == Leave::preempt_recompute ? waiting_ : swapped_).push_front(victim);
    pieces_.forget(victim);
  }

  const std::int64_t token_budget_;
  const std::int64_t max_num_seqs_;
  const bool chunked_prefill_;
  const bool reserve_full_input_;
  FcfsQueue waiting_;
  FcfsQueue swapped_;
  PromptPieces pieces_;
};

PolicyInfo info() {
  PolicyInfo info;
  info.name = "vllm";
  info.summary = "vLLM's V1 scheduler: one token budget for decodes and prompt pieces, recompute on shortage";
  info.source = "vllm-project/vllm v0.19.0, vllm/v1/core/sched/scheduler.py";
  info.limits =
      "First come, first served only. No priorities, LoRA, structured output or speculative decoding. Multi-step and "
      "pipeline-parallel scheduling are not modelled.";
  info.parameters = {{.name = "policy.reserve_full_input",
                      .type = ParameterType::boolean,
                      .unit = "-",
                      .default_value = "true",
                      .doc =
                          "Admit a waiting request only when the blocks of its whole input are free, although it takes "
                          "only those of its first piece",
                      .source = "scheduler_reserve_full_isl, on by default in vLLM 0.19"}};
  info.steady_decodes = true;
  info.default_engine = [](const Settings&) { return "vllm-0.23"; };
  info.offloads_prefixes = true;
  info.frees_windows = true;
  info.check = [](const Settings& settings) {
    std::vector<Problem> problems;
    refuse_swap(settings, "policy vllm cannot swap: vLLM's V1 scheduler always recomputes",
                "leave engine.preemption at recompute, or use policy=vllm-v0", problems);
    return problems;
  };
  info.make = [](const PolicyContext& context) {
    return Policy{std::make_unique<VllmScheduler>(context.settings),
                  std::make_unique<PagedSpace>(context.view, PagedSpaceOptions{})};
  };
  return info;
}

const RegisterPolicy kRegistered(info());

}  // namespace
}  // namespace spillway
