// vLLM as the papers compare with it: the V0 scheduler.
//
// Source: vllm-project/vllm v0.2.0, v0.5.3 and v0.6.3, vllm/core/scheduler.py and vllm/core/block_manager*.py. Without
// chunked prefill a step is either all prompts or all decodes, prompts first. A request takes the blocks of its whole
// prompt at admission, and a watermark of 1% stays free. On shortage the running request that arrived last is
// preempted.
#include <algorithm>

#include "policies/parts/arrival_order.hpp"
#include "policies/parts/paged_space.hpp"
#include "policies/parts/refusals.hpp"
#include "sim/api/registry.hpp"

namespace spillway {
namespace {

class VllmV0Scheduler final : public Scheduler {
 public:
  explicit VllmV0Scheduler(const Settings& settings)
      : token_budget_(settings.get<std::int64_t>("engine.max_num_batched_tokens")),
        max_num_seqs_(settings.get<std::int64_t>("engine.max_num_seqs")),
        chunked_prefill_(settings.get<bool>("engine.chunked_prefill")) {}

  void arrived(const RequestView& request) override { order_.waiting.push_back(request.id); }
  void ended(RequestId id, Outcome) override { order_.pieces.forget(id); }

  void decide(const View& view, const KvSpace& kv, Decision& decision) override {
    if (chunked_prefill_) {
      decide_chunked(view, kv, decision);
    } else {
      decide_prompts_first(view, kv, decision);
    }
  }

 private:
  /// Prompts have the step to themselves. The running requests decode only when no prompt is admitted.
  void decide_prompts_first(const View& view, const KvSpace& kv, Decision& decision) {
    Tokens budget = token_budget_;
    if (!order_.swapped.head(view).valid() && admit(view, kv, decision, budget)) return decision.decodes(0);
    if (make_room(view, kv, decision)) return;
    budget -= Tokens(runnable(view));
    swap_in(view, kv, decision, budget);
  }

  /// Decodes, unfinished prompts, then swapped requests, then new prompts, all within one token budget.
  void decide_chunked(const View& view, const KvSpace& kv, Decision& decision) {
    const bool preempted = make_room(view, kv, decision);
    Tokens budget = token_budget_ - Tokens(runnable(view));
    order_.continue_prompts(view, decision, budget);
    if (!preempted) swap_in(view, kv, decision, budget);
    decision.decodes(runnable(view));
    admit(view, kv, decision, budget);
  }

  bool make_room(const View& view, const KvSpace& kv, Decision& decision) {
    return order_.make_room(view, kv, decision, [&] { return runnable(view); });
  }

  /// Decodes that take a token in this step, the first in batch order. Requests that were swapped in may stand there
  /// behind later arrivals.
  [[nodiscard]] std::int64_t runnable(const View& view) const {
    const std::int64_t decoding = view.batch().decoding;
    return chunked_prefill_ ? std::min(decoding, token_budget_.count()) : decoding;
  }

  void swap_in(const View& view, const KvSpace& kv, Decision& decision, Tokens& budget) {
    order_.resume(max_num_seqs_, chunked_prefill_, view, kv, decision, budget);
  }

  /// Admits waiting requests in order of arrival, each with the blocks of its whole prompt. Returns true if it admitted
  /// one.
  bool admit(const View& view, const KvSpace& kv, Decision& decision, Tokens& budget) {
    return order_.admit(max_num_seqs_, view, kv, decision, budget, [&](const RequestView& request) {
      return prompt_entry(request, budget, token_budget_, chunked_prefill_);
    });
  }

  const Tokens token_budget_;
  const std::int64_t max_num_seqs_;
  const bool chunked_prefill_;
  ArrivalOrder order_;
};

std::string version(const Settings& settings) { return settings.get<std::string>("policy.version"); }

PolicyInfo info() {
  PolicyInfo info;
  info.name = "vllm-v0";
  info.summary = "vLLM's V0 scheduler, the papers' baseline: prompts first, watermark, recompute or swap";
  info.source =
      "vllm-project/vllm v0.2.0, v0.5.3, v0.6.3, vllm/core/scheduler.py; facts of v0.2.0 from code of its period";
  info.limits =
      "One sequence per request (no beam search). Padding limits of v0.2.1-v0.3.x, LoRA and priorities are not "
      "modelled. Spillway recomputes a request that finds the host tier full; vLLM aborts there.";
  info.parameters = {
      {.name = "policy.version",
       .type = ParameterType::choice,
       .unit = "-",
       .default_value = "0.6.3",
       .choices = {"0.2.0", "0.5.3", "0.6.3"},
       .doc = "Release whose CPU times, token budget and block manager are modelled",
       .source = "The vLLM releases that papers compare with; the last one by default"},
      {.name = "policy.block_manager",
       .type = ParameterType::choice,
       .unit = "-",
       .default_value = "auto",
       .choices = {"auto", "v1", "v2"},
       .doc =
           "v1: a decode needs a free block even when its last block is not full; v2: it needs one only when the last "
           "block is full; auto: v1 up to 0.5.3, v2 in 0.6.3",
       .source =
           "vllm/core/block_manager_v1.py (can_append_slots), block_manager_v2.py; which release defaults to which "
           "is assumed"},
      watermark_parameter("vllm/core/block_manager*.py, watermark=0.01")};
  info.steady_decodes = true;
  info.default_engine = [](const Settings& settings) { return "vllm-" + version(settings); };
  info.engine_defaults = [](const Settings& settings) {
    const bool chunked = settings.has("engine.chunked_prefill") && settings.get<bool>("engine.chunked_prefill");
    const std::string unchunked = version(settings) == "0.2.0" ? "2560" : "16384";
    std::map<std::string, std::string> defaults{{"engine.chunked_prefill", "false"},
                                                {"engine.max_num_batched_tokens", chunked ? "512" : unchunked}};
    if (version(settings) == "0.2.0") defaults["engine.prefix_caching"] = "false";
    return defaults;
  };
  info.check = [](const Settings& settings) {
    std::vector<Problem> problems;
    if (version(settings) == "0.2.0" && settings.get<bool>("engine.chunked_prefill")) {
      problems.push_back({"vLLM 0.2.0 has no chunked prefill (it came with 0.4)", "engine.chunked_prefill",
                          "use policy.version=0.5.3 or 0.6.3, or engine.chunked_prefill=false"});
    }
    if (version(settings) == "0.2.0" && wants_prefix_cache(settings)) {
      problems.push_back({"vLLM 0.2.0 has no prefix cache (it came with 0.4)", "engine.prefix_caching",
                          "use policy.version=0.5.3 or 0.6.3, or engine.prefix_caching=false"});
    }
    return problems;
  };
  info.make = [](const PolicyContext& context) {
    const Settings& settings = context.settings;
    const auto manager = settings.get<std::string>("policy.block_manager");
    PagedSpaceOptions options;
    options.watermark = context.settings.get<double>("policy.watermark");
    options.spare_block_per_decode = manager == "v1" || (manager == "auto" && version(settings) != "0.6.3");
    options.swap = settings.get<std::string>("engine.preemption") == "swap";
    return Policy{std::make_unique<VllmV0Scheduler>(settings), std::make_unique<PagedSpace>(context.view, options)};
  };
  return info;
}

const RegisterPolicy kRegistered(info());

}  // namespace
}  // namespace spillway
