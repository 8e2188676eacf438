// DeepSpeed ZeRO-Inference: every layer's weights live on the host, and each iteration streams all of them.
//
// Source: Aminabadi et al., "DeepSpeed Inference", SC 2022, ZeRO-Inference (weights on the host, a layer prefetched
// while the one before it computes; KV and activations on the GPU), as Select-N compares with it: offloading
// interval 1. FlexGen's benchmark sets a prefetch bucket of hidden^2 elements, 1/12 of a layer of OPT. That is
// policy.prefetch_fraction=0.0833.
#include <memory>

#include "policies/parts/layer_figures.hpp"
#include "policies/parts/weight_layers.hpp"
#include "sim/api/registry.hpp"

namespace spillway {
namespace {

constexpr std::int32_t kEveryLayer = 1;  // the offloading interval

WeightRoom room(const Deployment& deployment, const Settings& settings) {
  return {deployment, settings, /*double_buffer=*/false};
}

PolicyInfo info() {
  PolicyInfo info;
  info.name = "deepspeed";
  info.summary =
      "DeepSpeed ZeRO-Inference: the weights of all layers are on the host; each layer is copied while the layer "
      "before it computes";
  info.source =
      "Aminabadi et al., DeepSpeed Inference, SC 2022, ZeRO-Inference; as Select-N compares with it (offloading "
      "interval 1), "
      "and as FlexGen's benchmark configures it (prefetch bucket of hidden^2 elements)";
  info.limits =
      "Host memory only, no NVMe. A prefetch takes the time of its copy and nothing else. Weights are partitioned over "
      "GPUs by tensor_parallel only. Embeddings stay on the GPU. Every iteration copies all layers again, so the first "
      "layer waits for its weights.";
  info.figures = layer_figures();
  info.parameters = {
      {.name = "policy.prefetch_fraction",
       .type = ParameterType::real,
       .unit = "fraction",
       .default_value = "1",
       .minimum = 0.0,
       .maximum = 1.0,
       .doc = "Share of a layer's weights that may be copied while the layer before it computes. The layer "
              "copies the rest when it is about to start",
       .source = "1: as Select-N describes it; FlexGen's benchmark sets a bucket of hidden^2 elements, "
                 "1/12 of a layer (0.0833)"},
      {.name = "policy.fetch_overhead",
       .type = ParameterType::duration,
       .unit = "ns",
       .default_value = "8ms",
       .minimum = 0.0,
       .maximum = 1e10,
       .doc = "CPU time of ZeRO's hooks before a layer's weights are fetched on demand (the share that was not "
              "prefetched, and all weights of the first layer). No copy and no computation runs during this time",
       .source = "FlexGen's measurements of ZeRO-Inference on a T4 (512 tokens in, 32 out), beyond copies and compute: "
                 "7.8 ms per layer with OPT-6.7B (batch 16, 9.28 tokens/s), 8.5 ms with OPT-30B (batch 4, 0.60)"},
      host_memory_parameter()};
  info.streams = {.weights = true};
  info.default_scheduler = "vllm-v0";
  info.make_layers = [](const PolicyContext& context) -> std::unique_ptr<LayerPolicy> {
    const WeightStreaming how{.interval = kEveryLayer,
                              .prefetch_fraction = context.settings.get<double>("policy.prefetch_fraction"),
                              .demand = context.settings.get<Duration>("policy.fetch_overhead")};
    return std::make_unique<FixedInterval>(context.deployment, how,
                                           room(context.deployment, context.settings).blocks(kEveryLayer));
  };
  info.layout = [](const Deployment& deployment, const Settings& settings) {
    return room(deployment, settings).layout(kEveryLayer);
  };
  return info;
}

const RegisterPolicy kRegistered(info());

}  // namespace
}  // namespace spillway
