// A thread block on the CPU, with one thread for each of its threads. Warp functions follow their definitions. Included
// instead of cuda_calibrate/cuda/warp.cuh, with CUDA's keywords for kernels.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include "cuda_calibrate/cuda/attention_reference.hpp"

namespace spillway::emulated {

struct Index {
  unsigned x = 0;
  unsigned y = 0;
};
inline thread_local Index thread_index;
inline thread_local Index block_index;

class Block {
 public:
  explicit Block(unsigned threads) : all_(threads), words_(threads) {
    for (unsigned warp = 0; warp < threads / 32; ++warp) warps_.push_back(std::make_unique<std::barrier<>>(32));
  }
  void meet() { all_.arrive_and_wait(); }
  /// Every lane of a warp publishes its words; each lane then reads words of lanes 0 .. 31.
  template <typename Read>
  void exchange(const std::array<std::uint64_t, 6>& words, const Read& read) {
    std::barrier<>& warp = *warps_[thread_index.x / 32];
    words_[thread_index.x] = words;
    warp.arrive_and_wait();
    read(&words_[thread_index.x / 32 * 32]);
    warp.arrive_and_wait();
  }

 private:
  std::barrier<> all_;
  std::vector<std::unique_ptr<std::barrier<>>> warps_;
  std::vector<std::array<std::uint64_t, 6>> words_;
};
inline Block* block = nullptr;

/// Runs the thread blocks of a kernel, one after another.
template <typename Kernel>
void run_kernel(unsigned blocks_x, unsigned blocks_y, unsigned threads, const Kernel& kernel) {
  for (unsigned y = 0; y < blocks_y; ++y) {
    for (unsigned x = 0; x < blocks_x; ++x) {
      Block one(threads);
      block = &one;
      std::vector<std::thread> all;
      all.reserve(threads);
      for (unsigned thread = 0; thread < threads; ++thread) {
        all.emplace_back([&, thread] {
          thread_index = {thread, 0};
          block_index = {x, y};
          kernel();
        });
      }
      for (std::thread& thread : all) thread.join();
    }
  }
}

}  // namespace spillway::emulated

#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __shared__
#define __shared__ static  // one thread block runs at a time
#define threadIdx spillway::emulated::thread_index
#define blockIdx spillway::emulated::block_index

namespace spillway::calibrate::gpu {
namespace {

using std::min;

inline int lane_index() { return static_cast<int>(threadIdx.x % 32); }
inline void __syncthreads() { emulated::block->meet(); }
template <typename T>
T __ldg(const T* from) {
  return *from;
}
inline float __shfl_xor_sync(unsigned /*lanes*/, float x, int mask) {
  float other = 0.0F;
  emulated::block->exchange({std::bit_cast<std::uint32_t>(x)}, [&](const auto* lanes) {
    other = std::bit_cast<float>(static_cast<std::uint32_t>(lanes[lane_index() ^ mask][0]));
  });
  return other;
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const std::uint64_t bytes = std::uint64_t{y} << 32U | x;
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    result |= static_cast<unsigned>(bytes >> (8 * (selector >> (4 * i) & 7U)) & 0xFFU) << (8 * i);
  }
  return result;
}

template <typename T>
float half_of(std::uint64_t word, int which) {
  const auto bits = static_cast<std::uint16_t>(word >> (16 * which));
  return std::is_same_v<T, __half> ? number_of_fp16(bits) : number_of_bf16(bits);
}
/// c += a b, with the fragments of "Matrix Fragments for mma.m16n8k16" in the PTX ISA.
template <typename T>
void multiply(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1, T /*number*/) {
  emulated::block->exchange({a[0], a[1], a[2], a[3], b0, b1}, [&](const auto* lanes) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane_index() / 4 + 8 * (i / 2);
      const int column = 2 * (lane_index() % 4) + i % 2;
      for (int k = 0; k < 16; ++k) {
        const auto& of_row = lanes[row % 8 * 4 + k % 8 / 2];
        const auto& of_column = lanes[column * 4 + k % 8 / 2];
        c[i] += half_of<T>(of_row[static_cast<std::size_t>(row / 8 + 2 * (k / 8))], k % 2) *
                half_of<T>(of_column[static_cast<std::size_t>(4 + k / 8)], k % 2);
      }
    }
  });
}

inline void fetch(uint4* to, const uint4* from) { *to = *from; }
inline void end_of_batch() {}
template <int kBatches>
void await_batches() {}

/// ldmatrix: for each matrix, lane i gets numbers 2 (i % 4) and the next of row i / 4, or of that column.
inline void matrices(std::uint32_t (&to)[4], const uint4* row, bool transposed) {
  emulated::block->exchange({reinterpret_cast<std::uintptr_t>(row)}, [&](const auto* lanes) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      const auto number = [&](int r, int c) {
        return std::uint32_t{reinterpret_cast<const std::uint16_t*>(lanes[matrix * 8 + r][0])[c]};
      };
      const int r = lane_index() / 4;
      const int c = 2 * (lane_index() % 4);
      to[matrix] = transposed ? number(c, r) | number(c + 1, r) << 16U : number(r, c) | number(r, c + 1) << 16U;
    }
  });
}
inline void load_matrices(std::uint32_t (&to)[4], const uint4* row) { matrices(to, row, false); }
inline void load_transposed(std::uint32_t (&to)[4], const uint4* row) { matrices(to, row, true); }

}  // namespace
}  // namespace spillway::calibrate::gpu
