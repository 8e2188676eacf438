#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>

#include "cuda_calibrate/host/page_kernels.hpp"

// Every function in this file has the attribute, because the rest of the program runs on any x86-64 processor.
#define SPILLWAY_AVX2 __attribute__((target("avx2,fma,f16c")))

namespace spillway::calibrate {
namespace {

constexpr std::int64_t kLanes = 8;

SPILLWAY_AVX2 inline float sum_of(__m256 v) {
  __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}

/// exp(x) for x <= 0: exp(x) = 2^n exp(r), |r| <= ln 2 / 2, with the polynomial of Cephes' expf. The result is within
/// 2e-7 of the exact value. Below -87, where floats become subnormal, the result is 0.
SPILLWAY_AVX2 inline __m256 exponential(__m256 x) {
  const __m256 kept = _mm256_cmp_ps(x, _mm256_set1_ps(-87.0F), _CMP_GE_OQ);
  x = _mm256_max_ps(x, _mm256_set1_ps(-87.0F));
  const __m256 n =
      _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504F)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375F), x);  // ln 2 in two parts
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4F), r);
  __m256 p = _mm256_set1_ps(1.9875691500e-4F);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.3981999507e-3F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073e-3F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894e-2F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459e-1F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.0000001201e-1F));
  p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), _mm256_add_ps(r, _mm256_set1_ps(1.0F)));
  const __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_and_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(power)), kept);
}

SPILLWAY_AVX2 void widen(Number number, const std::byte* from, std::int64_t count, float* to) {
  if (number == Number::fp32) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  const bool bf16 = number == Number::bf16;
  for (std::int64_t i = 0; i < count; i += kLanes) {
    __m128i bits{};
    std::memcpy(&bits, from + 2 * i, sizeof bits);
    const __m256 wide =
        bf16 ? _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16)) : _mm256_cvtph_ps(bits);
    _mm256_storeu_ps(to + i, wide);
  }
}

SPILLWAY_AVX2 void scores(const float* query, const float* keys, std::int64_t tokens, std::int64_t head,
                          float* scores) {
  std::int64_t t = 0;
  for (; t + 4 <= tokens; t += 4) {  // four sums in parallel hide the latency of one
    const float* key = keys + t * head;
    __m256 a = _mm256_setzero_ps();
    __m256 b = a;
    __m256 c = a;
    __m256 d = a;
    for (std::int64_t i = 0; i < head; i += kLanes) {
      const __m256 q = _mm256_loadu_ps(query + i);
      a = _mm256_fmadd_ps(q, _mm256_loadu_ps(key + i), a);
      b = _mm256_fmadd_ps(q, _mm256_loadu_ps(key + head + i), b);
      c = _mm256_fmadd_ps(q, _mm256_loadu_ps(key + 2 * head + i), c);
      d = _mm256_fmadd_ps(q, _mm256_loadu_ps(key + 3 * head + i), d);
    }
    const __m256 pairs = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    _mm_storeu_ps(scores + t, _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1)));
  }
  for (; t < tokens; ++t) {
    __m256 sum = _mm256_setzero_ps();
    for (std::int64_t i = 0; i < head; i += kLanes) {
      sum = _mm256_fmadd_ps(_mm256_loadu_ps(query + i), _mm256_loadu_ps(keys + t * head + i), sum);
    }
    scores[t] = sum_of(sum);
  }
}

SPILLWAY_AVX2 float weights(float* scores, std::int64_t tokens, float highest) {
  for (std::int64_t t = tokens; t < kPageTokens; ++t) scores[t] = highest - 100.0F;  // their weight becomes 0
  const __m256 top = _mm256_set1_ps(highest);
  const __m256 low = exponential(_mm256_sub_ps(_mm256_loadu_ps(scores), top));
  const __m256 high = exponential(_mm256_sub_ps(_mm256_loadu_ps(scores + kLanes), top));
  _mm256_storeu_ps(scores, low);
  _mm256_storeu_ps(scores + kLanes, high);
  return sum_of(_mm256_add_ps(low, high));
}

constexpr auto kWidth = static_cast<std::size_t>(kLanes);

/// Updates `kVectors` vectors of sums at a time, which gives as many independent chains of additions.
template <std::size_t kVectors>
SPILLWAY_AVX2 void accumulate_some(const float* weights, const float* values, std::int64_t tokens, std::int64_t head,
                                   __m256 scale, float* sums) {
  __m256 parts[kVectors];
  for (std::size_t v = 0; v < kVectors; ++v) parts[v] = _mm256_mul_ps(_mm256_loadu_ps(sums + v * kWidth), scale);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const __m256 weight = _mm256_broadcast_ss(weights + t);
    for (std::size_t v = 0; v < kVectors; ++v) {
      parts[v] = _mm256_fmadd_ps(weight, _mm256_loadu_ps(values + t * head + v * kWidth), parts[v]);
    }
  }
  for (std::size_t v = 0; v < kVectors; ++v) _mm256_storeu_ps(sums + v * kWidth, parts[v]);
}

SPILLWAY_AVX2 void accumulate(const float* weights, const float* values, std::int64_t tokens, std::int64_t head,
                              float scale, float* sums) {
  const __m256 scales = _mm256_set1_ps(scale);
  std::int64_t i = 0;
  for (; i + 8 * kLanes <= head; i += 8 * kLanes) {
    accumulate_some<8>(weights, values + i, tokens, head, scales, sums + i);
  }
  for (; i < head; i += 2 * kLanes) accumulate_some<2>(weights, values + i, tokens, head, scales, sums + i);
}

}  // namespace

PageKernels avx2_page_kernels() { return {"avx2", widen, scores, weights, accumulate}; }

}  // namespace spillway::calibrate

#endif
