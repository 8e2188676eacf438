// Attention over a paged cache as its definition says, in double precision: what the kernels' results are checked
// against.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cuda_calibrate/cuda/attention_plan.hpp"

namespace spillway::calibrate::gpu {

/// The number that these bits stand for; infinities, which fp8 (e4m3) does not have, and NaN as well.
[[nodiscard]] float number_of_bf16(std::uint16_t bits);
[[nodiscard]] float number_of_fp16(std::uint16_t bits);
[[nodiscard]] float number_of_fp8(std::uint8_t bits);

/// queries [token][query head][size], the tokens of all sequences behind each other; keys and values
/// [page][KV head][kPageSize][size]. Query head h reads KV head h / (query / kv); scores are divided by sqrt(size); a
/// token sees those before it and itself. Returns results as queries lie.
[[nodiscard]] std::vector<float> reference_attention(const Heads& heads, const Sequences& sequences,
                                                     const PageTable& table, std::span<const float> queries,
                                                     std::span<const float> keys, std::span<const float> values);

}  // namespace spillway::calibrate::gpu
