// Measurements on the CPU: memory bandwidth, decode attention and matrix products. The code does not need CUDA; a CUDA
// backend provides page-locked memory and concurrent copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cuda_calibrate/measure/backend.hpp"
#include "cuda_calibrate/measure/point.hpp"

namespace spillway::calibrate {

/// Memory with the function that frees it.
using HostBuffer = std::unique_ptr<std::byte, std::function<void(std::byte*)>>;

/// Concurrent copies of contiguous bytes between host and GPU while a stream kernel runs; consecutive copies in each
/// direction.
class BackgroundCopies {
 public:
  BackgroundCopies() = default;
  BackgroundCopies(const BackgroundCopies&) = delete;
  BackgroundCopies& operator=(const BackgroundCopies&) = delete;
  virtual ~BackgroundCopies() = default;

  /// Starts the copies and returns when copies are in flight; they continue until stop().
  virtual void start() = 0;
  /// Stops the copies. Returns seconds per copy since start() for the requested directions, H2D before D2H. Call stop()
  /// at least 50 ms after start().
  [[nodiscard]] virtual std::vector<double> stop() = 0;
};

/// Functions from a backend with a GPU. Each function may throw the backend's exceptions. Points that need a missing
/// function are Unsupported.
struct HostHooks {
  /// Page-locked memory of at least `bytes`, aligned to 64 bytes. The caller's thread is bound to the NUMA node for the
  /// memory. Several such threads may call at once; any thread may free the memory.
  std::function<HostBuffer(std::int64_t bytes)> page_locked;
  /// Copies of `bytes` in the directions of `traffic`, which is not Traffic::none. Called once per case.
  std::function<std::unique_ptr<BackgroundCopies>(Traffic traffic, std::int64_t bytes)> copies;
};

/// Times HostStream, HostAttention and HostGemm. The bytes of HostStream are the bytes that the program requests; reads
/// of a cache before a write do not count. Every other point is Unsupported with `gpu_reason`, which the facts also
/// contain. `seed` determines the random data.
[[nodiscard]] std::unique_ptr<Backend> make_host_backend(std::uint64_t seed, HostHooks hooks = {},
                                                         std::string gpu_reason = "built without CUDA");

}  // namespace spillway::calibrate
