// The section "topology" of a server's file, and files that hold nothing else.
#pragma once

#include <cstdint>
#include <string_view>

#include "hwmodels/data_file.hpp"
#include "hwmodels/field_reader.hpp"
#include "hwmodels/topology.hpp"

namespace spillway::hwmodels {

inline constexpr std::string_view kTopologySection = "topology";

/// Reads the section, which states `gpus` GPUs (0: any number):
///
///   {"links": [{"names": ["pcie-switch-0", "pcie-switch-1"], "kind": "pcie-switch",
///               "in": {value, unit, source}, "out": ..., "both": ...}, ...],
///    "gpus": [{"host": ["pcie-switch-0", "host-dram"], "peer": [], "network": []}, ...]}
///
/// Links with the same figures are stated together. A figure that is null or left out is no limit. A GPU without
/// "peer" or "network" has no such links. Every problem goes to the reader: a link that is not there, a name twice,
/// a capacity that is not above 0, another number of GPUs. A link that no GPU crosses is a warning.
[[nodiscard]] Topology read_topology(FieldReader& in, std::int64_t gpus);

}  // namespace spillway::hwmodels
