// Keys of policies that keep KV in memory that other GPUs lend.
#pragma once

#include <string>

#include "sim/api/parameter.hpp"

namespace spillway {

inline constexpr const char* kSwapTierKey = "policy.swap_tier";
inline constexpr const char* kLenderPollKey = "policy.lender_poll";

/// `policy.swap_tier` with this default; `what`, a clause, says what goes there.
[[nodiscard]] inline Parameter swap_tier_parameter(const std::string& standard, const std::string& what) {
  return {.name = kSwapTierKey,
          .type = ParameterType::choice,
          .unit = "-",
          .default_value = standard,
          .choices = {"host", "peer"},
          .doc = what,
          .source = "AQUA, sections 4 and 7: its tensors are on a peer GPU, or else in DRAM"};
}

/// `policy.lender_poll`.
[[nodiscard]] inline Parameter lender_poll_parameter() {
  return {.name = kLenderPollKey,
          .type = ParameterType::duration,
          .unit = "ns",
          .default_value = "4s",
          .minimum = 0.0,
          .maximum = 3.6e12,
          .doc =
              "Minimum time between two checks whether lent memory is reclaimed, or offered again (memory.lender). The "
              "policy checks between iterations",
          .source = "aquaml/aqua (0ed7c15), dynamic_policy.py: 4 s"};
}

/// KV goes to memory that other GPUs lend, as long as they do.
[[nodiscard]] inline bool borrows_memory(const Settings& settings) {
  return settings.get<std::string>(kSwapTierKey) == "peer";
}

}  // namespace spillway
