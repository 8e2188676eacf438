// Sarathi-Serve: stall-free batches from chunked prefills.
//
// Source: Agrawal et al., "Taming Throughput-Latency Tradeoff in LLM Inference with Sarathi-Serve", OSDI 2024, and
// microsoft/sarathi-serve (96f9911), sarathi/core/scheduler/sarathi_scheduler.py. Decodes go first,
// and the chunk never holds them back. Unfinished prompts, then new ones, fill up the rest of the chunk. A request
// takes the blocks of its whole prompt at admission. On shortage the running request that arrived last is recomputed.
// Where KV leaves for the host instead, that request comes back once no prompt is unfinished, before new prompts.
#include <algorithm>
#include <cmath>

#include "policies/parts/arrival_order.hpp"
#include "policies/parts/paged_space.hpp"
#include "policies/parts/refusals.hpp"
#include "sim/api/registry.hpp"

namespace spillway {
namespace {

/// The chunk: tokens of an iteration that a prompt may fill up. It is constant, or decreases over equal stages of the
/// prompt, so that the growing cost of attention does not lengthen iterations.
class ChunkSchedule {
 public:
  explicit ChunkSchedule(const Settings& settings)
      : sizes_{Tokens(settings.get<std::int64_t>("engine.max_num_batched_tokens"))} {
    if (!settings.get<bool>("policy.dynamic_chunks")) return;
    const auto low = settings.get<std::int64_t>("policy.low_chunk");
    const auto high = settings.get<std::int64_t>("policy.high_chunk");
    const auto stages = settings.get<std::int64_t>("policy.chunk_stages");
    const std::int64_t step = std::min<std::int64_t>(32, low);
    sizes_.clear();
    // numpy.linspace(low, high, stages) in reverse order, cast to whole tokens, then rounded half to even.
    const double rise = stages == 1 ? 0.0 : static_cast<double>(high - low) / static_cast<double>(stages - 1);
    for (std::int64_t stage = stages - 1; stage >= 0; --stage) {
      const bool last = stage > 0 && stage == stages - 1;
      const double size =
          last ? static_cast<double>(high) : std::trunc(static_cast<double>(stage) * rise + static_cast<double>(low));
      sizes_.emplace_back(static_cast<std::int64_t>(std::nearbyint(size / static_cast<double>(step))) * step);
    }
    const auto span = settings.get<std::int64_t>("policy.chunk_schedule_tokens");
    stage_tokens_ = (span + stages - 1) / stages;
  }

  [[nodiscard]] Tokens at(Tokens computed) const {
    const auto stage = static_cast<std::size_t>(computed.count() / stage_tokens_);
    return sizes_[std::min(stage, sizes_.size() - 1)];
  }

 private:
  std::vector<Tokens> sizes_;
  std::int64_t stage_tokens_ = 1;
};

class SarathiScheduler final : public Scheduler {
 public:
  explicit SarathiScheduler(const Settings& settings)
      : chunk_(settings), max_num_seqs_(settings.get<std::int64_t>("engine.max_num_seqs")) {}

  void arrived(const RequestView& request) override { order_.waiting.push_back(request.id); }
  void ended(RequestId id, Outcome) override { order_.pieces.forget(id); }

  void decide(const View& view, const KvSpace& kv, Decision& decision) override {
    const bool preempted = order_.make_room(view, kv, decision, [&] { return view.batch().decoding; });
    Tokens left = chunk_.at(Tokens(0)) - Tokens(view.batch().decoding);
    const bool unfinished = order_.pieces.first().valid();
    if (!preempted && !unfinished) order_.resume(max_num_seqs_, /*cuts_prompts=*/true, view, kv, decision, left);
    decision.decodes(view.batch().decoding);

    Tokens used = chunk_.at(Tokens(0)) - left;
    if (unfinished) {
      order_.pieces.compute(view, decision, [&](const RequestView& request) {
        const Tokens tokens = std::min(request.remaining(), chunk_.at(request.computed) - used);
        used += std::max(tokens, Tokens(0));
        return tokens;
      });
    }
    if (order_.swapped.head(view).valid()) return;
    left = chunk_.at(Tokens(0)) - used;
    order_.admit(max_num_seqs_, view, kv, decision, left,
                 [&](const RequestView& request) { return prompt_entry(request, left, left, /*pieces=*/true); });
  }

 private:
  const ChunkSchedule chunk_;
  const std::int64_t max_num_seqs_;
  ArrivalOrder order_;
};

constexpr const char* kScheduleSource =
    "sarathi_scheduler.py, _compute_chunk_size_schedule; the code gives no default: assumed";

std::vector<Parameter> parameters() {
  return {
      watermark_parameter("sarathi/core/block_space_manager, watermark=0.01"),
      {.name = "policy.dynamic_chunks",
       .type = ParameterType::boolean,
       .unit = "-",
       .default_value = "false",
       .doc = "true: the chunk shrinks from policy.high_chunk to policy.low_chunk over the stages of a prompt; false: "
              "it stays at engine.max_num_batched_tokens",
       .source = "sarathi_scheduler.py, enable_dynamic_chunking_schedule, off by default"},
      {.name = "policy.low_chunk",
       .type = ParameterType::integer,
       .unit = "tokens",
       .default_value = "128",
       .minimum = 1,
       .maximum = 1e6,
       .doc = "Chunk of a prompt's last stage, with policy.dynamic_chunks",
       .source = kScheduleSource},
      {.name = "policy.high_chunk",
       .type = ParameterType::integer,
       .unit = "tokens",
       .default_value = "512",
       .minimum = 1,
       .maximum = 1e6,
       .doc = "Chunk of a prompt's first stage, with policy.dynamic_chunks",
       .source = kScheduleSource},
      {.name = "policy.chunk_stages",
       .type = ParameterType::integer,
       .unit = "stages",
       .default_value = "16",
       .minimum = 1,
       .maximum = 10000,
       .doc = "Stages of a prompt, with policy.dynamic_chunks",
       .source = kScheduleSource},
      {.name = "policy.chunk_schedule_tokens",
       .type = ParameterType::integer,
       .unit = "tokens",
       .default_value = "4096",
       .minimum = 1,
       .maximum = 1e9,
       .doc = "Prompt tokens that all stages cover together. Later tokens belong to the last stage",
       .source = kScheduleSource}};
}

std::vector<Problem> check(const Settings& settings) {
  std::vector<Problem> problems;
  refuse_swap(settings, "policy sarathi cannot swap: Sarathi-Serve always recomputes",
              "leave engine.preemption at recompute, or use policy=vllm-v0", problems);
  if (!settings.get<bool>("engine.chunked_prefill")) {
    problems.push_back({"policy sarathi cannot run without chunked prefill", "engine.chunked_prefill",
                        "leave it at true, or use policy=orca, which computes whole prompts beside decodes"});
  }
  if (settings.get<std::int64_t>("policy.low_chunk") > settings.get<std::int64_t>("policy.high_chunk")) {
    problems.push_back({"policy.low_chunk is above policy.high_chunk, but the chunk must not grow over a prompt",
                        "policy.low_chunk", "lower it, or raise policy.high_chunk"});
  }
  return problems;
}

PolicyInfo info() {
  PolicyInfo info;
  info.name = "sarathi";
  info.summary = "Sarathi-Serve: decodes never wait, prompts fill up a fixed chunk of tokens in each iteration";
  info.source =
      "Agrawal et al., OSDI 2024; microsoft/sarathi-serve (96f9911), sarathi/core/scheduler/sarathi_scheduler.py";
  info.limits =
      "One sequence per request. Pipeline parallelism is not modelled. Spillway rejects a prompt that can never fit; "
      "the code waits for ever. Prompt tokens beyond the schedule's stages use its last chunk; the code fails there. "
      "A prompt in a late stage waits while decodes use up its chunk, even behind newer prompts.";
  info.parameters = parameters();
  info.steady_decodes = true;
  info.default_engine = [](const Settings&) { return "sarathi-serve"; };
  info.engine_defaults = [](const Settings&) {
    return std::map<std::string, std::string>{{"engine.max_num_batched_tokens", "512"}, {"engine.max_num_seqs", "128"}};
  };
  info.check = check;
  info.make = [](const PolicyContext& context) {
    PagedSpaceOptions options;
    options.watermark = context.settings.get<double>("policy.watermark");
    options.spare_block_per_decode = true;  // can_append_slot wants a free block even if the last one is not full
    return Policy{std::make_unique<SarathiScheduler>(context.settings),
                  std::make_unique<PagedSpace>(context.view, options)};
  };
  return info;
}

const RegisterPolicy kRegistered(info());

}  // namespace
}  // namespace spillway
