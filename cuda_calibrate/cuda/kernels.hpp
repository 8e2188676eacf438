// All kernels except attention, and a stream's wait. Each function enqueues one operation and returns without waiting.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda_calibrate/measure/point.hpp"

namespace spillway::calibrate::gpu {

/// Spins until *open >= generation. After about two seconds, gives up and stores the generation in *gave_up. Both
/// pointers refer to page-locked host memory.
void enqueue_gate(const std::uint32_t* open, std::uint32_t* gave_up, std::uint32_t generation, cudaStream_t stream);

/// The stream waits, without a kernel on an SM, until *word >= value. The word is in page-locked host memory. Nothing
/// ends the wait but the word, so whoever enqueues it must raise the word, also after an error. Throws Unsupported if
/// the driver has no such operation.
void enqueue_wait(const std::uint32_t* word, std::uint32_t value, cudaStream_t stream);

void enqueue_empty(cudaStream_t stream);
/// An empty kernel, for graphs.
[[nodiscard]] const void* empty_kernel();

/// Random numbers in [-1, 1]: a hash of index and seed. fp8 means e4m3.
void enqueue_fill(void* to, std::int64_t count, Number number, std::uint64_t seed, cudaStream_t stream);

/// Copies block i from slot from[i] to slot to[i] with `ctas` thread blocks and 16-byte words. A null slot array means
/// that block i is in slot i. Each side is GPU memory or page-locked host memory.
struct BlockCopy {
  const void* source = nullptr;
  const std::int64_t* from = nullptr;
  void* target = nullptr;
  const std::int64_t* to = nullptr;
  std::int64_t block_bytes = 0;  // a multiple of 16
  std::int64_t blocks = 0;       // fewer than 2^31 pieces of 512 bytes in total
};
void enqueue_blocks(const BlockCopy& copy, std::int64_t ctas, cudaStream_t stream);

/// Processes rows of `width` bf16 numbers, a multiple of 8 (rope: of 128, the head size). Reads `x` and writes `y`;
/// silu_mul reads rows of 2 width. `aux` has the `width` weights of rms_norm in bf16, or [tokens][64] pairs of cosine
/// and sine in fp32 for rope.
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
