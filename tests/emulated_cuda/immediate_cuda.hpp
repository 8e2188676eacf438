// A CUDA runtime without a GPU: copies and kernels happen at once, in memory of the host, and each stream has a clock
// that they advance by times which follow from simple rules. Streams behind a closed gate start at the same moment.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace spillway::emulated {

// Seconds of one operation, besides its bytes.
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

/// What the runtime is asked about, and what it has seen. A test sets it up before it makes a backend.
struct Machine {
  int gpus = 2;
  cudaError_t count_status = cudaSuccess;
  int capability = 90;
  int driver = 13000;
  bool peers = true;
  std::size_t free_bytes = std::size_t{1} << 30;
  cudaError_t copy_status = cudaSuccess;  // of the next asynchronous copy
  bool gates_give_up = false;

  std::int64_t living = 0;   // events, streams, graphs and blocks of memory that are not given back yet
  std::int64_t deepest = 0;  // entries that one stream had while its gate was closed
  std::int64_t gates = 0;    // closed ones
};
Machine& machine();

/// What a kernel of a library does to a stream.
void occupy(cudaStream_t stream, double seconds);

}  // namespace spillway::emulated
