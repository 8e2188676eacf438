// Checks that the kernels compute correct results on this GPU.
#pragma once

#include <string>
#include <vector>

#include "cuda_calibrate/cuda/gpu.hpp"

namespace spillway::calibrate::gpu {

/// Runs small attention calls of every kind, block copies in both directions, elementwise kernels and GEMMs, in every
/// number format of the GPU. Compares the results with the definitions, computed by the CPU. Takes a few seconds.
/// Throws DeviceError with the first wrong number. Returns the name of the kernel for decode attention and, if it is
/// not cuDNN's, the reason.
[[nodiscard]] std::vector<std::string> self_test(Gpu& gpu);

}  // namespace spillway::calibrate::gpu
