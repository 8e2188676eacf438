#if defined(__x86_64__)

#if !defined(__clang__)
// GCC 12's intrinsics start from vectors that are undefined on purpose, and GCC warns of its own intrinsics.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <immintrin.h>

#include <cstring>

#include "cuda_calibrate/host/page_kernels.hpp"

// Every function in this file has the attribute, because the rest of the program runs on any x86-64 processor.
#define SPILLWAY_AVX512 __attribute__((target("avx512f")))

namespace spillway::calibrate {
namespace {

constexpr std::int64_t kLanes = 16;
static_assert(kLanes == kPageTokens && kLanes == kHeadStep);

SPILLWAY_AVX512 inline float sum_of(__m512 v) {
  alignas(64) float lanes[kLanes];
  _mm512_store_ps(lanes, v);
  float sums[4] = {lanes[0], lanes[1], lanes[2], lanes[3]};
  for (int i = 4; i < kLanes; ++i) sums[i % 4] += lanes[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/// The sums of four vectors, each in one lane.
SPILLWAY_AVX512 inline __m128 sums_of(__m512 a, __m512 b, __m512 c, __m512 d) {
  // Adds neighbouring pairs, then pairs of pairs: each 128-bit part contains a part of all four sums.
  const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
  const __m512 all = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
  const __m128 low = _mm_add_ps(_mm512_castps512_ps128(all), _mm512_extractf32x4_ps(all, 1));
  const __m128 high = _mm_add_ps(_mm512_extractf32x4_ps(all, 2), _mm512_extractf32x4_ps(all, 3));
  return _mm_add_ps(low, high);
}

/// exp(x) for x <= 0: exp(x) = 2^n exp(r), |r| <= ln 2 / 2, with the polynomial of Cephes' expf. The result is within
/// 2e-7 of the exact value. Below -87, where floats become subnormal, the result is 0.
SPILLWAY_AVX512 inline __m512 exponential(__m512 x) {
  const __mmask16 kept = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.0F), _CMP_GE_OQ);
  x = _mm512_max_ps(x, _mm512_set1_ps(-87.0F));
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504F)),
                                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375F), x);  // ln 2 in two parts
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4F), r);
  __m512 p = _mm512_set1_ps(1.9875691500e-4F);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1F));
  p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), _mm512_add_ps(r, _mm512_set1_ps(1.0F)));
  const __m512i power = _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23);
  return _mm512_maskz_mul_ps(kept, p, _mm512_castsi512_ps(power));
}

SPILLWAY_AVX512 void widen(Number number, const std::byte* from, std::int64_t count, float* to) {
  if (number == Number::fp32) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  const bool bf16 = number == Number::bf16;
  for (std::int64_t i = 0; i < count; i += kLanes) {
    __m256i bits{};
    std::memcpy(&bits, from + 2 * i, sizeof bits);
    const __m512 wide =
        bf16 ? _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16)) : _mm512_cvtph_ps(bits);
    _mm512_storeu_ps(to + i, wide);
  }
}

SPILLWAY_AVX512 void scores(const float* query, const float* keys, std::int64_t tokens, std::int64_t head,
                            float* scores) {
  std::int64_t t = 0;
  for (; t + 4 <= tokens; t += 4) {  // four sums in parallel hide the latency of one
    const float* key = keys + t * head;
    __m512 a = _mm512_setzero_ps();
    __m512 b = a;
    __m512 c = a;
    __m512 d = a;
    for (std::int64_t i = 0; i < head; i += kLanes) {
      const __m512 q = _mm512_loadu_ps(query + i);
      a = _mm512_fmadd_ps(q, _mm512_loadu_ps(key + i), a);
      b = _mm512_fmadd_ps(q, _mm512_loadu_ps(key + head + i), b);
      c = _mm512_fmadd_ps(q, _mm512_loadu_ps(key + 2 * head + i), c);
      d = _mm512_fmadd_ps(q, _mm512_loadu_ps(key + 3 * head + i), d);
    }
    _mm_storeu_ps(scores + t, sums_of(a, b, c, d));
  }
  for (; t < tokens; ++t) {
    __m512 sum = _mm512_setzero_ps();
    for (std::int64_t i = 0; i < head; i += kLanes) {
      sum = _mm512_fmadd_ps(_mm512_loadu_ps(query + i), _mm512_loadu_ps(keys + t * head + i), sum);
    }
    scores[t] = sum_of(sum);
  }
}

SPILLWAY_AVX512 float weights(float* scores, std::int64_t tokens, float highest) {
  for (std::int64_t t = tokens; t < kPageTokens; ++t) scores[t] = highest - 100.0F;  // their weight becomes 0
  const __m512 all = exponential(_mm512_sub_ps(_mm512_loadu_ps(scores), _mm512_set1_ps(highest)));
  _mm512_storeu_ps(scores, all);
  return sum_of(all);
}

constexpr auto kWidth = static_cast<std::size_t>(kLanes);

/// Updates `kVectors` vectors of sums at a time, which gives as many independent chains of additions.
template <std::size_t kVectors>
SPILLWAY_AVX512 void accumulate_some(const float* weights, const float* values, std::int64_t tokens, std::int64_t head,
                                     __m512 scale, float* sums) {
  __m512 parts[kVectors];
  for (std::size_t v = 0; v < kVectors; ++v) parts[v] = _mm512_mul_ps(_mm512_loadu_ps(sums + v * kWidth), scale);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const __m512 weight = _mm512_set1_ps(weights[t]);
    for (std::size_t v = 0; v < kVectors; ++v) {
      parts[v] = _mm512_fmadd_ps(weight, _mm512_loadu_ps(values + t * head + v * kWidth), parts[v]);
    }
  }
  for (std::size_t v = 0; v < kVectors; ++v) _mm512_storeu_ps(sums + v * kWidth, parts[v]);
}

SPILLWAY_AVX512 void accumulate(const float* weights, const float* values, std::int64_t tokens, std::int64_t head,
                                float scale, float* sums) {
  const __m512 scales = _mm512_set1_ps(scale);
  std::int64_t i = 0;
  for (; i + 8 * kLanes <= head; i += 8 * kLanes) {
    accumulate_some<8>(weights, values + i, tokens, head, scales, sums + i);
  }
  for (; i + 4 * kLanes <= head; i += 4 * kLanes) {
    accumulate_some<4>(weights, values + i, tokens, head, scales, sums + i);
  }
  for (; i < head; i += kLanes) accumulate_some<1>(weights, values + i, tokens, head, scales, sums + i);
}

}  // namespace

PageKernels avx512_page_kernels() { return {"avx512", widen, scores, weights, accumulate}; }

}  // namespace spillway::calibrate

#endif
