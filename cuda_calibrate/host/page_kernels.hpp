// The inner loops of decode attention on the CPU, over one page of one KV head: once for each vector extension, and in
// plain C++ for processors without one of these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "cuda_calibrate/measure/point.hpp"

namespace spillway::calibrate {

/// Tokens of a page.
inline constexpr std::int64_t kPageTokens = 16;
/// Head sizes are multiples of it: the widest vectors hold as many numbers.
inline constexpr std::int64_t kHeadStep = 16;

/// Arithmetic is fp32. `head` is a multiple of kHeadStep; `tokens` is from 1 to kPageTokens. Pointers need no
/// alignment.
struct PageKernels {
  std::string_view extension;  // avx512, avx2, neon, scalar
  /// `count`, a multiple of kHeadStep, numbers of bf16, fp16 or fp32 as floats; exact.
  void (*widen)(Number number, const std::byte* from, std::int64_t count, float* to);
  /// scores[t] = query . keys[t], keys being [tokens][head].
  void (*scores)(const float* query, const float* keys, std::int64_t tokens, std::int64_t head, float* scores);
  /// Replaces scores[t], none above `highest`, by exp(scores[t] - highest) and returns the sum. There is room for
  /// kPageTokens scores; those behind `tokens` are undefined afterwards.
  float (*weights)(float* scores, std::int64_t tokens, float highest);
  /// sums[i] = scale sums[i] + sum over t of weights[t] values[t][i], values being [tokens][head].
  void (*accumulate)(const float* weights, const float* values, std::int64_t tokens, std::int64_t head, float scale,
                     float* sums);
};

/// Those that this processor can run, the fastest first, plain C++ last.
[[nodiscard]] const std::vector<PageKernels>& page_kernels();
[[nodiscard]] inline const PageKernels& best_page_kernels() { return page_kernels().front(); }

/// In plain C++, for any processor.
[[nodiscard]] PageKernels scalar_page_kernels();
#if defined(__x86_64__)
[[nodiscard]] PageKernels avx2_page_kernels();    // needs AVX2, FMA and F16C
[[nodiscard]] PageKernels avx512_page_kernels();  // needs AVX-512F
#elif defined(__aarch64__)
[[nodiscard]] PageKernels neon_page_kernels();  // every such processor has it
#endif

/// Bytes of a number of a KV cache. Throws Unsupported for fp8, which CPUs have no instructions for.
[[nodiscard]] std::int64_t number_bytes(Number number);

}  // namespace spillway::calibrate
