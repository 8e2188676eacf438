// vLLM's weight offloading by bytes: the first layers' tensors live on the host up to a budget, and the GPU reads them
// there in every iteration.
//
// Source: vllm-project/vllm, model_executor/offloader/uva.py and config/offload.py (00593fa): --cpu-offload-gb,
// --cpu-offload-params; SGLang's --cpu-offload-gb copies instead.
//
//   offloaded   layers in order, their tensors in order, whole tensors, while less than the budget is on the host. All
//               experts of a layer are two tensors: gate with up, and down
//   in place    a kernel reads what it uses over the link, while nothing else computes: of the tensors of experts, the
//               share of the experts that the iteration uses
//   copied      without unified addresses, before a layer computes all of its offloaded tensors are copied, on the
//               compute stream. Nothing is kept
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <vector>

#include "policies/parts/layer_figures.hpp"
#include "policies/parts/offloaded_tensors.hpp"
#include "policies/parts/weight_layers.hpp"
#include "sim/api/registry.hpp"

namespace spillway {
namespace {

constexpr const char* kBudget = "policy.cpu_offload";
constexpr const char* kUva = "policy.uva";
constexpr const char* kEfficiency = "policy.uva_efficiency";

class VllmUva final : public LayerPolicy, private LayerRule {
 public:
  VllmUva(const Deployment& deployment, const Settings& settings, OffloadedTensors tensors, Blocks capacity)
      : deployment_(deployment),
        tensors_(std::move(tensors)),
        capacity_(capacity),
        in_place_(settings.get<bool>(kUva)),
        efficiency_(settings.get<double>(kEfficiency)),
        reads_(tensors_.layers().size()) {}

  [[nodiscard]] Blocks capacity() const override { return capacity_; }
  [[nodiscard]] LayerRule* begin(const BatchShape& shape, const LayerCompute& /*compute*/) override {
    if (tensors_.offloaded() == 0) return nullptr;
    std::int64_t tokens = shape.decodes();
    for (const PrefillChunk& chunk : shape.chunks) tokens += chunk.new_tokens.count();
    if (tokens != tokens_) plan(tokens);
    return this;
  }
  [[nodiscard]] Figures figures() const override {
    return {{kPeakHostLayers, static_cast<double>(tensors_.host().count())}};
  }

 private:
  /// What each layer of an iteration of so many tokens reads.
  void plan(std::int64_t tokens) {
    tokens_ = tokens;
    const double used = in_place_ && deployment_.active_experts ? deployment_.active_experts(tokens) : 1.0;
    for (std::size_t layer = 0; layer < reads_.size(); ++layer) {
      const OffloadedTensors::Layer& of = tensors_.layers()[layer];
      if (of.tensors > 0) reads_[layer] = in_place_ ? read(of, used) : copy(of);
    }
  }
  [[nodiscard]] Copy read(const OffloadedTensors::Layer& of, double used) const {
    const Bytes bytes = of.dense + Bytes(std::llround(used * static_cast<double>(of.experts.count())));
    const Duration pinned = deployment_.model->copy(Stream::h2d, 1, bytes, CopyMechanism::single).transfer;
    return {.stream = Stream::h2d, .bytes = bytes, .transfer = round_seconds(to_seconds(pinned) / efficiency_)};
  }
  [[nodiscard]] Copy copy(const OffloadedTensors::Layer& of) const {
    const CopyTime time = deployment_.model->copy(Stream::h2d, of.tensors, of.bytes(), CopyMechanism::many);
    return {.stream = Stream::h2d, .bytes = of.bytes(), .launch = time.launch, .transfer = time.transfer};
  }

  void at_layer_start(std::int32_t layer, std::int32_t /*sub_batch*/, CopySink& sink) override {
    if (!tensors_.offloads(layer)) return;
    ++reading_;
    sink.issue(reads_[static_cast<std::size_t>(layer)]);
  }
  void at_copy_done(const Copy& /*copy*/, CopySink& /*sink*/) override { --reading_; }
  [[nodiscard]] bool ready(std::int32_t /*layer*/, std::int32_t /*sub_batch*/) const override { return reading_ == 0; }
  /// The layers up to the next offloaded one.
  [[nodiscard]] std::int32_t quiet(std::int32_t layer) const override {
    return tensors_.offloads(layer) ? 0 : next_offloaded(layer) - layer;
  }
  [[nodiscard]] std::int32_t next_offloaded(std::int32_t layer) const {
    const auto layers = static_cast<std::int32_t>(reads_.size());
    while (layer < layers && !tensors_.offloads(layer)) ++layer;
    return layer;
  }

  Deployment deployment_;
  OffloadedTensors tensors_;
  Blocks capacity_;
  bool in_place_;
  double efficiency_;
  std::int64_t tokens_ = -1;  // that reads_ is for
  std::vector<Copy> reads_;   // of each layer
  std::int32_t reading_ = 0;
};

OffloadedTensors offloaded(const Deployment& deployment, const Settings& settings, Bytes budget) {
  return OffloadedTensors::by_budget(deployment, budget, experts_only(settings));
}

/// A layer that is copied needs room for its offloaded tensors.
Bytes buffer(const OffloadedTensors& tensors, const Settings& settings) {
  return settings.get<bool>(kUva) ? Bytes(0) : tensors.largest();
}

/// What must be on the host for the KV cache to have its memory.
Bytes least_budget(const Deployment& deployment, const Settings& settings) {
  Bytes budget{};
  while (true) {
    const OffloadedTensors tensors = offloaded(deployment, settings, budget);
    if (leaves_default_kv(deployment, tensors, buffer(tensors, settings)) || tensors.host() < budget) return budget;
    const Bytes short_of =
        deployment.weights - tensors.host() + buffer(tensors, settings) + default_kv_of(deployment) - deployment.memory;
    budget = tensors.host() + short_of;
  }
}

Layout layout(const Deployment& deployment, const Settings& settings) {
  const bool given = settings.has(kBudget);
  const Bytes budget = given ? settings.get<Bytes>(kBudget) : least_budget(deployment, settings);
  const OffloadedTensors tensors = offloaded(deployment, settings, budget);
  const std::string terms = given || budget == Bytes(0) ? "" : ", the least that leaves room for the KV cache";
  Layout layout = lay_out_offloaded(deployment, settings, tensors, buffer(tensors, settings), terms,
                                    fmt::format("raise {}", kBudget));
  layout.chosen.set(kBudget, budget);
  return layout;
}

EngineFlags engine_flags(const Settings& settings, const Settings& chosen) {
  const double budget = static_cast<double>(chosen.get<Bytes>(kBudget).count()) / (1 << 30);
  const bool copies = !settings.get<bool>(kUva);
  std::string flags = fmt::format("--cpu-offload-gb {:.2f}", budget);
  if (experts_only(settings) && !copies) flags += " --cpu-offload-params experts";
  return {.engine = copies ? "SGLang" : "vLLM",
          .version = copies ? "offloader.py (046a9e4)" : "config/offload.py (00593fa)",
          .flags = std::move(flags)};
}

PolicyInfo info() {
  PolicyInfo info;
  info.name = "vllm-uva";
  info.summary = "vLLM --cpu-offload-gb: weights of the first layers on the host, read there in every iteration";
  info.source =
      "vllm-project/vllm: model_executor/offloader/uva.py and config/offload.py (00593fa); sgl-project/sglang: "
      "--cpu-offload-gb";
  info.limits =
      "Reads in place wait for copies to the GPU that have started. A layer computes after it has read its weights; "
      "reading and computing do not overlap. expert_load says which experts an iteration uses. Biases and norms stay "
      "on the GPU.";
  info.figures = layer_figures();
  info.unequal_layers = true;
  info.streams = {.weights = true};
  info.default_scheduler = "vllm";
  info.parameters = {
      {.name = kBudget,
       .type = ParameterType::bytes,
       .unit = "bytes",
       .default_value = "",
       .minimum = 0,
       .maximum = 1e15,
       .doc = "Weights of one GPU that live on the host; the last tensor may exceed this size. Default: the least that "
              "leaves memory.gpu_kv, or KV for 32,768 tokens, on the GPU",
       .source = "vLLM --cpu-offload-gb, in GiB (0 there); the default is Spillway's"},
      {.name = kUva,
       .type = ParameterType::boolean,
       .unit = "-",
       .default_value = "true",
       .doc = "true: the GPU reads the host's memory in place; false: a layer's tensors are copied before it computes",
       .source = "vLLM by default; false: vLLM without unified virtual addresses, and SGLang"},
      {.name = kEfficiency,
       .type = ParameterType::real,
       .unit = "fraction",
       .default_value = "0.8",
       .minimum = 0.01,
       .maximum = 1.0,
       .doc = "Bandwidth of reads in place, as a share of a copy from pinned memory",
       .source = "assumed (hwmodels/README.md, Experts); no measurement was found"},
      offload_params_parameter("vLLM --cpu-offload-params"),
      host_memory_parameter()};
  info.make_layers = [](const PolicyContext& context) -> std::unique_ptr<LayerPolicy> {
    const Deployment& deployment = context.deployment;
    return std::make_unique<VllmUva>(deployment, context.settings,
                                     offloaded(deployment, context.settings, deployment.chosen.get<Bytes>(kBudget)),
                                     laid_out_blocks(deployment));
  };
  info.layout = layout;
  info.engine_flags = engine_flags;
  return info;
}

const RegisterPolicy kRegistered(info());

}  // namespace
}  // namespace spillway
