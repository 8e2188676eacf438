// Kernels of a layer that only move data, and the bytes they move.
#pragma once

#include "hwmodels/catalog.hpp"
#include "hwmodels/numbers.hpp"

namespace spillway::hwmodels {

/// Per layer: norms with their residual sum, activation, KV write; a rotation; query and key norms.
struct ElementwiseWork {
  double kernels = 0.0;
  double bytes_per_token = 0.0;
};

/// `mlp_width`: of the layer's dense MLP or shared experts, all GPUs together; 0: none. Kernels of routed experts are
/// not counted.
[[nodiscard]] inline ElementwiseWork elementwise_work(const LlmModel& llm, std::int64_t tensor_parallel,
                                                      std::int64_t mlp_width) {
  const double query = real(llm.heads / tensor_parallel * llm.head_dim);
  // Latent attention caches one latent vector with its rotated key: as much as K and V of half its width.
  const double key =
      llm.latent ? 0.5 * real(llm.latent->kv_width()) : real(llm.kv_heads_per_gpu(tensor_parallel) * llm.head_dim);
  const double rotated = 2.0 * (query + key) * real(llm.rotated_dim()) / real(llm.head_dim);
  const double norms = real(llm.layer_norms);
  const bool qk_norm = llm.qk_norm != QkNorm::none;
  const double activated = (llm.gated_mlp ? 3.0 : 2.0) * real(mlp_width / tensor_parallel);
  const double normed = 4.0 * norms * real(llm.hidden) + (qk_norm ? 2.0 * (query + key) : 0.0);
  return {norms + (mlp_width > 0 ? 2.0 : 1.0) + (llm.rotated_dim() > 0 ? 1.0 : 0.0) + (qk_norm ? 2.0 : 0.0),
          real(llm.dtype_bytes) * (normed + rotated + activated + 4.0 * key)};
}

/// Of a layer with a dense MLP.
[[nodiscard]] inline ElementwiseWork elementwise_work(const LlmModel& llm, std::int64_t tensor_parallel) {
  return elementwise_work(llm, tensor_parallel, llm.ffn);
}

}  // namespace spillway::hwmodels
