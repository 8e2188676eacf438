// Facts of other machines than this one, for plans.
#pragma once

#include <string_view>

#include "cuda_calibrate/measure/backend.hpp"

namespace spillway::calibrate {

/// The facts that a plan needs about a machine of this kind: a GPU or server of hwmodels/, by name or file. Memory, SMs
/// and L2 are from the profile; compute capability and PCIe generation are from a table by GPU name. A server's profile
/// states the number of GPUs and the host. A GPU's profile means one GPU in `host`, this machine. Throws ConfigError
/// for a GPU that is not in the table, and the errors of hwmodels::load_hardware().
[[nodiscard]] MachineFacts assumed_facts(std::string_view name_or_file, const HostFacts& host);

}  // namespace spillway::calibrate
