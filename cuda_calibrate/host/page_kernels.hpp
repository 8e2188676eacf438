// The inner loops of decode attention on the CPU, for one page of one KV head. There is a version for each vector
// extension, and one in plain C++ for processors without these extensions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "cuda_calibrate/measure/point.hpp"

namespace spillway::calibrate {

/// Tokens per page.
inline constexpr std::int64_t kPageTokens = 16;
/// Head sizes are multiples of kHeadStep, the number count of the widest vectors.
inline constexpr std::int64_t kHeadStep = 16;

/// Arithmetic is fp32. `head` is a multiple of kHeadStep; `tokens` is from 1 to kPageTokens. Pointers may be unaligned.
struct PageKernels {
  std::string_view extension;  // avx512, avx2, neon, scalar
  /// Converts `count` numbers of bf16, fp16 or fp32 to floats exactly. `count` is a multiple of kHeadStep.
  void (*widen)(Number number, const std::byte* from, std::int64_t count, float* to);
  /// scores[t] = query . keys[t]; keys is [tokens][head].
  void (*scores)(const float* query, const float* keys, std::int64_t tokens, std::int64_t head, float* scores);
  /// Replaces scores[t] by exp(scores[t] - highest) and returns the sum. No score may exceed `highest`. `scores` has
  /// space for kPageTokens scores; entries from `tokens` on are undefined afterwards.
  float (*weights)(float* scores, std::int64_t tokens, float highest);
  /// sums[i] = scale sums[i] + sum over t of weights[t] values[t][i]; values is [tokens][head].
  void (*accumulate)(const float* weights, const float* values, std::int64_t tokens, std::int64_t head, float scale,
                     float* sums);
};

/// The kernels that this processor can run, the fastest first, plain C++ last.
[[nodiscard]] const std::vector<PageKernels>& page_kernels();
[[nodiscard]] inline const PageKernels& best_page_kernels() { return page_kernels().front(); }

/// Kernels in plain C++, for any processor.
[[nodiscard]] PageKernels scalar_page_kernels();
#if defined(__x86_64__)
[[nodiscard]] PageKernels avx2_page_kernels();    // needs AVX2, FMA and F16C
[[nodiscard]] PageKernels avx512_page_kernels();  // needs AVX-512F
#elif defined(__aarch64__)
[[nodiscard]] PageKernels neon_page_kernels();  // every 64-bit Arm processor has NEON
#endif

/// Bytes of a number in a KV cache. Throws Unsupported for fp8: CPUs have no instructions for it.
[[nodiscard]] std::int64_t number_bytes(Number number);

}  // namespace spillway::calibrate
