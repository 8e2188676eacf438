// How much of the host a policy that streams layers may take.
#pragma once

#include <optional>

#include "sim/api/layer_policy.hpp"

namespace spillway {

/// Of one GPU: policy.host_memory, which may be more than the host has, as a what-if; else what the host has; empty
/// where nothing is known of that.
[[nodiscard]] inline std::optional<Bytes> host_memory(const Deployment& deployment, const Settings& settings) {
  if (settings.has("policy.host_memory")) return settings.get<Bytes>("policy.host_memory");
  return deployment.host_memory;
}

}  // namespace spillway
