#include "hwmodels/engine_quantization.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace spillway::hwmodels {
namespace {

constexpr const char* kKey = "engine.quantization";

bool has_kernels(const GpuProfile& gpu, Quantization quantization) {
  return gpu.fitted.gemm_in(2, quantization) != nullptr;
}

/// The bundled GPUs with such kernels, the nearest first in the sum of |log ratios| of peak arithmetic and bandwidth.
std::vector<std::string> gpus_with(Quantization quantization, const GpuProfile& gpu) {
  std::vector<std::pair<double, std::string>> found;
  for (const std::string& name : gpu_names()) {
    const GpuProfile other = load_gpu(name);
    if (!has_kernels(other, quantization)) continue;
    const auto apart = [](double a, double b) { return a > 0.0 && b > 0.0 ? std::abs(std::log(a / b)) : 0.0; };
    found.emplace_back(
        apart(gpu.peak_flops, other.peak_flops) + apart(gpu.memory_bandwidth.value(), other.memory_bandwidth.value()),
        name);
  }
  std::ranges::stable_sort(found, {}, [](const auto& one) { return one.first; });
  std::vector<std::string> names(found.size());
  std::ranges::transform(found, names.begin(), [](const auto& one) { return one.second; });
  return names;
}

std::string stored_as(const QuantizedLinear& linear) {
  if (linear.kernel != Quantization::none) return std::string(format_of(linear.kernel).name);
  return fmt::format("{} of {} bits", linear.method, linear.bits);
}

}  // namespace

std::optional<Problem> apply_quantization(std::string_view wanted, const GpuProfile& gpu, LlmModel& llm) {
  if (wanted == "auto") return std::nullopt;
  const Quantization quantization = quantization_named(wanted).value();
  if (llm.quantized && llm.quantized->kernel != quantization) {
    return Problem{fmt::format("{} holds weights in {}, so they cannot be loaded as {}", llm.file.name,
                               stored_as(*llm.quantized), quantization == Quantization::none ? "16 bits" : wanted),
                   kKey, "use engine.quantization=auto, or the model's 16-bit file"};
  }
  if (quantization == Quantization::none) return std::nullopt;
  if (!has_kernels(gpu, quantization)) {
    const std::vector<std::string> others = gpus_with(quantization, gpu);
    return Problem{fmt::format("{} has no measured {} kernels", gpu.file.name, wanted), kKey,
                   others.empty()
                       ? "no bundled GPU has them: fit measured ones with calibrate fit"
                       : fmt::format("{} has them, the nearest of: {}", others.front(), fmt::join(others, ", "))};
  }
  if (llm.quantized) return std::nullopt;
  const QuantizationFormat& format = format_of(quantization);
  llm.quantized = QuantizedLinear{.method = std::string(format.name),
                                  .kernel = quantization,
                                  .bits = format.bits,
                                  .group_inputs = format.group_inputs,
                                  .group_outputs = format.group_outputs,
                                  .group_bits = format.group_bits,
                                  .split_inputs = format.group_inputs,
                                  .by_engine = true};
  return std::nullopt;
}

std::vector<std::string> quantization_warnings(const GpuProfile& gpu, const LlmModel& llm,
                                               std::int64_t kv_dtype_bytes) {
  std::vector<std::string> warnings;
  if (llm.quantized) {
    const bool measured = has_kernels(gpu, llm.quantized->kernel) && llm.quantized->kernel != Quantization::none;
    warnings.push_back(fmt::format(
        "the linear layers are in {}: answers may be worse than in 16 bits, which a simulation does not show{}",
        stored_as(*llm.quantized),
        measured
            ? std::string()
            : fmt::format(". {} has no measured kernels for them: they move fewer bytes, and are multiplied at the "
                          "speed of 16-bit weights",
                          gpu.file.name)));
  }
  if (kv_dtype_bytes < llm.dtype_bytes) {
    warnings.push_back(fmt::format(
        "the KV cache is in {} bits: answers may be worse than in {}, which a simulation does not show{}",
        8 * kv_dtype_bytes, 8 * llm.dtype_bytes,
        gpu.fitted.complete() && !gpu.fitted.decode_attention_fp8_kv
            ? fmt::format(
                  ". {} has no measured attention kernels for it: 16-bit kernels that read half the bytes stand "
                  "for them",
                  gpu.file.name)
            : std::string()));
  }
  return warnings;
}

}  // namespace spillway::hwmodels
