// Whether the kernels compute what they should on this GPU.
#pragma once

#include <cstdint>

namespace spillway::calibrate {

/// Small attention calls of every kind, block copies in both directions and GEMMs, in every number format that the GPU
/// has, against their definitions computed by the CPU. A few seconds. Throws DeviceError with the first number that
/// differs, and as make_backend does when there is no such GPU.
void self_test(std::int64_t gpu, std::uint64_t seed);

}  // namespace spillway::calibrate
