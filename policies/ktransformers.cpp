// KTransformers: some experts of each layer on the GPU, the others on the CPU at the same time.
//
// Source: kvcache-ai/ktransformers (95009ea6), kt-kernel/python/experts_base.py and doc/en/AMX.md; sgl-project/sglang
// (0ba3cdd), layers/moe/kt_ep_wrapper.py; hwmodels/README.md, "Experts".
//
//   placement   G experts of each layer on the GPU, by policy.placement: the first ones, the most popular ones, or all
//               experts of the first layers as far as G experts a layer go
//   layer       the CPU's experts are submitted, the GPU computes its own, then waits for the CPU's outputs
//   deferral    per token, the d experts with the smallest router weights may wait: the CPU computes them after the
//               others, and their outputs are added in the next layer. An expert that is immediate for one token of the
//               batch is so for all. The last layer defers nothing
//   prompts     an iteration of more than policy.gpu_prefill_threshold tokens copies all experts of a layer that
//               are not on the GPU to one buffer, and computes there. With policy.dynamic_update the layer's G
//               slots then hold the experts that this iteration used most
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "policies/parts/expert_layers.hpp"
#include "policies/parts/popular_experts.hpp"
#include "policies/parts/weight_layers.hpp"
#include "sim/api/registry.hpp"

namespace spillway {
namespace {

constexpr const char* kExperts = "policy.gpu_experts";
constexpr const char* kPlacement = "policy.placement";
constexpr const char* kDeferred = "policy.deferred_experts";
constexpr const char* kThreshold = "policy.gpu_prefill_threshold";
constexpr const char* kUpdate = "policy.dynamic_update";
/// Up to so many tokens an expert, the CPU's kernel is bound by memory.
constexpr std::int64_t kMemoryBound = 4;

ResidentExperts placed(const ExpertDeployment& experts, std::int64_t each, const std::string& how) {
  const std::int64_t all = each * experts.expert_layers();
  if (how == "frequency") return most_popular(experts, all);
  ResidentExperts resident(experts);
  std::int64_t left = all;
  for (std::int32_t layer = 0; layer < experts.expert_layers(); ++layer) {
    const std::int64_t here = how == "uniform" ? each : std::min<std::int64_t>(left, experts.count);
    for (std::int32_t expert = 0; expert < here; ++expert) resident.set(layer, expert);
    left -= here;
  }
  return resident;
}

class KTransformers final : public ExpertLayers {
 public:
  KTransformers(const Deployment& deployment, const Settings& settings, std::int64_t each, Blocks capacity)
      : ExpertLayers(deployment, capacity, expert_cpu(deployment, settings)),
        resident_(placed(experts(), each, settings.get<std::string>(kPlacement))),
        deferred_(settings.get<std::int64_t>(kDeferred)),
        threshold_(settings.get<std::int64_t>(kThreshold)),
        update_(settings.get<bool>(kUpdate)) {}

 private:
  void gate(std::int32_t layer, CopySink& sink) override {
    const std::span<const ExpertUse> used = activation().layer(layer);
    if (threshold_ > 0 && activation().tokens() > threshold_) return compute_prompt(layer, used, sink);
    Part gpu;
    Part cpu;
    for (const ExpertUse& use : used) {
      if (resident_.holds(layer, use.expert)) {
        gpu.add(use);
      } else {
        cpu.add(use);
      }
    }
    const Part later = deferred(layer, used);
    const Part immediate = cpu - later;
    counts_.resident += gpu.experts;
    counts_.on_cpu += cpu.experts;
    const bool outputs = immediate.experts > 0 || deferring_;  // that the layer waits for
    if (immediate.experts > 0) {
      compute_on_cpu_for(sink, immediate.experts, time_on_cpu(immediate));
    } else if (deferring_) {
      collect_from_cpu(sink);
    }
    deferring_ = later.experts > 0;
    if (deferring_) {
      if (outputs) {
        compute_more_on_cpu_for(sink, later.experts, time_on_cpu(later));
      } else {
        compute_on_cpu_for(sink, later.experts, time_on_cpu(later));
      }
      defer();
    }
    compute(gpu.experts, gpu.rows);
  }

  struct Part {
    std::int64_t experts = 0;
    std::int64_t rows = 0;
    void add(const ExpertUse& use) {
      ++experts;
      rows += use.tokens;
    }
    friend Part operator-(const Part& a, const Part& b) { return {a.experts - b.experts, a.rows - b.rows}; }
  };

  /// Of those that the CPU computes, the ones that the layer does not wait for.
  [[nodiscard]] Part deferred(std::int32_t layer, std::span<const ExpertUse> used) const {
    Part later;
    if (deferred_ == 0 || layer + 1 == experts().expert_layers()) return later;
    // The share of a token's experts that may wait, and the expected number of those that have been passed.
    const double may_wait = static_cast<double>(deferred_) / experts().top_k;
    double waiting = 0.5;
    for (const ExpertUse& use : used) {
      if (resident_.holds(layer, use.expert)) continue;
      double waits_for_all = 1.0;  // the probability that it may wait for each of its tokens
      for (std::int32_t token = 0; token < use.tokens && waits_for_all > 0.0; ++token) waits_for_all *= may_wait;
      waiting += waits_for_all;
      if (waiting < 1.0) continue;
      waiting -= 1.0;
      later.add(use);
    }
    return later;
  }

  void compute_prompt(std::int32_t layer, std::span<const ExpertUse> used, CopySink& sink) {
    const std::int64_t missing = experts().count - resident_.on_gpu(layer);
    std::int64_t rows = 0;
    std::int64_t hits = 0;
    for (const ExpertUse& use : used) {
      rows += use.tokens;
      hits += resident_.holds(layer, use.expert) ? 1 : 0;
    }
    const auto distinct = static_cast<std::int64_t>(used.size());
    counts_.resident += hits;
    counts_.loaded += distinct - hits;
    counts_.demanded += experts().bytes * missing;
    const std::int64_t ticket = missing > 0 ? load(sink, missing, experts().matrices) : 0;
    compute(distinct, rows, ticket);
    if (update_) keep_most_used(layer, used);
  }

  /// The layer's slots hold the experts with the most tokens; of equal ones those with the lower number.
  void keep_most_used(std::int32_t layer, std::span<const ExpertUse> used) {
    const std::int64_t slots = resident_.on_gpu(layer);
    order_.assign(used.begin(), used.end());
    std::ranges::stable_sort(order_, [](const ExpertUse& a, const ExpertUse& b) { return a.tokens > b.tokens; });
    if (static_cast<std::int64_t>(order_.size()) < slots) return;  // too few to fill them
    for (std::int32_t expert = 0; expert < experts().count; ++expert) resident_.set(layer, expert, false);
    for (std::int64_t i = 0; i < slots; ++i) resident_.set(layer, order_[static_cast<std::size_t>(i)].expert);
  }

  [[nodiscard]] Duration time_on_cpu(const Part& part) const {
    if (part.experts == 0) return {};
    const bool few = part.rows <= kMemoryBound * part.experts;
    return round_seconds(few ? cpu_reading_seconds(part.experts) : cpu_seconds(part.experts, part.rows));
  }

  ResidentExperts resident_;
  std::int64_t deferred_;
  bool deferring_ = false;  // experts of the layer before
  std::int64_t threshold_;
  bool update_;
  std::vector<ExpertUse> order_;
};

/// Options of SGLang's server with KTransformers.
EngineFlags engine_flags(const Settings& settings, const Settings& chosen) {
  std::string flags = fmt::format("--kt-num-gpu-experts {} --kt-max-deferred-experts-per-token {}",
                                  chosen.get<std::int64_t>(kExperts), settings.get<std::int64_t>(kDeferred));
  if (const auto threshold = settings.get<std::int64_t>(kThreshold); threshold > 0) {
    flags += fmt::format(" --kt-gpu-prefill-token-threshold {}", threshold);
  }
  if (settings.get<bool>(kUpdate)) flags += " --kt-enable-dynamic-expert-update";
  const std::string& placement = settings.get<std::string>(kPlacement);
  return {.engine = "SGLang",
          .version = placement == "uniform" ? "sglang 0ba3cdd with ktransformers 95009ea6"
                                            : fmt::format("kvcache-ai's fork of SGLang, whose expert placement must be "
                                                          "{}",
                                                          placement),
          .flags = std::move(flags)};
}

PolicyInfo info() {
  PolicyInfo info;
  info.name = "ktransformers";
  info.summary =
      "KTransformers: GPU and CPU compute experts side by side; some experts are deferred; long prompts are computed "
      "layer by layer on the GPU";
  info.source =
      "kvcache-ai/ktransformers (95009ea6), kt-kernel and doc/en/AMX.md; sgl-project/sglang (0ba3cdd), "
      "layers/moe/kt_ep_wrapper.py";
  info.limits =
      "Shared experts are computed before the router's experts, not beside them. Deferral changes what the model "
      "answers, which is not modelled. The simulated routing has no router weights, so deferred experts are chosen "
      "evenly. The random placement of KTransformers is left out, and so is --kt-gpu-experts-ratio: give the number.";
  info.figures = expert_figures();
  info.places_experts = true;
  info.streams = {.weights = true};
  info.default_scheduler = "vllm";
  info.parameters = {
      gpu_experts_parameter(kExperts, "experts of each layer", "KTransformers --kt-num-gpu-experts"),
      {.name = kPlacement,
       .type = ParameterType::choice,
       .unit = "-",
       .default_value = "uniform",
       .choices = {"uniform", "frequency", "front-loading"},
       .doc = "Which experts are on the GPU. uniform: the first ones of each layer; frequency: the most popular of all "
              "layers together; front-loading: all of the first layers",
       .source = "kvcache-ai's fork of SGLang; uniform is also SGLang's own"},
      {.name = kDeferred,
       .type = ParameterType::integer,
       .unit = "experts",
       .default_value = "0",
       .minimum = 0.0,
       .maximum = 64.0,
       .doc = "Number of experts per token whose outputs are added in the next layer, so that this layer does not wait "
              "for them",
       .source = "KTransformers --kt-max-deferred-experts-per-token; 1 to 4 are recommended"},
      {.name = kThreshold,
       .type = ParameterType::integer,
       .unit = "tokens",
       .default_value = "0",
       .minimum = 0.0,
       .maximum = 1e9,
       .doc = "Iterations of more tokens than this copy a layer's experts to the GPU and compute them there; 0: never",
       .source = "KTransformers --kt-gpu-prefill-token-threshold, which native FP8 and INT4 weights have"},
      {.name = kUpdate,
       .type = ParameterType::boolean,
       .unit = "-",
       .default_value = "false",
       .doc = "true: after an iteration above policy.gpu_prefill_threshold, a layer's GPU slots hold the experts that "
              "this iteration used most",
       .source = "KTransformers --kt-enable-dynamic-expert-update"},
      cpu_efficiency_parameter("0.35",
                               "at least 107 of 307 GB/s: 8.73 tokens/s of DeepSeek-V3 in Q4_K_M on one Xeon "
                               "6454S (KTransformers, DeepseekR1_V3_tutorial.md)"),
      host_memory_parameter()};
  for (Parameter& parameter : cpu_call_parameters()) info.parameters.push_back(std::move(parameter));
  info.engine_flags = engine_flags;
  info.make_layers = [](const PolicyContext& context) -> std::unique_ptr<LayerPolicy> {
    return std::make_unique<KTransformers>(context.deployment, context.settings,
                                           context.deployment.chosen.get<std::int64_t>(kExperts),
                                           laid_out_blocks(context.deployment));
  };
  info.layout = [](const Deployment& deployment, const Settings& settings) {
    static_cast<void>(expert_cpu(deployment, settings));
    const ExpertDeployment& experts = *deployment.experts;
    if (settings.get<std::int64_t>(kDeferred) > experts.top_k) {
      throw ConfigError(fmt::format("{}={}, and a token uses {} experts of a layer", kDeferred,
                                    settings.get<std::int64_t>(kDeferred), experts.top_k),
                        kDeferred, fmt::format("give at most {}", experts.top_k));
    }
    // One layer's experts on their way, for prompts.
    const bool copies = settings.get<std::int64_t>(kThreshold) > 0;
    const Bytes buffer = copies ? experts.bytes * experts.count : Bytes(0);
    return lay_out_popular(deployment, settings, kExperts, experts.count, buffer, experts.expert_layers());
  };
  return info;
}

const RegisterPolicy kRegistered(info());

}  // namespace
}  // namespace spillway
