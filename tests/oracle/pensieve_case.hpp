// Random conversations for Pensieve.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/oracle/random_case.hpp"

namespace spillway::oracle {

/// draw_case with thresholds all over their range and an eviction that knows nothing of the future, and
/// draw_conversations.
inline void draw_pensieve_case(std::uint64_t seed, const PolicyInfo& policy, const ExecutionModel& model,
                               Settings& settings, NaiveConfig& config) {
  draw_case(seed, policy, model, 1, settings, config, [](Dice& dice, Settings& drawn) {
    drawn.set("policy.swap_out_threshold", 0.05 * static_cast<double>(dice.between(1, 19)));
    drawn.set("policy.decode_reserve", dice.chance(30) ? 0.001 : 0.05 * static_cast<double>(dice.between(1, 10)));
    drawn.set("policy.cost_beside_tokens", dice.chance(30) ? std::int64_t{16} : std::int64_t{0});
    drawn.set("policy.cost_linear_share", dice.chance(30) ? 0.01 : 1.0);
    drawn.set("policy.eviction", std::string(dice.chance(50) ? "retention" : "lru"));
  });
  draw_conversations(seed, config);
}

/// Pensieve under every scheduler but its own.
inline std::vector<const PolicyInfo*> pensieve_under_others() {
  const PolicyRegistry& registry = PolicyRegistry::instance();
  std::vector<const PolicyInfo*> composed;
  for (const PolicyInfo* const host : registry.all()) {
    const PolicyInfo* const under = registry.find("pensieve", host->name);
    if (under != nullptr && host->name != "pensieve") composed.push_back(under);
  }
  return composed;
}

/// The scheduler of a policy of pensieve_under_others().
inline std::string scheduler_of(const PolicyInfo& composed) {
  for (const PolicyInfo* const host : PolicyRegistry::instance().all()) {
    if (PolicyRegistry::instance().find("pensieve", host->name) == &composed) return host->name;
  }
  return "";
}

}  // namespace spillway::oracle
