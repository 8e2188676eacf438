#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <numeric>
#include <utility>

#include "cuda_calibrate/cuda/cases.hpp"
#include "cuda_calibrate/cuda/gpu_facts.hpp"
#include "cuda_calibrate/host/host_facts.hpp"

namespace spillway::calibrate::gpu {
namespace {

/// GPUs by index, possibly including `gpu`. The other GPUs get their own contexts.
class Gpus {
 public:
  Gpus(Gpu& gpu, const std::vector<std::int64_t>& indices) {
    int present = 0;
    check(cudaGetDeviceCount(&present), "cudaGetDeviceCount");
    all_.reserve(indices.size());
    for (const std::int64_t index : indices) {
      if (index >= present) {
        throw Unsupported(fmt::format("there is no GPU {}: this machine has {}, counted from 0", index, present));
      }
      if (index == gpu.index()) {
        all_.push_back(&gpu);
      } else {
        all_.push_back(&others_.emplace_back(static_cast<int>(index), gpu.next_seed()));
      }
    }
  }
  [[nodiscard]] const std::vector<Gpu*>& all() const { return all_; }

 private:
  std::deque<Gpu> others_;
  std::vector<Gpu*> all_;
};

std::vector<std::int64_t> first_indices(std::int64_t count) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(count));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

class AllGpusCase : public Case {
 public:
  AllGpusCase(Gpu& gpu, const AllGpusCopy& point) : gpus_(gpu, first_indices(point.gpus)) {
    std::vector<Lane> lanes;
    for (const auto& [direction, of] :
         {std::pair(Direction::h2d, StreamOf::h2d), std::pair(Direction::d2h, StreamOf::d2h)}) {
      if (point.traffic != Traffic::both && (point.traffic == Traffic::h2d) != (direction == Direction::h2d)) continue;
      ++directions_;
      for (Gpu* one : gpus_.all()) {
        const std::int64_t node = point.numa_node >= 0 ? point.numa_node : node_of(*one);
        one->use();
        CopyOp& copy = copies_.emplace_back(*one, direction, HostMemory::pinned, point.bytes, node);
        cudaStream_t stream = one->stream(of);
        lanes.push_back({one, stream, [&copy, stream] { copy.enqueue(stream); }, 1});
      }
    }
    together_ = std::make_unique<Together>(gpu.gate(), std::move(lanes));
  }
  ~AllGpusCase() override = default;

  std::vector<double> sample(std::int64_t calls) override {
    const std::vector<double> seconds = together_->sample(calls);
    const std::size_t gpus = gpus_.all().size();
    std::vector<double> means(directions_, 0.0);
    for (std::size_t lane = 0; lane < seconds.size(); ++lane) {
      means[lane / gpus] += seconds[lane] / static_cast<double>(gpus);
    }
    return means;
  }
  [[nodiscard]] std::int64_t most_calls() const override { return together_->most_calls(); }
  [[nodiscard]] std::string kernel() const override { return "cudaMemcpyAsync"; }

 private:
  /// -1 (any node) if there is only one node or the system does not state the node.
  static std::int64_t node_of(const Gpu& gpu) {
    if (host_facts().numa_nodes == 1) return -1;
    return numa_node_of(pci_bus_id(gpu.index())).value_or(-1);
  }

  Gpus gpus_;
  std::deque<CopyOp> copies_;
  std::size_t directions_ = 0;
  std::unique_ptr<Together> together_;
};

/// Copies from one GPU to another.
class PeerOp {
 public:
  PeerOp(Gpu& from, Gpu& to, std::int64_t bytes) : from_(from), to_(to), bytes_(bytes) {
    places_ = rotation(bytes, std::max(from.l2_bytes(), to.l2_bytes()));
    from.use();
    source_ = from.random_memory(places_ * bytes);
    to.use();
    target_ = to.random_memory(places_ * bytes);
    from.use();
    int reaches = 0;
    check(cudaDeviceCanAccessPeer(&reaches, from.index(), to.index()), "cudaDeviceCanAccessPeer");
    if (reaches != 0) {
      const cudaError_t status = cudaDeviceEnablePeerAccess(to.index(), 0);
      if (status == cudaErrorPeerAccessAlreadyEnabled) {
        (void)cudaGetLastError();
      } else {
        check(status, "cudaDeviceEnablePeerAccess");
      }
      return;
    }
    // A copy has at most kPieces pieces, so that copies fit behind a gate.
    piece_ = std::min(bytes, std::max(kLeastPiece, (bytes + kPieces - 1) / kPieces));
    for (Half& half : halves_) {
      half.block = from.host_memory(HostMemory::pinned, piece_);
      half.filled = make_event();
      to.use();
      half.drained = make_event();
      from.use();
    }
  }

  [[nodiscard]] bool staged() const { return piece_ > 0; }
  /// The queue entries of a copy on either stream, including events.
  [[nodiscard]] std::int64_t operations() const { return staged() ? 3 * ((bytes_ + piece_ - 1) / piece_) + 1 : 1; }

  /// Copies on the source's stream `out`, which waits for the end of the copy; `in` is a stream of the target.
  void enqueue(cudaStream_t out, cudaStream_t in) {
    std::byte* source = source_.data() + next_ * bytes_;
    std::byte* target = target_.data() + next_ * bytes_;
    next_ = (next_ + 1) % places_;
    if (!staged()) {
      check(cudaMemcpyPeerAsync(target, to_.index(), source, from_.index(), static_cast<std::size_t>(bytes_), out),
            "cudaMemcpyPeerAsync");
      return;
    }
    std::size_t turn = 0;
    for (std::int64_t at = 0; at < bytes_; at += piece_, turn = 1 - turn) {
      Half& half = halves_[turn];
      const auto bytes = static_cast<std::size_t>(std::min(piece_, bytes_ - at));
      from_.use();
      if (half.used) check(cudaStreamWaitEvent(out, half.drained.get(), 0), "cudaStreamWaitEvent");
      check(cudaMemcpyAsync(half.block->data(), source + at, bytes, cudaMemcpyDeviceToHost, out), "cudaMemcpyAsync");
      check(cudaEventRecord(half.filled.get(), out), "cudaEventRecord");
      to_.use();
      check(cudaStreamWaitEvent(in, half.filled.get(), 0), "cudaStreamWaitEvent");
      check(cudaMemcpyAsync(target + at, half.block->data(), bytes, cudaMemcpyHostToDevice, in), "cudaMemcpyAsync");
      check(cudaEventRecord(half.drained.get(), in), "cudaEventRecord");
      half.used = true;
    }
    from_.use();
    check(cudaStreamWaitEvent(out, halves_[1 - turn].drained.get(), 0), "cudaStreamWaitEvent");
  }

 private:
  static constexpr std::int64_t kLeastPiece = std::int64_t{4} << 20;
  static constexpr std::int64_t kPieces = 16;
  struct Half {
    std::shared_ptr<HostBlock> block;
    Event filled;
    Event drained;
    bool used = false;
  };

  Gpu& from_;
  Gpu& to_;
  std::int64_t bytes_;
  std::int64_t places_ = 0;
  std::int64_t next_ = 0;
  std::int64_t piece_ = 0;
  DeviceMemory source_;
  DeviceMemory target_;
  std::array<Half, 2> halves_;
};

class PeerCase : public Case {
 public:
  PeerCase(Gpu& gpu, const PeerCopy& point) : gpus_(gpu, {point.from, point.to}) {
    Gpu& from = *gpus_.all().front();
    Gpu& to = *gpus_.all().back();
    std::vector<Lane> lanes;
    add(lanes, from, to, point.bytes);
    if (point.duplex) add(lanes, to, from, point.bytes);
    together_ = std::make_unique<Together>(gpu.gate(), std::move(lanes));
  }

  std::vector<double> sample(std::int64_t calls) override { return {together_->sample(calls).front()}; }
  [[nodiscard]] std::int64_t most_calls() const override {
    return std::clamp<std::int64_t>(kMostBehindGate / ops_.front().operations() - 2, 1, together_->most_calls());
  }
  [[nodiscard]] std::string kernel() const override {
    return ops_.front().staged() ? "cudaMemcpyAsync through the host" : "cudaMemcpyPeerAsync";
  }

 private:
  void add(std::vector<Lane>& lanes, Gpu& from, Gpu& to, std::int64_t bytes) {
    PeerOp& op = ops_.emplace_back(from, to, bytes);
    cudaStream_t out = from.stream(StreamOf::d2h);
    cudaStream_t in = to.stream(StreamOf::h2d);
    lanes.push_back({&from, out, [&op, out, in] { op.enqueue(out, in); }, op.operations()});
  }

  Gpus gpus_;
  std::deque<PeerOp> ops_;
  std::unique_ptr<Together> together_;
};

}  // namespace

std::unique_ptr<Case> make_case(Gpu& gpu, const AllGpusCopy& point) {
  return std::make_unique<AllGpusCase>(gpu, point);
}
std::unique_ptr<Case> make_case(Gpu& gpu, const PeerCopy& point) { return std::make_unique<PeerCase>(gpu, point); }

}  // namespace spillway::calibrate::gpu
