// What is measured on the CPU: memory bandwidth and decode attention. Needs no CUDA; a backend that has CUDA lends it
// page-locked memory and copies that run meanwhile.
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

/// Memory that is given back by the function it came with.
using HostBuffer = std::unique_ptr<std::byte, std::function<void(std::byte*)>>;

/// Copies between host and GPU beside a stream, of contiguous bytes, one behind another in each direction.
class BackgroundCopies {
 public:
  BackgroundCopies() = default;
  BackgroundCopies(const BackgroundCopies&) = delete;
  BackgroundCopies& operator=(const BackgroundCopies&) = delete;
  virtual ~BackgroundCopies() = default;

  /// Returns when copies are under way; they go on until stop().
  virtual void start() = 0;
  /// Ends them and returns seconds per copy since start(), H2D before D2H, those directions that were asked for. At
  /// least 50 ms lie between the two calls.
  [[nodiscard]] virtual std::vector<double> stop() = 0;
};

/// What a backend with a GPU lends. Each function may throw what a backend throws; without one the points that need it
/// are Unsupported.
struct HostHooks {
  /// Page-locked memory of at least `bytes`, aligned to 64. Called on a thread that is bound to the NUMA node which the
  /// memory should lie on, from several such threads at once, and given back from any thread.
  std::function<HostBuffer(std::int64_t bytes)> page_locked;
  /// Copies of `bytes` each in the directions of `traffic`, which is not Traffic::none. Called once per case.
  std::function<std::unique_ptr<BackgroundCopies>(Traffic traffic, std::int64_t bytes)> copies;
};

/// Times HostStream, whose bytes are those that the program asks for (what a cache reads before it writes is not
/// counted), and HostAttention; every other point is Unsupported, with `gpu_reason` as the reason, which also is that
/// of the facts. `seed` is that of the random data.
[[nodiscard]] std::unique_ptr<Backend> make_host_backend(std::uint64_t seed, HostHooks hooks = {},
                                                         std::string gpu_reason = "built without CUDA");

}  // namespace spillway::calibrate
