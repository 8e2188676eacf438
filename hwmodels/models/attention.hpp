// Time of one attention call over paged KV: decodes, prefill chunks, or both in one launch.
//
// Given     H, KV, d         query and KV heads on the GPU, head dimension; G = H / KV          AttentionShape
//           E, K             bytes per element of activations and of the KV cache               AttentionShape
//           SM               streaming multiprocessors                                          both models
// Decode, of S sequences that attend to X tokens, the longest to x:
//           t0, k            launch, its growth with each KV head                               DecodeAttentionModel
//           h, B             time per query head and sequence, bytes/s
//           f, c, g, r, p    start of a block, time per token, its growth with G, cost of a split, exponent
//   blocks(s)  = S KV s, for s = 1, 2, 4, ..., 128 splits of the KV sequence; only s = 1 when G = 1 and the kernel
//                splits only grouped heads
//   chain(s)   = max(1, blocks / SM) (f + (X / S) / s c') + (x - X / S) / s c' + [s > 1] r (1 + log2 s)
//                c' = c (1 + g G)
//   memory     = (2 X KV d K + 2 S H d E) / B
//   seconds    = (t0 + k KV + h S H + ((min over s of chain)^p + memory^p)^(1/p)) * residual(S, X / S; KV, G)
// A call of a single token per sequence, without earlier ones, is a decode too. Where decodes were measured up to 8 KV
// heads, the residual has more heads from such calls in the table of prefills, and so has k, from those whose blocks
// all run at once: on a B200 a decode of one sequence takes 9 us in 12 heads and 17 us in 96, whether it has 2 tokens
// or 512. So fitted on the B200 of ai-dynamo/aiconfigurator 095f58a, held-out decodes of 12, 24, 48 and 96 KV heads
// (multi-head, head dimension 128) are 5.4% / 26.7% off (median / p95; 536 calls in bf16) and 4.6% / 16.3% with KV in
// fp8; without k 5.8% / 29.1% and 5.0% / 21.0%, without the single tokens 7.2% / 31.6% and 7.9% / 30.8%. In bf16 the
// same bytes take one of two times there, 1.36 apart, without a pattern: 1.6 GB take 302 us in 24 heads and 234 us in
// 48. In fp8 they take one time.
//
// Prefill, of chunks with c new tokens after x earlier ones:
//           t0, B, p         launch, bytes/s, exponent                                          PrefillAttentionModel
//           q, f, w          time of one 128 x 128 tile, start of a block, weight of the longest block
//           q'               time of one such tile of earlier tokens; q where no call had any
//           u                time in which 512 threads write the keys and values of one token
//   packed     : a block takes 128 rows of all query heads of a KV head (A = KV, rows = c G); else A = H, rows = c.
//                FlashAttention 3 packs every call. FlashAttention 2 packs calls in which each chunk has a single token
//                ("seqlenq_ngroups_swapped" in its varlen interface)
//   blocks     = A ceil(rows / 128);  last = c / 128;  mean = c / 2 / 128
//   work       = sum over chunks of blocks (mean q + f) / SM
//   longest    = w max over chunks of (last q + f)
//   memory     = sum of (2 c KV d K + 2 c H d E) / B
//   write      = sum of c ((u min(1, KV d / 512))^2 + (2 KV d (E + K) / B)^2)^(1/2)
//                vLLM's reshape_and_cache_flash writes keys and values to the cache before the call, with a block of
//                min(KV d, 512) threads for each new token. The threads of a GPU limit it first, then its memory.
//   fresh      = (t0 + p-norm of work, longest and memory + write) * residual(sequences, chunk; H, G)
//                chunk is the mean over tokens of their chunk's length, sequences = all new tokens / chunk
//   behind     : every block also passes over the x earlier tokens, whole waves of blocks one after the other. A block
//                has R rows: 128 if packed in every call; 64 in FlashAttention 2, whose kernels for paged KV have 64.
//   tiles      = A ceil(rows / R);  waves = ceil(sum of tiles / SM), of chunks with x > 0
//   earlier    = max(max(waves sum(tiles x) / sum(tiles), max x) q' R / 128^2, reads sum of 2 x KV d K / B')
//                B' is B of the decode model
//   seconds    = fresh + earlier
// The law of `earlier` was found on chunks below 1,024 tokens. Chunks of 1,024 and more behind earlier tokens, held out
// of the fit (which had all calls without earlier tokens), are 4.1% / 7.8% off (median / p95) on the RTX 4090 of
// casys-kaist/LLMServingSim (22 calls) and 2.7% / 7.1% on Vidur's A100 (1,824 calls). Where no call had earlier tokens,
// q' = q is an assumption: vLLM's kernels on the RTX 4090 have q' = 1.002 q, and q of vLLM's kernels on the A100 is 3%
// below q' of Vidur's; but the calls of Vidur's table without earlier tokens are slow, q = 2.9 q'.
// Fused: decodes join the prefill launch as chunks of one token, unsplit, as in FlashAttention's variable-length
// kernels.
//           b, e             start of a decode's block, an empty block                          FusedDecodes
//   A decode that attends to X tokens has A blocks, each of floor(X / 128) + 1 tiles of 128 keys. `earlier` counts them
//   beside the chunks. The grid has A ceil(rows / R) blocks per sequence, with the rows of the longest chunk: of the
//   other sequences' blocks those beyond their rows are empty.
//   fused      = fresh of the chunks + earlier of chunks and decodes + (A decodes b + empties e) / SM
// In the RTX 4090's table a decode of 16,384 tokens beside a chunk of 16 adds 511 us: 128 tiles of 3.95 us, where one
// launch of its own takes 57 us.
// Heads that share keys read them together while they run together, and blocks of one head run for all sequences before
// those of the next. When the keys and values that one KV head has of all sequences exceed the L2 cache,
// reads = G / min(G, max(1, SM / sequences)); else, and where every call is packed, 1. In the same table 128 decodes
// add 1.4 ms at 1,024 tokens, 67 MB per head in a cache of 75 MB, and 4.5 ms at 2,048: G = 4 times all bytes at B'.
//
// q scales with d / 128. Sources of the forms: FlashAttention 2 (arXiv 2307.08691) sections 3.2-3.3, Flash-Decoding.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
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
  std::optional<double> kv_head_seconds{};  // k; none: no call had enough KV heads to tell it from the launch
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
  std::optional<double> earlier_tile_seconds{};  // none: no measured call had earlier tokens
  std::optional<double> write_token_seconds{};   // u; none: the other terms hold the cache write

  [[nodiscard]] double earlier_tile() const { return earlier_tile_seconds.value_or(tile_seconds); }
};

/// The memory that earlier tokens are read from.
struct KeyMemory {
  double bandwidth = 0.0;    // bytes/s; 0: that of the model
  double cache_bytes = 0.0;  // the L2 cache; 0: unknown, and keys are read once
};

/// Decodes in the launch of a prefill.
struct FusedDecodes {
  double block_seconds = 0.0;
  double empty_seconds = 0.0;
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
  PrefillAttentionTime(const PrefillAttentionModel& model, const AttentionShape& shape, const KeyMemory& memory = {});
  /// At least one chunk, each of at least one new token. O(chunks).
  [[nodiscard]] KernelTime at(std::span<const PrefillChunk> chunks) const;
  /// With `decodes` sequences in the same launch, which attend to `decode_context` tokens in total, the longest to
  /// `decode_longest`. O(chunks).
  [[nodiscard]] KernelTime fused(std::span<const PrefillChunk> chunks, double decodes, double decode_context,
                                 double decode_longest, const FusedDecodes& model) const;
  /// `sequences` equal chunks in one launch. O(1).
  [[nodiscard]] KernelTime equal(double sequences, const PrefillChunk& chunk) const;

 private:
  /// Of the new tokens.
  struct Work {
    double blocks_seconds = 0.0;
    double longest_seconds = 0.0;
    double memory_seconds = 0.0;
    double tokens = 0.0;
    double token_chunks = 0.0;  // sum of c^2
  };
  /// Of the earlier tokens; sequences without any add nothing.
  struct Passes {
    double sequences = 0.0;
    double tiles = 0.0;          // per row of keys
    double tile_contexts = 0.0;  // sum of tiles x
    double longest = 0.0;
    double contexts = 0.0;  // sum of x
    void add(double of_sequences, double of_tiles, double context, double longest_context);
  };
  struct Packing {
    double heads = 0.0;   // A
    double blocks = 0.0;  // A / SM
    double rows_per_token = 1.0;
  };
  static Packing packing_of(const PrefillAttentionModel& model, const AttentionShape& shape, bool packs);
  void add(Work& work, double sequences, double fresh, const Packing& packing) const;
  [[nodiscard]] double tiles(double fresh, const Packing& packing) const;
  void add(Work& work, Passes& passes, std::span<const PrefillChunk> chunks, const Packing& packing) const;
  [[nodiscard]] KernelTime time_of(const Work& work, const Passes& passes) const;

  double launch_ = 0.0;
  Packing packing_;
  Packing single_tokens_;  // of a call whose chunks have one token each
  double tile_seconds_ = 0.0;
  double block_seconds_ = 0.0;
  double longest_weight_ = 0.0;
  double kv_seconds_ = 0.0;
  double query_seconds_ = 0.0;
  double write_seconds_ = 0.0;  // per new token
  double norm_exponent_ = 1.0;
  double sm_count_ = 1.0;
  double group_ = 1.0;  // heads that may read the same keys one after the other
  double earlier_kv_seconds_ = 0.0;
  double cached_tokens_ = 0.0;    // of one KV head
  double earlier_rows_ = 0.0;     // R
  double earlier_seconds_ = 0.0;  // per wave and earlier token
  ResidualTable residual_;
};

}  // namespace spillway::hwmodels
