// vLLM today: the V1 scheduler.
//
// Source: vllm-project/vllm v0.19, vllm/v1/core/sched/scheduler.py and vllm/v1/core/kv_cache_manager.py. One token
// budget per step serves decodes and prompt pieces alike; memory is taken for the tokens of the step and for no later
// ones; on shortage the request that was admitted last gives everything back and is computed again.
#include <algorithm>

#include "policies/parts/fcfs_queue.hpp"
#include "policies/parts/paged_space.hpp"
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
  void ended(RequestId id, Outcome) override {
    if (id == unfinished_prefill_) unfinished_prefill_ = kNoRequest;
  }

  void decide(const View& view, const KvSpace& kv, Decision& decision) override {
    Tokens budget(token_budget_);
    if (schedule_running(view, kv, decision, budget)) schedule_waiting(view, kv, decision, budget);
  }

 private:
  /// Requests in the batch, in order of admission. Admission stops where the budget does, so at most one of them is
  /// still in prefill, and it is the last. Returns false when one was preempted.
  bool schedule_running(const View& view, const KvSpace& kv, Decision& decision, Tokens& budget) {
    bool preempted = false;
    const auto decodes = [&] { return std::min(view.batch().decoding, budget.count()); };
    while (kv.decodes(decodes()) != Fit::now) {
      preempt(view.last_joined(), decision);
      preempted = true;
    }
    const std::int64_t decoding = decodes();
    decision.decodes(decoding);
    budget -= Tokens(decoding);

    if (unfinished_prefill_.valid() && budget > Tokens(0)) {
      const RequestView request = view.request(unfinished_prefill_);
      const Tokens tokens = std::min(request.remaining(), budget);
      if (kv.grows(request, request.computed + tokens) == Fit::now) {
        compute(request, tokens, decision, budget);
      } else {
        preempt(request.id, decision);
        preempted = true;
      }
    }
    return !preempted;
  }

  void schedule_waiting(const View& view, const KvSpace& kv, Decision& decision, Tokens& budget) {
    for (RequestId head = waiting_.head(view); head.valid(); head = waiting_.head(view)) {
      const RequestView request = view.request(head);
      const Tokens cached = view.cached_prefix(head).tokens;
      const Tokens missing = request.known - cached;
      const Tokens tokens = std::min(missing, budget);
      const Fit fit = kv.admits(request, reserve_full_input_ ? request.known : cached + tokens);
      if (fit == Fit::never || (!chunked_prefill_ && request.known > Tokens(token_budget_))) {
        waiting_.pop_front();
        decision.reject(head);
        continue;
      }
      if (view.batch().running >= max_num_seqs_) return decision.blocked(Blocked::batch_size);
      if (tokens <= Tokens(0) || (!chunked_prefill_ && missing > budget))
        return decision.blocked(Blocked::token_budget);
      if (fit != Fit::now) return decision.blocked(Blocked::kv_capacity);
      waiting_.pop_front();
      decision.join(head);
      compute(view.request(head), tokens, decision, budget);
    }
  }

  void compute(const RequestView& request, Tokens tokens, Decision& decision, Tokens& budget) {
    decision.chunk(request.id, tokens);
    budget -= tokens;
    unfinished_prefill_ = tokens < request.remaining() ? request.id : kNoRequest;
  }

  void preempt(RequestId victim, Decision& decision) {
    decision.leave(victim, Leave::preempt_recompute);
    waiting_.push_front(victim);
    if (victim == unfinished_prefill_) unfinished_prefill_ = kNoRequest;
  }

  const std::int64_t token_budget_;
  const std::int64_t max_num_seqs_;
  const bool chunked_prefill_;
  const bool reserve_full_input_;
  FcfsQueue waiting_;
  RequestId unfinished_prefill_ = kNoRequest;
};

PolicyInfo info() {
  PolicyInfo info;
  info.name = "vllm";
  info.summary = "vLLM's V1 scheduler: one token budget for decodes and prompt pieces, recompute on shortage";
  info.source = "vllm-project/vllm v0.19.0, vllm/v1/core/sched/scheduler.py";
  info.limits =
      "First come, first served only; no priorities, LoRA, structured output or speculative decoding. Multi-step and "
      "pipeline-parallel scheduling are not modelled.";
  info.parameters = {{.name = "policy.reserve_full_input",
                      .type = ParameterType::boolean,
                      .unit = "-",
                      .default_value = "true",
                      .doc = "Admit a waiting request only when the blocks of its whole input are free, although only "
                             "those of its first piece are taken",
                      .source = "scheduler_reserve_full_isl, on by default in vLLM 0.19"}};
  info.default_engine = [](const Settings&) { return "vllm-0.19"; };
  info.check = [](const Settings& settings) {
    std::vector<Problem> problems;
    if (settings.get<std::string>("engine.preemption") == "swap") {
      problems.push_back({"policy vllm cannot swap: vLLM's V1 scheduler always recomputes", "engine.preemption",
                          "leave engine.preemption at recompute, or use policy=vllm-v0"});
    }
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
