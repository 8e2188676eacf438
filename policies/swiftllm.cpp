// SwiftLLM: the small engine that NEO is built on and compared with.
//
// Source: interestingLSY/swiftLLM (682cf9a), swiftllm/server/scheduler.py. While no request is swapped out, waiting
// prompts have the step to themselves. Else all running requests decode. On shortage the request at the end of the
// running list moves to the host. If no request had to move, swapped requests come back, first come, first served. In
// NEO's GPU-only base (NEO-MLSys25/NEO, b55aaab) decodes run beside new prompts: policy.piggyback.
#include <algorithm>

#include "policies/parts/admission.hpp"
#include "policies/parts/paged_space.hpp"
#include "policies/parts/refusals.hpp"
#include "policies/parts/swap_copies.hpp"
#include "sim/api/registry.hpp"

namespace spillway {
namespace {

class SwiftLlmScheduler final : public Scheduler {
 public:
  explicit SwiftLlmScheduler(const Settings& settings)
      : token_budget_(settings.get<std::int64_t>("engine.max_num_batched_tokens")),
        max_num_seqs_(settings.get<std::int64_t>("engine.max_num_seqs")),
        piggyback_(settings.get<bool>("policy.piggyback")) {}

  void arrived(const RequestView& request) override { waiting_.push_back(request.id); }
  void ended(RequestId, Outcome) override {}

  void decide(const View& view, const KvSpace& kv, Decision& decision) override {
    const bool nobody_swapped = !swapped_.head(view).valid();
    if (!piggyback_ && nobody_swapped && admit(view, kv, decision, token_budget_)) return decision.decodes(0);

    const bool swapped_out = swap_out(view, kv, decision);
    if (!swapped_out) swap_in(view, kv, decision);
    decision.decodes(view.batch().decoding);
    if (piggyback_ && nobody_swapped && !swapped_out) {
      admit(view, kv, decision, token_budget_ - Tokens(view.batch().decoding));
    }
  }

 private:
  bool admit(const View& view, const KvSpace& kv, Decision& decision, Tokens budget) {
    const auto entry = [&](const RequestView& request) {
      return prompt_entry(request, budget, token_budget_, /*pieces=*/false);
    };
    return admit_in_order(waiting_, max_num_seqs_, view, kv, decision, entry,
                          [&](const RequestView&, Tokens tokens) { budget -= tokens; });
  }

  /// Takes out the last request of the batch until memory for every decode's next token is free. Returns true if it
  /// took one out.
  bool swap_out(const View& view, const KvSpace& kv, Decision& decision) {
    bool any = false;
    while (kv.decodes(view.batch().decoding) != Fit::now) {
      const RequestId victim = view.last_joined();
      const Leave how = kv.preempts(view.request(victim));
      decision.leave(victim, how);
      (how == Leave::preempt_recompute ? waiting_ : swapped_).push_front(victim);
      any = true;
    }
    return any;
  }

  void swap_in(const View& view, const KvSpace& kv, Decision& decision) {
    // What comes back has its KV. If some of it was dropped, the missing tokens are computed at once.
    Tokens budget = token_budget_;
    resume_in_order(swapped_, max_num_seqs_, view, kv, decision, budget, [&](const RequestView& back) {
      if (back.phase != Phase::prefilling) return;
      decision.chunk(back.id, back.remaining());
      budget -= back.remaining();
    });
  }

  const Tokens token_budget_;
  const std::int64_t max_num_seqs_;
  const bool piggyback_;
  FcfsQueue waiting_;
  FcfsQueue swapped_;  // in their former batch order
};

std::vector<Problem> check(const Settings& settings) {
  std::vector<Problem> problems;
  if (settings.get<std::string>("engine.preemption") != "swap") {
    problems.push_back({"policy swiftllm always swaps, so it cannot recompute", "engine.preemption",
                        "leave engine.preemption at swap, or use policy=vllm-v0"});
  }
  refuse_chunked_prefill(settings, "swiftllm", problems);
  return problems;
}

PolicyInfo info() {
  PolicyInfo info;
  info.name = "swiftllm";
  info.summary = "SwiftLLM: prompts first, swap-only preemption of the last in the batch; NEO's GPU-only base";
  info.source = "interestingLSY/swiftLLM (682cf9a), swiftllm/server/scheduler.py; NEO-MLSys25/NEO (b55aaab)";
  info.limits =
      "One sequence per request. SwiftLLM never checks for free host memory. Spillway recomputes a preempted request "
      "that does not fit memory.host_kv, or rejects it if it has outgrown the token limit. SwiftLLM waits for ever at "
      "a prompt beyond its limits; Spillway rejects the prompt. Upstream keeps 2,048 host blocks of any size: set "
      "memory.host_kv.";
  info.parameters = {
      {.name = "policy.piggyback",
       .type = ParameterType::boolean,
       .unit = "-",
       .default_value = "false",
       .doc = "true: while no request is swapped out, decodes run beside new prompts in one batch; false: "
              "decodes wait for new prompts",
       .source = "false: SwiftLLM upstream; true: the GPU-only base of NEO's artifact"},
      swap_copies_key()};
  info.steady_decodes = true;
  info.default_engine = [](const Settings&) { return "swiftllm"; };
  info.engine_defaults = [](const Settings&) {
    return std::map<std::string, std::string>{{"engine.chunked_prefill", "false"},
                                              {"engine.preemption", "swap"},
                                              {"engine.max_num_seqs", "512"},
                                              {"engine.max_num_batched_tokens", "32768"},
                                              {"engine.gpu_memory_utilization", "0.97"}};
  };
  info.check = check;
  info.make = [](const PolicyContext& context) {
    PagedSpaceOptions options;
    options.swap = true;
    options.exact_swap_in = true;
    options.swapping.mechanism = swap_copies(context.settings);
    return Policy{std::make_unique<SwiftLlmScheduler>(context.settings),
                  std::make_unique<PagedSpace>(context.view, options)};
  };
  return info;
}

const RegisterPolicy kRegistered(info());

}  // namespace
}  // namespace spillway
