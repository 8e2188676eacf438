// Settings that several policies refuse, each for its own reason.
#pragma once

#include <string>
#include <vector>

#include "sim/api/registry.hpp"

namespace spillway {

inline void refuse_swap(const Settings& settings, const std::string& why, const std::string& fix,
                        std::vector<Problem>& problems) {
  if (settings.get<std::string>("engine.preemption") == "swap") problems.push_back({why, "engine.preemption", fix});
}

inline void refuse_chunked_prefill(const Settings& settings, const std::string& policy,
                                   std::vector<Problem>& problems) {
  if (!settings.get<bool>("engine.chunked_prefill")) return;
  problems.push_back({"policy " + policy + " computes whole prompts, so it has no chunked prefill",
                      "engine.chunked_prefill", "leave it at false, or use policy=sarathi"});
}

/// Does the user ask for a host tier of the prefix cache?
[[nodiscard]] inline bool wants_host_cache(const Settings& settings) {
  return settings.has("memory.host_cache") && settings.get<Bytes>("memory.host_cache") > Bytes(0);
}

[[nodiscard]] inline bool wants_disk_cache(const Settings& settings) {
  return settings.has("memory.disk_cache") && settings.get<Bytes>("memory.disk_cache") > Bytes(0);
}

/// Does the user ask for a KV connector, instead of leaving it to the engine?
[[nodiscard]] inline bool wants_connector(const Settings& settings) {
  if (!settings.has("engine.kv_connector")) return false;
  const auto& connector = settings.get<std::string>("engine.kv_connector");
  return connector != "auto" && connector != "none";
}

/// Does the user ask for a prefix cache, instead of leaving it to the policy?
[[nodiscard]] inline bool wants_prefix_cache(const Settings& settings) {
  return settings.has("engine.prefix_caching") && settings.get<std::string>("engine.prefix_caching") == "true";
}

}  // namespace spillway
