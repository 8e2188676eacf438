// vLLM's weight offloading by groups of layers: the last layers of each group live on the host, and each is copied to
// the GPU a fixed number of offloaded layers ahead.
//
// Source: vllm-project/vllm, model_executor/offloader/prefetch.py (04db319): --offload-group-size,
// --offload-num-in-group, --offload-prefetch-step, --offload-params. SGLang's offloader.py (046a9e4) does the same with
// --offload-mode cpu, for the experts of DeepSeek models. Select-N proposes the same with intervals from an SLO.
// Facts and assumptions: hwmodels/README.md, "Experts".
//
//   offloaded   layer l where l mod g >= g - n. The N offloaded ones are numbered j = 0, ..., N - 1
//   slots       p on the GPU, which they take in turn. At start-up, the first p layers are there
//   copies      at the end of offloaded layer j the copy of layer (j + p) mod N starts, on a stream of its own, FIFO.
//               All of its weights are copied, used or not. Layer j waits for its copy
//   iterations  do not matter: copies run from one into the next
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "policies/parts/layer_figures.hpp"
#include "policies/parts/offloaded_tensors.hpp"
#include "policies/parts/weight_layers.hpp"
#include "sim/api/registry.hpp"

namespace spillway {
namespace {

constexpr const char* kGroup = "policy.group_size";
constexpr const char* kInGroup = "policy.num_in_group";
constexpr const char* kStep = "policy.prefetch_step";

class VllmPrefetch final : public LayerPolicy, private LayerRule {
 public:
  VllmPrefetch(const Deployment& deployment, const OffloadedTensors& tensors, std::int64_t step, Blocks capacity)
      : capacity_(capacity), host_(tensors.host()), number_of_(tensors.layers().size(), kOnGpu) {
    for (std::size_t layer = 0; layer < tensors.layers().size(); ++layer) {
      const OffloadedTensors::Layer& of = tensors.layers()[layer];
      if (of.tensors == 0) continue;
      number_of_[layer] = static_cast<std::int32_t>(offloaded_.size());
      const CopyTime time = deployment.model->copy(Stream::h2d, of.tensors, of.bytes(), CopyMechanism::many);
      offloaded_.push_back({.weights = {.stream = Stream::h2d,
                                        .layer = number_of_[layer],
                                        .bytes = of.bytes(),
                                        .launch = time.launch,
                                        .transfer = time.transfer},
                            .at = static_cast<std::int32_t>(layer)});
    }
    step_ = static_cast<std::size_t>(step);
    for (std::size_t j = 0; j < std::min(step_, offloaded_.size()); ++j) offloaded_[j].there = true;
  }

  [[nodiscard]] Blocks capacity() const override { return capacity_; }
  [[nodiscard]] LayerRule* begin(const BatchShape&, const LayerCompute&) override {
    return offloaded_.empty() ? nullptr : this;
  }
  [[nodiscard]] Figures figures() const override { return {{kPeakHostLayers, static_cast<double>(host_.count())}}; }

 private:
  static constexpr std::int32_t kOnGpu = -1;
  struct Offloaded {
    Copy weights{};
    std::int32_t at = 0;      // its layer of the model
    bool there = false;       // in a slot
    std::int32_t copies = 0;  // to it on their way
  };

  void at_layer_start(std::int32_t layer, std::int32_t /*sub_batch*/, CopySink& sink) override {
    if (layer > 0) ended(layer - 1, sink);
  }
  void at_layers_end(CopySink& sink) override { ended(static_cast<std::int32_t>(number_of_.size()) - 1, sink); }

  void ended(std::int32_t layer, CopySink& sink) {
    const std::int32_t number = number_of_[static_cast<std::size_t>(layer)];
    if (number == kOnGpu) return;
    // With a slot for each layer, the copy of the same weights is made all the same.
    if (step_ < offloaded_.size()) offloaded_[static_cast<std::size_t>(number)].there = false;
    Offloaded& next = offloaded_[(static_cast<std::size_t>(number) + step_) % offloaded_.size()];
    ++next.copies;
    sink.issue(next.weights);
  }

  void at_copy_done(const Copy& copy, CopySink& /*sink*/) override {
    Offloaded& copied = offloaded_[static_cast<std::size_t>(copy.layer)];
    --copied.copies;
    copied.there = true;
  }

  [[nodiscard]] bool ready(std::int32_t layer, std::int32_t /*sub_batch*/) const override {
    const std::int32_t number = number_of_[static_cast<std::size_t>(layer)];
    if (number == kOnGpu) return true;
    const Offloaded& one = offloaded_[static_cast<std::size_t>(number)];
    return one.there && one.copies == 0;
  }

  /// The layers up to the next offloaded one, unless this one starts a copy.
  [[nodiscard]] std::int32_t quiet(std::int32_t layer) const override {
    if (layer > 0 && number_of_[static_cast<std::size_t>(layer) - 1] != kOnGpu) return 0;
    auto next = static_cast<std::size_t>(layer);
    while (next < number_of_.size() && number_of_[next] == kOnGpu) ++next;
    return static_cast<std::int32_t>(next) - layer;
  }

  Blocks capacity_;
  Bytes host_;
  std::vector<std::int32_t> number_of_;  // of each layer of the model, among the offloaded ones
  std::vector<Offloaded> offloaded_{};
  std::size_t step_ = 1;
};

/// Groups, and which layers of each leave.
struct Groups {
  std::int64_t size = 0;  // 0: nothing is offloaded
  std::int64_t offloaded = 1;
};

OffloadedTensors offloaded(const Deployment& deployment, const Settings& settings, const Groups& groups) {
  return OffloadedTensors::by_group(deployment, groups.size, groups.offloaded, experts_only(settings));
}
Bytes slots(const OffloadedTensors& tensors, const Settings& settings) {
  return tensors.largest() * settings.get<std::int64_t>(kStep);
}

/// Those that leave least on the host while the KV cache has its memory; of equal ones the smallest. Without any, all.
Groups least_groups(const Deployment& deployment, const Settings& settings) {
  const bool given = settings.has(kInGroup);
  const std::int64_t fewest = given ? settings.get<std::int64_t>(kInGroup) : 1;
  Groups best{};
  if (leaves_default_kv(deployment, offloaded(deployment, settings, best), Bytes(0))) return best;
  best = {fewest, fewest};
  Bytes least = deployment.weights;
  // In a larger group, more layers in a row would wait for each other.
  constexpr std::int64_t kMostOffloaded = 8;
  for (std::int64_t size = 1; size <= deployment.layers; ++size) {
    for (std::int64_t n = fewest; n <= std::min(size, given ? fewest : kMostOffloaded); ++n) {
      const OffloadedTensors tensors = offloaded(deployment, settings, {size, n});
      if (tensors.host() >= least || tensors.offloaded() == 0) continue;
      if (!leaves_default_kv(deployment, tensors, slots(tensors, settings))) continue;
      best = {size, n};
      least = tensors.host();
    }
  }
  return best;
}

Groups groups_of(const Settings& settings) {
  return {settings.get<std::int64_t>(kGroup), settings.has(kInGroup) ? settings.get<std::int64_t>(kInGroup) : 1};
}

Layout layout(const Deployment& deployment, const Settings& settings) {
  const bool given = settings.has(kGroup);
  const Groups groups = given ? groups_of(settings) : least_groups(deployment, settings);
  const OffloadedTensors tensors = offloaded(deployment, settings, groups);
  const std::string terms =
      given || groups.size == 0
          ? std::string()
          : fmt::format(": {} of each {}, the fewest that leave room for the KV cache", groups.offloaded, groups.size);
  Layout layout = lay_out_offloaded(deployment, settings, tensors, slots(tensors, settings), terms,
                                    fmt::format("lower {}, raise {}", kGroup, kInGroup));
  layout.chosen.set(kGroup, groups.size);
  layout.chosen.set(kInGroup, groups.offloaded);
  return layout;
}

EngineFlags engine_flags(const Settings& settings, const Settings& chosen) {
  const Groups groups = groups_of(chosen);
  std::string flags = fmt::format("--offload-group-size {} --offload-num-in-group {} --offload-prefetch-step {}",
                                  groups.size, groups.offloaded, settings.get<std::int64_t>(kStep));
  if (experts_only(settings)) flags += " --offload-params experts";
  return {.engine = "vLLM", .version = "offloader/prefetch.py (04db319)", .flags = std::move(flags)};
}

std::vector<Problem> check(const Settings& settings) {
  if (!settings.has(kGroup)) return {};
  const Groups groups = groups_of(settings);
  if (groups.size == 0 || groups.offloaded <= groups.size) return {};
  return {{fmt::format("{}={} is more than the {} layers of a group", kInGroup, groups.offloaded, groups.size),
           kInGroup, fmt::format("give at most {}: then every layer is on the host", groups.size)}};
}

PolicyInfo info() {
  PolicyInfo info;
  info.name = "vllm-prefetch";
  info.summary = "vLLM --offload-group-size: the last layers of each group on the host, copied ahead of their use";
  info.source =
      "vllm-project/vllm: model_executor/offloader/prefetch.py (04db319); sgl-project/sglang: offloader.py (046a9e4)";
  info.limits =
      "Slots are taken in turn. vLLM numbers them j mod p, which is the same where p divides the number of offloaded "
      "layers. Biases and norms stay on the GPU. A slot has the size of the largest offloaded layer.";
  info.figures = layer_figures();
  info.unequal_layers = true;
  info.streams = {.weights = true};
  info.default_scheduler = "vllm";
  info.parameters = {
      {.name = kGroup,
       .type = ParameterType::integer,
       .unit = "layers",
       .default_value = "",
       .minimum = 0.0,
       .maximum = 10'000.0,
       .doc = "Layers of a group; 0: nothing is offloaded. Default: the size with the fewest layers on the host at "
              "which memory.gpu_kv, or KV for 32,768 tokens, fits",
       .source = "vLLM --offload-group-size (0 there); the default is Spillway's"},
      {.name = kInGroup,
       .type = ParameterType::integer,
       .unit = "layers",
       .default_value = "",
       .minimum = 1.0,
       .maximum = 10'000.0,
       .doc = "Layers at the end of each group that live on the host. Default: 1, or up to 8 where policy.group_size "
              "is not given either",
       .source = "vLLM --offload-num-in-group (1 there)"},
      {.name = kStep,
       .type = ParameterType::integer,
       .unit = "layers",
       .default_value = "1",
       .minimum = 1.0,
       .maximum = 10'000.0,
       .doc = "How many offloaded layers ahead a copy starts; as many slots are on the GPU",
       .source = "vLLM --offload-prefetch-step"},
      offload_params_parameter("vLLM --offload-params; experts: as SGLang offloads DeepSeek models"),
      host_memory_parameter()};
  info.check = check;
  info.make_layers = [](const PolicyContext& context) -> std::unique_ptr<LayerPolicy> {
    const Deployment& deployment = context.deployment;
    return std::make_unique<VllmPrefetch>(deployment,
                                          offloaded(deployment, context.settings, groups_of(deployment.chosen)),
                                          context.settings.get<std::int64_t>(kStep), laid_out_blocks(deployment));
  };
  info.layout = layout;
  info.engine_flags = engine_flags;
  return info;
}

const RegisterPolicy kRegistered(info());

}  // namespace
}  // namespace spillway
