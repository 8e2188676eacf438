#include "hwmodels/models/execution_models.hpp"

#include <fmt/format.h>

#include "hwmodels/models/fitted_model.hpp"
#include "hwmodels/models/logged_models.hpp"
#include "hwmodels/models/roofline.hpp"

namespace spillway::hwmodels {
namespace {

std::string percent(const ErrorSummary& error) {
  return fmt::format("{:.1f}% / {:.1f}% (n = {})", 100.0 * error.median, 100.0 * error.p95, error.n);
}

}  // namespace

std::string resolved_latency_model(const GpuProfile& gpu, const LlmModel& llm, const ExecutionSetting& setting) {
  if (setting.latency_model != "auto") return std::string(setting.latency_model);
  const FittedKernels& fitted = gpu.fitted;
  const bool tables = fitted.layers && missing_from(fitted.layers->model).empty() && setting.tensor_parallel == 1 &&
                      (fitted.layers->model.model.empty() || fitted.layers->model.model == llm.file.name);
  if (tables) return "tables";
  if (fitted.complete()) return "fitted";
  if (fitted.iteration) return "iterations";
  return "roofline";
}

std::unique_ptr<ExecutionModel> make_execution_model(const GpuProfile& gpu, const LlmModel& llm,
                                                     const EngineProfile& engine, const ExecutionSetting& setting) {
  const std::string name = resolved_latency_model(gpu, llm, setting);
  if (name == "fitted") return make_fitted_model(gpu, llm, engine, setting.tensor_parallel, setting.kv_dtype_bytes);
  if (name == "tables") return make_table_model(gpu, llm, engine, setting.tensor_parallel);
  if (name == "iterations") return make_iteration_model(gpu, llm, engine);
  return make_roofline(gpu, llm, engine, setting.tensor_parallel, setting.kv_dtype_bytes);
}

std::string validity_text(const GpuProfile& gpu, std::string_view latency_model) {
  const FittedKernels& fitted = gpu.fitted;
  if (latency_model == "tables") return "layer tables: " + percent(fitted.layers->record.held_out);
  if (latency_model == "iterations") return "logged iterations: " + percent(fitted.iteration->record.held_out);
  if (latency_model == "fitted") return gpu.fitted_from.empty() ? error_text(fitted) : gpu.file.error;
  std::string measured;
  for (const FitLine& line : fit_lines(fitted)) {
    if (!line.record->roofline || line.record->source_kind == "borrowed") continue;
    measured += fmt::format("{}{} {}", measured.empty() ? "" : ", ", line.op, percent(*line.record->roofline));
  }
  if (measured.empty()) return gpu.file.error;
  return "analytic model, median / p95 of |simulated/measured - 1|: " + measured;
}

}  // namespace spillway::hwmodels
