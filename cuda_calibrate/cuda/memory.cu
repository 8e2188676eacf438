#include <fmt/format.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "cuda_calibrate/cuda/memory.hpp"
#include "cuda_calibrate/host/host_facts.hpp"
#include "cuda_calibrate/measure/backend.hpp"

namespace spillway::calibrate::gpu {
namespace {

/// Binds untouched pages of the memory to this node.
void bind_to_node(std::byte* data, std::int64_t bytes, std::int64_t node) {
  constexpr std::size_t kBits = 8 * sizeof(unsigned long);
  std::array<unsigned long, 16> mask{};
  const auto bit = static_cast<std::size_t>(node);
  if (bit >= kBits * mask.size()) throw Unsupported(fmt::format("there is no NUMA node {}", node));
  mask[bit / kBits] |= 1UL << bit % kBits;
  if (syscall(SYS_mbind, data, static_cast<unsigned long>(bytes), MPOL_BIND, mask.data(), kBits * mask.size(), 0UL) !=
      0) {
    throw Unsupported(fmt::format("cannot allocate memory on NUMA node {}: {}", node, std::strerror(errno)));
  }
}

}  // namespace

std::string pci_bus_id(int index) {
  std::array<char, 32> text{};
  check(cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), index), "cudaDeviceGetPCIBusId");
  return text.data();
}

Stream make_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return Stream(stream);
}

Event make_event(bool spin) {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, spin ? cudaEventDefault : cudaEventBlockingSync), "cudaEventCreateWithFlags");
  return Event(event);
}

double seconds_between(const Event& start, const Event& end) {
  float milliseconds = 0.0F;
  check(cudaEventElapsedTime(&milliseconds, start.get(), end.get()), "cudaEventElapsedTime");
  return static_cast<double>(milliseconds) * 1e-3;
}

DeviceMemory::DeviceMemory(std::int64_t bytes) : bytes_(bytes) {
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  if (static_cast<std::size_t>(bytes) > free) {
    throw OutOfMemory(fmt::format("{} bytes of GPU memory are needed, {} are free", bytes, free));
  }
  void* memory = nullptr;
  check(cudaMalloc(&memory, static_cast<std::size_t>(bytes)), "cudaMalloc", bytes);
  memory_ = Owner<void*, cudaFree>(memory);
}

HostBlock::HostBlock(HostMemory kind, std::int64_t bytes, std::int64_t numa_node) : bytes_(bytes) {
  const std::int64_t available = available_bytes();
  // Leave some memory to the system: a process that exhausts host memory is killed.
  if (bytes > available / 10 * 9) {
    throw OutOfMemory(fmt::format("{} bytes of host memory are needed, {} are available", bytes, available));
  }
  const auto size = static_cast<std::size_t>(bytes);
  if (kind == HostMemory::pinned && numa_node < 0) {
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, size, cudaHostAllocPortable | cudaHostAllocMapped), "cudaHostAlloc", bytes);
    data_ = static_cast<std::byte*>(memory);
    return;
  }
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw OutOfMemory(fmt::format("mmap found no memory for {} bytes", bytes));
  data_ = static_cast<std::byte*>(memory);
  mapped_ = true;
  try {
    if (numa_node >= 0) bind_to_node(data_, bytes, numa_node);
    std::memset(data_, 1, size);
    if (kind != HostMemory::pageable) {
      check(cudaHostRegister(data_, size, cudaHostRegisterPortable | cudaHostRegisterMapped), "cudaHostRegister",
            bytes);
      registered_ = true;
    }
  } catch (...) {
    (void)munmap(data_, size);
    throw;
  }
}

HostBlock::~HostBlock() {
  if (!mapped_) {
    (void)cudaFreeHost(data_);
    return;
  }
  if (registered_) (void)cudaHostUnregister(data_);
  (void)munmap(data_, static_cast<std::size_t>(bytes_));
}

std::byte* HostBlock::on_gpu() const {
  void* pointer = nullptr;
  check(cudaHostGetDevicePointer(&pointer, data_, 0), "cudaHostGetDevicePointer");
  return static_cast<std::byte*>(pointer);
}

}  // namespace spillway::calibrate::gpu
