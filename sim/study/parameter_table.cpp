#include "sim/study/parameter_table.hpp"

#include "hwmodels/catalog.hpp"
#include "sim/config/config.hpp"
#include "traces/workload.hpp"

namespace spillway {

std::vector<Parameter> parameter_table() {
  return config_parameters({hwmodels::llm_names(), hwmodels::hardware_names(), hwmodels::engine_names()},
                           traces::workload_parameters());
}

}  // namespace spillway
