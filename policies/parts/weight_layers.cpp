#include "policies/parts/weight_layers.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "policies/parts/host_memory.hpp"
#include "policies/parts/layer_figures.hpp"
#include "policies/parts/quantities.hpp"
#include "policies/parts/single_copy.hpp"

namespace spillway {
namespace {

std::string named(std::int32_t layers, std::int32_t interval) {
  return host_layers(layers, interval) == 0 ? std::string("no layer offloaded")
                                            : fmt::format("offloading interval {}", interval);
}

constexpr const char* kBlocks = "weights.blocks";  // of Layout::chosen
constexpr Tokens kContext{32768};

}  // namespace

Bytes least_kv_of(const Deployment& deployment) {
  return deployment.gpu_kv_given ? std::max(deployment.block_bytes, deployment.gpu_kv) : deployment.block_bytes;
}

Bytes default_kv_of(const Deployment& deployment) {
  if (deployment.gpu_kv_given) return least_kv_of(deployment);
  return deployment.block_bytes * blocks_for(kContext, deployment.block_tokens).count();
}

Layout lay_out_weights(const Deployment& deployment, const Settings& settings, const WeightPlacement& placement) {
  const std::optional<Bytes> host = host_memory(deployment, settings);
  if (host && placement.host > *host) {
    throw ConfigError::infeasible(
        fmt::format("{} on the host are {:.2f} GB for each GPU; the host has {:.2f} GB for them", placement.on_host,
                    gigabytes(placement.host), gigabytes(*host)),
        "policy.host_memory", placement.less_host + ", or use a host with more memory");
  }
  const Bytes least = least_kv_of(deployment);
  if (placement.gpu + least > deployment.memory) {
    throw ConfigError::infeasible(
        fmt::format("{} and {} of {:.3f} GB take {:.2f} GB of the {:.2f} GB that the engine may use beside its "
                    "activations",
                    placement.on_gpu, deployment.gpu_kv_given ? "KV" : "one KV block", gigabytes(least),
                    gigabytes(placement.gpu + least), gigabytes(deployment.memory)),
        deployment.gpu_kv_given ? "memory.gpu_kv" : "hardware",
        placement.less_gpu + ", raise tensor_parallel, or use hardware with more memory");
  }
  const Bytes left = deployment.memory - placement.gpu;
  const Bytes kv = deployment.gpu_kv_given ? std::min(left, deployment.gpu_kv) : left;
  const Blocks blocks(kv / deployment.block_bytes);
  Layout layout{
      .blocks = blocks, .most = blocks, .host = placement.host, .weights = placement.gpu, .terms = placement.terms};
  layout.chosen.set(kBlocks, blocks.count());
  return layout;
}

Blocks laid_out_blocks(const Deployment& deployment) { return Blocks(deployment.chosen.get<std::int64_t>(kBlocks)); }

Parameter host_memory_parameter() {
  return {
      .name = "policy.host_memory",
      .type = ParameterType::bytes,
      .unit = "bytes",
      .default_value = "",
      .minimum = 0,
      .maximum = 1e15,
      .doc = "Host memory for the weights of one GPU. Default: the host's DRAM per GPU, or no limit if that is unknown",
      .source = "Spillway: the papers give the weights the whole host"};
}

WeightRoom::WeightRoom(const Deployment& deployment, const Settings& settings, bool double_buffer)
    : memory_{.gpu = deployment.memory,
              .layer = deployment.layer_weights,
              .layers = deployment.layers,
              .embeddings = deployment.weights - deployment.layers * deployment.layer_weights,
              .activations = Bytes(0),  // not in deployment.memory
              .double_buffer = double_buffer},
      block_bytes_(deployment.block_bytes),
      block_tokens_(deployment.block_tokens),
      held_kv_(deployment.gpu_kv_held),
      host_memory_(host_memory(deployment, settings)) {
  if (deployment.gpu_kv_given) given_kv_ = deployment.gpu_kv;
  while (smallest_ <= layers() && host_memory_ && host(smallest_) > *host_memory_) ++smallest_;
  if (smallest_ > layers()) smallest_ = kAllResident;
}

Blocks WeightRoom::blocks(std::int32_t interval) const {
  const Bytes kv = max_kv(memory_, interval);
  return Blocks((given_kv_ ? std::min(kv, *given_kv_) : kv) / block_bytes_);
}

std::optional<std::int32_t> WeightRoom::largest(Blocks kv) const {
  if (blocks(kAllResident) >= kv) return kAllResident;
  for (std::int32_t interval = layers(); interval >= smallest_; --interval) {
    if (blocks(interval) >= kv) return interval;
  }
  return std::nullopt;
}

void WeightRoom::check(std::int32_t interval) const {
  if (host_memory_ && host(interval) > *host_memory_) {
    const std::string least =
        smallest_ == kAllResident ? "not one layer fits" : fmt::format("offloading interval {} fits", smallest_);
    throw ConfigError::infeasible(
        fmt::format("{} keeps {} of {} layers on the host, {} x {:.3f} GB = {:.2f} GB; the host has {:.2f} "
                    "GB for them",
                    named(layers(), interval), host_layers(layers(), interval), layers(),
                    host_layers(layers(), interval), gigabytes(memory_.layer), gigabytes(host(interval)),
                    gigabytes(*host_memory_)),
        "policy.host_memory", fmt::format("{}; or give the weights more host memory", least));
  }
  const Bytes needed = least_kv();
  if (memory_.room(interval) >= needed) return;
  std::int32_t fitting = host_layers(layers(), interval) == 0 ? layers() : interval;
  while (fitting > 0 && memory_.room(fitting) < needed) --fitting;
  std::string fix;
  if (fitting >= smallest_) {
    fix = fmt::format("offloading interval {} fits; or ", fitting);
  } else if (fitting > 0) {
    fix = fmt::format("offloading interval {} fits, with {:.2f} GB on the host, which has {:.2f} GB for it; or ",
                      fitting, gigabytes(host(fitting)), gigabytes(*host_memory_));
  }
  throw ConfigError::infeasible(
      fmt::format(
          "with {}, {} layers' worth of weights of {:.3f} GB, {:.3f} GB of weights outside the layers and {} of "
          "{:.3f} GB take {:.2f} GB of the {:.2f} GB that the engine may use beside its activations",
          named(layers(), interval), memory_.gpu_layers(interval), gigabytes(memory_.layer),
          gigabytes(memory_.embeddings), given_kv_ ? "KV" : "one KV block", gigabytes(needed),
          gigabytes(memory_.gpu - memory_.room(interval) + needed), gigabytes(memory_.gpu)),
      given_kv_ ? "memory.gpu_kv" : "hardware",
      fmt::format("{}{}raise tensor_parallel, or use hardware with more memory", fix,
                  given_kv_ ? "lower memory.gpu_kv, " : ""));
}

Layout WeightRoom::layout(std::int32_t interval) const {
  check(interval);
  return {.blocks = blocks(interval),
          .most = blocks(interval),
          .host = host(interval),
          .weights = gpu(interval),
          .terms = placement(interval) + length_text(interval)};
}

std::string WeightRoom::length_text(std::int32_t interval) const {
  if (held_kv_) return "";  // the part that holds the KV memory decides how many tokens it takes
  return fmt::format("; maximum allocatable length {} tokens", longest(interval).count());
}

std::string WeightRoom::placement(std::int32_t interval) const {
  const std::int32_t away = host_layers(layers(), interval);
  if (away == 0) return fmt::format("all {} layers of {:.1f} MB stay on the GPU", layers(), megabytes(memory_.layer));
  const std::int32_t buffers = staging_buffers(layers(), interval, memory_.double_buffer);
  return fmt::format(
      "{} of {} layers of {:.1f} MB live on the host (offloading interval {}) and stream through {} "
      "staging buffer{}",
      away, layers(), megabytes(memory_.layer), interval, buffers, buffers == 1 ? "" : "s");
}

Copy weight_copy(const Deployment& deployment) {
  return single_copy(*deployment.model, Stream::h2d, deployment.layer_weights);
}

WeightStreamer::WeightStreamer(const Deployment& deployment, const WeightStreaming& how)
    : layers_(deployment.layers), streaming_(how), rule_(deployment.layers) {
  streaming_.weights = weight_copy(deployment);
}

LayerRule* WeightStreamer::iterate(std::int32_t interval, std::int32_t returning) {
  const std::int32_t away = host_layers(layers_, interval);
  most_on_host_ = std::max(most_on_host_, away);
  if (away > 0) {
    ++iterations_;
    intervals_ += interval;
  }
  if (away == 0 && host_layers(layers_, returning) == 0) return nullptr;
  streaming_.interval = interval;
  streaming_.returning = returning;
  rule_.stream(streaming_);
  return &rule_;
}

Figures WeightStreamer::figures() const {
  const Bytes peak = most_on_host_ * streaming_.weights.bytes;
  Figures figures{{kPeakHostLayers, static_cast<double>(peak.count())}};
  if (iterations_ > 0) figures[kMeanInterval] = static_cast<double>(intervals_) / static_cast<double>(iterations_);
  return figures;
}

}  // namespace spillway
