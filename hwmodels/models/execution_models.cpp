#include "hwmodels/models/execution_models.hpp"

#include <fmt/format.h>

#include "hwmodels/models/fitted_model.hpp"
#include "hwmodels/models/logged_models.hpp"
#include "hwmodels/models/roofline.hpp"

namespace spillway::hwmodels {
namespace {

std::string percent(const ErrorSummary& error) {
  if (error.n == 0) return "no row was held out";
  return fmt::format("{:.1f}% / {:.1f}% (n = {})", 100.0 * error.median, 100.0 * error.p95, error.n);
}

}  // namespace

std::string resolved_latency_model(const GpuProfile& gpu, const LlmModel& llm, const ExecutionSetting& setting) {
  if (setting.latency_model != "auto") return std::string(setting.latency_model);
  const FittedKernels& fitted = gpu.fitted;
  // Tables and logs are of one model and one GPU. Without a stated model they are used only on request.
  if (!table_model_problem(gpu, llm, setting.parallelism.gpus()) && !fitted.layers->model.model.empty())
    return "tables";
  if (fitted.complete()) return "fitted";
  if (fitted.iteration && fitted.iteration->model.model == llm.file.name && setting.parallelism.gpus() == 1) {
    return "iterations";
  }
  return "roofline";
}

std::unique_ptr<ExecutionModel> make_execution_model(const GpuProfile& gpu, const LlmModel& llm,
                                                     const EngineProfile& engine, const ExecutionSetting& setting) {
  const std::string name = resolved_latency_model(gpu, llm, setting);
  if (name == "fitted")
    return make_fitted_model(gpu, llm, engine, setting.parallelism, setting.kv_dtype_bytes, setting.scales,
                             setting.experts);
  if (name == "tables") return make_table_model(gpu, llm, engine, setting.parallelism.gpus(), setting.scales);
  if (name == "iterations") return make_iteration_model(gpu, llm, engine, setting.scales);
  return make_roofline(gpu, llm, engine, setting.parallelism, setting.kv_dtype_bytes, setting.scales, setting.experts);
}

namespace {

/// The error of what the latency model takes from the profile.
std::string own_validity(const GpuProfile& gpu, std::string_view latency_model) {
  const FittedKernels& fitted = gpu.fitted;
  const auto of_model = [](const std::string& model) {
    return model.empty() ? " of an unstated model" : " of " + model;
  };
  if (latency_model == "tables") {
    const FitRecord& record = fitted.layers->record;
    std::string text = fmt::format("layer tables{}: {} ({})", of_model(fitted.layers->model.model),
                                   percent(record.held_out), record.held_out_by);
    if (fitted.layer_attention) {
      text += fmt::format("; attention: {} ({})", percent(fitted.layer_attention->held_out),
                          fitted.layer_attention->held_out_by);
    }
    return text;
  }
  if (latency_model == "iterations") {
    return fmt::format("logged iterations{}: {}", of_model(fitted.iteration->model.model),
                       percent(fitted.iteration->record.held_out));
  }
  if (latency_model == "fitted") return gpu.fitted_from.empty() ? error_text(fitted) : gpu.file.error;
  std::string measured;
  for (const FitLine& line : fit_lines(fitted)) {
    if (!line.record->roofline || line.record->roofline->n == 0 || line.record->source_kind == "borrowed") continue;
    measured += fmt::format("{}{} {}", measured.empty() ? "" : ", ", line.op, percent(*line.record->roofline));
  }
  // The file's own error statement is about its fits where it has fits, else about the analytic model.
  if (measured.empty() && fitted.empty()) return gpu.file.error;
  if (measured.empty()) return "analytic model, uncalibrated, +-30%: not compared with any kernel of this GPU";
  return "analytic model, median / p95 of |simulated/measured - 1|: " + measured;
}

}  // namespace

std::string validity_text(const GpuProfile& gpu, std::string_view latency_model) {
  return (gpu.borrowed ? borrowed_text(*gpu.borrowed) + "; " : "") + own_validity(gpu, latency_model);
}

}  // namespace spillway::hwmodels
