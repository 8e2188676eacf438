// TensorRT-LLM: in-flight fused batching under one of two capacity schedulers.
//
// Source: NVIDIA/TensorRT-LLM v0.9, docs/source/batch_manager.md and advanced/gpt-attention.md (in-flight batching,
// GUARANTEED_NO_EVICT, MAX_UTILIZATION, max_num_tokens). Decodes and prompts share one iteration, decodes first.
// GUARANTEED_NO_EVICT starts a request only when all active requests can run to their max_new_tokens. MAX_UTILIZATION
// starts it as soon as its prompt fits, and pauses the latest arrivals when decodes run out of memory. Where the KV of
// paused requests is kept, they come back once no prompt is unfinished, before new prompts.
#include <algorithm>

#include "policies/parts/arrival_order.hpp"
#include "policies/parts/paged_space.hpp"
#include "policies/parts/refusals.hpp"
#include "sim/api/registry.hpp"

namespace spillway {
namespace {

class TensorRtLlmScheduler final : public Scheduler {
 public:
  explicit TensorRtLlmScheduler(const Settings& settings)
      : token_budget_(settings.get<std::int64_t>("engine.max_num_batched_tokens")),
        max_num_seqs_(settings.get<std::int64_t>("engine.max_num_seqs")),
        chunked_prefill_(settings.get<bool>("engine.chunked_prefill")) {}

  void arrived(const RequestView& request) override { order_.waiting.push_back(request.id); }
  void ended(RequestId id, Outcome) override { order_.pieces.forget(id); }

  void decide(const View& view, const KvSpace& kv, Decision& decision) override {
    // A request decodes only after an iteration with a token of it, so decodes never exceed the token budget.
    const auto decodes = [&] { return view.batch().decoding; };
    // Requests pause only under MAX_UTILIZATION: a guaranteed decode always finds free blocks.
    const bool paused = order_.make_room(view, kv, decision, decodes);
    Tokens budget = token_budget_ - Tokens(decodes());
    const bool unfinished = order_.pieces.first().valid();
    if (!paused && !unfinished) order_.resume(max_num_seqs_, chunked_prefill_, view, kv, decision, budget);
    decision.decodes(decodes());
    if (unfinished) order_.continue_prompts(view, decision, budget);
    if (paused || order_.swapped.head(view).valid()) return;
    order_.admit(max_num_seqs_, view, kv, decision, budget, [&](const RequestView& request) {
      return prompt_entry(request, budget, token_budget_, chunked_prefill_);
    });
  }

 private:
  const Tokens token_budget_;
  const std::int64_t max_num_seqs_;
  const bool chunked_prefill_;
  ArrivalOrder order_;
};

PolicyInfo info() {
  PolicyInfo info;
  info.name = "tensorrt-llm";
  info.summary = "TensorRT-LLM: in-flight fused batching, never evicting (default) or at maximum utilisation";
  info.source = "NVIDIA/TensorRT-LLM v0.9, docs/source/batch_manager.md; defaults of its Triton backend of that time";
  info.limits =
      "One beam. No paged-context reuse across requests beyond engine.prefix_caching, no speculative decoding, no "
      "pipeline parallelism. With the policy's own KV memory, a paused request always loses its KV. The request is "
      "rejected when its prompt and answer so far exceed the token budget. engine.gpu_memory_utilization of the whole "
      "GPU sizes the KV pool; the library "
      "uses a share of the memory that is free after loading.";
  info.parameters = {{.name = "policy.batch_scheduler_policy",
                      .type = ParameterType::choice,
                      .unit = "-",
                      .default_value = "guaranteed_no_evict",
                      .choices = {"guaranteed_no_evict", "max_utilization"},
                      .doc =
                          "guaranteed_no_evict: a request starts if it and all active requests can run to their last "
                          "token without eviction; "
                          "max_utilization: it starts when its prompt fits, and the latest arrivals pause on overflow",
                      .source = "batch_manager.md, the library's default; older Triton templates use max_utilization"}};
  info.steady_decodes = true;
  info.default_engine = [](const Settings&) { return "tensorrt-llm-0.9"; };
  info.engine_defaults = [](const Settings&) {
    return std::map<std::string, std::string>{{"engine.chunked_prefill", "false"},
                                              {"engine.max_num_batched_tokens", "8192"}};
  };
  info.check = [](const Settings& settings) {
    std::vector<Problem> problems;
    refuse_swap(settings, "policy tensorrt-llm cannot swap: it recomputes paused requests",
                "leave engine.preemption at recompute, or use policy=vllm-v0", problems);
    return problems;
  };
  info.make = [](const PolicyContext& context) {
    PagedSpaceOptions options;
    options.guarantee_completion =
        context.settings.get<std::string>("policy.batch_scheduler_policy") == "guaranteed_no_evict";
    return Policy{std::make_unique<TensorRtLlmScheduler>(context.settings),
                  std::make_unique<PagedSpace>(context.view, options)};
  };
  return info;
}

const RegisterPolicy kRegistered(info());

}  // namespace
}  // namespace spillway
