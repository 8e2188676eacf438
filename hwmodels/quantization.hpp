// Number formats of quantised matrix multiplications.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace spillway::hwmodels {

/// Formats whose kernels multiply quantised weights, by the names of vLLM's --quantization.
enum class Quantization : std::uint8_t {
  none,
  fp8,        // one scale per weight matrix or output, activations quantised with a scale per token or tensor
  fp8_block,  // a scale per 128 x 128 weights, and per 128 inputs of an activation
  nvfp4,      // a one-byte scale per 16 weights and per 16 inputs
  mxfp4,      // a one-byte scale per 32 weights; activations stay in 16 bits
  int4,       // a 16-bit scale and a zero point per 128 weights; activations stay in 16 bits
};

struct QuantizationFormat {
  Quantization quantization = Quantization::none;
  std::string_view name;
  std::int64_t bits = 16;          // of a weight
  std::int64_t group_inputs = 0;   // inputs that share a scale; 0: all
  std::int64_t group_outputs = 0;  // outputs that share a scale; 0: all
  double group_bits = 0.0;         // of a scale, with its zero point
  double input_bytes = 2.0;        // an activation as the kernel reads it, with its share of scales

  /// Bytes of a weight in a large matrix, with its share of scales.
  [[nodiscard]] double weight_bytes() const {
    const double group = static_cast<double>(group_inputs * (group_outputs > 0 ? group_outputs : 0));
    return (static_cast<double>(bits) + (group > 0.0 ? group_bits / group : 0.0)) / 8.0;
  }
};

/// Layouts as hf_quantization.hpp gives them; nvfp4 and mxfp4 by the OCP Microscaling specification 1.0 and NVIDIA's
/// description of NVFP4 (2025-06).
inline constexpr std::array<QuantizationFormat, 6> kQuantizationFormats{{
    {Quantization::none, "none"},
    {Quantization::fp8, "fp8", 8, 0, 0, 32.0, 1.0},
    {Quantization::fp8_block, "fp8_block", 8, 128, 128, 32.0, 1.0 + 4.0 / 128.0},
    {Quantization::nvfp4, "nvfp4", 4, 16, 1, 8.0, 0.5 + 1.0 / 16.0},
    {Quantization::mxfp4, "mxfp4", 4, 32, 1, 8.0, 2.0},
    {Quantization::int4, "int4", 4, 128, 1, 20.0, 2.0},
}};

[[nodiscard]] constexpr const QuantizationFormat& format_of(Quantization quantization) {
  return kQuantizationFormats[static_cast<std::size_t>(quantization)];
}
/// Empty for any other word.
[[nodiscard]] constexpr std::optional<Quantization> quantization_named(std::string_view name) {
  for (const QuantizationFormat& format : kQuantizationFormats) {
    if (format.name == name) return format.quantization;
  }
  return std::nullopt;
}

}  // namespace spillway::hwmodels
