// Attention over a paged cache by its definition, in double precision: the reference for the kernels' results.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cuda_calibrate/cuda/attention_plan.hpp"

namespace spillway::calibrate::gpu {

/// The number with these bits, including NaN and infinity (fp8 e4m3 has no infinity).
[[nodiscard]] float number_of_bf16(std::uint16_t bits);
[[nodiscard]] float number_of_fp16(std::uint16_t bits);
[[nodiscard]] float number_of_fp8(std::uint8_t bits);

/// queries is [token][query head][size], with the tokens of all sequences in order; keys and values are [page][KV
/// head][kPageSize][size]. Query head h reads KV head h / (query / kv). Scores are divided by sqrt(size). A token sees
/// itself and all earlier tokens. Results have the layout of queries.
[[nodiscard]] std::vector<float> reference_attention(const Heads& heads, const Sequences& sequences,
                                                     const PageTable& table, std::span<const float> queries,
                                                     std::span<const float> keys, std::span<const float> values);

}  // namespace spillway::calibrate::gpu
