// Select-N: every i-th layer's weights live on the host, where i, the offloading interval, is the smallest that the
// latency SLO allows.
//
// Source: Ma et al., "Memory Offloading for Large Language Model Inference with Latency SLO Guarantees" (Select-N),
// 2025: section 4.1 (the offline analyser's performance record, policies/parts/performance_record.hpp), 4.2 (the
// runtime, policies/parts/weight_stream.hpp), Fig. 8 (the interval of a request, between SLO and memory; the
// coordinator of a bus, policies/parts/bus_coordinator.hpp).
//
// With policy.interval everything is constant. Else, at each iteration,
//   the wanted interval  is the record's for the batch: its requests and their mean length for decode, the prompts and
//                        their mean length for prefill. An instance that runs both phases uses the larger of the two
//                        and counts all requests of its batch as decodes, which they are or will be. An SLO that is a
//                        time is less the longest time that a request of the iteration has waited for its next token
//                        (section 4.2). A margin is over the iteration's own time, so waiting plays no part in it.
//   the interval         is the wanted one, or the largest that leaves memory for the KV in use.
// Weights move with the iterations. Normally an iteration runs at the interval of the iteration before. The layers that
// stream in it then stay on the GPU if the new interval keeps them there. When KV needs the memory of a smaller
// interval at once, its layers leave at once, and the layers of both intervals stream.
//
// Coordinator. Instances whose copies to the GPU meet on one bus agree on their intervals: each states the smallest
// that its SLO allows and the largest that leaves memory for its KV, and the coordinator chooses between them, so that
// the weights of all fit the bus. An instance takes the interval that is chosen for it in its next iteration. The
// coordinator also refuses requests that would break the SLO of others, which their schedulers then reject. Spillway's
// upper level is the router, which asks another replica, and then the client. A request is judged by its prompt and
// what runs, without the time that it has waited: lateness harms nobody else. One that was preempted comes back
// unasked.
//
// KV capacity. Weights that would leave for a batch must not keep that batch out. When nothing runs, the instance
// offers the capacity of the largest batch, of any length, that fits the capacity of its own entry in the record. When
// a batch runs, it offers the same for batches of the mean length, and never less than the KV in use and the next
// tokens need: admission waits for the SLO, but no running request is taken out for it. An SLO that is a margin allows
// larger batches more capacity, an SLO that is a time allows them less. Both have a largest batch.
//
// Beside a part that holds the KV memory (policy=pie policy.weights=select-n) the capacity is that part's. The interval
// follows the record up to the largest that leaves this memory.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "policies/parts/bus_coordinator.hpp"
#include "policies/parts/layer_figures.hpp"
#include "policies/parts/performance_record.hpp"
#include "policies/parts/single_copy.hpp"
#include "policies/parts/weight_layers.hpp"
#include "sim/api/phases.hpp"
#include "sim/api/registry.hpp"

namespace spillway {
namespace {

constexpr double kMargin = 0.5;  // of the SLO, unless one is given
/// The shortest sequence of a record: kernels are measured from this length on. With an SLO that is a margin shorter
/// sequences do not offload, and they could hide almost no copies anyway.
constexpr Tokens kShortest{4};

bool fixed(const Settings& settings) { return settings.has("policy.interval"); }

/// The interval of policy.interval, where 0 offloads nothing.
std::int32_t fixed_interval(const Settings& settings) {
  const std::int64_t interval = settings.get<std::int64_t>("policy.interval");
  return interval == 0 ? kAllResident : static_cast<std::int32_t>(interval);
}

WeightRoom room_of(const Deployment& deployment, const Settings& settings) {
  return {deployment, settings, settings.get<bool>("policy.double_buffer")};
}

std::int64_t power_of_two(std::int64_t value) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(1, value))));
}

constexpr const char* kCountsWaiting = "policy.slo_counts_waiting";
constexpr const char* kCoordinate = "policy.coordinate";

bool coordinated(const Settings& settings) {
  return !fixed(settings) && (!settings.has(kCoordinate) || settings.get<bool>(kCoordinate));
}

/// The latency SLO of an iteration: a time, or a margin over the iteration's best time.
struct Slo {
  std::optional<Duration> time{};
  double margin = kMargin;
  bool counts_waiting = false;  // the time is less the time that requests have waited

  static Slo of(const Settings& settings) {
    Slo slo;
    if (settings.has("policy.slo")) slo.time = settings.get<Duration>("policy.slo");
    if (settings.has("policy.slo_margin")) slo.margin = settings.get<double>("policy.slo_margin");
    slo.counts_waiting = slo.time && (!settings.has(kCountsWaiting) || settings.get<bool>(kCountsWaiting));
    return slo;
  }
  [[nodiscard]] const char* key() const { return time ? "policy.slo" : "policy.slo_margin"; }
  [[nodiscard]] std::string text() const {
    return time ? fmt::format("{:g} ms per iteration", static_cast<double>(time->count()) * 1e-6)
                : fmt::format("+{:g}%", margin * 100.0);
  }
};

/// The offline analyser: times of an iteration by batch and sequence, and the record that follows from them. It times
/// only batches that fit the largest KV capacity: larger batches are never looked up.
class Analyser {
 public:
  Analyser(const Deployment& deployment, const Settings& settings, const WeightRoom& room)
      : model_(deployment.planner()),
        layers_(deployment.layers),
        transfer_(single_copy(model_, Stream::h2d, deployment.layer_weights)),
        kind_(settings.get<std::string>("policy.record") == "paper" ? RecordKind::paper : RecordKind::exact),
        slo_(Slo::of(settings)),
        capacity_(room.longest(room.smallest())),
        prompt_tokens_(settings.get<std::int64_t>("engine.max_num_batched_tokens")) {
    axes_.max_batch = power_of_two(settings.get<std::int64_t>("engine.max_num_seqs"));
    axes_.min_sequence = kShortest;
    axes_.max_sequence = std::max(kShortest, Tokens(power_of_two(capacity_.count())));
  }

  [[nodiscard]] PerformanceRecord decode() const {
    return record([&](std::int64_t batch, Tokens sequence) {
      const Tokens each = within(capacity_, batch, sequence);
      return BatchShape{.decode_sequences = batch,
                        .decode_context = each * batch,
                        .decode_longest = each,
                        .sampled_sequences = batch};
    });
  }
  [[nodiscard]] PerformanceRecord prefill() const {
    // The entry of fewer tokens is safe for a margin, but not for a time.
    const Tokens most = slo_.time ? capacity_ : std::min(capacity_, prompt_tokens_);
    std::vector<PrefillChunk> prompts;
    return record([&, most](std::int64_t batch, Tokens sequence) {
      prompts.assign(static_cast<std::size_t>(batch), PrefillChunk{within(most, batch, sequence), Tokens(0)});
      return BatchShape{.chunks = prompts, .sampled_sequences = batch};
    });
  }

 private:
  static Tokens within(Tokens most, std::int64_t batch, Tokens sequence) {
    return std::max(kShortest, std::min(sequence, Tokens(most.count() / batch)));
  }

  template <class ShapeOf>
  [[nodiscard]] PerformanceRecord record(ShapeOf shape_of) const {
    std::map<std::pair<std::int64_t, Tokens>, LayerTiming> times;
    Duration longest{};  // with every layer on the GPU
    Duration slowest{};  // with every layer on the host: a looser SLO allows no more
    const Duration transfer = transfer_.launch + transfer_.transfer;
    for (std::int64_t batch = 1; batch <= axes_.max_batch; batch *= 2) {
      for (Tokens sequence = kShortest; sequence <= axes_.max_sequence; sequence = sequence * 2) {
        const IterationTime time = model_.iteration(shape_of(batch, sequence));
        times[{batch, sequence}] = {time.layer, transfer, time.before, time.after};
        const Duration others = time.before + time.after;
        longest = std::max(longest, others + time.layer * layers_);
        slowest = std::max(slowest, others + streamed_iteration(layers_, 1, time.layer, transfer));
      }
    }
    RecordAxes axes = axes_;
    const auto step = [](Duration slo) { return kSloStep * (slo / kSloStep); };
    if (slo_.time) {
      axes.max_slo = step(std::min(*slo_.time, slowest + kSloStep));
      axes.min_slo = slo_.counts_waiting ? Duration{} : axes.max_slo;
    } else {
      axes.max_slo = step(relative_slo(longest, slo_.margin));
    }
    return {kind_, layers_, axes, [&](std::int64_t batch, Tokens sequence) { return times.at({batch, sequence}); }};
  }

  const ExecutionModel& model_;
  std::int32_t layers_;
  Copy transfer_;
  RecordKind kind_;
  Slo slo_;
  Tokens capacity_;
  Tokens prompt_tokens_;
  RecordAxes axes_{};
};

/// A batch as a record knows it.
struct Load {
  std::int64_t prompts = 0;  // of an iteration
  Tokens prompt{};           // mean length of these
  std::int64_t requests = 0;
  Tokens length{};  // mean context of these

  /// Of an iteration.
  static Load of(const BatchTotals& batch, const BatchShape& shape) {
    Load load{.prompts = std::ssize(shape.chunks), .requests = batch.running};
    std::int64_t sequences = shape.decode_sequences;
    Tokens tokens = shape.decode_context;
    Tokens prompt_tokens;
    for (const PrefillChunk& chunk : shape.chunks) {
      ++sequences;
      tokens += chunk.context + chunk.new_tokens;
      prompt_tokens += chunk.new_tokens;
    }
    if (load.prompts > 0) load.prompt = Tokens(prompt_tokens.count() / load.prompts);
    load.length = Tokens(tokens.count() / sequences);
    return load;
  }
  /// Of the iteration in which a request joins. Prompts that join with it count as prompts of its length.
  static Load with(const RequestView& request, const BatchTotals& batch) {
    return {.prompts = batch.running - batch.decoding + 1,
            .prompt = request.known,
            .requests = batch.running + 1,
            .length = Tokens((batch.decode_context + request.known).count() / (batch.decoding + 1))};
  }
};

/// The intervals that the record wants, and the KV capacity that they leave.
class RecordedIntervals {
 public:
  RecordedIntervals(const Deployment& deployment, const Settings& settings, const WeightRoom& room)
      : room_(room),
        slo_(Slo::of(settings)),
        phases_(phases(settings)),
        block_tokens_(deployment.block_tokens),
        max_batch_(power_of_two(settings.get<std::int64_t>("engine.max_num_seqs"))),
        held_kv_(deployment.gpu_kv_held),
        longest_(std::max(kShortest, room.longest(room.smallest()))),
        least_room_(room.blocks(room.largest(Blocks(1)).value_or(room.smallest()))) {
    const Analyser analyser(deployment, settings, room);
    if (phases_ != Phases::decode) prefill_ = analyser.prefill();
    if (phases_ != Phases::prefill) decode_ = analyser.decode();
    for (Tokens sequence = kShortest; sequence <= room.longest(room.smallest()); sequence = sequence * 2) {
      widest_ = std::max(widest_, offered(sequence));
    }
  }

  /// The smallest interval that the SLO allows to an iteration whose requests have waited for up to `waited`;
  /// kAllResident when nothing meets it.
  [[nodiscard]] std::int32_t wanted(const Load& load, Duration waited) const {
    std::int32_t interval = 1;
    if (prefill_ && load.prompts > 0) interval = smallest(*prefill_, load.prompts, load.prompt, waited);
    if (decode_) interval = std::max(interval, smallest(*decode_, load.requests, load.length, waited));
    return interval;
  }
  /// The SLO of the iteration as a time, > 0; of both phases, the tighter one.
  [[nodiscard]] Duration slo(const Load& load) const {
    std::optional<Duration> tightest;
    if (prefill_ && load.prompts > 0) tightest = slo(*prefill_, load.prompts, load.prompt);
    if (decode_) {
      const Duration token = slo(*decode_, load.requests, load.length);
      tightest = std::min(tightest.value_or(token), token);
    }
    return std::max(Duration(1), tightest.value_or(Duration(1)));
  }
  [[nodiscard]] bool counts_waiting() const { return slo_.counts_waiting; }

  /// Capacity that an instance offers to requests of a mean length: the most KV of a batch that fits the capacity of
  /// the batch's own entry, and at least the capacity with the fewest layers on the host. O(log of the largest batch).
  [[nodiscard]] Blocks offered(Tokens sequence) const {
    Blocks most = least_room_;
    for (std::int64_t batch = 1; batch <= max_batch_; batch *= 2) {
      const auto [first, last] = batches(batch);
      const Blocks room = room_.blocks(smallest(batch, sequence));
      const Blocks each = blocks_for(sequence, block_tokens_);
      if (room < each * first) continue;
      most = std::max(most, batch == max_batch_ ? room : std::min(room, each * last));
    }
    return most;
  }
  /// The smallest interval that any batch wants.
  [[nodiscard]] std::int32_t least() const {
    std::int32_t least = kAllResident;
    const Tokens longest(power_of_two(longest_.count()));
    for_each_entry(longest,
                   [&](std::int64_t batch, Tokens sequence) { least = std::min(least, smallest(batch, sequence)); });
    return least;
  }
  /// The least rate at which a GPU streams while it runs a batch that its SLO and its memory allow. O(entries *
  /// layers).
  [[nodiscard]] BytesPerSecond least_rate() const {
    double least = std::numeric_limits<double>::infinity();
    for_each_entry(longest_, [&](std::int64_t batch, Tokens sequence) {
      const std::optional<std::int32_t> most = room_.largest(kv_of(batches(batch).first, sequence));
      if (!most || *most < smallest(batch, sequence)) return;
      const Duration iteration = slo({.prompts = batch, .prompt = sequence, .requests = batch, .length = sequence});
      least = std::min(least, streaming_rate(user(*most, *most, iteration), *most).value());
    });
    return BytesPerSecond(least);
  }
  /// One GPU on a bus.
  [[nodiscard]] BusUser user(std::int32_t least, std::int32_t most, Duration iteration) const {
    return {
        .layers = room_.layers(), .layer = room_.memory().layer, .iteration = iteration, .least = least, .most = most};
  }
  [[nodiscard]] Blocks least_room() const { return least_room_; }
  [[nodiscard]] Blocks widest() const { return widest_; }

  /// Throws ConfigError, with the limit that binds, when no batch can meet its SLO in the memory.
  void check() const {
    const RecordEntry first = entry(1, kShortest);
    if (!first.min_interval) {
      refuse(choose_interval(first, room_.memory(), Bytes(0)).reason, "use faster hardware, or ");
    }
    std::optional<std::pair<Blocks, RecordEntry>> nearest;
    for_each_entry(longest_, [&](std::int64_t batch, Tokens sequence) {
      const Blocks left = room_.blocks(smallest(batch, sequence)) - kv_of(batches(batch).first, sequence);
      if (!nearest || left > nearest->first) nearest.emplace(left, entry(batch, sequence));
    });
    if (nearest->first >= Blocks(0)) return;
    const RecordEntry& entry = nearest->second;
    const Bytes kv = room_.block_bytes() * kv_of(entry.batch, entry.sequence).count();
    refuse(choose_interval(entry, room_.memory(), kv).reason,
           "raise tensor_parallel, use hardware with more memory, or ");
  }

 private:
  template <class Visit>
  void for_each_entry(Tokens longest, Visit visit) const {
    for (std::int64_t batch = 1; batch <= max_batch_; batch *= 2) {
      for (Tokens sequence = kShortest; sequence <= longest; sequence = sequence * 2) visit(batch, sequence);
    }
  }
  /// The KV for which a batch needs memory. Memory that another part holds is needed for any batch.
  [[nodiscard]] Blocks kv_of(std::int64_t batch, Tokens sequence) const {
    return held_kv_ ? room_.blocks(room_.beside_held_kv()) : blocks_for(sequence, block_tokens_) * batch;
  }
  /// The smallest and the largest number of requests for which a record's entry of `batch` stands.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> batches(std::int64_t batch) const {
    return slo_.time ? std::pair(batch / 2 + 1, batch) : std::pair(batch, 2 * batch - 1);
  }
  [[nodiscard]] std::optional<RecordEntry> look_up(const PerformanceRecord& record, std::int64_t batch, Tokens sequence,
                                                   Duration waited = {}) const {
    return slo_.time ? record.at_slo(batch, sequence, *slo_.time - waited)
                     : record.at_margin(batch, sequence, slo_.margin);
  }
  [[nodiscard]] std::int32_t smallest(const PerformanceRecord& record, std::int64_t batch, Tokens sequence,
                                      Duration waited = {}) const {
    const std::optional<RecordEntry> found = look_up(record, batch, sequence, waited);
    const std::int32_t interval = found ? found->min_interval.value_or(kAllResident) : kAllResident;
    return std::max(interval, room_.smallest());
  }
  /// Sequences below the shortest are taken as the shortest, which a margin has no entry for.
  [[nodiscard]] Duration slo(const PerformanceRecord& record, std::int64_t batch, Tokens sequence) const {
    return slo_.time ? *slo_.time : look_up(record, batch, std::max(sequence, kShortest))->slo;
  }
  /// The interval for all phases that the instance runs.
  [[nodiscard]] std::int32_t smallest(std::int64_t batch, Tokens sequence) const {
    const std::int32_t prefill = prefill_ ? smallest(*prefill_, batch, sequence) : 1;
    return std::max(prefill, decode_ ? smallest(*decode_, batch, sequence) : 1);
  }
  /// The entry of a point on the axes, in the phase that wants the larger interval.
  [[nodiscard]] RecordEntry entry(std::int64_t batch, Tokens sequence) const {
    const bool decode =
        decode_ && (!prefill_ || smallest(*decode_, batch, sequence) >= smallest(*prefill_, batch, sequence));
    return *look_up(decode ? *decode_ : *prefill_, batch, sequence);
  }
  [[noreturn]] void refuse(const std::string& reason, const std::string& fix) const {
    throw ConfigError::infeasible(
        fmt::format("policy select-n cannot meet its SLO of {} with any batch: {}", slo_.text(), reason), slo_.key(),
        fmt::format("{}loosen {}, or give policy.interval to see the resulting latency", fix, slo_.key()));
  }

  const WeightRoom& room_;
  Slo slo_;
  Phases phases_;
  Tokens block_tokens_;
  std::int64_t max_batch_;
  bool held_kv_;
  Tokens longest_;     // sequence that ever fits, >= kShortest
  Blocks least_room_;  // KV blocks at the largest interval (fewest layers on the host) that leaves at least one
  Blocks widest_{};    // the largest capacity that is ever offered
  std::optional<PerformanceRecord> prefill_{};
  std::optional<PerformanceRecord> decode_{};
};

/// Runs every iteration at the interval that the record allows.
class SelectNLayers final : public LayerPolicy {
 public:
  explicit SelectNLayers(const PolicyContext& context)
      : view_(context.view),
        room_(room_of(context.deployment, context.settings)),
        record_(context.deployment, context.settings, room_),
        streamer_(context.deployment, {.double_buffer = context.settings.get<bool>("policy.double_buffer")}) {
    if (context.deployment.gpu_kv_held) beside_held_kv_ = room_.beside_held_kv();
    if (context.on_bus.bus != nullptr && coordinated(context.settings)) {
      bus_.emplace(context.on_bus.bus->shared<BusCoordinator>(), context.on_bus.gpus);
    }
  }

  [[nodiscard]] Blocks capacity() const override {
    const TierState& gpu = view_.tier(kGpuTier);
    const BatchTotals& batch = view_.batch();
    if (batch.decoding == 0) return gpu.most;
    // One block more than the next tokens need, as vLLM's first block manager keeps one free.
    const Blocks needed = gpu.total - gpu.free + batch.decode_growth + Blocks(1);
    return std::min(gpu.most, std::max(record_.offered(Tokens(batch.decode_context.count() / batch.decoding)), needed));
  }

  [[nodiscard]] LayerRule* begin(const BatchShape& shape, const LayerCompute& /*compute*/) override {
    const Duration waited = record_.counts_waiting() ? view_.now() - view_.waiting_since() : Duration{};
    const Load load = Load::of(view_.batch(), shape);
    const std::int32_t wanted = record_.wanted(load, waited);
    const std::optional<std::int32_t> before = interval();
    choose(load, wanted);
    const std::int32_t next = *interval();
    const std::int32_t last = before.value_or(next);
    const bool room = leaves_kv(last);
    const std::int32_t now = room ? last : next;
    ++iterations_;
    risky_ += now < wanted || (!room && host_layers(room_.layers(), last) > 0) ? 1 : 0;
    return streamer_.iterate(now, room ? kAllResident : last);
  }

  void rests() override {
    if (bus_) bus_->rest(view_.now());
  }

  [[nodiscard]] bool admits(const RequestView& request) const override {
    const bool preempted = request.known > request.input;
    if (!bus_ || preempted) return true;
    const Load load = Load::with(request, view_.batch());
    // Its memory is free, so some interval leaves it.
    const Blocks kv = std::min(in_use() + blocks_for(request.known, view_.block_tokens()), view_.tier(kGpuTier).total);
    return bus_->admits(record_.user(record_.wanted(load, Duration{}), largest(kv), record_.slo(load)),
                        /*residents=*/view_.batch().running > 0);
  }
  [[nodiscard]] bool may_refuse() const override { return bus_.has_value(); }
  void refused(bool sent_on) override { ++(sent_on ? sent_on_ : refused_); }

  [[nodiscard]] Figures figures() const override {
    Figures figures = streamer_.figures();
    if (bus_) {
      figures.merge(bus_->figures());
      figures[kRefusedRequests] = static_cast<double>(refused_);
      figures[kReroutedRequests] = static_cast<double>(sent_on_);
    }
    if (iterations_ > 0) figures[kSloRisk] = static_cast<double>(risky_) / static_cast<double>(iterations_);
    return figures;
  }

 private:
  /// Of the weights from now on; empty before the first iteration.
  [[nodiscard]] std::optional<std::int32_t> interval() const { return bus_ ? bus_->interval() : interval_; }
  /// Chooses the interval, alone or with the others on the bus.
  void choose(const Load& load, std::int32_t wanted) {
    const std::int32_t least = leaves_kv(wanted) ? wanted : largest(in_use());
    if (bus_) {
      bus_->run(record_.user(least, largest(in_use()), record_.slo(load)), view_.now());
    } else {
      interval_ = least;
    }
  }
  [[nodiscard]] Blocks in_use() const { return view_.tier(kGpuTier).total - view_.tier(kGpuTier).free; }
  /// Whether the KV in use, or the KV memory that another part holds, fits beside the weights of an interval.
  [[nodiscard]] bool leaves_kv(std::int32_t interval) const {
    return beside_held_kv_ ? interval <= *beside_held_kv_ : room_.blocks(interval) >= in_use();
  }
  /// The largest interval that leaves memory for `kv`.
  [[nodiscard]] std::int32_t largest(Blocks kv) const {
    return beside_held_kv_ ? *beside_held_kv_ : *room_.largest(kv);
  }

  const View& view_;
  const WeightRoom room_;
  std::optional<std::int32_t> beside_held_kv_{};
  const RecordedIntervals record_;
  WeightStreamer streamer_;
  std::optional<BusSeat> bus_{};            // shared with others, and coordinated
  std::optional<std::int32_t> interval_{};  // without bus_
  std::int64_t iterations_ = 0;
  std::int64_t risky_ = 0;    // iterations that streamed more layers than their SLO allows
  std::int64_t refused_ = 0;  // requests that ended so
  std::int64_t sent_on_ = 0;  // refused, too, and another replica was asked
};

Layout layout(const Deployment& deployment, const Settings& settings) {
  const WeightRoom room = room_of(deployment, settings);
  if (fixed(settings)) {
    const std::int64_t interval = settings.get<std::int64_t>("policy.interval");
    if (interval > room.layers()) {
      throw ConfigError(
          fmt::format("policy.interval={} is more than the model's {} layers: {} / {} = 0 layers would be "
                      "on the host",
                      interval, room.layers(), room.layers(), interval),
          "policy.interval", fmt::format("use 1 to {}, or 0 to offload nothing", room.layers()));
    }
    return room.layout(fixed_interval(settings));
  }
  // Host memory below one layer is an error if the user set it.
  room.check(settings.has("policy.host_memory") ? std::min(room.smallest(), room.layers()) : room.smallest());
  const RecordedIntervals record(deployment, settings, room);
  record.check();
  const bool held = deployment.gpu_kv_held;
  const std::int32_t least = held ? room.beside_held_kv() : *room.largest(Blocks(1));
  const std::int32_t most = held ? std::min(least, record.least()) : *room.largest(record.widest());
  return {.blocks = held ? room.blocks(least) : record.least_room(),
          .most = held ? room.blocks(least) : record.widest(),
          .host = room.host(most),
          .weights = room.gpu(least),
          .terms = fmt::format("Select-N follows its {} record of an SLO of {}; at most {}{}",
                               settings.get<std::string>("policy.record"), Slo::of(settings).text(),
                               room.placement(most), room.length_text(most)),
          .least_rate = coordinated(settings) ? record.least_rate() : BytesPerSecond(0.0)};
}

std::vector<Problem> check(const Settings& settings) {
  std::vector<Problem> problems;
  if (settings.has("policy.slo") && settings.has("policy.slo_margin")) {
    problems.push_back({"policy.slo and policy.slo_margin are both given", "policy.slo",
                        "give a time per iteration, or a margin over the best time, but not both"});
  }
  for (const char* slo : {"policy.slo", "policy.slo_margin"}) {
    if (fixed(settings) && settings.has(slo)) {
      problems.push_back({fmt::format("a fixed policy.interval follows no SLO, so {} would have no effect", slo), slo,
                          "leave out one of the two"});
    }
  }
  if (settings.has(kCountsWaiting) && !settings.has("policy.slo")) {
    problems.push_back(
        {fmt::format("{} has no effect without policy.slo: a margin is over the iteration's own time", kCountsWaiting),
         kCountsWaiting, fmt::format("give policy.slo, or leave out {}", kCountsWaiting)});
  }
  if (fixed(settings) && settings.has(kCoordinate) && settings.get<bool>(kCoordinate)) {
    problems.push_back(
        {fmt::format("a fixed policy.interval is not coordinated, so {} would have no effect", kCoordinate),
         kCoordinate, fmt::format("leave out policy.interval or {}", kCoordinate)});
  }
  return problems;
}

std::vector<Parameter> parameters() {
  return {
      {.name = "policy.interval",
       .type = ParameterType::integer,
       .unit = "layers",
       .default_value = "",
       .minimum = 0,
       .maximum = 256,
       .doc = "Fixed offloading interval N: the weights of every N-th layer stay on the host; 0: none. Default: each "
              "iteration uses the interval of the record for its SLO",
       .source = "Select-N, section 4.1; fixed in its Figs. 11 and 14"},
      {.name = "policy.record",
       .type = ParameterType::choice,
       .unit = "-",
       .default_value = "exact",
       .choices = {"exact", "paper"},
       .doc =
           "How intervals follow from the SLO. exact: the smallest interval whose iteration meets it; paper: the "
           "printed "
           "formula, which assumes perfect overlap of copies and compute and can break the SLO. The coordinator counts "
           "whole layers with both",
       .source = "Select-N, section 4.1, for the formula; exact gives the intervals of its section 5.4"},
      {.name = kPhaseKey,
       .type = ParameterType::choice,
       .unit = "-",
       .default_value = "both",
       .choices = {"both", "prefill", "decode"},
       .doc =
           "Part of a request that the instance runs. prefill: a request ends with its first token; decode: it arrives "
           "with the KV of its input; both: the whole request. With pools it follows from the pool",
       .source = "Select-N, section 4.1: prefill and decode on instances of their own; both: as one engine runs them"},
      {.name = "policy.slo_margin",
       .type = ParameterType::real,
       .unit = "fraction",
       .default_value = "",
       .minimum = 0.0,
       .maximum = 100.0,
       .doc =
           "Latency SLO of an iteration as a margin over its time without offloading: 0.5 allows 1.5 times that time. "
           "Default: 0.5, unless policy.slo is given",
       .source = "Select-N, section 5: SLOs of +10% to +50%; its section 5.4 uses +50%"},
      {.name = "policy.slo",
       .type = ParameterType::duration,
       .unit = "ns",
       .default_value = "",
       .minimum = 0,
       .maximum = 3.6e12,
       .above_minimum = true,
       .doc = "Latency SLO of an iteration as a time: time to first token of a prefill instance, time per output token "
              "of a decode instance. Rounded down to a multiple of 2 ms",
       .source = "Select-N, section 4.1 and Table 1"},
      {.name = kCountsWaiting,
       .type = ParameterType::boolean,
       .unit = "-",
       .default_value = "",
       .doc = "Used with policy.slo. true (default): the time that requests have waited (since they were sent, or "
              "since their last token; in a decode pool, since the end of their prompt) is subtracted from policy.slo; "
              "false: waiting does not count",
       .source = "Select-N, section 4.2: the SLO of a request less its waiting time"},
      {.name = kCoordinate,
       .type = ParameterType::boolean,
       .unit = "-",
       .default_value = "",
       .doc = "How instances whose copies to the GPU share a link choose their intervals. true (default, without "
              "policy.interval): a coordinator chooses the intervals of all instances so that their weights fit the "
              "link. It refuses requests that would break the SLO of others; such a request goes to another replica or "
              "is rejected. false: each instance chooses its own interval",
       .source = "Select-N, section 4.1 and Fig. 8"},
      {.name = "policy.double_buffer",
       .type = ParameterType::boolean,
       .unit = "-",
       .default_value = "false",
       .doc = "true: two staging buffers, so a layer's copy may start a group ahead, for one more layer's memory; "
              "false: one",
       .source = "Spillway, for ablation: Select-N streams through one"},
      host_memory_parameter()};
}

PolicyInfo info() {
  PolicyInfo info;
  info.name = "select-n";
  info.summary = "Select-N: every n-th layer's weights live on the host, as many as the latency SLO allows";
  info.source =
      "Ma et al., Memory Offloading for Large Language Model Inference with Latency SLO Guarantees (Select-N), 2025, "
      "section 4";
  info.limits =
      "The coordinator knows instances of select-n that follow an SLO. Where these share several links, "
      "the one that carries the least for each GPU counts. The coordinator does not know other traffic, or instances "
      "with "
      "policy.interval. A request that it refuses is sent to the replica with the fewest requests of those that have "
      "not refused it, and rejected once all have. With "
      "policy.phase=decode, the KV of a request is there when it arrives. Pools (prefill_replicas) hand it over: "
      "policy.slo holds in both, and the wait of an answer counts from the end of its prompt. The "
      "host is assumed to have a copy of "
      "every layer that leaves the GPU; only the "
      "layers that live there count. An SLO holds back admission only: running requests go on when their batch has "
      "outgrown it, or when weights cannot come back because KV fills the GPU (metric slo_risk_fraction). "
      "policy.slo_margin compares an iteration with its own time without offloading.";
  info.figures = layer_figures();
  for (FigureDefinition& figure : bus_figures()) info.figures.push_back(std::move(figure));
  info.parameters = parameters();
  info.check = check;
  info.streams = {.weights = true};
  info.default_scheduler = "vllm-v0";
  info.make_layers = [](const PolicyContext& context) -> std::unique_ptr<LayerPolicy> {
    if (!fixed(context.settings)) return std::make_unique<SelectNLayers>(context);
    const std::int32_t interval = fixed_interval(context.settings);
    const WeightStreaming how{.interval = interval,
                              .double_buffer = context.settings.get<bool>("policy.double_buffer")};
    return std::make_unique<FixedInterval>(context.deployment, how,
                                           room_of(context.deployment, context.settings).blocks(interval));
  };
  info.shrinks_without = [](const Settings& settings) { return std::string(fixed(settings) ? "" : "policy.interval"); };
  info.layout = layout;
  return info;
}

const RegisterPolicy kRegistered(info());

}  // namespace
}  // namespace spillway
