// A topology of the user's own, which replaces that of a server.
#pragma once

#include <cstdint>
#include <string>

#include "hwmodels/data_file.hpp"
#include "hwmodels/topology.hpp"

namespace spillway::hwmodels {

struct TopologyFile {
  DataFile file;
  Topology topology;
};

/// Loads a file of kind "topology", whose section "topology" has the form of a server's, for a server of `gpus` GPUs
/// (0: any number). Throws DataError with every problem.
[[nodiscard]] TopologyFile load_topology(const std::string& path, std::int64_t gpus);

}  // namespace spillway::hwmodels
