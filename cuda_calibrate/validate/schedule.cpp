#include "cuda_calibrate/validate/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <utility>

#include "policies/parts/layer_swap.hpp"
#include "policies/parts/weight_stream.hpp"
#include "sim/core/error.hpp"
#include "sim/exec/cpu_attention.hpp"
#include "sim/exec/executor.hpp"
#include "sim/exec/kv_copies.hpp"

namespace spillway::calibrate {
namespace {

constexpr std::int32_t kNone = -1;

std::size_t index_of(std::int32_t number) { return static_cast<std::size_t>(number); }

/// Positions of the data on both sides. They determine which operations wait for each other's data or free slots.
class Places {
 public:
  Places() = default;
  Places(const Places&) = delete;
  Places& operator=(const Places&) = delete;
  virtual ~Places() = default;

  /// Assigns the copy's slots and adds its waits.
  virtual void issued(std::int32_t number, Operation& copy) = 0;
  virtual void copied(std::int32_t /*number*/, const Operation& /*copy*/) {}
  /// Adds the waits of a layer's compute.
  virtual void computes(std::int32_t number, Operation& compute) = 0;
};

CopyWork& copy_of(Operation& operation) { return std::get<CopyWork>(operation.work); }
const CopyWork& copy_of(const Operation& operation) { return std::get<CopyWork>(operation.work); }

void wait_for(Operation& operation, std::int32_t other) {
  if (other != kNone) operation.waits.push_back(other);
}

/// Pie's slots: each layer's KV is in a slot of the GPU or of the host.
class SwapPlaces final : public Places {
 public:
  explicit SwapPlaces(const LayerSwapping& setting)
      : slots_(index_of(setting.layers)),
        computed_(index_of(setting.layers), kNone),
        arrived_(index_of(setting.layers), kNone),
        left_(index_of(setting.layers), kNone) {
    const std::int32_t on_gpu = setting.layers - setting.on_host;
    for (std::int32_t layer = 0; layer < setting.layers; ++layer) {
      slots_[index_of(layer)] = layer < on_gpu ? layer : layer - on_gpu;
    }
    for (std::int32_t spare = 0; spare < 2; ++spare) free_host_.push_back({setting.on_host + spare, kNone});
  }

  void issued(std::int32_t number, Operation& copy) override {
    const std::size_t layer = index_of(copy.layer);
    const bool in = copy.stream == Stream::h2d;
    std::deque<Free>& free = in ? free_gpu_ : free_host_;
    SPILLWAY_CHECK(!free.empty(), fmt::format("layer {} is swapped without a free slot", copy.layer));
    const Free target = free.front();
    free.pop_front();
    CopyWork& work = copy_of(copy);
    (in ? work.host_slot : work.gpu_slot) = slots_[layer];
    (in ? work.gpu_slot : work.host_slot) = target.slot;
    slots_[layer] = target.slot;
    wait_for(copy, target.freed_by);
    wait_for(copy, in ? left_[layer] : computed_[layer]);
    (in ? arrived_ : left_)[layer] = number;
  }
  void copied(std::int32_t number, const Operation& copy) override {
    if (copy.stream == Stream::h2d) {
      free_host_.push_back({copy_of(copy).host_slot, number});
    } else {
      free_gpu_.push_back({copy_of(copy).gpu_slot, number});
    }
  }
  void computes(std::int32_t number, Operation& compute) override {
    wait_for(compute, arrived_[index_of(compute.layer)]);
    computed_[index_of(compute.layer)] = number;
  }

 private:
  struct Free {
    std::int32_t slot = 0;
    std::int32_t freed_by = kNone;
  };
  std::vector<std::int32_t> slots_;     // slot of each layer, current or destination
  std::vector<std::int32_t> computed_;  // last compute of each layer
  std::vector<std::int32_t> arrived_;   // last copy in of each layer
  std::vector<std::int32_t> left_;      // last copy out of each layer
  std::deque<Free> free_gpu_;
  std::deque<Free> free_host_;
};

/// Select-N's staging buffers. Layers on the host use the buffers in turn, again in each iteration.
class StagingPlaces final : public Places {
 public:
  explicit StagingPlaces(const WeightPrefetch& setting)
      : interval_(setting.interval),
        used_(index_of(staging_buffers(setting.layers, setting.interval, setting.double_buffer)), kNone),
        arrived_(index_of(setting.layers), kNone) {}

  void issued(std::int32_t number, Operation& copy) override {
    const std::int32_t group = copy.layer / interval_;
    copy_of(copy).host_slot = group;
    copy_of(copy).gpu_slot = buffer_of(group);
    wait_for(copy, used_[index_of(buffer_of(group))]);
    arrived_[index_of(copy.layer)] = number;
  }
  void computes(std::int32_t number, Operation& compute) override {
    if ((compute.layer + 1) % interval_ != 0) return;
    const std::int32_t buffer = buffer_of(compute.layer / interval_);
    std::get<ComputeWork>(compute.work).gpu_slot = buffer;
    wait_for(compute, arrived_[index_of(compute.layer)]);
    used_[index_of(buffer)] = number;
  }

 private:
  [[nodiscard]] std::int32_t buffer_of(std::int32_t group) const {
    return group % static_cast<std::int32_t>(used_.size());
  }
  std::int32_t interval_;
  std::vector<std::int32_t> used_;     // last compute with each buffer
  std::vector<std::int32_t> arrived_;  // last copy of each layer
};

/// One slot per layer on both sides. Compute waits for its layer's copy, or for the last layer's copy.
class ArrivalPlaces final : public Places {
 public:
  ArrivalPlaces(std::int32_t layers, bool all) : all_(all), arrived_(index_of(layers), kNone) {}

  void issued(std::int32_t number, Operation& copy) override {
    copy_of(copy).gpu_slot = copy_of(copy).host_slot = copy.layer;
    arrived_[index_of(copy.layer)] = number;
  }
  void computes(std::int32_t /*number*/, Operation& compute) override {
    wait_for(compute, all_ ? arrived_.back() : arrived_[index_of(compute.layer)]);
  }

 private:
  bool all_;
  std::vector<std::int32_t> arrived_;
};

/// Copies use slots in turn. The only layer waits for all copies.
class PagePlaces final : public Places {
 public:
  explicit PagePlaces(std::int32_t slots) : slots_(slots) {}
  void issued(std::int32_t number, Operation& copy) override {
    copy_of(copy).gpu_slot = copy_of(copy).host_slot = next_++ % slots_;
    last_ = number;
  }
  void computes(std::int32_t /*number*/, Operation& compute) override { wait_for(compute, last_); }

 private:
  std::int32_t slots_;
  std::int32_t next_ = 0;
  std::int32_t last_ = kNone;
};

class NoPlaces final : public Places {
 public:
  void issued(std::int32_t /*number*/, Operation& /*copy*/) override {}
  void computes(std::int32_t /*number*/, Operation& /*compute*/) override {}
};

/// No layer waits for anything.
class FreeRule final : public LayerRule {
 public:
  void at_layer_start(std::int32_t /*layer*/, std::int32_t /*sub_batch*/, CopySink& /*sink*/) override {}
  void at_copy_done(const Copy& /*copy*/, CopySink& /*sink*/) override {}
  [[nodiscard]] bool ready(std::int32_t /*layer*/, std::int32_t /*sub_batch*/) const override { return true; }
};

/// Pensieve's pipelined swap-in: copies of all layers start with the iteration; each layer waits for its own copy.
class SwapInByLayers final : public LayerRule {
 public:
  SwapInByLayers(std::int32_t layers, const Copy& each) : layers_(layers), each_(each) {}
  void at_layer_start(std::int32_t layer, std::int32_t /*sub_batch*/, CopySink& sink) override {
    if (layer > 0) return;
    Copy copy = each_;
    for (copy.layer = 0; copy.layer < layers_; ++copy.layer) sink.issue(copy);
  }
  void at_copy_done(const Copy& copy, CopySink& /*sink*/) override { arrived_ = copy.layer; }
  [[nodiscard]] bool ready(std::int32_t layer, std::int32_t /*sub_batch*/) const override { return layer <= arrived_; }

 private:
  std::int32_t layers_;
  Copy each_;
  std::int32_t arrived_ = kNone;
};

/// The work of a sub-batch in each layer.
struct SubBatchWork {
  Multiply multiply{};
  HostAttention attention{};
  Duration compute{};
  Duration cpu{};
};

/// Forwards all calls to the rule, and records issued copies and computed layers. A layer's compute is recorded when
/// the next layer starts, because all its waits are then recorded before it.
class Recorder final : public LayerRule, public CopySink {
 public:
  Recorder(LayerRule& rule, Places& places, std::vector<SubBatchWork> sub_batches, const CopyWork& copy, Simulated& out)
      : rule_(rule),
        places_(places),
        sub_batches_(std::move(sub_batches)),
        copy_(copy),
        out_(out),
        cpu_(sub_batches_.size(), kNone) {}

  void at_layer_start(std::int32_t layer, std::int32_t sub_batch, CopySink& sink) override {
    flush();
    ended_.clear();
    triggers_.clear();
    if (compute_ != kNone) triggers_.push_back(compute_);
    sink_ = &sink;
    rule_.at_layer_start(layer, sub_batch, *this);
    starting_ = {layer, sub_batch};
  }
  void at_copy_done(const Copy& copy, CopySink& sink) override {
    sink_ = &sink;
    if (copy.stream == Stream::cpu) return rule_.at_copy_done(copy, *this);
    std::deque<std::int32_t>& queue = queues_[copy.stream == Stream::h2d ? 0 : 1];
    const std::int32_t number = queue.front();
    queue.pop_front();
    places_.copied(number, out_.schedule.operations[index_of(number)]);
    ended_.push_back(number);
    triggers_ = ended_;
    rule_.at_copy_done(copy, *this);
  }
  void at_copies_done(CopySink& sink) override {
    triggers_ = std::exchange(ended_, {});
    sink_ = &sink;
    rule_.at_copies_done(*this);
  }
  [[nodiscard]] bool ready(std::int32_t layer, std::int32_t sub_batch) const override {
    return rule_.ready(layer, sub_batch);
  }
  [[nodiscard]] Wait waits_for(std::int32_t layer, std::int32_t sub_batch) const override {
    return rule_.waits_for(layer, sub_batch);
  }
  void at_layers_end(CopySink& sink) override {
    sink_ = &sink;
    rule_.at_layers_end(*this);
  }
  [[nodiscard]] std::optional<Wait> unfinished(std::int32_t sub_batch) const override {
    return rule_.unfinished(sub_batch);
  }

  void issue(const Copy& copy) override {
    // Attention is recorded with the computing that it follows.
    if (copy.stream == Stream::cpu) return sink_->issue(copy);
    SPILLWAY_CHECK(copy.alike == 0, "a run of copies is recorded as one");
    CopyWork work = copy_;
    work.bytes = copy.bytes.count();
    Operation operation{.stream = copy.stream, .work = work, .layer = copy.layer, .waits = triggers_};
    places_.issued(next(), operation);
    queues_[copy.stream == Stream::h2d ? 0 : 1].push_back(next());
    add(std::move(operation), {copy.launch, copy.transfer});
    sink_->issue(copy);
  }

  /// Call after the last iteration.
  void finish() {
    flush();
    out_.schedule.ends.push_back(compute_);
    for (const std::int32_t cpu : cpu_) {
      if (cpu != kNone) out_.schedule.ends.push_back(cpu);
    }
  }

 private:
  struct Step {
    std::int32_t layer = kNone;
    std::int32_t sub_batch = 0;
  };

  [[nodiscard]] std::int32_t next() const { return static_cast<std::int32_t>(out_.schedule.operations.size()); }

  /// Streams are FIFOs: waiting for the last operation on a stream suffices, and waits on the operation's own stream
  /// are not needed.
  void add(Operation operation, const OperationTime& time) {
    std::array<std::int32_t, kStreams> last{};
    last.fill(kNone);
    for (const std::int32_t other : operation.waits) {
      std::int32_t& of_stream = last[static_cast<std::size_t>(out_.schedule.operations[index_of(other)].stream)];
      of_stream = std::max(of_stream, other);
    }
    last[static_cast<std::size_t>(operation.stream)] = kNone;
    operation.waits.clear();
    std::ranges::copy_if(last, std::back_inserter(operation.waits), [](std::int32_t other) { return other != kNone; });
    out_.schedule.operations.push_back(std::move(operation));
    out_.times.push_back(time);
  }

  void flush() {
    const Step step = std::exchange(starting_, Step{});
    if (step.layer == kNone) return;
    const std::size_t sub = index_of(step.sub_batch);
    const SubBatchWork& work = sub_batches_[sub];
    Operation compute{.stream = Stream::compute,
                      .work = ComputeWork{.multiply = work.multiply},
                      .layer = step.layer,
                      .sub_batch = step.sub_batch};
    wait_for(compute, cpu_[sub]);
    places_.computes(next(), compute);
    compute_ = next();
    add(std::move(compute), {{}, work.compute});
    if (work.attention.batch == 0) return;
    Operation attention{.stream = Stream::cpu,
                        .work = AttentionWork{.attention = work.attention},
                        .layer = step.layer,
                        .sub_batch = step.sub_batch,
                        .waits = {compute_}};
    cpu_[sub] = next();
    add(std::move(attention), {{}, work.cpu});
  }

  LayerRule& rule_;
  Places& places_;
  std::vector<SubBatchWork> sub_batches_;
  CopyWork copy_;
  Simulated& out_;
  CopySink* sink_ = nullptr;
  Step starting_{};                                   // step whose compute is not yet recorded
  std::int32_t compute_ = kNone;                      // last compute
  std::vector<std::int32_t> cpu_;                     // last CPU work of each sub-batch
  std::array<std::deque<std::int32_t>, 2> queues_{};  // unfinished copies, to the GPU and to the host
  std::vector<std::int32_t> ended_;                   // copies that ended since the last call
  std::vector<std::int32_t> triggers_;                // events that caused the call of the rule
};

/// One experiment in the executor's terms.
struct Run {
  std::int32_t layers = 1;
  std::int32_t iterations = 1;
  std::vector<SubBatchWork> sub_batches{};
  CopyWork copy{};
  std::unique_ptr<LayerRule> rule = std::make_unique<FreeRule>();
  std::unique_ptr<Places> places = std::make_unique<NoPlaces>();
};

Copy copy_of(Stream stream, std::int64_t bytes, const CopyTime& time) {
  return {.stream = stream, .bytes = Bytes(bytes), .launch = time.launch, .transfer = time.transfer};
}

Run run_of(const LayerSwapping& s, const StepTimes& times, Schedule& schedule) {
  schedule.slot_bytes = s.slot_bytes;
  schedule.gpu_slots = s.layers - s.on_host;
  schedule.host_slots = s.on_host + 2;
  constexpr bool kCheckAtCompletion = true;
  return {.layers = s.layers,
          .iterations = s.iterations,
          .sub_batches = {{.multiply = s.compute, .compute = times.compute}},
          .rule = std::make_unique<LayerSwap>(s.layers, s.on_host, kCheckAtCompletion,
                                              LayerSwap::SlotCopies{copy_of(Stream::h2d, s.slot_bytes, times.in),
                                                                    copy_of(Stream::d2h, s.slot_bytes, times.out)}),
          .places = std::make_unique<SwapPlaces>(s)};
}

Run run_of(const WeightPrefetch& s, const StepTimes& times, Schedule& schedule) {
  const std::int64_t bytes = s.compute.weight_bytes();
  schedule.slot_bytes = bytes;
  schedule.gpu_slots = staging_buffers(s.layers, s.interval, s.double_buffer);
  schedule.host_slots = host_layers(s.layers, s.interval);
  auto rule = std::make_unique<WeightStream>(s.layers);
  rule->stream(
      {.interval = s.interval, .weights = copy_of(Stream::h2d, bytes, times.in), .double_buffer = s.double_buffer});
  return {.layers = s.layers,
          .iterations = s.iterations,
          .sub_batches = {{.multiply = s.compute, .compute = times.compute}},
          .rule = std::move(rule),
          .places = std::make_unique<StagingPlaces>(s)};
}

Run run_of(const SwapIn& s, const StepTimes& times, Schedule& schedule) {
  schedule.slot_bytes = s.blocks * s.block_bytes;
  schedule.gpu_slots = schedule.host_slots = s.layers;
  const Copy each = copy_of(Stream::h2d, schedule.slot_bytes, times.in);
  Run run{.layers = s.layers,
          .sub_batches = {{.multiply = s.compute, .compute = times.compute}},
          .copy = {.mechanism = s.mechanism, .blocks = s.blocks},
          .places = std::make_unique<ArrivalPlaces>(s.layers, !s.pipelined)};
  if (s.pipelined) {
    run.rule = std::make_unique<SwapInByLayers>(s.layers, each);
  } else {
    auto rule = std::make_unique<KvCopies>();
    Copy copy = each;
    for (copy.layer = 0; copy.layer < s.layers; ++copy.layer) rule->add(copy);
    run.rule = std::move(rule);
  }
  return run;
}

Run run_of(const PageOut& s, const StepTimes& times, Schedule& schedule) {
  schedule.slot_bytes = s.blocks * s.block_bytes;
  schedule.gpu_slots = schedule.host_slots = std::min(s.calls, kPageOutSlots);
  auto rule = std::make_unique<KvCopies>();
  for (std::int32_t call = 0; call < s.calls; ++call) rule->add(copy_of(Stream::d2h, schedule.slot_bytes, times.out));
  return {.sub_batches = {{.multiply = {.calls = 0}}},
          .copy = {.mechanism = s.mechanism, .blocks = s.blocks},
          .rule = std::move(rule),
          .places = std::make_unique<PagePlaces>(schedule.gpu_slots)};
}

Run run_of(const CpuOverlap& s, const StepTimes& times, Schedule& /*schedule*/) {
  std::array<CpuAttentionWork, 2> work;
  work[0].attention = copy_of(Stream::cpu, 0, {.transfer = times.first_cpu});
  work[1].attention = copy_of(Stream::cpu, 0, {.transfer = times.second_cpu});
  auto rule = std::make_unique<CpuAttention>();
  rule->begin(work);
  return {.layers = s.layers,
          .sub_batches =
              {{.multiply = s.first, .attention = s.first_attention, .compute = times.compute, .cpu = times.first_cpu},
               {.multiply = s.second,
                .attention = s.second_attention,
                .compute = times.second_compute,
                .cpu = times.second_cpu}},
          .rule = std::move(rule)};
}

}  // namespace

Simulated simulate(const Experiment& experiment, const StepTimes& times) {
  Simulated simulated;
  const Run run =
      std::visit([&](const auto& setting) { return run_of(setting, times, simulated.schedule); }, experiment);
  std::vector<SubBatchTimes> sub_batches;
  sub_batches.reserve(run.sub_batches.size());
  for (const SubBatchWork& work : run.sub_batches) {
    sub_batches.push_back({.gpu = LayerTimes(work.compute)});
  }
  Recorder recorder(*run.rule, *run.places, run.sub_batches, run.copy, simulated);
  Executor executor(times.sharing);
  const IterationPlan plan{run.layers, sub_batches, &recorder};
  for (std::int32_t iteration = 0; iteration < run.iterations; ++iteration) {
    executor.begin(plan, executor.now());
    SPILLWAY_CHECK(executor.run(plan, kNever).finished, "an iteration that nothing cuts");
  }
  recorder.finish();
  simulated.length = executor.now() - SimTime();
  return simulated;
}

}  // namespace spillway::calibrate
