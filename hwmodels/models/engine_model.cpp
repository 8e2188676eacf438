#include "hwmodels/models/engine_model.hpp"

#include <fmt/format.h>

#include "sim/core/error.hpp"

namespace spillway::hwmodels {

LayerKinds layer_kinds_of(const LlmModel& llm) {
  LayerKinds kinds{.of_layer = llm.kind_of_layer};
  for (const std::uint8_t kind : kinds.of_layer) ++kinds.layers[kind];
  return kinds;
}

LayerPlan layer_plan(const LlmModel& llm) {
  LayerPlan plan;
  for (const auto& [kind, count] : llm.counted_kinds()) {
    std::size_t body = 0;
    while (body < plan.bodies.size() && plan.bodies[body].routed != kind.routed) ++body;
    if (body == plan.bodies.size()) plan.bodies.push_back({.routed = kind.routed});
    plan.bodies[body].layers += count;
    plan.kinds.push_back({count, body, kind.window});
  }
  return plan;
}

void refuse_without_all_reduce(std::string_view gpu) {
  throw ConfigError(fmt::format("{} has no figures for all-reduce, which several GPUs need", gpu), "tensor_parallel",
                    "use tensor_parallel=1, or a profile with all_reduce_latency and all_reduce_bandwidth");
}

}  // namespace spillway::hwmodels
