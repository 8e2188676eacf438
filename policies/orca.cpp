// Orca: iteration-level scheduling with memory reserved ahead.
//
// Source: Yu et al., "Orca: A Distributed Serving System for Transformer-Based Generative Models", OSDI 2022, section
// 4.2 and Algorithm 1; the port in microsoft/sarathi-serve (96f9911), orca_scheduler.py. A request that joins reserves
// all the memory that it may ever need, so no request is preempted. A prompt is computed whole beside the decodes
// (selective batching). The static variant is request-level batching as in FasterTransformer.
#include <algorithm>

#include "policies/parts/admission.hpp"
#include "policies/parts/paged_space.hpp"
#include "policies/parts/refusals.hpp"
#include "sim/api/registry.hpp"

namespace spillway {
namespace {

class OrcaScheduler final : public Scheduler {
 public:
  explicit OrcaScheduler(const Settings& settings)
      : max_num_seqs_(settings.get<std::int64_t>("engine.max_num_seqs")),
        reserves_longest_(settings.get<std::string>("policy.reserve") == "max_model_len"),
        whole_batches_(settings.get<std::string>("policy.batching") == "request") {}

  void arrived(const RequestView& request) override { waiting_.push_back(request.id); }
  void ended(RequestId, Outcome) override {}

  void decide(const View& view, const KvSpace& kv, Decision& decision) override {
    decision.decodes(view.batch().decoding);
    if (whole_batches_ && view.batch().running > 0) return;
    const auto entry = [&](const RequestView& request) {
      const Tokens longest = reserves_longest_ ? view.max_model_len() : request.input + request.max_new_tokens;
      return Entry{.upto = longest, .hold = true, .compute = request.known};
    };
    admit_in_order(waiting_, max_num_seqs_, view, kv, decision, entry, [](const RequestView&, Tokens) {});
  }

 private:
  const std::int64_t max_num_seqs_;
  const bool reserves_longest_;
  const bool whole_batches_;
  FcfsQueue waiting_;
};

std::vector<Problem> check(const Settings& settings) {
  std::vector<Problem> problems;
  refuse_swap(settings, "policy orca never preempts, so it cannot swap", "leave engine.preemption at recompute",
              problems);
  refuse_chunked_prefill(settings, "orca", problems);
  return problems;
}

PolicyInfo info() {
  PolicyInfo info;
  info.name = "orca";
  info.summary = "Orca: iteration-level FCFS that reserves each request's memory ahead, whole prompts beside decodes";
  info.source =
      "Yu et al., OSDI 2022, section 4.2 and Algorithm 1; port in microsoft/sarathi-serve (96f9911), orca_scheduler.py";
  info.limits =
      "policy.reserve=max_model_len lets few requests run with a model of long context: set engine.max_model_len. "
      "No token budget: engine.max_num_batched_tokens sizes the activation memory only. policy.batching=request "
      "returns each answer when it is complete and computes no padding, unlike FasterTransformer.";
  info.parameters = {
      {.name = "policy.reserve",
       .type = ParameterType::choice,
       .unit = "-",
       .default_value = "max_model_len",
       .choices = {"max_model_len", "max_tokens"},
       .doc =
           "Tokens that a request reserves when it joins. max_model_len: the longest request (engine.max_model_len); "
           "max_tokens: its own input + max_new_tokens",
       .source = "max_model_len: orca_scheduler.py of sarathi-serve; max_tokens: Orca, Algorithm 1"},
      {.name = "policy.batching",
       .type = ParameterType::choice,
       .unit = "-",
       .default_value = "iteration",
       .choices = {"iteration", "request"},
       .doc =
           "iteration: requests join and leave at every iteration; request: no request joins until the batch is empty",
       .source = "Orca, section 3.1 (C1); request: FasterTransformer, as Orca describes it"}};
  info.preempts = false;
  info.default_engine = [](const Settings&) { return "sarathi-serve"; };
  info.engine_defaults = [](const Settings&) {
    return std::map<std::string, std::string>{{"engine.chunked_prefill", "false"}, {"engine.max_num_seqs", "128"}};
  };
  info.check = check;
  info.make = [](const PolicyContext& context) {
    return Policy{std::make_unique<OrcaScheduler>(context.settings),
                  std::make_unique<PagedSpace>(context.view, PagedSpaceOptions{})};
  };
  return info;
}

const RegisterPolicy kRegistered(info());

}  // namespace
}  // namespace spillway
