#include "sim/config/instance_keys.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "sim/config/config.hpp"

namespace spillway {

std::string refusal_in_instance(const std::string& key) {
  constexpr std::array<std::string_view, 12> kOfRun{"hardware",     "topology", "servers", "events",
                                                    kInstancesKey,  "seed",     "warmup",  "replications",
                                                    "router.retry", "until",    "slo.run", "engine.request_timeout"};
  if (std::ranges::find(kOfRun, key) != kOfRun.end()) return "holds for all instances";
  // Limits that a request can have of its own (RequestSlo).
  if (key.starts_with("hardware.")) return "holds for all instances";
  constexpr std::array<std::string_view, 3> kOfRequests{"slo.ttft_ms", "slo.tpot_ms", "slo.e2e_ms"};
  if (key.starts_with("slo.") && std::ranges::find(kOfRequests, key) == kOfRequests.end()) {
    return "holds for all instances";
  }
  return "";
}

}  // namespace spillway
