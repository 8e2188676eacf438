// Converts numbers in GPU memory to floats on the CPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cuda_calibrate/cuda/attention_reference.hpp"
#include "cuda_calibrate/cuda/memory.hpp"

namespace spillway::calibrate::gpu {

/// The first `count` numbers, in bf16, fp16 or fp8.
[[nodiscard]] inline std::vector<float> numbers_in(const DeviceMemory& memory, std::int64_t count, Number number) {
  std::vector<float> numbers(static_cast<std::size_t>(count));
  if (number == Number::fp8) {
    const auto bits = downloaded<std::uint8_t>(memory, count);
    std::transform(bits.begin(), bits.end(), numbers.begin(), number_of_fp8);
  } else {
    const auto bits = downloaded<std::uint16_t>(memory, count);
    std::transform(bits.begin(), bits.end(), numbers.begin(), number == Number::bf16 ? number_of_bf16 : number_of_fp16);
  }
  return numbers;
}
/// All numbers, in bf16 or fp16.
[[nodiscard]] inline std::vector<float> numbers_in(const DeviceMemory& memory, Number number) {
  return numbers_in(memory, memory.bytes() / 2, number);
}

}  // namespace spillway::calibrate::gpu
