// Whether the kernels compute what they should on this GPU.
#pragma once

#include "cuda_calibrate/cuda/gpu.hpp"

namespace spillway::calibrate::gpu {

/// Small attention calls of every kind, block copies in both directions, elementwise kernels and GEMMs, in every number
/// format that the GPU has, against their definitions computed by the CPU. A few seconds. Throws DeviceError with the
/// first number that differs.
void self_test(Gpu& gpu);

}  // namespace spillway::calibrate::gpu
