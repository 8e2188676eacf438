#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cuda_calibrate/cuda/check.hpp"
#include "cuda_calibrate/measure/backend.hpp"

namespace spillway::calibrate::gpu {
namespace {

/// After these errors, according to CUDA, all further work of the process returns the same error:
/// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html
bool is_sticky(cudaError_t status) {
  constexpr std::array kSticky{cudaErrorECCUncorrectable,
                               cudaErrorNvlinkUncorrectable,
                               cudaErrorIllegalAddress,
                               cudaErrorLaunchTimeout,
                               cudaErrorAssert,
                               cudaErrorHardwareStackError,
                               cudaErrorIllegalInstruction,
                               cudaErrorMisalignedAddress,
                               cudaErrorInvalidAddressSpace,
                               cudaErrorInvalidPc,
                               cudaErrorLaunchFailure,
                               cudaErrorContextIsDestroyed};
  return std::find(kSticky.begin(), kSticky.end(), status) != kSticky.end();
}

}  // namespace

void check(cudaError_t status, const char* call, std::int64_t bytes) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();  // reading an error clears it, unless the error is sticky
  if (status == cudaErrorMemoryAllocation) {
    throw OutOfMemory(bytes < 0 ? fmt::format("{} found no memory", call)
                                : fmt::format("{} found no memory for {} bytes", call, bytes));
  }
  throw DeviceError(fmt::format("{}: {} ({})", call, cudaGetErrorString(status), cudaGetErrorName(status)),
                    is_sticky(status));
}

void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const auto text = fmt::format("{}: {}", call, cublasLtGetStatusString(status));
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_ARCH_MISMATCH) throw Unsupported(text);
  if (status == CUBLAS_STATUS_ALLOC_FAILED) throw OutOfMemory(text);
  throw DeviceError(text, false);
}

}  // namespace spillway::calibrate::gpu
