// The topology of a server as a text tree.
#pragma once

#include <cstdint>
#include <string>

#include "hwmodels/topology.hpp"

namespace spillway::cli {

/// Lines of at most 100 columns: the host above the links that lead to each GPU, NICs beside the GPUs that use them,
/// and what joins GPUs directly. Capacities are in GB/s, each with the kind of its source. `host`: what the tree calls
/// the DRAM at its root.
[[nodiscard]] std::string draw_topology(const hwmodels::Topology& topology, const std::string& host,
                                        std::int64_t servers);

}  // namespace spillway::cli
