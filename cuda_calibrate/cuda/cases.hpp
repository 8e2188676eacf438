// The points of a GPU. Each function allocates, fills and warms up what the case needs; kernels and library calls run
// once before the first gate, because CUDA may load them on their first call and waits for the GPU to do so.
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

/// Contiguous copies of `bytes` between a host buffer and memory of the GPU, each call at another place.
class CopyOp {
 public:
  CopyOp(Gpu& gpu, Direction direction, HostMemory memory, std::int64_t bytes, std::int64_t numa_node = -1);
  /// By a DMA engine.
  void enqueue(cudaStream_t stream);
  /// By the SMs: `ctas` thread blocks. `bytes` is a multiple of 16, the memory page-locked.
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

/// Launches that one computation is at most, as of Lane::entries: a kernel, and one that adds up partial results. A
/// library that makes a few more of them is still below what a stream takes.
inline constexpr std::int64_t kEntries = 2;

/// A computation that can be timed alone or beside something else.
class ComputeOp {
 public:
  ComputeOp() = default;
  ComputeOp(const ComputeOp&) = delete;
  ComputeOp& operator=(const ComputeOp&) = delete;
  virtual ~ComputeOp() = default;
  /// The next call, on other weights, keys and values than the last one.
  virtual void enqueue(cudaStream_t stream) = 0;
  [[nodiscard]] virtual std::string kernel() const = 0;
  [[nodiscard]] virtual std::string note() const { return {}; }  // as of Case
};
[[nodiscard]] std::unique_ptr<ComputeOp> make_op(Gpu& gpu, const Gemm& point);
/// A product whose weights may be others than its own.
class ProductOp : public ComputeOp {
 public:
  /// With the weights [n][k] that lie there, in memory of the GPU, when the operation runs.
  virtual void enqueue_with(const std::byte* weights, cudaStream_t stream) = 0;
};
[[nodiscard]] std::unique_ptr<ProductOp> make_product(Gpu& gpu, const Gemm& point);
/// One call and what it read and wrote: the weights are at the front of theirs. The memory is the operation's.
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

/// Calls behind each other on one stream, behind the gate.
[[nodiscard]] std::unique_ptr<Case> compute_case(Gpu& gpu, std::unique_ptr<ComputeOp> op);

/// Pageable copies keep the host busy, so they run without a gate.
[[nodiscard]] std::unique_ptr<Case> make_case(Gpu& gpu, const ContiguousCopy& point);
/// Times by Together: what ended while both directions ran.
[[nodiscard]] std::unique_ptr<Case> make_case(Gpu& gpu, const DuplexCopy& point);
/// `many` and `batched` run without a gate: enqueueing thousands of copies is a part of them, which often takes longer
/// than the copies and does not fit behind a gate. The slots of `gather` and `kernel` are on the GPU beforehand. With
/// `gather` the host's blocks lie behind each other; the three others take them from all over the pool.
[[nodiscard]] std::unique_ptr<Case> make_case(Gpu& gpu, const ScatteredCopy& point);
/// As DuplexCopy, with the streams of every GPU, each from the moment that its own gate opened.
[[nodiscard]] std::unique_ptr<Case> make_case(Gpu& gpu, const AllGpusCopy& point);
/// As DuplexCopy. Where the GPUs cannot reach each other, pieces of at least 4 MiB go through two buffers of the host
/// in turns.
[[nodiscard]] std::unique_ptr<Case> make_case(Gpu& gpu, const PeerCopy& point);
/// Compute and copies alone, then at once as DuplexCopy. SMs copy with eight thread blocks.
[[nodiscard]] std::unique_ptr<Case> make_case(Gpu& gpu, const Interference& point);
/// Without a gate: what limits kernels and graphs that do nothing is the host or the GPU's front end, whichever is
/// slower.
[[nodiscard]] std::unique_ptr<Case> make_case(Gpu& gpu, const Launch& point);

/// What HostStream needs of a GPU. `gpu` outlives the hooks.
[[nodiscard]] HostHooks host_hooks(Gpu& gpu);

}  // namespace spillway::calibrate::gpu
