// What engine.quantization makes of a model: vLLM's --quantization.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hwmodels/catalog.hpp"

namespace spillway::hwmodels {

/// Quantises the linear layers of `llm` as an engine does when it loads the weights; the LM head stays as it is.
///
/// `wanted` is auto, a name of kQuantizationFormats or one of gguf_type_names():
///   auto     nothing changes: the model is as its file says
///   none     the same, but the file must not hold quantised weights
///   others   the file must hold 16-bit weights, or weights that are quantised in this way, and `gpu` must have fitted
///            kernels of the format
///   GGUF     the file must hold 16-bit weights, in rows of whole blocks. No profile has kernels of llama.cpp's: the
///   GPU
///            reads the bytes of the type and multiplies at the speed of 16-bit weights. The LM head is of the file,
///            too
///
/// Returns the problem when the file or the GPU does not allow it; the GPU's problem names the GPU nearest in
/// arithmetic and bandwidth that has such kernels.
[[nodiscard]] std::optional<Problem> apply_quantization(std::string_view wanted, const GpuProfile& gpu, LlmModel& llm);

/// The kernels of the experts of `llm`, in the format of their weights, among those whose name holds `kernel`; null:
/// `gpu` has none. `llm` has experts.
[[nodiscard]] const FittedMoe* expert_kernels(const GpuProfile& gpu, const LlmModel& llm,
                                              const Parallelism& parallelism, std::string_view kernel);
[[nodiscard]] MoeShape expert_shape(const LlmModel& llm, const Parallelism& parallelism);
/// That there are none: which formats `gpu` has, and which GPU has this one; or which kernels of the format it has,
/// none of which has `kernel` in its name.
[[nodiscard]] Problem no_expert_kernels(const GpuProfile& gpu, const LlmModel& llm, std::string_view kernel);

/// The errors of what a fitted profile computes for this model beside the kernels of all models: "MoE kernels 5.2% /
/// 20.5% (n = 2592), ...; ". Empty for dense models without latent attention.
[[nodiscard]] std::string validity_of_parts(const GpuProfile& gpu, const LlmModel& llm, const Parallelism& parallelism,
                                            std::string_view kernel);

/// How linear layers are stored: "16 bits", "fp8_block", "gptq of 8 bits".
[[nodiscard]] std::string stored_format(const LlmModel& llm);

/// What a result must say of weights and KV cache in fewer bits: the quality of answers is not simulated. Empty when
/// there is nothing to say.
[[nodiscard]] std::vector<std::string> quantization_warnings(const GpuProfile& gpu, const LlmModel& llm,
                                                             std::int64_t kv_dtype_bytes);

}  // namespace spillway::hwmodels
