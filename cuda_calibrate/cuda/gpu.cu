#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <optional>
#include <utility>

#include "cuda_calibrate/cuda/gpu.hpp"
#include "cuda_calibrate/cuda/kernels.hpp"
#include "cuda_calibrate/host/host_facts.hpp"
#include "cuda_calibrate/measure/backend.hpp"

namespace spillway::calibrate::gpu {
namespace {

constexpr std::int64_t kGib = std::int64_t{1} << 30;

int attribute(cudaDeviceAttr of, int index) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, of, index), "cudaDeviceGetAttribute");
  return value;
}

int made_current(int index) {
  check(cudaSetDevice(index), "cudaSetDevice");
  return index;
}

}  // namespace

Gate::Gate() : flags_(HostMemory::pinned, 4096) {
  auto* flags = reinterpret_cast<std::uint32_t*>(flags_.data());
  open_ = flags;
  gave_up_ = flags + 256;  // a different cache line
  *open_ = 0;
  *gave_up_ = 0;
}

void Gate::pass(cudaStream_t stream) const { enqueue_gate(open_, gave_up_, 0, stream); }

void Gate::Closed::hold(cudaStream_t stream) const {
  enqueue_gate(gate_.open_, gate_.gave_up_, gate_.generation_, stream);
}

void Gate::Closed::open() { std::atomic_ref<std::uint32_t>(*gate_.open_).store(gate_.generation_); }

void Gate::check() const {
  if (std::atomic_ref<std::uint32_t>(*gave_up_).load() == generation_) {
    throw DeviceError("the work of a sample took more than 2 s to enqueue, and the GPU started without the rest of it",
                      false);
  }
}

Gpu::Gpu(int index, std::uint64_t seed) : index_(made_current(index)), seed_(seed) {
  sms_ = attribute(cudaDevAttrMultiProcessorCount, index);
  l2_bytes_ = attribute(cudaDevAttrL2CacheSize, index);
  capability_ =
      10 * attribute(cudaDevAttrComputeCapabilityMajor, index) + attribute(cudaDevAttrComputeCapabilityMinor, index);
  for (Stream& stream : streams_) stream = make_stream();
  gate_.pass(stream(StreamOf::compute));
  finish();
}

void Gpu::need(Number number) const {
  const bool can = number == Number::fp16 || (number == Number::bf16 && capability_ >= 80) ||
                   (number == Number::fp8 && capability_ >= 89);
  if (can) return;
  if (number == Number::fp32) throw Unsupported("engines compute in 16 or 8 bits, so fp32 is not measured");
  throw Unsupported(fmt::format("a GPU of compute capability {}.{} has no {}", capability_ / 10, capability_ % 10,
                                number == Number::bf16 ? "bf16" : "fp8"));
}

void Gpu::finish() const {
  use();
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

DeviceMemory Gpu::random_memory(std::int64_t bytes, Number number) {
  use();
  DeviceMemory memory(bytes);
  const std::int64_t width = number == Number::fp8 ? 1 : number == Number::fp32 ? 4 : 2;
  enqueue_fill(memory.data(), bytes / width, number, next_seed(), stream(StreamOf::compute));
  check(cudaStreamSynchronize(stream(StreamOf::compute)), "cudaStreamSynchronize");
  return memory;
}

std::shared_ptr<HostBlock> Gpu::host_memory(HostMemory kind, std::int64_t bytes, std::int64_t numa_node) {
  use();
  const bool keep = numa_node < 0 && bytes <= 2 * kGib;
  auto& kept = kept_[static_cast<std::size_t>(kind)];
  const auto idle = [](const std::shared_ptr<HostBlock>& block) { return block.use_count() == 1; };
  const auto fits = [&](const std::shared_ptr<HostBlock>& block) { return idle(block) && block->bytes() >= bytes; };
  if (keep) {
    if (const auto found = std::find_if(kept.begin(), kept.end(), fits); found != kept.end()) return *found;
  }
  std::erase_if(kept, idle);
  // The next request is often a little larger.
  std::int64_t size = bytes;
  if (keep) {
    const auto rounded = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(bytes)));
    if (rounded < available_bytes() / 8) size = rounded;
  }
  auto block = std::make_shared<HostBlock>(kind, size, numa_node);
  fill(*block);
  if (keep) kept.push_back(block);
  return block;
}

void Gpu::fill(HostBlock& block) {
  constexpr std::int64_t kChunk = std::int64_t{64} << 20;
  const DeviceMemory chunk = random_memory(std::min(block.bytes(), kChunk));
  for (std::int64_t at = 0; at < block.bytes(); at += kChunk) {
    check(cudaMemcpy(block.data() + at, chunk.data(), static_cast<std::size_t>(std::min(block.bytes() - at, kChunk)),
                     cudaMemcpyDeviceToHost),
          "cudaMemcpy");
  }
}

std::vector<LaneTimes> run(Gate* gate, std::span<const Lane> lanes, std::span<const std::int64_t> counts,
                           std::int64_t most_marks) {
  struct State {
    std::vector<std::int64_t> marks;
    Event start;
    std::vector<Event> ends;
    std::int64_t enqueued = 0;
    std::size_t recorded = 0;
  };
  std::vector<State> states(lanes.size());
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    lanes[i].gpu->use();
    states[i].marks = marks(counts[i], most_marks);
    states[i].start = make_event();
    states[i].ends.reserve(states[i].marks.size());
    for (std::size_t mark = 0; mark < states[i].marks.size(); ++mark) states[i].ends.push_back(make_event());
  }
  const auto enqueue = [&](std::size_t i) {
    State& state = states[i];
    if (lanes.size() > 1) lanes[i].gpu->use();
    lanes[i].enqueue();
    if (++state.enqueued == state.marks[state.recorded]) {
      check(cudaEventRecord(state.ends[state.recorded++].get(), lanes[i].stream), "cudaEventRecord");
    }
  };
  {
    std::optional<Gate::Closed> closed;
    if (gate != nullptr) closed.emplace(*gate);
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      lanes[i].gpu->use();
      if (closed) closed->hold(lanes[i].stream);
      check(cudaEventRecord(states[i].start.get(), lanes[i].stream), "cudaEventRecord");
    }
    for (std::size_t i = 0; closed && i < lanes.size(); ++i) {
      const std::int64_t most = std::max<std::int64_t>(1, kMostBehindGate / lanes[i].entries);
      while (states[i].enqueued < std::min(counts[i], most)) enqueue(i);
    }
  }
  // Enqueue the rest in turn, so that no lane runs dry while the CPU serves another lane.
  for (;;) {
    std::size_t next = lanes.size();
    double least = 1.0;
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      const double share = static_cast<double>(states[i].enqueued) / static_cast<double>(counts[i]);
      if (share < least) {
        least = share;
        next = i;
      }
    }
    if (next == lanes.size()) break;
    enqueue(next);
  }
  std::vector<LaneTimes> times(lanes.size());
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    lanes[i].gpu->use();
    check(cudaStreamSynchronize(lanes[i].stream), "cudaStreamSynchronize");
    times[i].done = states[i].marks;
    times[i].seconds.reserve(states[i].ends.size());
    for (const Event& end : states[i].ends) times[i].seconds.push_back(seconds_between(states[i].start, end));
  }
  if (gate != nullptr) gate->check();
  return times;
}

double seconds_alone(Gate* gate, const Lane& lane, std::int64_t calls) {
  const std::vector<LaneTimes> times = run(gate, std::span(&lane, 1), std::span(&calls, 1), 1);
  return times.front().seconds.back() / static_cast<double>(calls);
}

Together::Together(Gate& gate, std::vector<Lane> lanes) : gate_(gate), lanes_(std::move(lanes)) {
  seconds_.reserve(lanes_.size());
  for (const Lane& lane : lanes_) {
    lane.gpu->use();
    lane.enqueue();
    lane.gpu->finish();
    seconds_.push_back(seconds_alone(&gate_, lane, 3));
  }
}

std::vector<double> Together::sample(std::int64_t calls) {
  constexpr int kTries = 6;
  for (int i = 0; i < kTries; ++i) {
    const std::vector<LaneTimes> times = run(&gate_, lanes_, balanced(calls, seconds_), kMostMarks);
    const std::vector<LaneShare> shares = overlapped(times);
    bool complete = true;
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
      const LaneShare& share = shares[lane];
      complete = complete && share.operations > 0;
      // A lane that ended no operation while the others ran: its first event came later.
      seconds_[lane] = share.operations > 0
                           ? share.seconds / static_cast<double>(share.operations)
                           : times[lane].seconds.front() / static_cast<double>(times[lane].done.front());
    }
    if (complete) return seconds_;
  }
  throw DeviceError(fmt::format("operations on {} streams did not run at once in {} attempts", lanes_.size(), kTries),
                    false);
}

}  // namespace spillway::calibrate::gpu
