// How much of the host a policy that streams layers may take.
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "sim/api/layer_policy.hpp"

namespace spillway {

/// Of one GPU: what the setting `key` gives, and never more than the host has; empty where neither is known.
[[nodiscard]] inline std::optional<Bytes> host_memory(const Deployment& deployment, const Settings& settings,
                                                      const std::string& key) {
  if (!settings.has(key)) return deployment.host_memory;
  const Bytes given = settings.get<Bytes>(key);
  return deployment.host_memory ? std::min(given, *deployment.host_memory) : given;
}

}  // namespace spillway
