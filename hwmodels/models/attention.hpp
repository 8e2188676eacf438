// Time of one attention call over paged KV: decodes, prefill chunks, or both in one launch.
//
// Given     H, KV, d         query and KV heads on the GPU, head dimension; G = H / KV          AttentionShape
//           E, K             bytes per element of activations and of the KV cache               AttentionShape
//           SM               streaming multiprocessors                                          both models
// Decode, of S sequences that attend to X tokens, the longest to x:
//           t0, h, B         launch, time per query head and sequence, bytes/s                  DecodeAttentionModel
//           f, c, g, r, p    start of a block, time per token, its growth with G, cost of a split, exponent
//   blocks(s)  = S KV s, for s = 1, 2, 4, ..., 128 splits of the KV sequence; only s = 1 when G = 1 and the kernel
//                splits only grouped heads
//   chain(s)   = max(1, blocks / SM) (f + (X / S) / s c') + (x - X / S) / s c' + [s > 1] r (1 + log2 s)
//                c' = c (1 + g G)
//   memory     = (2 X KV d K + 2 S H d E) / B
//   seconds    = (t0 + h S H + ((min over s of chain)^p + memory^p)^(1/p)) * residual(S, X / S; KV, G)
// Prefill, of chunks with c new tokens after x earlier ones:
//           t0, B, p         launch, bytes/s, exponent                                          PrefillAttentionModel
//           q, f, w          time of one 128 x 128 tile, start of a block, weight of the longest block
//   packed     : a block takes 128 rows of all query heads of a KV head (A = KV, rows = c G); else A = H, rows = c.
//                FlashAttention 3 packs every call. FlashAttention 2 packs calls in which each chunk has a single token
//                ("seqlenq_ngroups_swapped" in its varlen interface)
//   blocks     = A ceil(rows / 128);  last = (x + c) / 128;  mean = (x + c / 2) / 128
//   work       = sum over chunks of blocks (mean q + f) / SM
//   longest    = w max over chunks of (last q + f)
//   memory     = sum of (2 (x + c) KV d K + 2 c H d E) / B
//   seconds    = (t0 + p-norm of work, longest and memory) * residual(sequences, chunk; H, G)
//                chunk is the mean over tokens of their chunk's length, sequences = all new tokens / chunk
// Fused: decodes join the prefill launch as chunks of one token, unsplit, as in variable-length FlashAttention kernels.
// A mixed call then takes longer than two separate calls: in vLLM's kernels on RTX 4090 and RTX PRO 6000, the sum of
// two calls was 18-36% too low at the median (measurements of casys-kaist/LLMServingSim).
//
// q scales with d / 128. Sources of the forms: FlashAttention 2 (arXiv 2307.08691) sections 3.2-3.3, Flash-Decoding.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "hwmodels/models/gemm.hpp"
#include "hwmodels/models/residual_surface.hpp"
#include "sim/api/execution_model.hpp"

namespace spillway::hwmodels {

struct DecodeAttentionModel {
  std::int64_t sm_count = 0;
  double launch_seconds = 0.0;
  double head_seconds = 0.0;
  double bandwidth = 0.0;
  double block_seconds = 0.0;
  double token_seconds = 0.0;
  double group_growth = 0.0;
  double split_seconds = 0.0;
  double norm_exponent = 2.0;  // p, one of kNormExponents
  bool splits_grouped_heads_only = false;
  ResidualSurface residual;
};

struct PrefillAttentionModel {
  std::int64_t sm_count = 0;
  double launch_seconds = 0.0;
  double bandwidth = 0.0;
  double tile_seconds = 0.0;
  double block_seconds = 0.0;
  double longest_weight = 0.0;
  double norm_exponent = 2.0;  // p, one of kNormExponents
  bool packs_groups = false;   // in every call; false: only in calls whose chunks have one token each
  ResidualSurface residual;
};

/// The heads that one GPU computes.
struct AttentionShape {
  std::int64_t q_heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  double element_bytes = 2.0;
  double kv_element_bytes = 2.0;
};

[[nodiscard]] ResidualPoint decode_point(double sequences, double context, std::int64_t q_heads, std::int64_t kv_heads);
[[nodiscard]] ResidualPoint prefill_point(double sequences, double chunk, std::int64_t q_heads, std::int64_t kv_heads);

class DecodeAttentionTime {
 public:
  DecodeAttentionTime() = default;
  DecodeAttentionTime(const DecodeAttentionModel& model, const AttentionShape& shape);
  /// sequences >= 1, context >= sequences, longest >= context / sequences. O(1), below 100 ns.
  [[nodiscard]] KernelTime at(double sequences, double context, double longest) const;
  /// Without the residual.
  [[nodiscard]] KernelTime modelled(double sequences, double context, double longest) const;

 private:
  static constexpr std::size_t kSplitCounts = 8;  // 1, 2, 4, ..., 128

  double launch_ = 0.0;
  double heads_seconds_ = 0.0;  // per sequence
  double blocks_per_sm_ = 0.0;  // per sequence and split
  double block_seconds_ = 0.0;
  double token_seconds_ = 0.0;
  double kv_seconds_ = 0.0;     // per token of context
  double query_seconds_ = 0.0;  // per sequence
  double norm_exponent_ = 1.0;
  std::array<double, kSplitCounts>
      split_seconds_{};  // time to merge the splits; infinite for numbers of splits that the kernel does not use
  ResidualTable residual_;
};

class PrefillAttentionTime {
 public:
  PrefillAttentionTime() = default;
  PrefillAttentionTime(const PrefillAttentionModel& model, const AttentionShape& shape);
  /// Chunks of at least one new token each. `decodes` sequences in the same launch attend to `decode_context` tokens in
  /// total, the longest to `decode_longest`. O(chunks).
  [[nodiscard]] KernelTime at(std::span<const PrefillChunk> chunks, double decodes = 0.0, double decode_context = 0.0,
                              double decode_longest = 0.0) const;
  /// `sequences` equal chunks in one launch. O(1).
  [[nodiscard]] KernelTime equal(double sequences, const PrefillChunk& chunk) const;

 private:
  struct Work {
    double blocks_seconds = 0.0;
    double longest_seconds = 0.0;
    double memory_seconds = 0.0;
    double tokens = 0.0;
    double token_chunks = 0.0;  // sum of c^2
  };
  [[nodiscard]] KernelTime time_of(const Work& work) const;
  struct Packing {
    double blocks = 0.0;  // A / SM
    double rows_per_token = 1.0;
  };
  static Packing packing_of(const PrefillAttentionModel& model, const AttentionShape& shape, bool packs);
  void add(Work& work, double sequences, double fresh, double context, double longest_context,
           const Packing& packing) const;

  double launch_ = 0.0;
  Packing packing_;
  Packing single_tokens_;  // of a call whose chunks have one token each
  double tile_seconds_ = 0.0;
  double block_seconds_ = 0.0;
  double longest_weight_ = 0.0;
  double kv_seconds_ = 0.0;
  double query_seconds_ = 0.0;
  double norm_exponent_ = 1.0;
  ResidualTable residual_;
};

}  // namespace spillway::hwmodels
