// llama.cpp with experts of some layers on the host (--n-cpu-moe): small batches are computed there, large ones copy
// the experts that they use to the GPU.
//
// Source: ggml-org/llama.cpp, common/common.h (0010882; which tensors --n-cpu-moe names), ggml-backend.cpp (0054c01;
// where an operation runs), ggml-cuda.cu (0010882; GGML_OP_OFFLOAD_MIN_BATCH); hwmodels/README.md, "Experts".
//
//   placement   the experts of the first N layers by number are on the host. Layers without experts count, and match
//               nothing. Routers, shared experts, attention and norms are on the GPU.
//   T < 32      tokens of the iteration: the hidden states go to the CPU, which computes the experts in use.
//               Its outputs come back, and the GPU waits for them
//   T >= 32     the ids of the experts in use go to the host, their weights to the GPU, which then computes.
//               Consecutive ids are one run, and a run is one copy for each matrix. Copies are on the compute
//               stream: none overlaps compute, and nothing is kept. The expected number of runs of D of E experts
//               is D (E - D + 1) / E
//   copies      take 1 / policy.pageable times as long where the file is mapped into memory: it is not page-locked
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "policies/parts/expert_layers.hpp"
#include "policies/parts/popular_experts.hpp"
#include "policies/parts/weight_layers.hpp"
#include "sim/api/registry.hpp"

namespace spillway {
namespace {

constexpr const char* kLayers = "policy.n_cpu_moe";
constexpr const char* kMinBatch = "policy.op_offload_min_batch";
constexpr const char* kMap = "policy.mmap";

/// Layers with experts among the first `layers` of the model.
std::int32_t expert_layers(const ExpertDeployment& experts, std::int64_t layers) {
  const auto end = std::ranges::lower_bound(experts.layers, static_cast<std::int32_t>(layers));
  return static_cast<std::int32_t>(end - experts.layers.begin());
}

ExpertPlacement placement(const ExpertDeployment& experts, std::int64_t layers, bool given) {
  const std::int64_t away = expert_layers(experts, layers);
  const std::int64_t all = experts.expert_layers();
  // The compute buffer holds one matrix of every expert of a layer.
  const Bytes buffer = away == 0 ? Bytes(0) : Bytes(experts.bytes.count() * experts.count / experts.matrices);
  return {.on_gpu = (all - away) * experts.count,
          .on_host = away * experts.count,
          .buffers = buffer,
          .terms = fmt::format("experts of {} of {} layers on the host: --n-cpu-moe {}{}", away, all, layers,
                               given ? "" : ", the fewest that leave room for the KV cache"),
          .lower = fmt::format("raise {}", kLayers)};
}

/// The fewest layers whose experts must be on the host for the KV cache to have its memory.
std::int64_t fewest_layers(const Deployment& deployment) {
  const ExpertDeployment& experts = *deployment.experts;
  const Bytes kv = default_kv_of(deployment);
  for (std::int64_t layers = 0; layers < deployment.layers; ++layers) {
    const ExpertPlacement of = placement(experts, layers, false);
    if (experts.bytes * of.on_gpu + of.buffers + kv <= beside_dense_weights(deployment)) return layers;
  }
  return deployment.layers;
}

std::int64_t layers_on_host(const Deployment& deployment, const Settings& settings) {
  if (!settings.has(kLayers)) return fewest_layers(deployment);
  const auto layers = settings.get<std::int64_t>(kLayers);
  if (layers > deployment.layers) {
    throw ConfigError(
        fmt::format("{}={}, and the model has {} layers", kLayers, layers, deployment.layers), kLayers,
        fmt::format("give at most {}: then the experts of all layers are on the host", deployment.layers));
  }
  return layers;
}

class LlamaCppMoe final : public ExpertLayers {
 public:
  LlamaCppMoe(const Deployment& deployment, const Settings& settings, std::int64_t layers, Blocks capacity)
      : ExpertLayers(deployment, capacity, layers > 0 ? expert_cpu(deployment, settings) : ExpertCpu{}),
        away_(expert_layers(*deployment.experts, layers)),
        min_batch_(settings.get<std::int64_t>(kMinBatch)),
        slower_(settings.get<bool>(kMap) ? pageable_slowdown(settings) : 1.0) {}

 private:
  void gate(std::int32_t layer, CopySink& sink) override {
    const std::int64_t distinct = activation().distinct(layer);
    const std::int64_t rows = activation().tokens() * experts().top_k;
    if (layer >= away_) {
      counts_.resident += distinct;
      compute(distinct, rows);
    } else if (min_batch_ == 0 || activation().tokens() < min_batch_) {
      counts_.on_cpu += distinct;
      compute_on_cpu(sink, distinct, rows);
    } else {
      counts_.loaded += distinct;
      counts_.demanded += experts().bytes * distinct;
      compute(distinct, rows, load(sink, distinct, experts().matrices * runs(distinct), cpu().sync, slower_));
    }
  }

  [[nodiscard]] std::int64_t runs(std::int64_t distinct) const {
    const double all = experts().count;
    const auto d = static_cast<double>(distinct);
    return std::max<std::int64_t>(1, std::llround(d * (all - d + 1.0) / all));
  }

  std::int32_t away_;  // layers with experts on the host: the first ones
  std::int64_t min_batch_;
  double slower_;
};

/// Options of llama-server and llama-cli.
EngineFlags engine_flags(const Settings& settings, const Settings& chosen) {
  constexpr std::int64_t kDefaultBatch = 2048;
  constexpr std::int64_t kDefaultMinBatch = 32;
  const auto ubatch = settings.get<std::int64_t>("engine.max_num_batched_tokens");
  const auto min_batch = settings.get<std::int64_t>(kMinBatch);
  std::string flags;
  if (min_batch > 0 && min_batch != kDefaultMinBatch) flags = fmt::format("GGML_OP_OFFLOAD_MIN_BATCH={} ", min_batch);
  flags += fmt::format("-ngl 99 --n-cpu-moe {} -ub {}", chosen.get<std::int64_t>(kLayers), ubatch);
  if (ubatch > kDefaultBatch) flags += fmt::format(" -b {}", ubatch);
  if (!settings.get<bool>(kMap)) flags += " --no-mmap";
  if (min_batch == 0) flags += " --no-op-offload";
  return {.engine = "llama.cpp", .version = "common/common.h (0010882)", .flags = std::move(flags)};
}

PolicyInfo info() {
  PolicyInfo info;
  info.name = "llama-cpp-moe";
  info.summary = "llama.cpp --n-cpu-moe: experts of the first layers on the host, computed there in small batches";
  info.source = "ggml-org/llama.cpp: common/common.h and ggml-cuda.cu (0010882), ggml-backend.cpp (0054c01); PR 15077";
  info.limits =
      "The scheduler is Spillway's, with llama.cpp's micro-batch (ubatch 512) as token budget. The number of copies "
      "follows from the expected runs of consecutive experts, not from the experts that were drawn. The first access "
      "to a page of a mapped file takes no time. Copies are not padded.";
  info.figures = expert_figures();
  info.places_experts = true;
  info.streams = {.weights = true};
  info.default_scheduler = "vllm";
  info.parameters = {
      {.name = kLayers,
       .type = ParameterType::integer,
       .unit = "layers",
       .default_value = "",
       .minimum = 0.0,
       .maximum = 10'000.0,
       .doc = "Layers, counted from the first, whose experts are on the host. Default: the fewest that leave "
              "memory.gpu_kv, or KV for 32,768 tokens, on the GPU",
       .source = "llama.cpp --n-cpu-moe; the default is Spillway's"},
      {.name = kMinBatch,
       .type = ParameterType::integer,
       .unit = "tokens",
       .default_value = "32",
       .minimum = 0.0,
       .maximum = 1e9,
       .doc = "Iterations of at least this many tokens copy the experts in use to the GPU and compute them there; 0: "
              "never",
       .source = "llama.cpp, GGML_OP_OFFLOAD_MIN_BATCH; 0: --no-op-offload"},
      {.name = kMap,
       .type = ParameterType::boolean,
       .unit = "-",
       .default_value = "true",
       .doc = "true: the model's file is mapped into memory, so its weights are not page-locked; false: they are",
       .source = "llama.cpp, on by default; false: --no-mmap"},
      pageable_parameter(),
      cpu_efficiency_parameter("0.6",
                               "slope of gpt-oss-20b by --n-cpu-moe on dual-channel DDR4-3200: 32 of 51 GB/s (a "
                               "third party's measurement; hwmodels/README.md)"),
      host_memory_parameter()};
  for (Parameter& parameter : cpu_call_parameters()) info.parameters.push_back(std::move(parameter));
  info.engine_defaults = [](const Settings&) {
    return std::map<std::string, std::string>{{"engine.max_num_batched_tokens", "512"}};
  };
  info.engine_flags = engine_flags;
  info.make_layers = [](const PolicyContext& context) -> std::unique_ptr<LayerPolicy> {
    const Settings& chosen = context.deployment.chosen;
    return std::make_unique<LlamaCppMoe>(context.deployment, context.settings, chosen.get<std::int64_t>(kLayers),
                                         laid_out_blocks(context.deployment));
  };
  info.layout = [](const Deployment& deployment, const Settings& settings) {
    const std::int64_t layers = layers_on_host(deployment, settings);
    Layout layout =
        lay_out_experts(deployment, settings, placement(*deployment.experts, layers, settings.has(kLayers)));
    if (layers > 0) static_cast<void>(expert_cpu(deployment, settings));
    layout.chosen.set(kLayers, layers);
    return layout;
  };
  return info;
}

const RegisterPolicy kRegistered(info());

}  // namespace
}  // namespace spillway
