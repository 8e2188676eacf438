// Other traffic on the links between GPU and host, as keys of a policy. The engine reads them; the policy does not.
#pragma once

#include <vector>

#include "sim/api/link_traffic.hpp"
#include "sim/api/parameter.hpp"

namespace spillway {

/// `source`: where the paper of the policy considers such traffic.
[[nodiscard]] inline std::vector<Parameter> link_traffic_parameters(const char* source) {
  constexpr double kLongest = 1000.0 * 86400.0 * 1e9;  // 1000 days, ns
  const auto instant = [](const char* name, const char* doc) {
    return Parameter{.name = name,
                     .type = ParameterType::duration,
                     .unit = "ns",
                     .default_value = "",
                     .minimum = 0.0,
                     .maximum = kLongest,
                     .doc = doc,
                     .source = "Spillway: to watch the expansion adapt to a burst of traffic"};
  };
  return {
      {.name = kLinkTrafficKey,
       .type = ParameterType::real,
       .unit = "fraction",
       .default_value = "0",
       .minimum = 0.0,
       .maximum = 1.0,
       .doc = "Share of the otherwise idle link, in both directions, that other traffic uses. While a copy runs the "
              "two share the link max-min fairly, so the other traffic then uses at most half of it",
       .source = source},
      instant(kLinkTrafficFromKey, "Simulated time at which the other traffic starts. Default: the start of the run"),
      instant(kLinkTrafficUntilKey, "Simulated time at which the other traffic ends. Default: never")};
}

inline void check_link_traffic(const Settings& settings, std::vector<Problem>& problems) {
  const auto traffic = link_traffic(settings);
  if (!traffic || traffic->until > traffic->from) return;
  problems.push_back({"the other traffic ends before it starts", kLinkTrafficUntilKey,
                      std::string("make it later than ") + kLinkTrafficFromKey});
}

}  // namespace spillway
