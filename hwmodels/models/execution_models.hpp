// The execution models by name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "hwmodels/catalog.hpp"
#include "sim/api/execution_model.hpp"
#include "sim/api/op_scales.hpp"

namespace spillway::hwmodels {

/// Which model, and for what. `latency_model` is one of
///   fitted      kernels of the profile, with the error on what was held out (fitted_model.hpp)
///   tables      an engine's measured layers of one model (logged_models.hpp)
///   iterations  a line through an engine's logged iterations (logged_models.hpp)
///   roofline    datasheet figures and efficiencies (roofline.hpp)
///   auto        tables when the profile names them as this model's and tensor_parallel=1, else fitted, else iterations
///               on the same terms, else roofline
struct ExecutionSetting {
  std::string_view latency_model = "auto";
  std::int64_t tensor_parallel = 1;
  std::int64_t kv_dtype_bytes = 2;
  OpScales scales{};  // on the times that the model would give otherwise
};

/// Which of the models auto stands for here; other names stand for themselves.
[[nodiscard]] std::string resolved_latency_model(const GpuProfile& gpu, const LlmModel& llm,
                                                 const ExecutionSetting& setting);

/// Throws ConfigError as the model's own factory does.
[[nodiscard]] std::unique_ptr<ExecutionModel> make_execution_model(const GpuProfile& gpu, const LlmModel& llm,
                                                                   const EngineProfile& engine,
                                                                   const ExecutionSetting& setting);

/// How far results of this model may be off, for the result's validity.
[[nodiscard]] std::string validity_text(const GpuProfile& gpu, std::string_view latency_model);

}  // namespace spillway::hwmodels
