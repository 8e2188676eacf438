// The execution models by name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "hwmodels/catalog.hpp"
#include "hwmodels/models/layer_exchange.hpp"
#include "sim/api/execution_model.hpp"
#include "sim/api/op_scales.hpp"

namespace spillway::hwmodels {

/// Which execution model, and its parameters. `latency_model` is one of
///   fitted      kernels of the profile, each with its held-out error (fitted_model.hpp)
///   tables      an engine's measured layers of one model (logged_models.hpp)
///   iterations  a line through an engine's logged iterations (logged_models.hpp)
///   roofline    datasheet figures and efficiencies (roofline.hpp)
///   auto        the first that the profile has: tables of this model (tensor_parallel=1), fitted, iterations of this
///               model (tensor_parallel=1), roofline
struct ExecutionSetting {
  std::string_view latency_model = "auto";
  Parallelism parallelism{};
  std::int64_t kv_dtype_bytes = 2;
  OpScales scales{};  // factors on the model's times
  ExpertSetting experts{};
};

/// The model that auto selects; any other name is returned unchanged.
[[nodiscard]] std::string resolved_latency_model(const GpuProfile& gpu, const LlmModel& llm,
                                                 const ExecutionSetting& setting);

/// Throws ConfigError as the model's own factory does.
[[nodiscard]] std::unique_ptr<ExecutionModel> make_execution_model(const GpuProfile& gpu, const LlmModel& llm,
                                                                   const EngineProfile& engine,
                                                                   const ExecutionSetting& setting);

/// How far results of this model may be off, for the result's validity.
[[nodiscard]] std::string validity_text(const GpuProfile& gpu, std::string_view latency_model);

}  // namespace spillway::hwmodels
