// One GPU with its streams, the gate that holds work back, and the timing of operations behind the gate.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cuda_calibrate/cuda/memory.hpp"
#include "cuda_calibrate/cuda/schedule.hpp"
#include "cuda_calibrate/measure/point.hpp"

namespace spillway::calibrate::gpu {

/// Streams wait at the gate until the CPU has enqueued everything, so no operation waits for the CPU. Streams of
/// several GPUs may wait at one gate.
class Gate {
 public:
  Gate();
  /// Passes an open gate, which loads the gate's kernel. Loading must not happen later, while another stream of the GPU
  /// already waits.
  void pass(cudaStream_t stream) const;

  /// A closed gate. The destructor opens the gate, also after an exception.
  class Closed {
   public:
    explicit Closed(Gate& gate) : gate_(gate) { ++gate.generation_; }
    Closed(const Closed&) = delete;
    Closed& operator=(const Closed&) = delete;
    ~Closed() { open(); }
    /// Work enqueued on a stream of the current GPU after this call starts when the gate opens.
    void hold(cudaStream_t stream) const;
    void open();

   private:
    Gate& gate_;
  };

  /// Throws DeviceError if a stream gave up waiting before the gate last opened: its times are worthless.
  void check() const;

 private:
  HostBlock flags_;
  std::uint32_t* open_;     // generations up to this value may pass
  std::uint32_t* gave_up_;  // the last generation for which a stream gave up waiting
  std::uint32_t generation_ = 0;
};

class Cudnn;

enum class StreamOf : std::uint8_t { compute, h2d, d2h };

class Gpu {
 public:
  /// Makes the GPU current. `seed` determines the random data.
  Gpu(int index, std::uint64_t seed);

  void use() const { check(cudaSetDevice(index_), "cudaSetDevice"); }
  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] std::int64_t sms() const { return sms_; }
  [[nodiscard]] std::int64_t l2_bytes() const { return l2_bytes_; }
  [[nodiscard]] std::int64_t capability() const { return capability_; }  // 90 for sm_90
  /// Throws Unsupported if the GPU's tensor cores do not support these numbers.
  void need(Number number) const;

  [[nodiscard]] cudaStream_t stream(StreamOf of) const { return streams_[static_cast<std::size_t>(of)].get(); }
  [[nodiscard]] Gate& gate() { return gate_; }
  /// Waits until the GPU is idle.
  void finish() const;

  /// Returns a new seed at each call.
  [[nodiscard]] std::uint64_t next_seed() { return ++seed_; }
  /// GPU memory filled with random numbers.
  [[nodiscard]] DeviceMemory random_memory(std::int64_t bytes, Number number = Number::bf16);
  /// Host memory of at least `bytes` with random numbers. Reuses memory of earlier cases where it fits, because
  /// page-locking takes far longer than a measurement, but keeps no more than 2 GiB.
  [[nodiscard]] std::shared_ptr<HostBlock> host_memory(HostMemory kind, std::int64_t bytes,
                                                       std::int64_t numa_node = -1);

  /// The outcome of cuDNN's trials on this GPU (cudnn_attention.hpp); null before the first request.
  [[nodiscard]] std::shared_ptr<Cudnn>& cudnn() { return cudnn_; }

 private:
  void fill(HostBlock& block);

  int index_;
  std::uint64_t seed_;
  std::int64_t sms_ = 0;
  std::int64_t l2_bytes_ = 0;
  std::int64_t capability_ = 0;
  std::array<Stream, 3> streams_;
  Gate gate_;
  std::array<std::vector<std::shared_ptr<HostBlock>>, 3> kept_;  // by HostMemory, without a NUMA node
  std::shared_ptr<Cudnn> cudnn_;
};

/// Consecutive operations on one stream.
struct Lane {
  Gpu* gpu = nullptr;
  cudaStream_t stream = nullptr;
  std::function<void()> enqueue{};  // enqueues the next operation
  std::int64_t entries = 1;         // entries in the stream's queue per operation: launches, copies, events
};

/// Runs counts[i] operations of lanes[i], all lanes at once. Returns the end times from their events. Up to
/// kMostBehindGate entries of each lane are enqueued before `gate` opens, the others while these run. Without a gate,
/// the first operation starts as soon as it is enqueued, and the times include the CPU's enqueueing. `most_marks` as in
/// marks().
[[nodiscard]] std::vector<LaneTimes> run(Gate* gate, std::span<const Lane> lanes, std::span<const std::int64_t> counts,
                                         std::int64_t most_marks);

/// Seconds per operation of a single lane.
[[nodiscard]] double seconds_alone(Gate* gate, const Lane& lane, std::int64_t calls);

/// Times lanes while all of them run. According to the rates measured so far, each lane gets enough operations to stay
/// busy until the slowest lane has done its share. Only operations that ended before the first lane ran dry count
/// (schedule.hpp, overlapped).
class Together {
 public:
  /// Runs each lane once, then each lane alone to measure its rate.
  Together(Gate& gate, std::vector<Lane> lanes);
  /// Seconds per operation of each lane; the slowest lane runs `calls` operations. Throws DeviceError when, several
  /// times in a row, a lane ended no operation while the others ran.
  [[nodiscard]] std::vector<double> sample(std::int64_t calls);
  [[nodiscard]] std::int64_t most_calls() const { return most_balanced_calls(seconds_); }

 private:
  Gate& gate_;
  std::vector<Lane> lanes_;
  std::vector<double> seconds_;  // latest seconds per operation
};

}  // namespace spillway::calibrate::gpu
