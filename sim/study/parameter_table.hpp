// Every key of a configuration.
#pragma once

#include <vector>

#include "sim/api/parameter.hpp"
#include "sim/study/parameter_table.hpp"

namespace spillway {

/// Every key except `policy.*`, with the names of models, hardware and workloads filled in.
[[nodiscard]] std::vector<Parameter> parameter_table();

}  // namespace spillway
