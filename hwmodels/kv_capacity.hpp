// How many KV-cache blocks a GPU holds, computed as vLLM sizes its cache.
//
//   available = memory * utilisation - weights - activations - non_torch;  blocks = floor(available / block_bytes)
//   weights     = the model's share per GPU, and the table of a rotary embedding (max_positions * rotated_dim)
//   activations = the peak of the profiling run, max(forward, sampler), where T = max_num_batched_tokens
//     forward   = T E (copies * hidden + (g + 1) ffn / tensor_parallel), g = 2 with a gated MLP, else 1: the residual
//                 stream, the MLP's input and its intermediates, which exceed those of attention in all known models
//     sampler   = T E hidden + min(max_num_seqs, T) * vocabulary * bytes_per_logit: the last hidden states, the logits
//                 and what sorting them for top-k and top-p takes
//     with experts, forward = T E (copies * hidden + k (max(g w, hidden) + w)): rows of k experts per token, of width w
//                 on the GPU, before and after the activation (vLLM's fused_moe workspaces), where that is more
//                 Of T, a data-parallel group has its share.
//   non_torch   = memory outside PyTorch's allocator, which vLLM subtracts; more with tensor parallelism
// E is the bytes per activation, dtype_bytes; copies, bytes_per_logit and non_torch come from the EngineProfile, where
// all are "assumed".
//
// Check: vLLM 0.19.0, Llama-3.1-8B, RTX 4090 of 25,250,627,584 bytes, utilisation 0.9, T = 2048, 256 sequences. The
// rule gives 2,511 blocks of 16 tokens, the engine reported 2,588 (casys-kaist/LLMServingSim engine log): -3.0%.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "hwmodels/catalog.hpp"
#include "sim/core/error.hpp"
#include "sim/core/units.hpp"

namespace spillway::hwmodels {

/// Bytes per element of the KV cache; `kv_dtype` is a value of memory.kv_dtype.
[[nodiscard]] std::int64_t kv_dtype_bytes(const std::string& kv_dtype, const LlmModel& llm);

/// Settings that the engine is started with.
struct KvSettings {
  Parallelism parallelism{};
  double gpu_memory_utilization = 0.9;
  Tokens max_num_batched_tokens{2048};
  std::int64_t max_num_seqs = 256;
  Tokens block_tokens{16};
  std::int64_t kv_dtype_bytes = 2;
  std::int64_t most_tensor_parallel = 16;  // GPUs of the server: the largest degree that messages suggest
};

/// Every term, per GPU.
struct KvCapacity {
  Bytes memory{};  // 0: unknown, and then budget, available and blocks mean nothing
  Bytes budget{};  // memory * utilisation, whole bytes
  Bytes weights{};
  Bytes activations{};
  Bytes non_torch{};
  Bytes available{};  // negative when the model does not fit
  Bytes block_bytes{};
  Blocks blocks{};  // 0 when not even one fits
};

/// Throws ConfigError when a setting is out of range or the parallelism does not split the model.
[[nodiscard]] KvCapacity kv_capacity(const GpuProfile& gpu, const LlmModel& llm, const EngineProfile& engine,
                                     const KvSettings& settings);

/// Like kv_capacity, but also throws ConfigError when the profile does not state the memory, and when no block fits.
/// The message then says how much memory is missing, and which tensor_parallel of 2, 4, 8 and 16, within
/// most_tensor_parallel, is the smallest that fits, if any.
[[nodiscard]] KvCapacity fitting_kv_capacity(const GpuProfile& gpu, const LlmModel& llm, const EngineProfile& engine,
                                             const KvSettings& settings);

/// The terms on one line: "budget 76.52 GB - weights 16.09 GB - ...".
[[nodiscard]] std::string kv_terms(const KvCapacity& capacity);

/// The warning for every result whose block count was computed instead of measured.
[[nodiscard]] std::string kv_estimate_warning(const KvCapacity& capacity, const EngineProfile& engine);

}  // namespace spillway::hwmodels
