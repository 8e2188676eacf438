// Runs schedules on the streams of a GPU and on the CPU.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <map>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>

#include "cuda_calibrate/cuda/cases.hpp"
#include "cuda_calibrate/cuda/gpu.hpp"
#include "cuda_calibrate/cuda/kernels.hpp"
#include "cuda_calibrate/measure/backend.hpp"
#include "cuda_calibrate/validate/launches.hpp"
#include "cuda_calibrate/validate/machine.hpp"

namespace spillway::calibrate {
namespace gpu {
namespace {

using On = spillway::Stream;  // streams of a schedule; Stream is a CUDA stream

constexpr Number number_of(std::int64_t capability) { return capability >= 80 ? Number::bf16 : Number::fp16; }

/// An event that orders streams and is never timed.
Event make_order_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return Event(event);
}

/// Words in page-locked memory through which the GPU and the CPU wait for each other, each in its own cache line.
/// Attention calls are counted from 1.
class Signals {
 public:
  Signals() : words_(HostMemory::pinned, 4096) { reset(); }

  void reset() {
    for (std::size_t word = 0; word < 2; ++word) store(word, 0);
  }
  /// The number of calls whose queries have arrived on the host. The GPU writes the number by a copy.
  [[nodiscard]] std::uint32_t arrived() const { return load(0); }
  [[nodiscard]] std::uint32_t* arrived_word() const { return at(0); }
  /// The number of calls in which the CPU has attended. A stream waits for it without a kernel: on an H200, a waiting
  /// kernel slowed matrix multiplications down.
  void attended(std::uint32_t calls) { store(1, calls); }
  void hold(std::uint32_t calls, cudaStream_t stream) const { enqueue_wait(at(1), calls, stream); }

 private:
  static constexpr std::size_t kApart = 256;  // in words
  [[nodiscard]] std::uint32_t* at(std::size_t word) const {
    return reinterpret_cast<std::uint32_t*>(words_.data()) + word * kApart;
  }
  [[nodiscard]] std::uint32_t load(std::size_t word) const {
    return std::atomic_ref<std::uint32_t>(*at(word)).load(std::memory_order_acquire);
  }
  void store(std::size_t word, std::uint32_t value) {
    std::atomic_ref<std::uint32_t>(*at(word)).store(value, std::memory_order_release);
  }

  HostBlock words_;
};

/// A thread that attends call by call, as soon as the queries of a call have arrived. The thread never calls CUDA, so
/// it never waits for the thread that enqueues.
class AttentionThread {
 public:
  AttentionThread(Signals& signals, std::vector<Case*> calls)
      : signals_(signals), calls_(std::move(calls)), thread_([this] { work(); }) {}
  /// Releases the GPU, which may still wait for calls that the thread has not done.
  ~AttentionThread() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    signals_.attended(static_cast<std::uint32_t>(calls_.size()));
  }
  AttentionThread(const AttentionThread&) = delete;
  AttentionThread& operator=(const AttentionThread&) = delete;

  /// Returns when all calls have ended. Rethrows the error of a call.
  void join() {
    thread_.join();
    if (fault_) std::rethrow_exception(fault_);
  }

 private:
  void work() {
    const auto last = static_cast<std::uint32_t>(calls_.size());
    try {
      for (std::uint32_t call = 1; call <= last; ++call) {
        while (signals_.arrived() < call) {
          if (stop_) return;
          std::this_thread::yield();
        }
        static_cast<void>(calls_[call - 1]->sample(1));
        signals_.attended(call);
      }
    } catch (...) {
      fault_ = std::current_exception();
      signals_.attended(last);  // release the GPU: no further calls will come
    }
  }

  Signals& signals_;
  std::vector<Case*> calls_;
  std::atomic<bool> stop_ = false;
  std::exception_ptr fault_;
  std::thread thread_;  // last member, because the thread uses the others
};

/// The CPU attention of one sub-batch.
struct CpuPart {
  std::unique_ptr<Case> attention;
  std::int64_t query_bytes = 0;
  std::int64_t output_bytes = 0;
  DeviceMemory on_gpu;
  std::shared_ptr<HostBlock> on_host;
};

/// Compute runs on the compute stream, copies run on the stream of their direction. CPU attention lies between a copy
/// of queries and a copy of outputs; the output copy's stream waits until the CPU has attended. As many operations as
/// fit are enqueued behind a gate, the rest while these run.
class ScheduledRun : public Execution {
 public:
  ScheduledRun(Gpu& gpu, Backend& host, const Schedule& schedule)
      : gpu_(gpu),
        schedule_(schedule),
        gated_(gated(schedule, kMostBehindGate)),
        start_(make_event()),
        end_(make_event(false)) {
    const std::vector<bool> waited = waited_for(schedule);
    events_.resize(schedule.operations.size());
    for (std::size_t i = 0; i < waited.size(); ++i) {
      if (waited[i]) events_[i] = make_order_event();
    }
    if (schedule.slot_bytes > 0) {
      device_ = gpu.random_memory(schedule.gpu_slots * schedule.slot_bytes);
      host_ = gpu.host_memory(HostMemory::pinned, schedule.host_slots * schedule.slot_bytes);
    }
    for (const Operation& operation : schedule.operations) {
      if (const auto* compute = std::get_if<ComputeWork>(&operation.work)) add_product(compute->multiply);
      if (const auto* copy = std::get_if<CopyWork>(&operation.work)) add_blocks(*copy, operation.stream);
      if (const auto* attention = std::get_if<AttentionWork>(&operation.work)) {
        add_attention(host, operation.sub_batch, attention->attention);
      }
    }
    std::vector<std::uint32_t> numbers(attention_calls_.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::uint32_t>(i) + 1;
    numbers_ = uploaded(numbers);
    warm_up();
  }

  double run() override {
    gpu_.use();
    signals_.reset();
    std::optional<AttentionThread> cpu;
    if (!attention_calls_.empty()) cpu.emplace(signals_, attention_calls_);
    enqueue_all();
    check(cudaEventSynchronize(end_.get()), "cudaEventSynchronize");
    gpu_.finish();
    if (cpu) cpu->join();
    if (gated_) gpu_.gate().check();
    return seconds_between(start_, end_);
  }

 private:
  using Shape = std::tuple<std::int64_t, std::int64_t, std::int64_t>;

  void add_product(const Multiply& multiply) {
    if (multiply.calls == 0) return;
    std::unique_ptr<ProductOp>& product = products_[{multiply.m, multiply.n, multiply.k}];
    if (product) return;
    product = make_product(gpu_, Gemm{multiply.m, multiply.n, multiply.k, number_of(gpu_.capability())});
  }

  /// Blocks lie in random order within their slot, as in the calibration; for a gathered copy only on the GPU.
  void add_blocks(const CopyWork& copy, On direction) {
    const bool one_by_one = copy.mechanism == CopyMechanism::many;
    const bool gathered = copy.mechanism == CopyMechanism::gather && direction == On::d2h;
    if (copy.mechanism == CopyMechanism::single) return;
    if (!one_by_one && !gathered) {
      throw Unsupported("schedules copy in one call, block by block, or gathered (only to the host)");
    }
    if (!host_blocks_.empty()) return;
    host_blocks_ = block_slots(Order::random, copy.blocks, copy.blocks, 0, gpu_.next_seed());
    device_blocks_ = block_slots(Order::random, copy.blocks, copy.blocks, 0, gpu_.next_seed());
    if (!gathered) return;
    uploaded_blocks_ = uploaded(device_blocks_);
    staging_ = DeviceMemory(schedule_.slot_bytes);
  }

  void add_attention(Backend& host, std::int32_t sub_batch, const HostAttention& attention) {
    CpuPart& part = parts_[static_cast<std::size_t>(sub_batch)];
    if (!part.attention) {
      part.query_bytes = query_bytes(attention);
      part.output_bytes = output_bytes(attention);
      part.on_gpu = gpu_.random_memory(part.query_bytes + part.output_bytes);
      part.on_host = gpu_.host_memory(HostMemory::pinned, part.query_bytes + part.output_bytes);
      part.attention = host.prepare(attention);
    }
    attention_calls_.push_back(part.attention.get());
  }

  /// Runs every kernel once. A kernel loaded at its first call would wait for the GPU, which waits at the gate.
  void warm_up() {
    for (const auto& [shape, product] : products_) product->enqueue(stream(On::compute));
    if (uploaded_blocks_.bytes() > 0) gather(device_.data(), stream(On::d2h));
    for (CpuPart& part : parts_) {
      if (part.attention) static_cast<void>(part.attention->sample(1));
    }
    gpu_.finish();
  }

  [[nodiscard]] cudaStream_t stream(On of) const {
    return gpu_.stream(of == On::compute ? StreamOf::compute : of == On::h2d ? StreamOf::h2d : StreamOf::d2h);
  }
  static void wait(cudaStream_t stream, const Event& event) {
    check(cudaStreamWaitEvent(stream, event.get(), 0), "cudaStreamWaitEvent");
  }
  static void record(const Event& event, cudaStream_t stream) {
    check(cudaEventRecord(event.get(), stream), "cudaEventRecord");
  }
  static void copy(void* to, const void* from, std::int64_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), kind, stream), "cudaMemcpyAsync");
  }

  void enqueue_all() {
    auto* const compute = stream(On::compute);
    std::optional<Gate::Closed> closed;
    if (gated_) {
      closed.emplace(gpu_.gate());
      closed->hold(compute);
    }
    record(start_, compute);
    for (const On other : {On::h2d, On::d2h}) wait(stream(other), start_);
    entries_ = {};
    attended_ = nullptr;
    call_ = 0;
    for (std::size_t i = 0; i < schedule_.operations.size(); ++i) {
      enqueue(i);
      if (closed && *std::ranges::max_element(entries_) >= kMostBehindGate) closed.reset();
    }
    for (const std::int32_t end : schedule_.ends) wait(compute, events_[static_cast<std::size_t>(end)]);
    record(end_, compute);
  }

  void enqueue(std::size_t number) {
    const Operation& operation = schedule_.operations[number];
    if (std::holds_alternative<AttentionWork>(operation.work)) {
      enqueue_attention(number, operation, parts_[static_cast<std::size_t>(operation.sub_batch)]);
      return;
    }
    auto* const on = stream(operation.stream);
    std::int64_t& entries = entries_[static_cast<std::size_t>(operation.stream)];
    for (const std::int32_t other : operation.waits) wait(on, events_[static_cast<std::size_t>(other)]);
    if (const auto* compute = std::get_if<ComputeWork>(&operation.work)) {
      enqueue_products(*compute, on);
      entries += kEntries * compute->multiply.calls;
    } else {
      entries += enqueue_copy(std::get<CopyWork>(operation.work), operation.stream, on);
    }
    entries += static_cast<std::int64_t>(operation.waits.size()) + 1;
    if (events_[number].get() != nullptr) record(events_[number], on);
  }

  void enqueue_products(const ComputeWork& work, cudaStream_t on) {
    const Multiply& multiply = work.multiply;
    if (multiply.calls == 0) return;
    ProductOp& product = *products_.at({multiply.m, multiply.n, multiply.k});
    const std::byte* weights = device_.data() + work.gpu_slot * schedule_.slot_bytes;
    for (std::int64_t call = 0; call < multiply.calls; ++call) {
      if (work.gpu_slot < 0) {
        product.enqueue(on);
      } else {
        product.enqueue_with(weights + call * (multiply.weight_bytes() / multiply.calls), on);
      }
    }
  }

  /// Returns the number of entries in the stream's queue.
  std::int64_t enqueue_copy(const CopyWork& work, On direction, cudaStream_t on) {
    const bool in = direction == On::h2d;
    const cudaMemcpyKind kind = in ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;
    std::byte* device = device_.data() + work.gpu_slot * schedule_.slot_bytes;
    std::byte* host = host_->data() + work.host_slot * schedule_.slot_bytes;
    if (work.mechanism == CopyMechanism::single) {
      copy(in ? device : host, in ? host : device, work.bytes, kind, on);
      return 1;
    }
    if (work.mechanism == CopyMechanism::gather) {
      gather(device, on);
      copy(host, staging_.data(), work.bytes, kind, on);
      return 2;
    }
    const std::int64_t bytes = work.bytes / work.blocks;
    for (std::size_t i = 0; i < host_blocks_.size(); ++i) {
      std::byte* at_device = device + device_blocks_[i] * bytes;
      std::byte* at_host = host + host_blocks_[i] * bytes;
      copy(in ? at_device : at_host, in ? at_host : at_device, bytes, kind, on);
    }
    return work.blocks;
  }

  void gather(const std::byte* from, cudaStream_t on) {
    const auto blocks = static_cast<std::int64_t>(device_blocks_.size());
    enqueue_blocks(
        {from, uploaded_blocks_.as<std::int64_t>(), staging_.data(), nullptr, schedule_.slot_bytes / blocks, blocks},
        2 * gpu_.sms(), on);
  }

  void enqueue_attention(std::size_t number, const Operation& operation, const CpuPart& part) {
    auto* const down = stream(On::d2h);
    auto* const up = stream(On::h2d);
    for (const std::int32_t other : operation.waits) wait(down, events_[static_cast<std::size_t>(other)]);
    // The CPU's work is a FIFO of whole calls, including their copies.
    if (attended_ != nullptr) wait(down, *attended_);
    std::byte* outputs = part.on_host->data() + part.query_bytes;
    copy(part.on_host->data(), part.on_gpu.data(), part.query_bytes, cudaMemcpyDeviceToHost, down);
    copy(signals_.arrived_word(), numbers_.as<std::uint32_t>() + call_, sizeof(std::uint32_t), cudaMemcpyDeviceToHost,
         down);
    signals_.hold(++call_, up);
    copy(part.on_gpu.data() + part.query_bytes, outputs, part.output_bytes, cudaMemcpyHostToDevice, up);
    record(events_[number], up);
    attended_ = &events_[number];
    entries_[static_cast<std::size_t>(On::d2h)] += 3 + static_cast<std::int64_t>(operation.waits.size());
    entries_[static_cast<std::size_t>(On::h2d)] += 3;
  }

  Gpu& gpu_;
  Schedule schedule_;
  bool gated_;
  Event start_;
  Event end_;                  // the CPU sleeps until this event: its cores may be busy with attention
  std::vector<Event> events_;  // of operations that others wait for
  DeviceMemory device_;
  std::shared_ptr<HostBlock> host_;
  std::map<Shape, std::unique_ptr<ProductOp>> products_;
  std::vector<std::int64_t> host_blocks_;
  std::vector<std::int64_t> device_blocks_;
  DeviceMemory uploaded_blocks_;
  DeviceMemory staging_;
  std::array<CpuPart, 2> parts_;  // one per sub-batch
  std::vector<Case*> attention_calls_;
  DeviceMemory numbers_;  // 1, 2, ...: the numbers of attention calls
  Signals signals_;
  // Valid while operations are enqueued:
  std::array<std::int64_t, kStreams> entries_{};
  const Event* attended_ = nullptr;  // the last call's output has arrived on the GPU
  std::uint32_t call_ = 0;
};

class CudaMachine : public Machine {
 public:
  CudaMachine(int index, std::unique_ptr<Backend> backend, std::uint64_t seed)
      : backend_(std::move(backend)), gpu_(index, seed) {}
  MachineFacts facts() override { return backend_->facts(); }
  [[nodiscard]] std::int64_t gpu() const override { return gpu_.index(); }
  std::unique_ptr<Execution> prepare(const Schedule& schedule) override {
    gpu_.use();
    return std::make_unique<ScheduledRun>(gpu_, *backend_, schedule);
  }

 private:
  std::unique_ptr<Backend> backend_;
  Gpu gpu_;
};

}  // namespace
}  // namespace gpu

std::unique_ptr<Machine> make_machine(std::int64_t gpu, std::uint64_t seed) {
  std::unique_ptr<Backend> backend = make_backend(gpu, seed);
  const MachineFacts facts = backend->facts();
  if (facts.gpus.empty()) throw DeviceError(facts.gpu_reason, false);
  return std::make_unique<gpu::CudaMachine>(static_cast<int>(gpu), std::move(backend), seed);
}

}  // namespace spillway::calibrate
