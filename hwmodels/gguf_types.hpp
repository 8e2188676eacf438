// Types of GGUF files: what llama.cpp stores of a model's weights.
//
// Block types are exact: weights in a block, bytes of a block with its scales (ggml, ggml-common.h).
//
//   type      weights   bytes   bits of a weight
//   Q4_0           32      18   4.5      16-bit scale, 4 bits each
//   Q5_0           32      22   5.5      16-bit scale, 32 high bits, 4 bits each
//   Q8_0           32      34   8.5      16-bit scale, 8 bits each
//   MXFP4          32      17   4.25     8-bit exponent, 4 bits each
//   IQ4_XS        256     136   4.25     16-bit scale, 8 scales of 6 bits, 4 bits each
//   Q2_K          256      84   2.625    two 16-bit scales, 16 scales and minima of 4 bits, 2 bits each
//   Q3_K          256     110   3.4375   16-bit scale, 16 scales of 6 bits, 3 bits each
//   Q4_K          256     144   4.5      two 16-bit scales, 8 scales and minima of 6 bits, 4 bits each
//   Q5_K          256     176   5.5      the same, 5 bits each
//   Q6_K          256     210   6.5625   16-bit scale, 16 scales of 8 bits, 6 bits each
//
// A file type gives most matrices one block type, and some a better one. As llama.cpp does it (src/llama-quant.cpp,
// from memory), layers counted from 0 to n - 1:
//
//   q4_k_m    down of MLPs and experts in Q6_K where i < n/8, i >= 7n/8 or (i - n/8) mod 3 = 2, in whole numbers; else
//   Q4_K q5_k_m    the same with Q5_K instead of Q4_K q3_k_m    down in Q5_K where i < n/16, else in Q4_K; else Q3_K
//   q2_k      down in Q3_K; else Q2_K
//   mxfp4_moe experts in MXFP4; else Q8_0
//   others    one block type
//
// The LM head is in Q6_K, in q8_0 and mxfp4_moe in Q8_0. Check: the experts of DeepSeek-V3 (layers 3 to 60 of 61, 27 of
// them with down in Q6_K) take 4.820 bits a weight in q4_k_m; its file of 404 GB has 4.816 (404e9 x 8 / 671.03e9).
//
// Left out: better types of the value projection and of the key projection of some models, which are a few per cent of
// a dense model and less of a mixture; embeddings, which stay in 16 bits; other types for rows that no block divides.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace spillway::hwmodels {

/// A block of weights that share scales.
struct GgufBlock {
  std::int64_t weights = 0;
  std::int64_t bytes = 0;
  [[nodiscard]] constexpr double bits() const {
    return 8.0 * static_cast<double>(bytes) / static_cast<double>(weights);
  }
};

/// Bits of a weight by part, scales included: means over the layers and over gate, up and down.
struct GgufBits {
  double attention = 0.0;
  double mlp = 0.0;  // and shared experts
  double expert = 0.0;
  double head = 0.0;
};

/// The file types, by the names of llama-quantize in small letters.
[[nodiscard]] std::vector<std::string_view> gguf_type_names();

/// What a model of `layers` layers takes in a file type; `routed`, the layers that have experts: their share of better
/// matrices is that of the experts. `matrices`: 3 of an MLP, or 2 without a gate. Empty for any other name.
struct GgufLayers {
  std::int64_t layers = 0;
  std::vector<bool> routed{};  // by layer
  std::int64_t matrices = 3;
};
[[nodiscard]] std::optional<GgufBits> gguf_bits(std::string_view name, const GgufLayers& layers);
/// Weights of a row that a block needs: a row is a whole number of blocks. 0 for any other name.
[[nodiscard]] std::int64_t gguf_block_weights(std::string_view name);

}  // namespace spillway::hwmodels
