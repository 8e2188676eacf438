// Host memory for a policy that streams layers.
#pragma once

#include <optional>

#include "sim/api/layer_policy.hpp"

namespace spillway {

/// Host memory for one GPU: policy.host_memory, which may exceed the host's DRAM as a what-if, else the host's DRAM;
/// empty when that is unknown.
[[nodiscard]] inline std::optional<Bytes> host_memory(const Deployment& deployment, const Settings& settings) {
  if (settings.has("policy.host_memory")) return settings.get<Bytes>("policy.host_memory");
  return deployment.host_memory;
}

}  // namespace spillway
