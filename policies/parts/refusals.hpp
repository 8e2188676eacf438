// Settings that several policies refuse, each for its own reason.
#pragma once

#include <fmt/format.h>

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

/// Does the user ask for a prefix cache, instead of leaving it to the policy?
[[nodiscard]] inline bool wants_prefix_cache(const Settings& settings) {
  return settings.has("engine.prefix_caching") && settings.get<std::string>("engine.prefix_caching") == "true";
}

/// For a policy whose KV memory changes unless the key `fixed` ("policy.expansion") is given.
inline void refuse_fixed_room(const Settings& settings, const std::string& fixed, std::vector<Problem>& problems) {
  const PolicyInfo* scheduler = PolicyRegistry::instance().find(settings.get<std::string>(kSchedulerKey));
  if (scheduler != nullptr && !scheduler->preempts) {
    problems.push_back(
        {fmt::format("policy {} never preempts, but the KV memory may shrink below what running requests use",
                     scheduler->name),
         kSchedulerKey, fmt::format("give {}, or choose a scheduler that preempts", fixed)});
  }
}

}  // namespace spillway
