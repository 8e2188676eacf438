// Traffic of others on the links of an instance: a property of its surroundings, which no policy sees.
#pragma once

#include <optional>

#include "sim/api/parameter.hpp"
#include "sim/core/units.hpp"

namespace spillway {

/// A flow of others on the links between GPU and host, equal in both directions, for some time.
struct LinkTraffic {
  double share = 0.0;  // of an otherwise idle link that the traffic uses, in [0, 1]
  SimTime from{};
  SimTime until = kNever;
};

/// The keys that state such traffic, of every policy that lists them.
inline constexpr const char* kLinkTrafficKey = "policy.link_traffic";
inline constexpr const char* kLinkTrafficFromKey = "policy.link_traffic_from";
inline constexpr const char* kLinkTrafficUntilKey = "policy.link_traffic_until";

/// The traffic that these keys state; empty: none.
[[nodiscard]] inline std::optional<LinkTraffic> link_traffic(const Settings& settings) {
  if (!settings.has(kLinkTrafficKey)) return std::nullopt;
  LinkTraffic traffic{.share = settings.get<double>(kLinkTrafficKey)};
  if (traffic.share == 0.0) return std::nullopt;
  if (settings.has(kLinkTrafficFromKey)) traffic.from = SimTime{} + settings.get<Duration>(kLinkTrafficFromKey);
  if (settings.has(kLinkTrafficUntilKey)) traffic.until = SimTime{} + settings.get<Duration>(kLinkTrafficUntilKey);
  return traffic;
}

}  // namespace spillway
