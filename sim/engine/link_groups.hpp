// Instances whose copies share links: whom they tie together.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "sim/core/units.hpp"
#include "sim/engine/instance_config.hpp"

namespace spillway {

/// Instances that a chain of common links ties together, or one that shares its links with no other, and all links that
/// they cross. Both are positions, in ascending order.
struct LinkGroup {
  std::vector<std::size_t> instances;
  std::vector<std::size_t> links;
};

/// Every instance that crosses a link is in one group. Groups are in the order of their first instances. O(n log n) in
/// the number of crossings.
[[nodiscard]] std::vector<LinkGroup> link_groups(std::span<const InstanceConfig> instances);

/// Where the copies of each instance to its GPUs meet those of others. Of the links that several instances cross, it is
/// the one that carries the least for each GPU, and of equal links the first. Empty: the instance has the way to its
/// GPUs for itself. `routes` are those of the instances over `links`. O(n log n) in the number of crossings.
[[nodiscard]] std::vector<std::optional<LinkCrossing>> shared_buses(std::span<const CopyRoute* const> routes,
                                                                    std::span<const BytesPerSecond> links);

/// The route with positions in `links`, which holds all its links in ascending order.
[[nodiscard]] CopyRoute route_within(CopyRoute route, std::span<const std::size_t> links);

}  // namespace spillway
