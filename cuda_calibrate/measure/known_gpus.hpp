// Facts of machines that are not at hand, for plans.
#pragma once

#include <string_view>

#include "cuda_calibrate/measure/backend.hpp"

namespace spillway::calibrate {

/// What a machine of this kind would say of itself, as far as a plan asks: a GPU or a server of hwmodels/, by name or
/// file. Memory, SMs and L2 are the profile's; compute capability and PCIe generation are from a table by the GPU's
/// name; a server's profile says how many GPUs there are and what the host has, else one GPU stands in `host`, the
/// machine at hand. Throws ConfigError for a GPU that is not in the table, and as hwmodels::load_hardware().
[[nodiscard]] MachineFacts assumed_facts(std::string_view name_or_file, const HostFacts& host);

}  // namespace spillway::calibrate
