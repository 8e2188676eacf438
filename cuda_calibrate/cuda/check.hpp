// CUDA's errors as exceptions of the backend.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace spillway::calibrate::gpu {

/// Throws for every status but success: OutOfMemory when memory did not suffice (`bytes`, those that were asked for, or
/// -1, are in the message), else DeviceError with the name of the call and CUDA's text.
void check(cudaError_t status, const char* call, std::int64_t bytes = -1);
/// As above; what cuBLASLt does not support is Unsupported.
void check(cublasStatus_t status, const char* call);
/// A kernel could not be launched.
inline void check_launch(const char* kernel) { check(cudaGetLastError(), kernel); }

}  // namespace spillway::calibrate::gpu
