#include "sim/study/parameter_table.hpp"

#include "hwmodels/catalog.hpp"
#include "hwmodels/external_names.hpp"
#include "sim/config/config.hpp"
#include "traces/workload.hpp"

namespace spillway {

std::vector<Parameter> parameter_table() {
  return config_parameters(
      {.models = hwmodels::llm_names(),
       .hardware = hwmodels::hardware_names(),
       .engines = hwmodels::engine_names(),
       .accepts_model = [](std::string_view name) { return hwmodels::llm_of_hub_id(name).has_value(); },
       .advice_on_model = hwmodels::advice_on_hub_id,
       .hardware_known_elsewhere = [](std::string_view name) { return hwmodels::gpu_of_device(name).value_or(""); },
       .advice_on_hardware = hwmodels::advice_on_gpu},
      traces::workload_parameters());
}

}  // namespace spillway
