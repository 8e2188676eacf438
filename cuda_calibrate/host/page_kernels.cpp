#include "cuda_calibrate/host/page_kernels.hpp"

#include <bit>
#include <cmath>
#include <cstring>

#include "cuda_calibrate/measure/backend.hpp"

namespace spillway::calibrate {
namespace {

float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16U); }

float from_fp16(std::uint16_t bits) {
  const std::uint32_t sign = (std::uint32_t{bits} & 0x8000U) << 16U;
  const std::uint32_t exponent = (std::uint32_t{bits} >> 10U) & 0x1fU;
  const std::uint32_t fraction = std::uint32_t{bits} & 0x3ffU;
  if (exponent == 0) {  // zero or subnormal: fraction times 2^-24
    const float size = static_cast<float>(fraction) * 0x1p-24F;
    return sign == 0 ? size : -size;
  }
  const std::uint32_t widened = exponent == 0x1fU ? 0xffU : exponent + (127 - 15);
  return std::bit_cast<float>(sign | widened << 23U | fraction << 13U);
}

void widen(Number number, const std::byte* from, std::int64_t count, float* to) {
  if (number == Number::fp32) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, from + 2 * i, sizeof bits);
    to[i] = number == Number::bf16 ? from_bf16(bits) : from_fp16(bits);
  }
}

void scores(const float* query, const float* keys, std::int64_t tokens, std::int64_t head, float* scores) {
  for (std::int64_t t = 0; t < tokens; ++t) {
    float sum = 0.0F;
    for (std::int64_t i = 0; i < head; ++i) sum += query[i] * keys[t * head + i];
    scores[t] = sum;
  }
}

float weights(float* scores, std::int64_t tokens, float highest) {
  float sum = 0.0F;
  for (std::int64_t t = 0; t < tokens; ++t) {
    scores[t] = std::exp(scores[t] - highest);
    sum += scores[t];
  }
  return sum;
}

void accumulate(const float* weights, const float* values, std::int64_t tokens, std::int64_t head, float scale,
                float* sums) {
  for (std::int64_t i = 0; i < head; ++i) sums[i] *= scale;
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t i = 0; i < head; ++i) sums[i] += weights[t] * values[t * head + i];
  }
}

std::vector<PageKernels> runnable() {
  std::vector<PageKernels> kernels;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") != 0) kernels.push_back(avx512_page_kernels());
  // Clang cannot test for F16C. Every processor with AVX2 has F16C.
  if (__builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0) kernels.push_back(avx2_page_kernels());
#elif defined(__aarch64__)
  kernels.push_back(neon_page_kernels());
#endif
  kernels.push_back(scalar_page_kernels());
  return kernels;
}

}  // namespace

PageKernels scalar_page_kernels() { return {"scalar", widen, scores, weights, accumulate}; }

const std::vector<PageKernels>& page_kernels() {
  static const std::vector<PageKernels> kKernels = runnable();
  return kKernels;
}

std::int64_t number_bytes(Number number) {
  switch (number) {
    case Number::bf16:
    case Number::fp16:
      return 2;
    case Number::fp32:
      return 4;
    case Number::fp8:
      break;
  }
  throw Unsupported("CPUs have no instructions for a KV cache of fp8");
}

}  // namespace spillway::calibrate
