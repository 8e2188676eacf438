// Instances whose copies share links: who slows whom down, and by how much.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "sim/core/units.hpp"
#include "sim/engine/instance_config.hpp"
#include "sim/exec/links.hpp"

namespace spillway {

class Instance;

/// Instances that a chain of common links ties together. Instances are known by their positions.
using LinkGroup = std::vector<std::size_t>;

/// The groups of two or more, each in ascending order.
[[nodiscard]] std::vector<LinkGroup> link_groups(std::span<const InstanceConfig> instances);

/// Settles `members` at `now` and gives each of their transfers its share of the links. `links` holds the shared links
/// and nothing else, before and after. O(members * (members + links)).
void share_links(Links& links, std::span<Instance* const> members, SimTime now);

}  // namespace spillway
