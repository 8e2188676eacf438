#include "policies/parts/flexgen_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace spillway {

Padding flexgen_padding(const Settings& settings) { return padding(settings).value(); }

double flexgen_cpu_attention(const Deployment& deployment, double kv_bytes) {
  return deployment.cpu_attention_launch + kv_bytes * kFlexgenAttentionTraffic / *deployment.cpu_attention_bandwidth;
}

FlexgenPlan FlexgenPlan::of(const Settings& settings) {
  return {settings.get<std::int64_t>(kFlexgenPlacement[0]), settings.get<std::int64_t>(kFlexgenPlacement[1]),
          settings.get<double>(kFlexgenPlacement[2]), settings.get<double>(kFlexgenPlacement[3]),
          settings.get<double>(kFlexgenPlacement[4])};
}

void FlexgenPlan::write(Settings& settings) const {
  settings.set(kFlexgenPlacement[0], gpu_batch);
  settings.set(kFlexgenPlacement[1], batches);
  settings.set(kFlexgenPlacement[2], weights_host);
  settings.set(kFlexgenPlacement[3], cache_host);
  settings.set(kFlexgenPlacement[4], hidden_host);
}

FlexgenNeeds::FlexgenNeeds(const Deployment& deployment, const Settings& settings, const FlexgenPlan& plan)
    : deployment_(deployment),
      plan_(plan),
      on_host_(FlexgenMatrices(deployment).of(plan.weights_host)),
      loads_cache_(!settings.get<bool>("policy.cpu_attention")),
      padding_(flexgen_padding(settings)) {}

Bytes FlexgenNeeds::layer_on_host() const { return part(on_host_.on_host, bytes_of(deployment_.layer_weights)); }

double FlexgenNeeds::host_weights() const { return bytes_of(layer_on_host()) * layers(); }

double FlexgenNeeds::gpu_weights() const { return bytes_of(deployment_.weights) - host_weights(); }

double FlexgenNeeds::token_cache() const {
  return bytes_of(deployment_.block_bytes) / real(deployment_.block_tokens.count()) / layers();
}

double FlexgenNeeds::token_hidden() const {
  constexpr double kNumber = 2.0;  // bytes
  return kNumber * real(deployment_.hidden);
}

double FlexgenNeeds::gpu_hidden() const {
  return (1.0 - hidden_share()) * hidden(plan_.block()) + hidden_share() * hidden(plan_.gpu_batch);
}

double FlexgenNeeds::cache_buffers() const {
  return loads_cache_ ? 2.0 * plan_.cache_host * real(plan_.gpu_batch) * tokens() * token_cache() : 0.0;
}

double FlexgenNeeds::gpu() const {
  return gpu_weights() + weight_buffers() + gpu_cache() + cache_buffers() + gpu_hidden();
}

Bytes FlexgenNeeds::part(double share, double bytes) {
  return Bytes(static_cast<std::int64_t>(std::round(share * bytes)));
}

double FlexgenNeeds::hidden(std::int64_t requests) const {
  return real(requests) * real(padding_.input.count()) * token_hidden();
}

double flexgen_gpu_memory(const Deployment& deployment) {
  const double memory = bytes_of(deployment.memory);
  if (!deployment.gpu_kv_given) return memory;
  return std::min(memory, bytes_of(deployment.weights) + bytes_of(deployment.gpu_kv));
}

std::string flexgen_gpu_key(const Deployment& deployment) {
  return deployment.gpu_kv_given ? "memory.gpu_kv" : "hardware";
}

void refuse_unknown_host(const std::string& what, const std::string& key) {
  throw ConfigError(fmt::format("{}, but the host of this hardware is unknown", what), "hardware",
                    fmt::format("name a server, which has a host, or set {}", key));
}

}  // namespace spillway
