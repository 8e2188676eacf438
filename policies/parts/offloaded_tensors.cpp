#include "policies/parts/offloaded_tensors.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "policies/parts/quantities.hpp"
#include "policies/parts/weight_layers.hpp"
#include "sim/core/error.hpp"

namespace spillway {
namespace {

constexpr const char* kParams = "policy.offload_params";

void need_experts(const Deployment& deployment, const Settings& settings) {
  if (!experts_only(settings) || deployment.active_experts) return;
  throw ConfigError(fmt::format("{}=experts, and the model has no experts", kParams), kParams,
                    fmt::format("leave it out, or set {}=all", kParams));
}

}  // namespace

void OffloadedTensors::take(std::size_t layer, const LayerTensor& tensor) {
  Layer& one = layers_[layer];
  if (one.tensors == 0) ++offloaded_;
  ++one.tensors;
  (tensor.experts ? one.experts : one.dense) += tensor.bytes;
  host_ += tensor.bytes;
  largest_ = std::max(largest_, one.bytes());
}

OffloadedTensors OffloadedTensors::by_budget(const Deployment& deployment, Bytes budget, bool experts_only) {
  OffloadedTensors offloaded;
  offloaded.layers_.resize(deployment.tensors.size());
  for (std::size_t layer = 0; layer < deployment.tensors.size(); ++layer) {
    for (const LayerTensor& tensor : deployment.tensors[layer]) {
      if (offloaded.host_ >= budget) return offloaded;
      if (!experts_only || tensor.experts) offloaded.take(layer, tensor);
    }
  }
  return offloaded;
}

OffloadedTensors OffloadedTensors::by_group(const Deployment& deployment, std::int64_t group, std::int64_t in_group,
                                            bool experts_only) {
  OffloadedTensors offloaded;
  offloaded.layers_.resize(deployment.tensors.size());
  for (std::size_t layer = 0; layer < deployment.tensors.size() && group > 0; ++layer) {
    if (static_cast<std::int64_t>(layer) % group < group - in_group) continue;
    for (const LayerTensor& tensor : deployment.tensors[layer]) {
      if (!experts_only || tensor.experts) offloaded.take(layer, tensor);
    }
  }
  return offloaded;
}

Parameter offload_params_parameter(const std::string& source) {
  return {.name = kParams,
          .type = ParameterType::choice,
          .unit = "-",
          .default_value = "all",
          .choices = {"all", "experts"},
          .doc =
              "Which weights of a layer may live on the host. all: every matrix of it; experts: those of routed "
              "experts alone",
          .source = source};
}

bool experts_only(const Settings& settings) { return settings.get<std::string>(kParams) == "experts"; }

Layout lay_out_offloaded(const Deployment& deployment, const Settings& settings, const OffloadedTensors& tensors,
                         Bytes buffers, const std::string& terms, const std::string& more) {
  need_experts(deployment, settings);
  return lay_out_weights(
      deployment, settings,
      {.gpu = deployment.weights - tensors.host() + buffers,
       .host = tensors.host(),
       .on_gpu = fmt::format("{:.2f} GB of weights on the GPU, {:.2f} GB of buffers for those on the host",
                             gigabytes(deployment.weights - tensors.host()), gigabytes(buffers)),
       .on_host = fmt::format("weights of {} layers", tensors.offloaded()),
       .terms = tensors.offloaded() == 0
                    ? fmt::format("all {} layers stay on the GPU{}", tensors.layers().size(), terms)
                    : fmt::format("{:.2f} GB of {} of {} layers live on the host{}", gigabytes(tensors.host()),
                                  tensors.offloaded(), tensors.layers().size(), terms),
       .less_host = "offload less",
       .less_gpu = more});
}

bool leaves_default_kv(const Deployment& deployment, const OffloadedTensors& tensors, Bytes buffers) {
  return deployment.weights - tensors.host() + buffers + default_kv_of(deployment) <= deployment.memory;
}

}  // namespace spillway
