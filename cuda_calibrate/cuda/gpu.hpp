// One GPU with its streams, the gate that its work waits at, and how operations are timed behind it.
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

/// Streams wait at it until the host has enqueued everything, so that no operation waits for the host. Streams of
/// several GPUs may wait at the same gate.
class Gate {
 public:
  Gate();
  /// A gate that is open: its kernel is loaded when it runs for the first time, which had better not be when another
  /// stream of the GPU waits already.
  void pass(cudaStream_t stream) const;

  /// Opens when it goes out of scope, however that comes about.
  class Closed {
   public:
    explicit Closed(Gate& gate) : gate_(gate) { ++gate.generation_; }
    Closed(const Closed&) = delete;
    Closed& operator=(const Closed&) = delete;
    ~Closed() { open(); }
    /// What is enqueued on the stream of the current GPU from now on starts when the gate opens.
    void hold(cudaStream_t stream) const;
    void open();

   private:
    Gate& gate_;
  };

  /// Throws DeviceError when a stream did not wait until the gate was opened for the last time: the times are
  /// worthless.
  void check() const;

 private:
  HostBlock flags_;
  std::uint32_t* open_;     // generations up to this one may pass
  std::uint32_t* gave_up_;  // the last generation that a stream has waited for in vain
  std::uint32_t generation_ = 0;
};

class Cudnn;

enum class StreamOf : std::uint8_t { compute, h2d, d2h };

class Gpu {
 public:
  /// Makes it the current GPU. `seed` is that of the random data.
  Gpu(int index, std::uint64_t seed);

  void use() const { check(cudaSetDevice(index_), "cudaSetDevice"); }
  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] std::int64_t sms() const { return sms_; }
  [[nodiscard]] std::int64_t l2_bytes() const { return l2_bytes_; }
  [[nodiscard]] std::int64_t capability() const { return capability_; }  // 90 for sm_90
  /// Throws Unsupported when its tensor cores do not take such numbers.
  void need(Number number) const;

  [[nodiscard]] cudaStream_t stream(StreamOf of) const { return streams_[static_cast<std::size_t>(of)].get(); }
  [[nodiscard]] Gate& gate() { return gate_; }
  /// Waits until nothing is under way on the GPU.
  void finish() const;

  /// Another one at each call.
  [[nodiscard]] std::uint64_t next_seed() { return ++seed_; }
  /// Memory of this GPU with random numbers.
  [[nodiscard]] DeviceMemory random_memory(std::int64_t bytes, Number number = Number::bf16);
  /// Host memory of at least `bytes` with random numbers. What earlier cases had is taken again where it fits, but not
  /// held on to above 2 GiB: page-locking takes far longer than a measurement.
  [[nodiscard]] std::shared_ptr<HostBlock> host_memory(HostMemory kind, std::int64_t bytes,
                                                       std::int64_t numa_node = -1);

  /// What cuDNN has shown of itself on this GPU (cudnn_attention.hpp); null before it is asked for the first time.
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
  std::array<std::vector<std::shared_ptr<HostBlock>>, 3> kept_;  // by HostMemory, of no NUMA node in particular
  std::shared_ptr<Cudnn> cudnn_;
};

/// Operations that follow each other on one stream.
struct Lane {
  Gpu* gpu = nullptr;
  cudaStream_t stream = nullptr;
  std::function<void()> enqueue{};  // the next one
  std::int64_t entries = 1;         // of the stream's queue that it takes: launches, copies, events
};

/// Runs counts[i] operations of lanes[i], all lanes at once, and returns when they have ended what their events say. Up
/// to kMostBehindGate entries of each are enqueued before `gate` opens, the others while these run. Without a gate the
/// first operation starts as soon as it is enqueued, and the times include what the host takes to enqueue. `most_marks`
/// as of marks().
[[nodiscard]] std::vector<LaneTimes> run(Gate* gate, std::span<const Lane> lanes, std::span<const std::int64_t> counts,
                                         std::int64_t most_marks);

/// Seconds per operation of one lane alone.
[[nodiscard]] double seconds_alone(Gate* gate, const Lane& lane, std::int64_t calls);

/// Lanes that are timed while all of them run: each gets as many operations as it takes to be busy until the slowest
/// one has done its share, by the rates that were seen so far, and only what ended before the first lane ran dry counts
/// (schedule.hpp, overlapped).
class Together {
 public:
  /// Runs each lane once, then each alone for its rate.
  Together(Gate& gate, std::vector<Lane> lanes);
  /// Seconds per operation by lane, `calls` being those of the slowest one. Throws DeviceError when a lane ended no
  /// operation while the others ran, several times in a row.
  [[nodiscard]] std::vector<double> sample(std::int64_t calls);
  [[nodiscard]] std::int64_t most_calls() const { return most_balanced_calls(seconds_); }

 private:
  Gate& gate_;
  std::vector<Lane> lanes_;
  std::vector<double> seconds_;  // of one operation, as last seen
};

}  // namespace spillway::calibrate::gpu
