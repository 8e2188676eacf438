// Time of multi-head latent attention: a roofline. No kernel of it is measured.
//
// Given     H                  heads on the GPU                                                     LatentAttention
//           c, r, u, v         widths of the latent vector, the rotated key, the rest of a key, a value
//           K                  bytes per element of the KV cache
//           P, B, t            FLOP/s and bytes/s that attention reaches, overhead of a call            GpuProfile
// Decode, of S sequences that attend to X tokens: every head attends over the latent vectors themselves
//   seconds  = t + max(2 H X (2 c + r) / P, X (c + r) K / B)
//              Scores over c + r elements, sums over c. Both expansions act on queries and outputs instead, at the cost
//              of the matrix kv_rank -> H (u + v), which counts as a GEMM of the layer.
// Prefill, of chunks with n new tokens after x earlier ones and p pairs: keys and values are expanded, those of earlier
// tokens again
//   seconds  = t + sum of max((2 H p (u + r + v) + 2 x c H (u + v)) / P, (x + n) (c + r) K / B)
// Sources of the forms: DeepSeek-V2 (arXiv 2405.04434), 2.1 and appendix C; vLLM's MLA backends.
#pragma once

#include <algorithm>
#include <cstdint>

#include "hwmodels/llm_model.hpp"
#include "hwmodels/models/gemm.hpp"
#include "hwmodels/models/layer_batch.hpp"

namespace spillway::hwmodels {

struct LatentAttentionModel {
  double flops = 0.0;
  double bandwidth = 0.0;
  double overhead_seconds = 0.0;
};

class LatentAttentionTime {
 public:
  LatentAttentionTime() = default;
  LatentAttentionTime(const LatentAttentionModel& model, const LatentAttention& latent, std::int64_t heads,
                      std::int64_t kv_dtype_bytes)
      : overhead_(model.overhead_seconds),
        kv_seconds_(static_cast<double>(latent.kv_width() * kv_dtype_bytes) / model.bandwidth),
        decode_seconds_(static_cast<double>(2 * heads * (2 * latent.kv_rank + latent.rotated)) / model.flops),
        pair_seconds_(static_cast<double>(2 * heads * (latent.query_width() + latent.value)) / model.flops),
        expand_seconds_(static_cast<double>(2 * latent.kv_rank * heads * (latent.unrotated + latent.value)) /
                        model.flops) {}

  [[nodiscard]] KernelTime decode(const DecodeReach& reach) const {
    const double compute = reach.context * decode_seconds_;
    const double memory = reach.context * kv_seconds_;
    return {overhead_ + std::max(compute, memory), compute > memory};
  }
  /// At least one chunk. O(chunks).
  [[nodiscard]] KernelTime prefill(std::span<const PrefillChunk> chunks) const {
    double seconds = overhead_;
    double computing = 0.0;
    for (const PrefillChunk& chunk : chunks) {
      const auto context = static_cast<double>(chunk.context.count());
      const double compute = attended_pairs(chunk, 0) * pair_seconds_ + context * expand_seconds_;
      const double memory = (context + static_cast<double>(chunk.new_tokens.count())) * kv_seconds_;
      seconds += std::max(compute, memory);
      computing += compute > memory ? compute : 0.0;
    }
    return {seconds, 2.0 * computing > seconds};
  }

 private:
  double overhead_ = 0.0;
  double kv_seconds_ = 0.0;      // per token
  double decode_seconds_ = 0.0;  // per token
  double pair_seconds_ = 0.0;
  double expand_seconds_ = 0.0;  // per earlier token
};

}  // namespace spillway::hwmodels
