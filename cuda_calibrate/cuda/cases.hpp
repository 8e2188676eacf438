// The points of a GPU. Each function allocates, fills and warms up the buffers of a case. Kernels and library calls run
// once before the first gate: CUDA may load a kernel on its first call and then waits for the GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>

#include "cuda_calibrate/cuda/gpu.hpp"
#include "cuda_calibrate/host/host_backend.hpp"
#include "cuda_calibrate/measure/backend.hpp"
#include "cuda_calibrate/measure/point.hpp"

namespace spillway::calibrate::gpu {

/// Contiguous copies of `bytes` between a host buffer and GPU memory, each call at a different offset.
class CopyOp {
 public:
  CopyOp(Gpu& gpu, Direction direction, HostMemory memory, std::int64_t bytes, std::int64_t numa_node = -1);
  /// Copies by a DMA engine.
  void enqueue(cudaStream_t stream);
  /// Copies by the SMs, with `ctas` thread blocks. `bytes` must be a multiple of 16, and the host memory page-locked.
  void enqueue_kernel(std::int64_t ctas, cudaStream_t stream);

 private:
  [[nodiscard]] std::int64_t next_offset();

  Direction direction_;
  std::int64_t bytes_;
  std::int64_t places_;
  std::int64_t next_ = 0;
  std::shared_ptr<HostBlock> host_;
  DeviceMemory device_;
};

/// The most launches of one computation, as in Lane::entries: a kernel, and a kernel that adds partial results. A
/// library with a few more launches still stays below the limit of a stream.
inline constexpr std::int64_t kEntries = 2;

/// A computation that can be timed alone or beside other work.
class ComputeOp {
 public:
  ComputeOp() = default;
  ComputeOp(const ComputeOp&) = delete;
  ComputeOp& operator=(const ComputeOp&) = delete;
  virtual ~ComputeOp() = default;
  /// Enqueues the next call, with different weights, keys and values than the last call.
  virtual void enqueue(cudaStream_t stream) = 0;
  [[nodiscard]] virtual std::string kernel() const = 0;
  [[nodiscard]] virtual std::string note() const { return {}; }  // as Case::note()
};
[[nodiscard]] std::unique_ptr<ComputeOp> make_op(Gpu& gpu, const Gemm& point);
/// A product that can use other weights than its own.
class ProductOp : public ComputeOp {
 public:
  /// Enqueues the product with the weights [n][k] at `weights` in GPU memory, as they are when the operation runs.
  virtual void enqueue_with(const std::byte* weights, cudaStream_t stream) = 0;
};
[[nodiscard]] std::unique_ptr<ProductOp> make_product(Gpu& gpu, const Gemm& point);
/// One call with its inputs and outputs. The weights of the call are at the front of `weights`. The operation owns the
/// memory.
struct GemmCheck {
  std::unique_ptr<ComputeOp> op;
  const DeviceMemory* weights = nullptr;
  const DeviceMemory* x = nullptr;
  const DeviceMemory* y = nullptr;
};
[[nodiscard]] GemmCheck run_gemm(Gpu& gpu, const Gemm& point);
[[nodiscard]] std::unique_ptr<ComputeOp> make_op(Gpu& gpu, const DecodeAttention& point);
[[nodiscard]] std::unique_ptr<ComputeOp> make_op(Gpu& gpu, const PrefillAttention& point);
[[nodiscard]] std::unique_ptr<ComputeOp> make_op(Gpu& gpu, const MixedAttention& point);
[[nodiscard]] std::unique_ptr<ComputeOp> make_op(Gpu& gpu, const Elementwise& point);

/// Consecutive calls on one stream, behind the gate.
[[nodiscard]] std::unique_ptr<Case> compute_case(Gpu& gpu, std::unique_ptr<ComputeOp> op);

/// Runs pageable copies without a gate, because they keep the CPU busy.
[[nodiscard]] std::unique_ptr<Case> make_case(Gpu& gpu, const ContiguousCopy& point);
/// Page-locks the buffer beforehand. Each call copies other bytes, so that they come from memory and not from a cache.
[[nodiscard]] std::unique_ptr<Case> make_case(Gpu& gpu, const RelayCopy& point);
/// Timed by Together: counts operations that ended while both directions ran.
[[nodiscard]] std::unique_ptr<Case> make_case(Gpu& gpu, const DuplexCopy& point);
/// `many` and `batched` run without a gate. Enqueueing thousands of copies is part of their time; it often takes longer
/// than the copies, and it does not fit behind a gate. The slots of `gather` and `kernel` are on the GPU beforehand.
/// `gather` uses contiguous blocks of the host; the three other methods use blocks from the whole pool.
[[nodiscard]] std::unique_ptr<Case> make_case(Gpu& gpu, const ScatteredCopy& point);
/// As DuplexCopy, with the streams of all GPUs. Each GPU's time starts when its own gate opens.
[[nodiscard]] std::unique_ptr<Case> make_case(Gpu& gpu, const AllGpusCopy& point);
/// As DuplexCopy. If the GPUs have no peer access, pieces of at least 4 MiB go through two alternating host buffers.
[[nodiscard]] std::unique_ptr<Case> make_case(Gpu& gpu, const PeerCopy& point);
/// Times compute and copies alone, then together as DuplexCopy. Copies by SMs use eight thread blocks.
[[nodiscard]] std::unique_ptr<Case> make_case(Gpu& gpu, const Interference& point);
/// Runs without a gate. The CPU or the GPU's front end, whichever is slower, limits empty kernels and graphs.
[[nodiscard]] std::unique_ptr<Case> make_case(Gpu& gpu, const Launch& point);

/// The hooks that HostStream needs from a GPU. `gpu` must outlive the hooks.
[[nodiscard]] HostHooks host_hooks(Gpu& gpu);

}  // namespace spillway::calibrate::gpu
