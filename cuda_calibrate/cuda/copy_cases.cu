#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "cuda_calibrate/cuda/cases.hpp"
#include "cuda_calibrate/cuda/kernels.hpp"
#include "cuda_calibrate/host/host_facts.hpp"
#include "cuda_calibrate/host/host_memory.hpp"
#include "cuda_calibrate/host/thread_team.hpp"

namespace spillway::calibrate::gpu {
namespace {

using Seconds = std::chrono::duration<double>;

StreamOf stream_of(Direction direction) { return direction == Direction::h2d ? StreamOf::h2d : StreamOf::d2h; }

class ContiguousCase : public Case {
 public:
  ContiguousCase(Gpu& gpu, const ContiguousCopy& point)
      : gpu_(gpu),
        copy_(gpu, point.direction, point.memory, point.bytes),
        gate_(point.memory == HostMemory::pageable ? nullptr : &gpu.gate()),
        lane_{&gpu, gpu.stream(stream_of(point.direction)), [this] { copy_.enqueue(lane_.stream); }, 1} {
    lane_.enqueue();
    gpu_.finish();
  }

  std::vector<double> sample(std::int64_t calls) override {
    gpu_.use();
    const double on_gpu = seconds_alone(gate_, lane_, calls);
    const auto start = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < calls; ++i) {
      lane_.enqueue();
      check(cudaStreamSynchronize(lane_.stream), "cudaStreamSynchronize");
    }
    const double seen = Seconds(std::chrono::steady_clock::now() - start).count();
    return {on_gpu, seen / static_cast<double>(calls)};
  }
  [[nodiscard]] std::int64_t most_calls() const override { return kMostBehindGate; }
  [[nodiscard]] std::string kernel() const override { return "cudaMemcpyAsync"; }

 private:
  Gpu& gpu_;
  CopyOp copy_;
  Gate* gate_;
  Lane lane_;
};

class RelayCase : public Case {
 public:
  RelayCase(Gpu& gpu, const RelayCopy& point)
      : gpu_(gpu),
        bytes_(point.bytes),
        windows_(buffers_beyond_cache(point.bytes, last_level_cache_bytes())),
        team_(spread(usable_cpus(), point.threads)),
        source_(HostMemory::pageable, windows_ * point.bytes),
        buffer_(HostMemory::pinned, point.bytes),
        device_(gpu.random_memory(point.bytes)) {
    call();
  }

  std::vector<double> sample(std::int64_t calls) override {
    gpu_.use();
    const auto start = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < calls; ++i) call();
    const double seen = Seconds(std::chrono::steady_clock::now() - start).count();
    return {seen / static_cast<double>(calls)};
  }
  [[nodiscard]] std::int64_t most_calls() const override { return std::int64_t{1} << 20U; }
  [[nodiscard]] std::string kernel() const override { return "memcpy, cudaMemcpyAsync"; }
  [[nodiscard]] std::string note() const override { return team_.note(); }

 private:
  void call() {
    const std::byte* from = source_.data() + next_ * bytes_;
    next_ = (next_ + 1) % windows_;
    const auto threads = static_cast<std::int64_t>(team_.size());
    (void)team_.timed([&](std::size_t thread) {
      const auto i = static_cast<std::int64_t>(thread);
      const std::int64_t first = i * bytes_ / threads;
      const std::int64_t end = (i + 1) * bytes_ / threads;
      std::memcpy(buffer_.data() + first, from + first, static_cast<std::size_t>(end - first));
    });
    cudaStream_t stream = gpu_.stream(StreamOf::h2d);
    check(cudaMemcpyAsync(device_.data(), buffer_.data(), static_cast<std::size_t>(bytes_), cudaMemcpyHostToDevice,
                          stream),
          "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }

  Gpu& gpu_;
  std::int64_t bytes_;
  std::int64_t windows_;
  std::int64_t next_ = 0;  // next window of the source
  ThreadTeam team_;
  HostBlock source_;
  HostBlock buffer_;
  DeviceMemory device_;
};

class DuplexCase : public Case {
 public:
  DuplexCase(Gpu& gpu, const DuplexCopy& point)
      : in_(gpu, Direction::h2d, HostMemory::pinned, point.h2d_bytes),
        out_(gpu, Direction::d2h, HostMemory::pinned, point.d2h_bytes),
        both_(gpu.gate(),
              {{&gpu, gpu.stream(StreamOf::h2d), [this, &gpu] { in_.enqueue(gpu.stream(StreamOf::h2d)); }, 1},
               {&gpu, gpu.stream(StreamOf::d2h), [this, &gpu] { out_.enqueue(gpu.stream(StreamOf::d2h)); }, 1}}) {}
  std::vector<double> sample(std::int64_t calls) override { return both_.sample(calls); }
  [[nodiscard]] std::int64_t most_calls() const override { return both_.most_calls(); }
  [[nodiscard]] std::string kernel() const override { return "cudaMemcpyAsync"; }

 private:
  CopyOp in_;
  CopyOp out_;
  Together both_;
};

/// Alternating sets of slots, in the host's pool and in the GPU's pool.
class ScatteredCase : public Case {
 public:
  ScatteredCase(Gpu& gpu, const ScatteredCopy& point)
      : gpu_(gpu),
        point_(point),
        lane_{&gpu, gpu.stream(stream_of(point.direction)), [this] { enqueue(); }, 2},
        host_seed_(gpu.next_seed()),
        device_seed_(gpu.next_seed()) {
    if (point.block_bytes % 16 != 0 && (point.mechanism == Mechanism::gather || point.mechanism == Mechanism::kernel)) {
      throw Unsupported(
          fmt::format("kernels copy words of 16 bytes, and {} is not a multiple of 16", point.block_bytes));
    }
    if (point.mechanism == Mechanism::batched) need_batches();
    const std::int64_t moved = point.block_bytes * point.blocks;
    const std::int64_t beyond_l2 = rotation(moved, gpu.l2_bytes()) * moved;
    const std::int64_t host_slots = std::max(point.pool_bytes, moved) / point.block_bytes;
    const std::int64_t device_slots = beyond_l2 / point.block_bytes;
    host_ = gpu.host_memory(HostMemory::pinned, host_slots * point.block_bytes);
    device_ = gpu.random_memory(device_slots * point.block_bytes);
    if (point.mechanism == Mechanism::gather) staging_ = gpu.random_memory(moved);
    const std::int64_t sets = std::min<std::int64_t>(rotation(moved, gpu.l2_bytes()), kMostSets);
    sets_.reserve(static_cast<std::size_t>(sets));
    for (std::int64_t set = 0; set < sets; ++set) add_set(set, host_slots, device_slots);
    enqueue();
    gpu.finish();
  }

  std::vector<double> sample(std::int64_t calls) override {
    gpu_.use();
    return {seconds_alone(one_by_one() ? nullptr : &gpu_.gate(), lane_, calls)};
  }
  [[nodiscard]] std::int64_t most_calls() const override {
    return one_by_one() ? 10 * kMostBehindGate : kMostBehindGate / lane_.entries;
  }
  [[nodiscard]] std::string kernel() const override {
    switch (point_.mechanism) {
      case Mechanism::many:
        return "cudaMemcpyAsync";
      case Mechanism::batched:
        return "cudaMemcpyBatchAsync";
      case Mechanism::gather:
      case Mechanism::kernel:
        return "spillway";
    }
    return {};
  }

 private:
  static constexpr std::int64_t kMostSets = 64;
  struct Set {
    std::vector<void*> targets;
    std::vector<void*> sources;
    std::vector<std::size_t> sizes;
    DeviceMemory host_slots;
    DeviceMemory device_slots;
    std::int64_t host_run = 0;  // first byte of the contiguous blocks
  };

  static void need_batches() {
#if CUDART_VERSION >= 12080
    int driver = 0;
    check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    if (driver >= 12080) return;
    throw Unsupported(
        fmt::format("cudaMemcpyBatchAsync needs a driver for CUDA 12.8 or later; this driver is for {}.{}",
                    driver / 1000, driver % 1000 / 10));
#else
    throw Unsupported("cudaMemcpyBatchAsync needs CUDA 12.8 or later; the tool was built with an earlier version");
#endif
  }

  [[nodiscard]] bool one_by_one() const {
    return point_.mechanism == Mechanism::many || point_.mechanism == Mechanism::batched;
  }

  void add_set(std::int64_t number, std::int64_t host_slots, std::int64_t device_slots) {
    const auto host = block_slots(point_.order, point_.blocks, host_slots, number, host_seed_);
    const auto device = block_slots(point_.order, point_.blocks, device_slots, number, device_seed_);
    Set set;
    if (one_by_one()) {
      const bool in = point_.direction == Direction::h2d;
      set.targets.reserve(host.size());
      set.sources.reserve(host.size());
      set.sizes.assign(host.size(), static_cast<std::size_t>(point_.block_bytes));
      for (std::size_t i = 0; i < host.size(); ++i) {
        std::byte* at_host = host_->data() + host[i] * point_.block_bytes;
        std::byte* at_device = device_.data() + device[i] * point_.block_bytes;
        set.targets.push_back(in ? at_device : at_host);
        set.sources.push_back(in ? at_host : at_device);
      }
    } else {
      set.host_slots = uploaded(host);
      set.device_slots = uploaded(device);
      set.host_run = block_slots(Order::sequential, point_.blocks, host_slots, number, 0).front() * point_.block_bytes;
    }
    sets_.push_back(std::move(set));
  }

  void enqueue() {
    Set& set = sets_[next_++ % sets_.size()];
    switch (point_.mechanism) {
      case Mechanism::many:
        enqueue_many(set);
        break;
      case Mechanism::batched:
        enqueue_batch(set);
        break;
      case Mechanism::gather:
        enqueue_gather(set);
        break;
      case Mechanism::kernel:
        enqueue_kernel(set);
        break;
    }
  }

  void enqueue_many(const Set& set) {
    const auto kind = point_.direction == Direction::h2d ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;
    const auto bytes = static_cast<std::size_t>(point_.block_bytes);
    for (std::size_t i = 0; i < set.targets.size(); ++i) {
      check(cudaMemcpyAsync(set.targets[i], set.sources[i], bytes, kind, lane_.stream), "cudaMemcpyAsync");
    }
  }

  void enqueue_batch([[maybe_unused]] Set& set) {
#if CUDART_VERSION >= 12080
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    std::size_t first = 0;  // first copy with these attributes
#if CUDART_VERSION >= 13000
    check(cudaMemcpyBatchAsync(set.targets.data(), set.sources.data(), set.sizes.data(), set.sizes.size(), &attributes,
                               &first, 1, lane_.stream),
          "cudaMemcpyBatchAsync");
#else
    std::size_t failed = 0;
    check(cudaMemcpyBatchAsync(set.targets.data(), set.sources.data(), set.sizes.data(), set.sizes.size(), &attributes,
                               &first, 1, &failed, lane_.stream),
          "cudaMemcpyBatchAsync");
#endif
#endif
  }

  void enqueue_gather(const Set& set) {
    const auto moved = static_cast<std::size_t>(point_.block_bytes * point_.blocks);
    std::byte* run = host_->data() + set.host_run;
    const std::int64_t ctas = 2 * gpu_.sms();
    if (point_.direction == Direction::h2d) {
      check(cudaMemcpyAsync(staging_.data(), run, moved, cudaMemcpyHostToDevice, lane_.stream), "cudaMemcpyAsync");
      enqueue_blocks({staging_.data(), nullptr, device_.data(), set.device_slots.as<std::int64_t>(), point_.block_bytes,
                      point_.blocks},
                     ctas, lane_.stream);
    } else {
      enqueue_blocks({device_.data(), set.device_slots.as<std::int64_t>(), staging_.data(), nullptr, point_.block_bytes,
                      point_.blocks},
                     ctas, lane_.stream);
      check(cudaMemcpyAsync(run, staging_.data(), moved, cudaMemcpyDeviceToHost, lane_.stream), "cudaMemcpyAsync");
    }
  }

  void enqueue_kernel(const Set& set) {
    const auto* host_slots = set.host_slots.as<std::int64_t>();
    const auto* device_slots = set.device_slots.as<std::int64_t>();
    BlockCopy copy{host_->on_gpu(), host_slots, device_.data(), device_slots, point_.block_bytes, point_.blocks};
    if (point_.direction == Direction::d2h) {
      copy = {device_.data(), device_slots, host_->on_gpu(), host_slots, point_.block_bytes, point_.blocks};
    }
    enqueue_blocks(copy, point_.ctas, lane_.stream);
  }

  Gpu& gpu_;
  ScatteredCopy point_;
  Lane lane_;
  std::uint64_t host_seed_;
  std::uint64_t device_seed_;
  std::shared_ptr<HostBlock> host_;
  DeviceMemory device_;
  DeviceMemory staging_;
  std::vector<Set> sets_;
  std::size_t next_ = 0;
};

}  // namespace

CopyOp::CopyOp(Gpu& gpu, Direction direction, HostMemory memory, std::int64_t bytes, std::int64_t numa_node)
    : direction_(direction),
      bytes_(bytes),
      places_(rotation(bytes, gpu.l2_bytes())),
      host_(gpu.host_memory(memory, places_ * bytes, numa_node)),
      device_(gpu.random_memory(places_ * bytes)) {}

std::int64_t CopyOp::next_offset() {
  const std::int64_t offset = next_ * bytes_;
  next_ = (next_ + 1) % places_;
  return offset;
}

void CopyOp::enqueue(cudaStream_t stream) {
  const std::int64_t offset = next_offset();
  std::byte* host = host_->data() + offset;
  std::byte* device = device_.data() + offset;
  const auto bytes = static_cast<std::size_t>(bytes_);
  check(direction_ == Direction::h2d ? cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream)
                                     : cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream),
        "cudaMemcpyAsync");
}

void CopyOp::enqueue_kernel(std::int64_t ctas, cudaStream_t stream) {
  const std::int64_t offset = next_offset();
  const bool in = direction_ == Direction::h2d;
  std::byte* host = host_->on_gpu() + offset;
  std::byte* device = device_.data() + offset;
  enqueue_blocks({in ? host : device, nullptr, in ? device : host, nullptr, bytes_, 1}, ctas, stream);
}

std::unique_ptr<Case> make_case(Gpu& gpu, const ContiguousCopy& point) {
  return std::make_unique<ContiguousCase>(gpu, point);
}
std::unique_ptr<Case> make_case(Gpu& gpu, const RelayCopy& point) { return std::make_unique<RelayCase>(gpu, point); }
std::unique_ptr<Case> make_case(Gpu& gpu, const DuplexCopy& point) { return std::make_unique<DuplexCase>(gpu, point); }
std::unique_ptr<Case> make_case(Gpu& gpu, const ScatteredCopy& point) {
  return std::make_unique<ScatteredCase>(gpu, point);
}

}  // namespace spillway::calibrate::gpu
