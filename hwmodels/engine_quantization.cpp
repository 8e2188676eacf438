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

bool has_gemm(const GpuProfile& gpu, Quantization quantization) {
  return gpu.fitted.gemm_in(2, quantization) != nullptr;
}

bool has_experts(const GpuProfile& gpu, Quantization quantization) {
  return std::ranges::any_of(gpu.fitted.moe,
                             [&](const FittedMoe& moe) { return moe.model.quantization == quantization; });
}

/// Whether some linear layers of the model have kernels of the format.
bool has_kernels(const GpuProfile& gpu, const LlmModel& llm, Quantization quantization) {
  return llm.experts ? has_experts(gpu, quantization) : has_gemm(gpu, quantization);
}

/// The bundled GPUs with such kernels, the nearest first in the sum of |log ratios| of peak arithmetic and bandwidth.
std::vector<std::string> gpus_with(Quantization quantization, const LlmModel& llm, const GpuProfile& gpu) {
  std::vector<std::pair<double, std::string>> found;
  for (const std::string& name : gpu_names()) {
    const GpuProfile other = load_gpu(name);
    if (!has_kernels(other, llm, quantization)) continue;
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

/// "b200-180gb has them", "h100-80gb-sxm has them, the nearest of: h100-80gb-sxm, b200-180gb"; `others`: gpus_with().
std::string who_has_them(const std::vector<std::string>& others) {
  return others.size() == 1
             ? others.front() + " has them"
             : fmt::format("{} has them, the most similar of these GPUs: {}", others.front(), fmt::join(others, ", "));
}

/// "it has 16 bits, fp8": the formats of whose kernels `gpu` has measurements; empty: none.
std::string formats_of(const GpuProfile& gpu, const LlmModel& llm) {
  std::vector<std::string> measured;
  for (const QuantizationFormat& one : kQuantizationFormats) {
    if (has_kernels(gpu, llm, one.quantization)) {
      measured.emplace_back(one.quantization == Quantization::none ? "16 bits" : one.name);
    }
  }
  return measured.empty() ? std::string() : fmt::format("it has {}; ", fmt::join(measured, ", "));
}

std::string stored_as(const QuantizedLinear& linear) {
  if (linear.gguf) return fmt::format("GGUF {}", linear.method);
  if (linear.kernel != Quantization::none) return std::string(format_of(linear.kernel).name);
  return fmt::format("{} of {} bits", linear.method, linear.bits);
}

}  // namespace

namespace {

/// Weights as a GGUF file holds them, which 16-bit kernels multiply.
std::optional<Problem> apply_gguf(std::string_view type, LlmModel& llm) {
  if (llm.quantized) {
    return Problem{fmt::format("{} holds weights in {}, so they cannot be loaded as {}", llm.file.name,
                               stored_as(*llm.quantized), type),
                   kKey, "use engine.quantization=auto, or the model's 16-bit file"};
  }
  const std::int64_t block = gguf_block_weights(type);
  const std::int64_t expert_width = llm.experts ? llm.experts->width : 0;
  for (const std::int64_t row : {llm.hidden, llm.ffn, expert_width}) {
    if (row % block == 0) continue;
    return Problem{
        fmt::format("{} has rows of {} weights, which blocks of {} cannot divide: a block has {}", llm.file.name, row,
                    type, block),
        kKey,
        block > 32 && row % 32 == 0 ? "use a type with blocks of 32: q4_0, q5_0, q8_0 or mxfp4_moe" : "leave it out"};
  }
  GgufLayers layers{.layers = llm.layers, .routed = {}, .matrices = llm.gated_mlp ? 3 : 2};
  for (std::int64_t layer = 0; layer < llm.layers; ++layer) {
    const auto at = static_cast<std::size_t>(layer);
    layers.routed.push_back(llm.kinds.empty() ? llm.experts.has_value() : llm.kinds[llm.kind_of_layer[at]].routed);
  }
  llm.quantized = QuantizedLinear{.method = std::string(type),
                                  .split_inputs = block,
                                  .by_engine = true,
                                  .head = true,
                                  .gguf = gguf_bits(type, layers)};
  return std::nullopt;
}

}  // namespace

std::optional<Problem> apply_quantization(std::string_view wanted, const GpuProfile& gpu, LlmModel& llm) {
  if (wanted == "auto") return std::nullopt;
  if (gguf_block_weights(wanted) > 0) return apply_gguf(wanted, llm);
  const Quantization quantization = quantization_named(wanted).value();
  if (llm.quantized && llm.quantized->kernel != quantization) {
    return Problem{fmt::format("{} holds weights in {}, so they cannot be loaded as {}", llm.file.name,
                               stored_as(*llm.quantized), quantization == Quantization::none ? "16 bits" : wanted),
                   kKey, "use engine.quantization=auto, or the model's 16-bit file"};
  }
  if (quantization == Quantization::none) return std::nullopt;
  if (!has_kernels(gpu, llm, quantization)) {
    const std::vector<std::string> others = gpus_with(quantization, llm, gpu);
    return Problem{
        fmt::format("{} has no measured {} kernels{}", gpu.file.name, wanted, llm.experts ? " of experts" : ""), kKey,
        formats_of(gpu, llm) +
            (others.empty() ? "no bundled GPU has them: fit measured ones with calibrate fit" : who_has_them(others))};
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
                                  .by_engine = true,
                                  .attention = has_gemm(gpu, quantization),
                                  .mlp = has_gemm(gpu, quantization)};
  return std::nullopt;
}

MoeShape expert_shape(const LlmModel& llm, const Parallelism& parallelism) {
  return {.hidden = llm.hidden,
          .width = llm.expert_width_per_gpu(parallelism),
          .top_k = llm.experts->top_k,
          .experts = llm.experts->count,
          .expert_parallel = parallelism.expert,
          .matrices = llm.gated_mlp ? 3 : 2};
}

const FittedMoe* expert_kernels(const GpuProfile& gpu, const LlmModel& llm, const Parallelism& parallelism,
                                std::string_view kernel) {
  const Quantization format = llm.quantized ? llm.quantized->kernel : Quantization::none;
  // Formats without kernels of their own are multiplied by 16-bit kernels, which dequantise them.
  const bool dequantised = llm.quantized && format == Quantization::none;
  return dequantised ? nullptr : gpu.fitted.moe_for(format, expert_shape(llm, parallelism), kernel);
}

Problem no_expert_kernels(const GpuProfile& gpu, const LlmModel& llm, std::string_view kernel) {
  const Quantization format = llm.quantized ? llm.quantized->kernel : Quantization::none;
  if (!kernel.empty() && has_experts(gpu, format)) {
    std::vector<std::string> names;
    for (const FittedMoe& moe : gpu.fitted.moe) {
      if (moe.model.quantization == format) names.push_back(moe.kernel);
    }
    return {fmt::format("no MoE kernel of {} in this format has \"{}\" in its name", gpu.file.name, kernel),
            "engine.moe_kernel", fmt::format("known: {}", fmt::join(names, ", "))};
  }
  const std::string wanted = stored_format(llm);
  const std::vector<std::string> others = gpus_with(format, llm, gpu);
  return {fmt::format("{} has no measured kernels for experts in {}, in which {} holds them", gpu.file.name, wanted,
                      llm.file.name),
          "latency_model",
          fmt::format("{}{}use latency_model=roofline, which takes datasheet figures, or fit a table of MoE kernels "
                      "with calibrate fit",
                      formats_of(gpu, llm), others.empty() ? std::string() : who_has_them(others) + "; ")};
}

std::string validity_of_parts(const GpuProfile& gpu, const LlmModel& llm, const Parallelism& parallelism,
                              std::string_view kernel) {
  std::string text;
  const FittedMoe* experts = llm.experts ? expert_kernels(gpu, llm, parallelism, kernel) : nullptr;
  if (experts != nullptr) {
    const ErrorSummary& error = experts->record.held_out;
    text += error.n == 0
                ? std::string("MoE kernels: no row was held out")
                : fmt::format("MoE kernels {:.1f}% / {:.1f}% (n = {}{})", 100.0 * error.median, 100.0 * error.p95,
                              error.n, experts->record.source_kind == "borrowed" ? ", of the lender" : "");
    text += "; whole servers with experts: experiments/moe; ";
  }
  if (llm.latent) text += "latent attention: not measured; ";
  return text;
}

std::string stored_format(const LlmModel& llm) { return llm.quantized ? stored_as(*llm.quantized) : "16 bits"; }

std::vector<std::string> quantization_warnings(const GpuProfile& gpu, const LlmModel& llm,
                                               std::int64_t kv_dtype_bytes) {
  std::vector<std::string> warnings;
  if (llm.quantized) {
    const QuantizedLinear& linear = *llm.quantized;
    const bool gemm = !(linear.attention || linear.mlp) || has_gemm(gpu, linear.kernel);
    const bool measured =
        linear.kernel != Quantization::none && gemm && (!llm.experts || has_experts(gpu, linear.kernel));
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
