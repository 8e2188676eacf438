// Owners of memory, streams and events. Constructors throw OutOfMemory or DeviceError; destructors never throw.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda_calibrate/cuda/check.hpp"
#include "cuda_calibrate/measure/point.hpp"

namespace spillway::calibrate::gpu {

/// "0000:3b:00.0".
[[nodiscard]] std::string pci_bus_id(int index);

/// A handle of the CUDA runtime and the call that destroys it.
template <typename Handle, cudaError_t (*kDestroy)(Handle)>
class Owner {
 public:
  Owner() = default;
  explicit Owner(Handle handle) : handle_(handle) {}
  Owner(Owner&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owner& operator=(Owner&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
  ~Owner() {
    if (handle_ != nullptr) (void)kDestroy(handle_);
  }
  [[nodiscard]] Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};
using Stream = Owner<cudaStream_t, cudaStreamDestroy>;
using Event = Owner<cudaEvent_t, cudaEventDestroy>;
using Graph = Owner<cudaGraph_t, cudaGraphDestroy>;
using GraphExec = Owner<cudaGraphExec_t, cudaGraphExecDestroy>;

/// A stream of the current GPU, independent of the default stream.
[[nodiscard]] Stream make_stream();
/// An event of the current GPU. Without spinning, the waiting thread sleeps.
[[nodiscard]] Event make_event(bool spin = true);
[[nodiscard]] double seconds_between(const Event& start, const Event& end);

/// Memory of the current GPU. Throws OutOfMemory, naming needed and free bytes, before it requests more than the free
/// bytes.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(std::int64_t bytes);
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(memory_.get()); }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  template <typename T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(memory_.get());
  }

 private:
  Owner<void*, cudaFree> memory_;
  std::int64_t bytes_ = 0;
};

/// Copies the numbers to memory of the current GPU, at least one byte.
template <typename T>
[[nodiscard]] DeviceMemory uploaded(const std::vector<T>& numbers) {
  const auto bytes = static_cast<std::int64_t>(numbers.size() * sizeof(T));
  DeviceMemory memory(bytes > 0 ? bytes : 1);
  if (numbers.empty()) return memory;
  check(cudaMemcpy(memory.data(), numbers.data(), numbers.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  return memory;
}

/// Reads the first `count` numbers, or all numbers, from memory of the current GPU.
template <typename T>
[[nodiscard]] std::vector<T> downloaded(const DeviceMemory& memory, std::int64_t count = -1) {
  std::vector<T> numbers(count < 0 ? static_cast<std::size_t>(memory.bytes()) / sizeof(T)
                                   : static_cast<std::size_t>(count));
  check(cudaMemcpy(numbers.data(), memory.data(), numbers.size() * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
  return numbers;
}

/// Host memory with all pages present. Page-locked kinds are page-locked for every GPU and visible to kernels.
class HostBlock {
 public:
  /// Allocates on a NUMA node, or where the system decides (`numa_node` < 0: the node of the calling thread if it has
  /// enough memory). Throws OutOfMemory, naming needed and available bytes, and Unsupported if the node does not exist.
  HostBlock(HostMemory kind, std::int64_t bytes, std::int64_t numa_node = -1);
  HostBlock(const HostBlock&) = delete;
  HostBlock& operator=(const HostBlock&) = delete;
  ~HostBlock();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  /// The address for kernels of the current GPU. Not for pageable memory.
  [[nodiscard]] std::byte* on_gpu() const;

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
  bool mapped_ = false;      // true: mapped by this class; false: allocated by CUDA
  bool registered_ = false;  // with CUDA
};

}  // namespace spillway::calibrate::gpu
