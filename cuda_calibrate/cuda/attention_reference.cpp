#include "cuda_calibrate/cuda/attention_reference.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace spillway::calibrate::gpu {

float number_of_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16U); }

float number_of_fp16(std::uint16_t bits) {
  const int exponent = bits >> 10U & 0x1F;
  const auto fraction = static_cast<float>(bits & 0x3FFU);
  const float sign = (bits & 0x8000U) != 0 ? -1.0F : 1.0F;
  if (exponent == 0x1F) {
    return fraction == 0.0F ? sign * std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(fraction + 1024.0F, exponent - 25);
}

float number_of_fp8(std::uint8_t bits) {
  const int exponent = bits >> 3U & 0xF;
  const auto fraction = static_cast<float>(bits & 7U);
  const float sign = (bits & 0x80U) != 0 ? -1.0F : 1.0F;
  if ((bits & 0x7FU) == 0x7FU) return std::numeric_limits<float>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(fraction, -9);
  return sign * std::ldexp(fraction + 8.0F, exponent - 10);
}

std::vector<float> reference_attention(const Heads& heads, const Sequences& sequences, const PageTable& table,
                                       std::span<const float> queries, std::span<const float> keys,
                                       std::span<const float> values) {
  const std::int64_t group = heads.query / heads.kv;
  const auto size = static_cast<std::size_t>(heads.size);
  std::vector<float> results(queries.size());
  std::size_t row = 0;  // index of a row of `size` numbers in queries and results
  for (std::size_t s = 0; s < sequences.query_tokens.size(); ++s) {
    for (std::int64_t token = 0; token < sequences.query_tokens[s]; ++token) {
      const std::int64_t seen = sequences.kv_tokens[s] - sequences.query_tokens[s] + token + 1;
      for (std::int64_t head = 0; head < heads.query; ++head, ++row) {
        const auto cached = [&](std::int64_t position) {  // first number of a token's key or value
          const auto entry = static_cast<std::size_t>(table.first[s] + position / kPageSize);
          const std::int64_t page = table.pages[entry];
          return static_cast<std::size_t>((page * heads.kv + head / group) * kPageSize + position % kPageSize) * size;
        };
        std::vector<double> weights(static_cast<std::size_t>(seen));
        for (std::int64_t position = 0; position < seen; ++position) {
          double score = 0.0;
          for (std::size_t i = 0; i < size; ++i) {
            score += double{queries[row * size + i]} * double{keys[cached(position) + i]};
          }
          weights[static_cast<std::size_t>(position)] = score / std::sqrt(static_cast<double>(size));
        }
        const double highest = *std::max_element(weights.begin(), weights.end());
        double sum = 0.0;
        for (double& weight : weights) sum += weight = std::exp(weight - highest);
        std::vector<double> result(size, 0.0);
        for (std::int64_t position = 0; position < seen; ++position) {
          const double weight = weights[static_cast<std::size_t>(position)] / sum;
          for (std::size_t i = 0; i < size; ++i) result[i] += weight * double{values[cached(position) + i]};
        }
        for (std::size_t i = 0; i < size; ++i) results[row * size + i] = static_cast<float>(result[i]);
      }
    }
  }
  return results;
}

}  // namespace spillway::calibrate::gpu
