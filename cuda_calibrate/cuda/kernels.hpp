// The kernels other than attention. Each function enqueues one and returns; nothing here waits.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda_calibrate/measure/point.hpp"

namespace spillway::calibrate::gpu {

/// Spins until *open >= generation, or for about two seconds, after which it stores the generation in *gave_up. Both
/// lie in page-locked memory of the host.
void enqueue_gate(const std::uint32_t* open, std::uint32_t* gave_up, std::uint32_t generation, cudaStream_t stream);

void enqueue_empty(cudaStream_t stream);
/// For graphs.
[[nodiscard]] const void* empty_kernel();

/// Random numbers in [-1, 1], a hash of their index and the seed. fp8 is e4m3.
void enqueue_fill(void* to, std::int64_t count, Number number, std::uint64_t seed, cudaStream_t stream);

/// Copies block i from slot from[i] to slot to[i] with `ctas` thread blocks and words of 16 bytes. Null instead of
/// slots: block i is in slot i. Each side may be memory of a GPU or page-locked memory of the host.
struct BlockCopy {
  const void* source = nullptr;
  const std::int64_t* from = nullptr;
  void* target = nullptr;
  const std::int64_t* to = nullptr;
  std::int64_t block_bytes = 0;  // a multiple of 16
  std::int64_t blocks = 0;       // fewer than 2^31 pieces of 512 bytes in all
};
void enqueue_blocks(const BlockCopy& copy, std::int64_t ctas, cudaStream_t stream);

/// Rows of `width` bf16 numbers, a multiple of 8 (rope: of 128, the heads' size). `x` is read, `y` written; silu_mul
/// reads rows of 2 width; `aux` are rms_norm's `width` weights in bf16, or rope's [tokens][64] pairs of cosine and sine
/// in fp32.
struct ElementwiseCall {
  ElementwiseKind kind = ElementwiseKind::copy;
  const void* x = nullptr;
  const void* aux = nullptr;
  void* y = nullptr;
  std::int64_t tokens = 0;
  std::int64_t width = 0;
};
void enqueue_elementwise(const ElementwiseCall& call, cudaStream_t stream);

}  // namespace spillway::calibrate::gpu
