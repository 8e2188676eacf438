// Whether the kernels compute what they should on this GPU.
#pragma once

#include <string>
#include <vector>

#include "cuda_calibrate/cuda/gpu.hpp"

namespace spillway::calibrate::gpu {

/// Small attention calls of every kind, block copies in both directions, elementwise kernels and GEMMs, in every number
/// format that the GPU has, against their definitions computed by the CPU. A few seconds. Throws DeviceError with the
/// first number that differs. Returns which kernel decode attention is measured with, and why, if not cuDNN's.
[[nodiscard]] std::vector<std::string> self_test(Gpu& gpu);

}  // namespace spillway::calibrate::gpu
