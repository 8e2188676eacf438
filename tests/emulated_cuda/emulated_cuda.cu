#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "cuda_calibrate/cuda/kernels.hpp"
#include "tests/emulated_cuda/emulated_cuda.hpp"

namespace spillway::emulated {
namespace {

/// The last recorded time of an event.
struct Instant {
  bool reached = false;
  double time = 0.0;
};
struct EmulatedEvent {
  std::shared_ptr<Instant> instant = std::make_shared<Instant>(Instant{true, 0.0});
};

struct EmulatedStream {
  /// Performs the next operation; returns false when it must wait.
  using Step = std::function<bool(EmulatedStream&)>;
  std::deque<Step> queue;
  double now = 0.0;
};

std::vector<EmulatedStream*>& streams() {
  static std::vector<EmulatedStream*> all;
  return all;
}
std::map<const std::byte*, std::size_t>& blocks() {
  static std::map<const std::byte*, std::size_t> all;
  return all;
}
CopyRates& rates() {
  static CopyRates value;
  return value;
}
std::atomic<double>& word_came_at() {
  static std::atomic<double> time = 0.0;
  return time;
}
std::atomic<double>& host_done_at() {
  static std::atomic<double> time = 0.0;
  return time;
}

/// Runs all streams as far as possible; returns false when no stream could advance.
bool progress() {
  bool any = false;
  for (bool again = true; again;) {
    again = false;
    for (EmulatedStream* stream : streams()) {
      while (!stream->queue.empty() && stream->queue.front()(*stream)) {
        stream->queue.pop_front();
        again = any = true;
      }
    }
  }
  return any;
}

void finish(const std::function<bool()>& finished) {
  while (!finished()) {
    if (!progress()) std::this_thread::yield();  // until the CPU has done its part
  }
}

EmulatedStream& stream_of(void* handle) { return *static_cast<EmulatedStream*>(handle); }
EmulatedEvent& event_of(cudaEvent_t handle) { return *reinterpret_cast<EmulatedEvent*>(handle); }

void push(void* handle, EmulatedStream::Step step) {
  EmulatedStream& stream = stream_of(handle);
  // A longer queue would deadlock: the CPU would wait for the stream, and the stream for the CPU.
  constexpr std::size_t kLongest = 1000;
  if (stream.queue.size() >= kLongest) static_cast<void>(progress());
  EXPECT_LT(stream.queue.size(), kLongest) << "more was enqueued behind a gate than fits";
  stream.queue.push_back(std::move(step));
}

bool reached(const std::uint32_t* word, std::uint32_t value) {
  return std::atomic_ref<std::uint32_t>(*const_cast<std::uint32_t*>(word)).load() >= value;
}

void expect_allocated(const void* data, std::size_t bytes) {
  const auto* first = static_cast<const std::byte*>(data);
  auto block = blocks().upper_bound(first);
  ASSERT_NE(block, blocks().begin());
  --block;
  EXPECT_LE(first + bytes, block->first + block->second) << "beyond the end of its memory";
}

cudaError_t allocate(void** memory, std::size_t bytes) {
  // Untouched pages take no memory.
  *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (*memory == MAP_FAILED) return cudaErrorMemoryAllocation;
  blocks()[static_cast<const std::byte*>(*memory)] = bytes;
  return cudaSuccess;
}
cudaError_t release(void* memory) {
  const auto block = blocks().find(static_cast<const std::byte*>(memory));
  if (block == blocks().end()) return cudaErrorInvalidValue;
  (void)munmap(memory, block->second);
  blocks().erase(block);
  return cudaSuccess;
}

}  // namespace

void set_copy_rates(const CopyRates& value) { rates() = value; }

void enqueue_work(void* stream, double seconds) {
  push(stream, [seconds](EmulatedStream& on) {
    on.now += seconds;
    return true;
  });
}

void host_works(double seconds) { host_done_at() = word_came_at() + seconds; }

}  // namespace spillway::emulated

// The functions below have the names of CUDA's functions.
using namespace spillway::emulated;

cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrMultiProcessorCount ? 40 : attribute == cudaDevAttrL2CacheSize ? 4 << 20 : 8;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int) {
  std::memset(text, 0, static_cast<std::size_t>(bytes));
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  streams().push_back(new EmulatedStream);
  *stream = reinterpret_cast<cudaStream_t>(streams().back());
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  EmulatedStream* gone = &stream_of(stream);
  std::erase(streams(), gone);
  delete gone;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new EmulatedEvent);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete &event_of(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const auto instant = std::make_shared<Instant>();
  event_of(event).instant = instant;
  push(stream, [instant](EmulatedStream& on) {
    *instant = {true, on.now};
    return true;
  });
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  push(stream, [instant = event_of(event).instant](EmulatedStream& on) {
    if (instant->reached) on.now = std::max(on.now, instant->time);
    return instant->reached;
  });
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  finish([&] { return event_of(event).instant->reached; });
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  *milliseconds = static_cast<float>(1e3 * (event_of(end).instant->time - event_of(start).instant->time));
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  finish([] { return std::ranges::all_of(streams(), [](const auto* stream) { return stream->queue.empty(); }); });
  // Later work starts after all of this.
  double latest = 0.0;
  for (const EmulatedStream* stream : streams()) latest = std::max(latest, stream->now);
  for (EmulatedStream* stream : streams()) stream->now = latest;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaDeviceSynchronize(); }
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  constexpr std::size_t kSmall = 1 << 20;  // data that tests read back; random data is not read
  if (bytes <= kSmall) std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  expect_allocated(to, bytes);
  expect_allocated(from, bytes);
  push(stream, [=](EmulatedStream& on) {
    const bool word = bytes == sizeof(std::uint32_t);
    if (word) {
      word_came_at() = on.now;
      std::atomic_ref<std::uint32_t>(*static_cast<std::uint32_t*>(to)).store(*static_cast<const std::uint32_t*>(from));
    } else {
      on.now += static_cast<double>(bytes) * (kind == cudaMemcpyHostToDevice ? rates().h2d : rates().d2h);
    }
    return true;
  });
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes) { return allocate(memory, bytes); }
cudaError_t cudaFree(void* memory) { return release(memory); }
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) { return allocate(memory, bytes); }
cudaError_t cudaFreeHost(void* memory) { return release(memory); }
cudaError_t cudaHostRegister(void*, std::size_t, unsigned) { return cudaSuccess; }
cudaError_t cudaHostUnregister(void*) { return cudaSuccess; }
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = *total = std::size_t{16} << 30;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "an error"; }
const char* cudaGetErrorName(cudaError_t) { return "cudaError"; }
const char* cublasLtGetStatusString(cublasStatus_t) { return "an error"; }
const char* cublasLtGetStatusName(cublasStatus_t) { return "CUBLAS_STATUS"; }

namespace spillway::calibrate::gpu {

void enqueue_gate(const std::uint32_t* open, std::uint32_t* /*gave_up*/, std::uint32_t generation,
                  cudaStream_t stream) {
  push(stream, [=](EmulatedStream&) { return reached(open, generation); });
}
/// The stream waits until the CPU's work is done.
void enqueue_wait(const std::uint32_t* word, std::uint32_t value, cudaStream_t stream) {
  push(stream, [=](EmulatedStream& on) {
    if (!reached(word, value)) return false;
    on.now = std::max(on.now, host_done_at().load());
    return true;
  });
}
void enqueue_fill(void* to, std::int64_t /*count*/, Number /*number*/, std::uint64_t /*seed*/,
                  cudaStream_t /*stream*/) {
  expect_allocated(to, 1);
}
void enqueue_blocks(const BlockCopy& copy, std::int64_t /*ctas*/, cudaStream_t /*stream*/) {
  expect_allocated(copy.target, static_cast<std::size_t>(copy.blocks * copy.block_bytes));
}

}  // namespace spillway::calibrate::gpu
