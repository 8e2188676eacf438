// Converts CUDA errors to the backend's exceptions.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace spillway::calibrate::gpu {

/// Throws for every status except success. Throws OutOfMemory for a lack of memory, with the requested `bytes` in the
/// message unless -1, and otherwise DeviceError with the name of the call and CUDA's text.
void check(cudaError_t status, const char* call, std::int64_t bytes = -1);
/// As above. Throws Unsupported if cuBLASLt does not support the call.
void check(cublasStatus_t status, const char* call);
/// Throws if a kernel could not be launched.
inline void check_launch(const char* kernel) { check(cudaGetLastError(), kernel); }

}  // namespace spillway::calibrate::gpu
