#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>

#include "cuda_calibrate/cuda/check.hpp"
#include "cuda_calibrate/cuda/kernels.hpp"

namespace spillway::calibrate::gpu {
namespace {

__device__ std::uint64_t global_nanoseconds() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__global__ void gate_kernel(const volatile std::uint32_t* open, volatile std::uint32_t* gave_up,
                            std::uint32_t generation) {
  constexpr std::uint64_t kLimit = 2'000'000'000;
  const std::uint64_t start = global_nanoseconds();
  while (*open < generation) {
    if (global_nanoseconds() - start > kLimit) {
      *gave_up = generation;
      __threadfence_system();
      return;
    }
  }
}

__global__ void no_work_kernel() {}

/// The finaliser of splitmix64: neighbouring indices give unrelated numbers.
__device__ float random_number(std::uint64_t index, std::uint64_t seed) {
  std::uint64_t x = seed + (index + 1) * 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
  x ^= x >> 31U;
  return static_cast<float>(static_cast<std::uint32_t>(x >> 40U)) * (2.0F / 16777215.0F) - 1.0F;
}

template <typename T>
__global__ void fill_kernel(T* to, std::int64_t count, std::uint64_t seed) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    to[i] = T(random_number(static_cast<std::uint64_t>(i), seed));
  }
}

template <typename T>
void fill(void* to, std::int64_t count, std::uint64_t seed, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(std::clamp<std::int64_t>((count + 255) / 256, 1, 4096));
  fill_kernel<<<blocks, 256, 0, stream>>>(static_cast<T*>(to), count, seed);
}

/// A warp loads kUnroll pieces of 32 words before it stores the first piece, so that all loads are in flight.
constexpr int kCopyThreads = 512;
constexpr int kUnroll = 4;

__global__ void __launch_bounds__(kCopyThreads)
    blocks_kernel(const uint4* source, const std::int64_t* from, uint4* target, const std::int64_t* to,
                  std::uint32_t words, std::uint32_t pieces_per_block, std::uint32_t pieces) {
  const std::uint32_t lane = threadIdx.x % 32;
  const std::uint32_t warp = (blockIdx.x * kCopyThreads + threadIdx.x) / 32;
  const std::uint32_t warps = gridDim.x * (kCopyThreads / 32);
  for (std::uint64_t first = std::uint64_t{warp} * kUnroll; first < pieces; first += std::uint64_t{warps} * kUnroll) {
    uint4 held[kUnroll];
    std::int64_t place[kUnroll];  // index in target; -1: nothing to store
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const std::uint64_t piece = first + static_cast<std::uint64_t>(i);
      place[i] = -1;
      if (piece < pieces) {
        const std::uint32_t block = static_cast<std::uint32_t>(piece) / pieces_per_block;
        const std::uint32_t word = (static_cast<std::uint32_t>(piece) - block * pieces_per_block) * 32 + lane;
        if (word < words) {
          const std::int64_t in = (from == nullptr ? std::int64_t{block} : from[block]) * words + word;
          place[i] = (to == nullptr ? std::int64_t{block} : to[block]) * words + word;
          held[i] = source[in];
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      if (place[i] >= 0) target[place[i]] = held[i];
    }
  }
}

/// Eight bf16 numbers in a 16-byte word.
struct Eight {
  float at[8];
};
__device__ Eight widened(uint4 word) {
  const std::uint32_t parts[4] = {word.x, word.y, word.z, word.w};
  Eight numbers;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    numbers.at[2 * i] = __uint_as_float(parts[i] << 16U);
    numbers.at[2 * i + 1] = __uint_as_float(parts[i] & 0xFFFF0000U);
  }
  return numbers;
}
__device__ uint4 narrowed(const Eight& numbers) {
  std::uint32_t parts[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t low = __bfloat16_as_ushort(__float2bfloat16_rn(numbers.at[2 * i]));
    const std::uint32_t high = __bfloat16_as_ushort(__float2bfloat16_rn(numbers.at[2 * i + 1]));
    parts[i] = low | high << 16U;
  }
  return {parts[0], parts[1], parts[2], parts[3]};
}

constexpr int kRowThreads = 256;

/// One thread block per row. The second read of the row hits L1 or L2.
__global__ void __launch_bounds__(kRowThreads)
    rms_norm_kernel(const uint4* x, const uint4* weight, uint4* y, std::int64_t words) {
  __shared__ float sums[kRowThreads / 32];
  const std::int64_t row = std::int64_t{blockIdx.x} * words;
  float sum = 0.0F;
  for (std::int64_t i = threadIdx.x; i < words; i += kRowThreads) {
    const Eight numbers = widened(x[row + i]);
#pragma unroll
    for (const float number : numbers.at) sum += number * number;
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, offset);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0.0F;
#pragma unroll
  for (const float part : sums) sum += part;
  const float scale = rsqrtf(sum / static_cast<float>(words * 8) + 1e-5F);
  for (std::int64_t i = threadIdx.x; i < words; i += kRowThreads) {
    Eight numbers = widened(x[row + i]);
    const Eight weights = widened(weight[i]);
#pragma unroll
    for (int j = 0; j < 8; ++j) numbers.at[j] *= scale * weights.at[j];
    y[row + i] = narrowed(numbers);
  }
}

__global__ void __launch_bounds__(kRowThreads) silu_mul_kernel(const uint4* x, uint4* y, std::int64_t words) {
  const std::int64_t row = blockIdx.x;
  for (std::int64_t i = threadIdx.x; i < words; i += kRowThreads) {
    Eight gate = widened(x[row * 2 * words + i]);
    const Eight up = widened(x[row * 2 * words + words + i]);
#pragma unroll
    for (int j = 0; j < 8; ++j) gate.at[j] = gate.at[j] / (1.0F + __expf(-gate.at[j])) * up.at[j];
    y[row * words + i] = narrowed(gate);
  }
}

/// Heads have 128 numbers. Number i of the first half rotates with number i of the second half.
__global__ void __launch_bounds__(kRowThreads)
    rope_kernel(const uint4* x, const float2* turns, uint4* y, std::int64_t words) {
  constexpr std::int64_t kHeadWords = 16;
  constexpr std::int64_t kHalfWords = 8;
  const std::int64_t row = blockIdx.x;
  for (std::int64_t i = threadIdx.x; i < words / 2; i += kRowThreads) {
    const std::int64_t at = row * words + i / kHalfWords * kHeadWords + i % kHalfWords;
    Eight low = widened(x[at]);
    Eight high = widened(x[at + kHalfWords]);
    const float2* turn = turns + row * 64 + i % kHalfWords * 8;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float a = low.at[j];
      const float b = high.at[j];
      low.at[j] = a * turn[j].x - b * turn[j].y;
      high.at[j] = b * turn[j].x + a * turn[j].y;
    }
    y[at] = narrowed(low);
    y[at + kHalfWords] = narrowed(high);
  }
}

__global__ void __launch_bounds__(kRowThreads) copy_kernel(const uint4* x, uint4* y, std::int64_t words) {
  const std::int64_t row = std::int64_t{blockIdx.x} * words;
  for (std::int64_t i = threadIdx.x; i < words; i += kRowThreads) y[row + i] = x[row + i];
}

}  // namespace

void enqueue_gate(const std::uint32_t* open, std::uint32_t* gave_up, std::uint32_t generation, cudaStream_t stream) {
  gate_kernel<<<1, 1, 0, stream>>>(open, gave_up, generation);
  check_launch("gate kernel");
}

void enqueue_empty(cudaStream_t stream) {
  no_work_kernel<<<1, 1, 0, stream>>>();
  check_launch("empty kernel");
}

const void* empty_kernel() { return reinterpret_cast<const void*>(&no_work_kernel); }

void enqueue_fill(void* to, std::int64_t count, Number number, std::uint64_t seed, cudaStream_t stream) {
  switch (number) {
    case Number::bf16:
      fill<__nv_bfloat16>(to, count, seed, stream);
      break;
    case Number::fp16:
      fill<__half>(to, count, seed, stream);
      break;
    case Number::fp8:
      fill<__nv_fp8_e4m3>(to, count, seed, stream);
      break;
    case Number::fp32:
      fill<float>(to, count, seed, stream);
      break;
  }
  check_launch("fill kernel");
}

void enqueue_blocks(const BlockCopy& copy, std::int64_t ctas, cudaStream_t stream) {
  const std::int64_t words = copy.block_bytes / 16;
  const std::int64_t pieces_per_block = (words + 31) / 32;
  blocks_kernel<<<static_cast<unsigned>(ctas), kCopyThreads, 0, stream>>>(
      static_cast<const uint4*>(copy.source), copy.from, static_cast<uint4*>(copy.target), copy.to,
      static_cast<std::uint32_t>(words), static_cast<std::uint32_t>(pieces_per_block),
      static_cast<std::uint32_t>(pieces_per_block * copy.blocks));
  check_launch("block copy kernel");
}

void enqueue_elementwise(const ElementwiseCall& call, cudaStream_t stream) {
  const auto rows = static_cast<unsigned>(call.tokens);
  const std::int64_t words = call.width / 8;
  const auto* x = static_cast<const uint4*>(call.x);
  auto* y = static_cast<uint4*>(call.y);
  switch (call.kind) {
    case ElementwiseKind::rms_norm:
      rms_norm_kernel<<<rows, kRowThreads, 0, stream>>>(x, static_cast<const uint4*>(call.aux), y, words);
      break;
    case ElementwiseKind::silu_mul:
      silu_mul_kernel<<<rows, kRowThreads, 0, stream>>>(x, y, words);
      break;
    case ElementwiseKind::rope:
      rope_kernel<<<rows, kRowThreads, 0, stream>>>(x, static_cast<const float2*>(call.aux), y, words);
      break;
    case ElementwiseKind::copy:
      copy_kernel<<<rows, kRowThreads, 0, stream>>>(x, y, words);
      break;
  }
  check_launch("elementwise kernel");
}

}  // namespace spillway::calibrate::gpu
