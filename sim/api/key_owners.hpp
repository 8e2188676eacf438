// Which choices bring keys with them, for whoever lists or reads the keys of a configuration.
#pragma once

#include <vector>

#include "sim/api/registry.hpp"

namespace spillway {

/// The key that chooses the router.
inline constexpr const char* kRouterKey = "router";

/// Every choice that brings keys: all policies, the policies that may stream weights beside another, all routers.
[[nodiscard]] std::vector<KeyOwner> key_owners();

}  // namespace spillway
