// A CUDA runtime without a GPU. Copies and kernels happen at once, in host memory. Each stream has a clock, which
// advances by simple rules. Streams behind a closed gate start at the same moment.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace spillway::emulated {

// Seconds per operation, in addition to the time of its bytes.
inline constexpr double kCopy = 2e-6;
inline constexpr double kBatchedCopy = 0.5e-6;
inline constexpr double kBlockKernel = 3e-6;
inline constexpr double kEmptyKernel = 1.5e-6;
inline constexpr double kElementwise = 4e-6;
inline constexpr double kAttention = 20e-6;
inline constexpr double kCombine = 2e-6;
inline constexpr double kGraph = 7e-6;                  // from a graph's launch to its start
inline constexpr double kGraphNode = 1e-6;              // each kernel of a graph
inline constexpr double kGemm[] = {10e-6, 6e-6, 8e-6};  // by rank of the algorithm
// Bytes per second.
inline constexpr double kToGpu = 50e9;
inline constexpr double kToHost = 40e9;
inline constexpr double kPeer = 200e9;
inline constexpr double kByKernel = 45e9;

/// Settings and observations of the runtime. Tests set the machine up before they make a backend.
struct Machine {
  int gpus = 2;
  cudaError_t count_status = cudaSuccess;
  int capability = 90;
  int driver = 13000;
  bool peers = true;
  std::size_t free_bytes = std::size_t{1} << 30;
  cudaError_t copy_status = cudaSuccess;  // result of the next asynchronous copy
  bool gates_give_up = false;

  std::int64_t living = 0;             // events, streams, graphs and memory blocks not yet freed
  std::int64_t deepest = 0;            // most entries in one stream while its gate was closed
  std::int64_t gates = 0;              // closed ones
  std::int64_t copies_to_gpu = 0;      // contiguous ones
  std::int64_t last_copied_bytes = 0;  // to the GPU
  std::int64_t last_copied_sum = 0;    // of these bytes
};
Machine& machine();

/// Occupies a stream as a library's kernel does.
void occupy(cudaStream_t stream, double seconds);

}  // namespace spillway::emulated
