// FlexGen: request blocks of padded requests run to completion, micro-batch by micro-batch, with weights, KV and hidden
// states spread over GPU and host.
//
// Source: Sheng et al., "FlexGen: High-Throughput Generative Inference of Large Language Models with a Single GPU",
// ICML 2023: section 4.1 and Algorithm 1 (zig-zag block schedule, policies/parts/zigzag_rule.hpp), 4.2 (placement, CPU
// attention), 4.3 (cost model and policy search, policies/parts/flexgen_cost_model.hpp); FMInference/FlexGen (19753bc).
//
// When the GPU is free, up to gpu_batch * batches waiting requests, in order of arrival, become a request block. One
// iteration computes all prompts, and pad_output - 1 more iterations generate the other tokens. No request joins
// meanwhile. Every request is computed as pad_input + pad_output tokens, and all answers return together. A request
// whose client gives up stays a row of the block's tensors and is still computed.
//
// Weights are placed by whole matrices (policies/parts/flexgen_matrices.hpp). Per layer and micro-batch, the GPU's part
// of a step waits for the layer's matrices from the host and, with at least two micro-batches, for the host's share of
// the hidden states. In a decode step the CPU attends to the host's share of the KV between the GPU's operations, by
// the thread that also starts the copies, so the next layer's weights come first. Without CPU attention that share is
// loaded. After a step the KV that it adds to the host's share is stored. Queries to the CPU and results from it cost
// no copies here, as in FlexGen's cost model: they have the size of one token, and the CPU reads the KV of thousands.
//
// With policy.swap_tier=peer that share is in memory that another GPU lends, as long as it does: the long prompts of
// AQUA (arXiv 2407.21255, section 9.3). A request block asks for memory for all of it
// (policies/parts/lent_tensors.hpp).
#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "policies/parts/admission.hpp"
#include "policies/parts/borrowing.hpp"
#include "policies/parts/flexgen_layers.hpp"
#include "policies/parts/flexgen_placement.hpp"
#include "policies/parts/host_memory.hpp"
#include "policies/parts/layer_figures.hpp"
#include "policies/parts/paged_space.hpp"
#include "policies/parts/refusals.hpp"
#include "sim/api/registry.hpp"

namespace spillway {
namespace {

class FlexgenScheduler final : public Scheduler {
 public:
  explicit FlexgenScheduler(std::int64_t block) : block_(block) {}

  void arrived(const RequestView& request) override { waiting_.push_back(request.id); }
  void ended(RequestId, Outcome) override {}

  void decide(const View& view, const KvSpace& kv, Decision& decision) override {
    decision.decodes(view.batch().decoding);
    if (view.batch().running > 0) return;
    const auto entry = [](const RequestView& request) {
      return Entry{.upto = request.input + request.max_new_tokens, .hold = true, .compute = request.known};
    };
    admit_in_order(waiting_, block_, view, kv, decision, entry, [](const RequestView&, Tokens) {});
  }

 private:
  const std::int64_t block_;
  FcfsQueue waiting_;
};

void check_length(const Deployment& deployment, const Padding& padding) {
  const Tokens longest = padding.input + padding.output;
  if (deployment.positions == Tokens(0) || longest <= deployment.positions) return;
  throw ConfigError(
      fmt::format("policy.pad_input={} + policy.pad_output={} = {} tokens are more than the {} positions of the model",
                  padding.input.count(), padding.output.count(), longest.count(), deployment.positions.count()),
      "policy.pad_input", "lower policy.pad_input or policy.pad_output");
}

void check_gpu(const Deployment& deployment, const Settings& settings, const FlexgenNeeds& needs) {
  const double memory = flexgen_gpu_memory(deployment);
  if (needs.gpu() <= memory) return;
  throw ConfigError::infeasible(
      fmt::format("weights {:.3f} GB + two layers' weights from the host {:.3f} GB + KV {:.3f} GB + KV from the host "
                  "{:.3f} GB + hidden states {:.3f} GB = {:.3f} GB do not fit the {:.3f} GB that the policy may use on "
                  "the GPU beside the engine's activations",
                  gigabytes(needs.gpu_weights()), gigabytes(needs.weight_buffers()), gigabytes(needs.gpu_cache()),
                  gigabytes(needs.cache_buffers()), gigabytes(needs.gpu_hidden()), gigabytes(needs.gpu()),
                  gigabytes(memory)),
      flexgen_gpu_key(deployment),
      settings.has("policy.slo_margin")
          ? "raise policy.slo_margin, lower policy.gpu_batch, or choose a GPU with more memory"
          : "raise policy.weights_host, policy.cache_host or policy.hidden_host, or lower policy.gpu_batch or "
            "policy.batches");
}

/// Where the KV is that the GPU does not keep.
enum class CachePlace : std::uint8_t {
  host,
  lender_or_host,  // on the host while the memory is reclaimed
  lender
};

CachePlace cache_place(const Deployment& deployment, const FlexgenNeeds& needs) {
  if (bytes_of(deployment.lent) < needs.host_cache()) return CachePlace::host;
  return deployment.lent_for_good ? CachePlace::lender : CachePlace::lender_or_host;
}

/// On the host, at most.
double host_cache(const Deployment& deployment, const FlexgenNeeds& needs) {
  return cache_place(deployment, needs) == CachePlace::lender ? 0.0 : needs.host_cache();
}

double on_host(const Deployment& deployment, const FlexgenNeeds& needs) {
  return needs.host() - needs.host_cache() + host_cache(deployment, needs);
}

std::string cache_text(const Deployment& deployment, const FlexgenNeeds& needs, bool attends) {
  if (deployment.lent == Bytes(0)) return attends ? " (the CPU attends to it)" : "";
  const double size = gigabytes(needs.host_cache());
  switch (cache_place(deployment, needs)) {
    case CachePlace::host:
      return fmt::format(" (on the host: {:.2f} GB, and another GPU lends {:.2f} GB)", size,
                         gigabytes(deployment.lent));
    case CachePlace::lender_or_host:
      return fmt::format(" ({:.2f} GB in memory that another GPU lends, on the host when it is reclaimed)", size);
    case CachePlace::lender:
      break;
  }
  return fmt::format(" ({:.2f} GB in memory that another GPU lends)", size);
}

void check_host(const Deployment& deployment, const Settings& settings, const FlexgenNeeds& needs) {
  const std::optional<Bytes> memory = host_memory(deployment, settings);
  const double needed = on_host(deployment, needs);
  if (!memory || needed <= bytes_of(*memory)) return;
  throw ConfigError::infeasible(
      fmt::format("weights {:.3f} GB + KV {:.3f} GB + hidden states {:.3f} GB = {:.3f} GB do not fit the {:.3f} GB of "
                  "the host",
                  gigabytes(needs.host_weights()), gigabytes(host_cache(deployment, needs)),
                  gigabytes(needs.host_hidden()), gigabytes(needed), gigabytes(bytes_of(*memory))),
      "policy.host_memory",
      "lower policy.gpu_batch, policy.batches or the shares on the host, choose a server with more DRAM, or set "
      "policy.host_memory for a host that has more");
}

Layout layout(const Deployment& deployment, const Settings& settings) {
  const Padding padding = flexgen_padding(settings);
  check_length(deployment, padding);
  const FlexgenPlacement choice = choose_placement(deployment, settings);
  const FlexgenPlan& plan = choice.plan;
  const bool attends = settings.get<bool>("policy.cpu_attention") && plan.cache_host > 0.0;
  if (attends && !deployment.cpu_attention_bandwidth) {
    refuse_unknown_host("the CPU is to attend to the KV on the host", "policy.cpu_attention=false");
  }
  const FlexgenNeeds needs(deployment, settings, plan);
  check_gpu(deployment, settings, needs);
  check_host(deployment, settings, needs);
  const Blocks blocks = blocks_for(padding.input + padding.output, deployment.block_tokens) * plan.block();
  Layout layout{.blocks = blocks,
                .most = blocks,
                .host = Bytes(static_cast<std::int64_t>(std::round(on_host(deployment, needs)))),
                .terms = fmt::format("FlexGen: blocks of {} x {} requests of {} + {} tokens, {:.4g}% of the weights, "
                                     "{:.4g}% of the KV{} and {:.4g}% of the hidden states {}, {}",
                                     plan.gpu_batch, plan.batches, padding.input.count(), padding.output.count(),
                                     100.0 * needs.weights_on_host().on_host, 100.0 * plan.cache_host,
                                     cache_text(deployment, needs, attends), 100.0 * needs.hidden_share(),
                                     deployment.lent == Bytes(0) ? "on the host" : "off the GPU", choice.how)};
  plan.write(layout.chosen);
  return layout;
}

void check_placement(const Settings& settings, std::vector<Problem>& problems) {
  std::vector<std::string> given;
  std::vector<std::string> missing;
  for (const char* key : kFlexgenPlacement) (settings.has(key) ? given : missing).emplace_back(key);
  if (settings.has("policy.slo_margin")) {
    if (!settings.has(kFlexgenPlacement[0])) {
      problems.push_back({"policy.slo_margin sets the whole placement except policy.gpu_batch, which is missing",
                          "policy.slo_margin", "give policy.gpu_batch too"});
    }
    std::erase(given, kFlexgenPlacement[0]);
    if (!given.empty()) {
      problems.push_back({fmt::format("policy.slo_margin already sets {}", fmt::join(given, ", ")), given.front(),
                          "leave it out, or leave out policy.slo_margin"});
    }
    return;
  }
  if (given.empty() || missing.empty()) return;
  problems.push_back({fmt::format("{} given, but {} missing: give the whole placement or none of it",
                                  fmt::join(given, ", "), fmt::join(missing, ", ")),
                      given.front(), fmt::format("give {} too, or none of them", fmt::join(missing, ", "))});
}

/// KV in memory that another GPU lends.
void check_lent_cache(const Settings& settings, std::vector<Problem>& problems) {
  if (!borrows_memory(settings)) return;
  if (settings.has("policy.slo_margin")) {
    problems.push_back({"policy.slo_margin leaves all KV on the GPU, so none goes to memory that other GPUs lend",
                        kSwapTierKey, "set it to host, or give the placement and leave out policy.slo_margin"});
  } else if (!settings.has(kFlexgenPlacement[3])) {
    problems.push_back({"FlexGen's policy search places KV by the speed of the host, not of another GPU", kSwapTierKey,
                        fmt::format("give the whole placement: {}", fmt::join(kFlexgenPlacement, ", "))});
  }
  if (settings.get<bool>("policy.cpu_attention")) {
    problems.push_back({"the CPU cannot attend to KV in memory that other GPUs lend", "policy.cpu_attention",
                        "set policy.cpu_attention=false, or policy.swap_tier=host"});
  }
}

std::vector<Problem> check(const Settings& settings) {
  std::vector<Problem> problems;
  check_placement(settings, problems);
  check_lent_cache(settings, problems);
  refuse_swap(settings, "policy flexgen never preempts, so it cannot swap", "leave engine.preemption at recompute",
              problems);
  refuse_chunked_prefill(settings, "flexgen", problems);
  if (wants_host_cache(settings)) {
    problems.push_back(
        {"policy flexgen pads every prompt, so it has no prefix cache", "memory.host_cache", "leave it at 0B"});
  }
  if (wants_prefix_cache(settings)) {
    problems.push_back({"policy flexgen pads every prompt, so it has no prefix cache", "engine.prefix_caching",
                        "leave it at auto, or set it to false"});
  }
  if (settings.has("tensor_parallel") && settings.get<std::int64_t>("tensor_parallel") > 1) {
    problems.push_back({"policy flexgen runs on one GPU: its pipeline over several GPUs is not modelled",
                        "tensor_parallel", "set it to 1"});
  }
  return problems;
}

std::vector<Parameter> parameters() {
  const std::string searched = "FlexGen, section 4.3: part of the policy that its search chooses";
  const auto share = [&](const std::string& name, const std::string& what) {
    return Parameter{.name = name,
                     .type = ParameterType::real,
                     .unit = "fraction",
                     .default_value = "",
                     .minimum = 0.0,
                     .maximum = 1.0,
                     .doc = what + " on the host, the rest on the GPU. Default: the policy search decides",
                     .source = searched};
  };
  const auto count = [&](const std::string& name, const std::string& unit, const std::string& doc) {
    return Parameter{.name = name,
                     .type = ParameterType::integer,
                     .unit = unit,
                     .default_value = "",
                     .minimum = 1.0,
                     .maximum = 1e5,
                     .doc = doc + ". Default: the policy search decides",
                     .source = searched};
  };
  const auto length = [](const std::string& name, const std::string& standard, const std::string& what) {
    return Parameter{.name = name,
                     .type = ParameterType::integer,
                     .unit = "tokens",
                     .default_value = standard,
                     .minimum = 1.0,
                     .maximum = 1e6,
                     .doc = "Length to which every " + what + " is padded. Longer ones are rejected",
                     .source =
                         "Spillway: prompts and answers of chat, up to 1,024 and 512 tokens, fit the 2,048 "
                         "positions of OPT; FlexGen is given one prompt length and one gen_len per run"};
  };
  return {
      count("policy.gpu_batch", "requests", "Requests of a micro-batch, which the GPU computes at a time"),
      count("policy.batches", "micro-batches", "Micro-batches of a request block"),
      share("policy.weights_host",
            "Share of each layer's weights to keep on the host. Whole matrices move: the matrices of the attention "
            "block, and those of the MLP block, are ordered by position. A matrix is on the host if the middle of its "
            "range of bytes lies below this share. These matrices are"),
      share("policy.cache_host", "Share of the KV cache"),
      share("policy.hidden_host", "Share of the hidden states of a request block with two or more micro-batches"),
      length(kPadInputKey, "1024", "prompt"),
      length(kPadOutputKey, "512", "answer"),
      {.name = "policy.cpu_attention",
       .type = ParameterType::boolean,
       .unit = "-",
       .default_value = "true",
       .doc = "true: in decodes the CPU attends to the KV that is on the host; false: that KV is copied to the GPU in "
              "every step",
       .source = "FlexGen, section 4.2: computation delegation; --cpu-cache-compute"},
      {.name = "policy.pin_weights",
       .type = ParameterType::boolean,
       .unit = "-",
       .default_value = "true",
       .doc = "true: the weights on the host are page-locked; false: the CPU copies a matrix to a page-locked buffer, "
              "then the GPU fetches it",
       .source = "FMInference/FlexGen (19753bc), flexgen/flex_opt.py: --pin-weight; pytorch_backend.py, general_copy"},
      {.name = "policy.constants",
       .type = ParameterType::choice,
       .unit = "-",
       .default_value = "profile",
       .choices = {"profile", "published"},
       .doc =
           "Speeds for the policy search. profile: those of the hardware profile for each GPU batch, with all of both "
           "memories; published: those that FlexGen fitted to a T4, with 80% of both memories",
       .source = "FlexGen, experimental/cost_model.py (19753bc); the GPU's and host's own speeds are Spillway's"},
      {.name = "policy.slo_margin",
       .type = ParameterType::real,
       .unit = "fraction",
       .default_value = "",
       .minimum = 0.0,
       .maximum = 100.0,
       .doc =
           "SLO-aware variant: as many weights go to the host as the GPU's share of the bus can copy within "
           "(1 + margin) x a layer's estimated compute time, rounded to whole matrices like policy.weights_host. One "
           "micro-batch of policy.gpu_batch, KV and hidden states on the GPU",
       .source = "Select-N, section 5: FlexGen modified to keep an SLO; how is not published"},
      {.name = "policy.slo_phase",
       .type = ParameterType::choice,
       .unit = "-",
       .default_value = "prefill",
       .choices = {"prefill", "decode"},
       .doc = "Phase whose compute time policy.slo_margin uses. The weights are on the same device in both phases",
       .source = "Spillway: Select-N does not state it; decode at the peak rate would leave almost all weights on the "
                 "GPU"},
      {.name = "policy.slo_estimate",
       .type = ParameterType::choice,
       .unit = "-",
       .default_value = "peak_flops",
       .choices = {"peak_flops", "roofline"},
       .doc = "How policy.slo_margin estimates a layer's compute. peak_flops: its operations at the GPU's peak rate; "
              "roofline: that, but at least the time to read its weights and KV from the GPU's memory",
       .source = "peak_flops: Select-N, section 5; roofline: Spillway, because a decode step is bound by memory"},
      {.name = "policy.host_memory",
       .type = ParameterType::bytes,
       .unit = "bytes",
       .default_value = "",
       .minimum = 1.0,
       .maximum = 1e15,
       .doc = "Host memory for weights, KV and hidden states of one GPU. Default: the host's DRAM per GPU, if known",
       .source = "FlexGen, experimental/cost_model.py: --cpu-mem"},
      swap_tier_parameter(
          "host",
          "Where the host's share of the KV is. host: DRAM; peer: memory that another GPU lends (memory.peer, "
          "memory.lender), or the host if the lent memory cannot hold all of this KV or is reclaimed"),
      lender_poll_parameter()};
}

PolicyInfo info() {
  PolicyInfo info;
  info.name = "flexgen";
  info.summary =
      "FlexGen: padded request blocks run to completion, micro-batches zig-zag through layers streamed from the host";
  info.source =
      "Sheng et al., FlexGen, ICML 2023, section 4 and Algorithm 1; FMInference/FlexGen (19753bc), flexgen/flex_opt.py "
      "and experimental/cost_model.py";
  info.limits =
      "No disk, no compression, one GPU. The embeddings stay on the GPU. Attention and MLP of a layer are one step, "
      "not "
      "two. The activation memory of the engine "
      "(engine.max_num_batched_tokens) holds the intermediates of a micro-batch; only the policy search uses FlexGen's "
      "own estimate of them. KV blocks count the KV of a request block on GPU and host. Times per token are those of "
      "computing the tokens; a request ends with its request block.";
  info.figures = layer_figures();
  info.streams = {.kv = true, .weights = true};
  info.parameters = parameters();
  info.borrows = borrows_memory;
  info.preempts = false;
  info.takes_kv_over = false;
  info.shares_prefixes = false;
  info.default_engine = [](const Settings&) { return "flexgen"; };
  info.engine_defaults = [](const Settings&) {
    return std::map<std::string, std::string>{{"engine.chunked_prefill", "false"},
                                              {"engine.gpu_memory_utilization", "1"}};
  };
  info.check = check;
  info.make = [](const PolicyContext& context) {
    const FlexgenPlan plan = FlexgenPlan::of(context.deployment.chosen);
    Policy policy;
    policy.scheduler = std::make_unique<FlexgenScheduler>(plan.block());
    policy.space = std::make_unique<PagedSpace>(context.view, PagedSpaceOptions{});
    policy.layers = std::make_unique<FlexgenLayers>(context, plan);
    return policy;
  };
  info.layout = layout;
  return info;
}

const RegisterPolicy kRegistered(info());

}  // namespace
}  // namespace spillway
