// Spillway's attention kernels over a paged cache. Their times are times of these kernels, not of an engine's library.
//
// Decode splits the KV as in flash-decoding. One thread block processes a run of pages of one sequence and KV head; all
// query heads of the KV head are rows of one matrix (padded to 16). The four warps of the block process pages in turn,
// straight from memory to the tensor cores' registers. Each warp has its own running maximum and sum in fp32; shared
// memory combines them. A second kernel combines the runs of a sequence.
// Prefill is causal. Each thread block processes 64 rows (token, query head of the KV head) against tiles of 64 tokens
// in shared memory and, from sm_80 on, loads the next tile meanwhile.
// Both use mma instructions: 16-bit numbers, sums in fp32.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda_calibrate/cuda/attention_plan.hpp"
#include "cuda_calibrate/measure/point.hpp"

namespace spillway::calibrate::gpu {

/// Pointers to GPU memory. Queries and results are [token][query head][size], keys and values [page][KV
/// head][kPageSize][size].
struct AttentionCall {
  const void* queries = nullptr;
  const void* keys = nullptr;
  const void* values = nullptr;
  void* results = nullptr;
  const std::int32_t* page_first = nullptr;  // PageTable
  const std::int32_t* pages = nullptr;
  const std::int32_t* query_first = nullptr;  // first token of each sequence in queries
  const std::int32_t* query_tokens = nullptr;
  const std::int32_t* kv_tokens = nullptr;
  const DecodeItem* decode = nullptr;
  const CombineItem* combine = nullptr;
  const PrefillItem* prefill = nullptr;
  float* partial_results = nullptr;  // [partial][query head][size]
  float* partial_logs = nullptr;     // [partial][query head]: log2 of the sum of 2^(score log2(e))
  std::int32_t decode_items = 0;
  std::int32_t combine_items = 0;
  std::int32_t prefill_items = 0;
  std::int32_t query_heads = 0;
  std::int32_t kv_heads = 0;
  float scale = 0.0F;  // log2(e) / sqrt(size)
};

/// Enqueues one kernel for all sequences, thread blocks of prefills first, and a second kernel if sequences have
/// partial results. `size` is 64 or 128, `number` bf16 (from sm_80 on) or fp16.
void enqueue_attention(const AttentionCall& call, std::int64_t size, Number number, cudaStream_t stream);

}  // namespace spillway::calibrate::gpu
