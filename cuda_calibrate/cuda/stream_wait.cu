#include <fmt/format.h>

#include "cuda_calibrate/cuda/kernels.hpp"
#include "cuda_calibrate/cuda/library.hpp"
#include "cuda_calibrate/measure/backend.hpp"

namespace spillway::calibrate::gpu {
namespace {

/// cuStreamWaitValue32 of CUDA's driver. The runtime has no such call, and has loaded the driver's library already.
using WaitValue = int(cudaStream_t stream, unsigned long long address, std::uint32_t value, unsigned flags);

}  // namespace

void enqueue_wait(const std::uint32_t* word, std::uint32_t value, cudaStream_t stream) {
  static const Library kDriver("libcuda.so.1");
  static auto* const kWaitValue = kDriver.function<WaitValue>("cuStreamWaitValue32_v2");
  constexpr unsigned kAtLeast = 0;  // CU_STREAM_WAIT_VALUE_GEQ
  constexpr int kNotSupported = 801;
  if (kWaitValue == nullptr) throw Unsupported("the driver has no cuStreamWaitValue32");
  const int status = kWaitValue(stream, reinterpret_cast<unsigned long long>(word), value, kAtLeast);
  if (status == kNotSupported) throw Unsupported("the GPU's streams cannot wait for a word in host memory");
  if (status != 0) throw DeviceError(fmt::format("cuStreamWaitValue32: error {}", status), false);
}

}  // namespace spillway::calibrate::gpu
