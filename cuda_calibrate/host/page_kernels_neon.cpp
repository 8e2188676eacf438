#if defined(__aarch64__)

#include <arm_neon.h>

#include <cstring>

#include "cuda_calibrate/host/page_kernels.hpp"

namespace spillway::calibrate {
namespace {

constexpr std::int64_t kLanes = 4;

/// exp(x) for x <= 0: exp(x) = 2^n exp(r), |r| <= ln 2 / 2, with the polynomial of Cephes' expf. The result is within
/// 2e-7 of the exact value. Below -87, where floats become subnormal, the result is 0.
inline float32x4_t exponential(float32x4_t x) {
  const uint32x4_t kept = vcgeq_f32(x, vdupq_n_f32(-87.0F));
  x = vmaxq_f32(x, vdupq_n_f32(-87.0F));
  const float32x4_t n = vrndnq_f32(vmulq_n_f32(x, 1.44269504F));
  float32x4_t r = vfmsq_f32(x, n, vdupq_n_f32(0.693359375F));  // ln 2 in two parts
  r = vfmsq_f32(r, n, vdupq_n_f32(-2.12194440e-4F));
  float32x4_t p = vdupq_n_f32(1.9875691500e-4F);
  p = vfmaq_f32(vdupq_n_f32(1.3981999507e-3F), p, r);
  p = vfmaq_f32(vdupq_n_f32(8.3334519073e-3F), p, r);
  p = vfmaq_f32(vdupq_n_f32(4.1665795894e-2F), p, r);
  p = vfmaq_f32(vdupq_n_f32(1.6666665459e-1F), p, r);
  p = vfmaq_f32(vdupq_n_f32(5.0000001201e-1F), p, r);
  p = vfmaq_f32(vaddq_f32(r, vdupq_n_f32(1.0F)), p, vmulq_f32(r, r));
  const int32x4_t power = vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23);
  const float32x4_t all = vmulq_f32(p, vreinterpretq_f32_s32(power));
  return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(all), kept));
}

void widen(Number number, const std::byte* from, std::int64_t count, float* to) {
  if (number == Number::fp32) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  const bool bf16 = number == Number::bf16;
  for (std::int64_t i = 0; i < count; i += kLanes) {
    uint16x4_t bits{};
    std::memcpy(&bits, from + 2 * i, sizeof bits);
    const float32x4_t wide =
        bf16 ? vreinterpretq_f32_u32(vshll_n_u16(bits, 16)) : vcvt_f32_f16(vreinterpret_f16_u16(bits));
    vst1q_f32(to + i, wide);
  }
}

void scores(const float* query, const float* keys, std::int64_t tokens, std::int64_t head, float* scores) {
  std::int64_t t = 0;
  for (; t + 4 <= tokens; t += 4) {  // four sums in parallel hide the latency of one
    const float* key = keys + t * head;
    float32x4_t a = vdupq_n_f32(0.0F);
    float32x4_t b = a;
    float32x4_t c = a;
    float32x4_t d = a;
    for (std::int64_t i = 0; i < head; i += kLanes) {
      const float32x4_t q = vld1q_f32(query + i);
      a = vfmaq_f32(a, q, vld1q_f32(key + i));
      b = vfmaq_f32(b, q, vld1q_f32(key + head + i));
      c = vfmaq_f32(c, q, vld1q_f32(key + 2 * head + i));
      d = vfmaq_f32(d, q, vld1q_f32(key + 3 * head + i));
    }
    vst1q_f32(scores + t, vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d)));
  }
  for (; t < tokens; ++t) {
    float32x4_t sum = vdupq_n_f32(0.0F);
    for (std::int64_t i = 0; i < head; i += kLanes) {
      sum = vfmaq_f32(sum, vld1q_f32(query + i), vld1q_f32(keys + t * head + i));
    }
    scores[t] = vaddvq_f32(sum);
  }
}

float weights(float* scores, std::int64_t tokens, float highest) {
  for (std::int64_t t = tokens; t < kPageTokens; ++t) scores[t] = highest - 100.0F;  // their weight becomes 0
  float32x4_t sum = vdupq_n_f32(0.0F);
  for (std::int64_t t = 0; t < kPageTokens; t += kLanes) {
    const float32x4_t some = exponential(vsubq_f32(vld1q_f32(scores + t), vdupq_n_f32(highest)));
    vst1q_f32(scores + t, some);
    sum = vaddq_f32(sum, some);
  }
  return vaddvq_f32(sum);
}

void accumulate(const float* weights, const float* values, std::int64_t tokens, std::int64_t head, float scale,
                float* sums) {
  for (std::int64_t i = 0; i < head; i += 4 * kLanes) {  // four independent chains of additions
    float32x4_t a = vmulq_n_f32(vld1q_f32(sums + i), scale);
    float32x4_t b = vmulq_n_f32(vld1q_f32(sums + i + kLanes), scale);
    float32x4_t c = vmulq_n_f32(vld1q_f32(sums + i + 2 * kLanes), scale);
    float32x4_t d = vmulq_n_f32(vld1q_f32(sums + i + 3 * kLanes), scale);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const float* value = values + t * head + i;
      a = vfmaq_n_f32(a, vld1q_f32(value), weights[t]);
      b = vfmaq_n_f32(b, vld1q_f32(value + kLanes), weights[t]);
      c = vfmaq_n_f32(c, vld1q_f32(value + 2 * kLanes), weights[t]);
      d = vfmaq_n_f32(d, vld1q_f32(value + 3 * kLanes), weights[t]);
    }
    vst1q_f32(sums + i, a);
    vst1q_f32(sums + i + kLanes, b);
    vst1q_f32(sums + i + 2 * kLanes, c);
    vst1q_f32(sums + i + 3 * kLanes, d);
  }
}

}  // namespace

PageKernels neon_page_kernels() { return {"neon", widen, scores, weights, accumulate}; }

}  // namespace spillway::calibrate

#endif
