// Orca: iteration-level scheduling with memory reserved ahead.
//
// Source: Yu et al., "Orca: A Distributed Serving System for Transformer-Based Generative Models", OSDI 2022, section
// 4.2 and Algorithm 1; the port in microsoft/sarathi-serve (96f9911), orca_scheduler.py. A request that joins reserves
// all the memory that it may ever need, so no request is preempted. A prompt is computed whole beside the decodes
// (selective batching). The static variant is request-level batching as in FasterTransformer. With the buddy allocator
// a reservation is one contiguous chunk of a power of two of blocks, as the authors of vLLM assume of Orca (Kwon et
// al., SOSP 2023, section 6.1).
#include <algorithm>
#include <map>
#include <optional>

#include "policies/parts/admission.hpp"
#include "policies/parts/buddy_allocator.hpp"
#include "policies/parts/paged_space.hpp"
#include "policies/parts/refusals.hpp"
#include "sim/api/registry.hpp"

namespace spillway {
namespace {

class OrcaScheduler final : public Scheduler {
 public:
  OrcaScheduler(const Settings& settings, const View& view)
      : max_num_seqs_(settings.get<std::int64_t>("engine.max_num_seqs")),
        reserves_longest_(settings.get<std::string>("policy.reserve") == "max_model_len"),
        whole_batches_(settings.get<std::string>("policy.batching") == "request") {
    if (settings.get<std::string>("policy.allocator") == "buddy") buddy_.emplace(view.tier(kGpuTier).total);
  }

  void arrived(const RequestView& request) override { waiting_.push_back(request.id); }
  void ended(RequestId id, Outcome) override {
    const auto chunk = chunks_.find(id.serial);
    if (chunk == chunks_.end()) return;
    buddy_->give_back(chunk->second.address, chunk->second.blocks);
    chunks_.erase(chunk);
  }

  void decide(const View& view, const KvSpace& kv, Decision& decision) override {
    decision.decodes(view.batch().decoding);
    if (whole_batches_ && view.batch().running > 0) return;
    const auto entry = [&](const RequestView& request) {
      const Tokens longest = reserves_longest_ ? view.max_model_len() : request.input + request.max_new_tokens;
      Entry all{.upto = longest, .hold = true, .compute = request.known};
      if (!buddy_) return all;
      const Blocks chunk = BuddyAllocator::chunk_of(blocks_for(longest, view.block_tokens()));
      all.upto = chunk.count() * view.block_tokens();
      all.placed = buddy_->fits(chunk);
      return all;
    };
    admit_in_order(waiting_, max_num_seqs_, view, kv, decision, entry, [&](const RequestView& request, Tokens) {
      if (!buddy_) return;
      const Blocks chunk = blocks_for(entry(request).upto, view.block_tokens());
      chunks_.emplace(request.id.serial, Chunk{buddy_->take(chunk), chunk});
    });
  }

 private:
  const std::int64_t max_num_seqs_;
  const bool reserves_longest_;
  const bool whole_batches_;
  FcfsQueue waiting_;

  struct Chunk {
    std::int64_t address = 0;
    Blocks blocks{};
  };
  std::optional<BuddyAllocator> buddy_{};   // none: any free blocks do
  std::map<std::int64_t, Chunk> chunks_{};  // of the requests in the batch, by serial number
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
  info.summary =
      "Orca: iteration-level FCFS; a request reserves its memory when it joins; whole prompts are computed beside "
      "decodes";
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
       .source = "Orca, section 3.1 (C1); request: FasterTransformer, as Orca describes it"},
      {.name = "policy.allocator",
       .type = ParameterType::choice,
       .unit = "-",
       .default_value = "exact",
       .choices = {"exact", "buddy"},
       .doc =
           "exact: a reservation takes the blocks that it needs, wherever they are; buddy: one contiguous power of two "
           "of them, so that memory is lost to rounding and to gaps. A reservation above half of the memory may never "
           "fit then, and its request is rejected",
       .source = "exact: orca_scheduler.py of sarathi-serve; buddy: Kwon et al., SOSP 2023, section 6.1"}};
  info.preempts = false;
  info.scatters_with = [](const Settings& settings) {
    return std::string(settings.get<std::string>("policy.allocator") == "buddy" ? "policy.allocator=exact" : "");
  };
  info.steady_decodes = true;
  info.default_engine = [](const Settings&) { return "sarathi-serve"; };
  info.engine_defaults = [](const Settings&) {
    return std::map<std::string, std::string>{{"engine.chunked_prefill", "false"}, {"engine.max_num_seqs", "128"}};
  };
  info.check = check;
  info.make = [](const PolicyContext& context) {
    return Policy{std::make_unique<OrcaScheduler>(context.settings, context.view),
                  std::make_unique<PagedSpace>(context.view, PagedSpaceOptions{})};
  };
  return info;
}

const RegisterPolicy kRegistered(info());

}  // namespace
}  // namespace spillway
