#include "tests/oracle/event_executor.hpp"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "sim/core/error.hpp"

namespace spillway::oracle {
namespace {

__extension__ using Wide = __int128;  // products of two int64 fit

// Order of events at one instant.
enum class Kind {
  d2h_done,
  peer_out_done,
  h2d_done,
  peer_in_done,
  cpu_done,
  launch_done,
  compute_done,
  begin,
  layer_start,
  copies_done,
  residency_check,
  link_change
};

constexpr std::array kLinks{Stream::h2d, Stream::d2h, Stream::peer_in, Stream::peer_out, Stream::cpu};

struct Event {
  SimTime time{};
  Kind kind = Kind::begin;
  std::int64_t sequence = 0;
  std::size_t index = 0;  // link_change: which one
  bool operator<(const Event& other) const {
    return std::tie(time, kind, sequence) < std::tie(other.time, other.kind, other.sequence);
  }
};

// One piece of work of a stream.
struct Work {
  Duration duration{};        // compute
  std::int32_t layer = -1;    // compute: -1 before, `layers` after
  std::size_t sub_batch = 0;  // compute
  Copy copy{};                // other streams
};

// A stream works on queue.front() while `working`.
struct StreamState {
  std::deque<Work> queue{};
  bool working = false;
  SimTime started{};
  SimTime idle_since{};
  Event end{};
  // Other streams than compute: the rest of the copy at `timed_at`, as if the link were not shared.
  SimTime timed_at{};
  Duration launch_left{};
  Duration transfer_left{};
  Event launch_end{.sequence = -1};
  SimTime launched{};  // the end of the launch: it transfers from then on, whatever else happens at that instant
  Real share = 1;      // of its own speed
};

class EventExecutor final : private CopySink {
 public:
  EventExecutor(const std::vector<Iteration>& iterations, const std::vector<LinkChange>& changes, LayerRule* rule,
                const Surroundings& surroundings)
      : iterations_(iterations), changes_(changes), rule_(rule), surroundings_(surroundings) {
    for (std::size_t i = 0; i < changes_.size(); ++i) schedule(changes_[i].at, Kind::link_change, i);
    if (!iterations_.empty()) schedule(SimTime{} + iterations_[0].gap, Kind::begin);
  }

  Result execute() {
    while (!events_.empty()) {
      const Event event = *events_.begin();
      events_.erase(events_.begin());
      now_ = event.time;
      handle(event);
    }
    SPILLWAY_CHECK(result_.finishes.size() == iterations_.size(), "the event oracle is stuck");
    result_.uses.push_back(uses_);
    return result_;
  }

 private:
  StreamState& state(Stream stream) { return streams_[static_cast<std::size_t>(stream)]; }
  Use& use(Stream stream) { return uses_[static_cast<std::size_t>(stream)]; }
  const Iteration& iteration() const { return iterations_[current_]; }

  Event schedule(SimTime time, Kind kind, std::size_t index = 0) {
    const Event event{time, kind, sequence_++, index};
    events_.insert(event);
    return event;
  }

  void handle(const Event& event) {
    switch (event.kind) {
      case Kind::d2h_done:
        return copy_done(Stream::d2h);
      case Kind::peer_out_done:
        return copy_done(Stream::peer_out);
      case Kind::h2d_done:
        return copy_done(Stream::h2d);
      case Kind::peer_in_done:
        return copy_done(Stream::peer_in);
      case Kind::launch_done:
        return share_links();
      case Kind::cpu_done:
        return copy_done(Stream::cpu);
      case Kind::compute_done:
        return compute_done();
      case Kind::begin:
        return begin();
      case Kind::layer_start:
        return layer_start();
      case Kind::copies_done:
        return copies_done();
      case Kind::residency_check:
        return residency_check();
      case Kind::link_change:
        return change_links(changes_[event.index]);
    }
  }

  void begin() {
    running_ = true;
    iteration_start_ = now_;
    std::deque<Work>& gpu = state(Stream::compute).queue;
    const auto add = [&](std::int32_t layer, auto duration_of) {
      for (std::size_t s = 0; s < iteration().sub_batches.size(); ++s) {
        gpu.push_back({.duration = duration_of(iteration().sub_batches[s]), .layer = layer, .sub_batch = s});
      }
    };
    add(-1, [](const SubBatch& sub) { return sub.before; });
    for (std::int32_t layer = 0; layer < iteration().layers; ++layer) {
      add(layer, [layer](const SubBatch& sub) { return sub.gpu[static_cast<std::size_t>(layer)]; });
    }
    add(iteration().layers, [](const SubBatch& sub) { return sub.after; });
    next_compute();
  }

  // The compute stream is free: announces the next step to the rule, or starts it, if possible.
  void next_compute() {
    const std::deque<Work>& gpu = state(Stream::compute).queue;
    if (gpu.empty()) return finish();
    const Work& step = gpu.front();
    if (rule_ == nullptr || step.layer < 0) return start(Stream::compute);
    if (step.layer < iteration().layers) {
      schedule(now_, Kind::layer_start);
      return;
    }
    if (step.sub_batch == 0) rule_->at_layers_end(*this);
    waits_for_rule_ = !may_start();
    if (!waits_for_rule_) return start(Stream::compute);
    schedule(now_, Kind::residency_check);
  }

  bool may_start() {
    const Work& step = state(Stream::compute).queue.front();
    const auto sub_batch = static_cast<std::int32_t>(step.sub_batch);
    return step.layer < iteration().layers ? rule_->ready(step.layer, sub_batch) : !rule_->unfinished(sub_batch);
  }

  void layer_start() {
    const Work& step = state(Stream::compute).queue.front();
    for (auto event = events_.begin(); event != events_.end();) {  // the layer's start replaces these events
      event = event->kind == Kind::copies_done ? events_.erase(event) : std::next(event);
    }
    rule_->at_layer_start(step.layer, static_cast<std::int32_t>(step.sub_batch), *this);
    waits_for_rule_ = true;
    schedule(now_, Kind::residency_check);
  }

  void residency_check() {
    if (waits_in_layer_) return work();
    if (!waits_for_rule_ || !may_start()) return;
    waits_for_rule_ = false;
    start(Stream::compute);
  }

  void issue(const Copy& copy) override {
    for (Copy one = copy; one.alike >= 0; --one.alike) state(copy.stream).queue.push_back({.copy = one});
    if (state(copy.stream).working) return;
    start(copy.stream);
    share_links();
  }

  void copy_done(Stream stream) {
    const Copy copy = end(stream).copy;
    use(stream).bytes += copy.bytes;
    if (!state(stream).queue.empty()) start(stream);
    share_links();
    if (rule_ == nullptr) return;
    rule_->at_copy_done(copy, *this);
    const bool scheduled =
        std::any_of(events_.begin(), events_.end(), [](const Event& event) { return event.kind == Kind::copies_done; });
    if (!scheduled) schedule(now_, Kind::copies_done);
    if (waits_for_rule_ || waits_in_layer_) schedule(now_, Kind::residency_check);
  }

  void copies_done() {
    rule_->at_copies_done(*this);
    if (waits_for_rule_ || waits_in_layer_) schedule(now_, Kind::residency_check);
  }

  void compute_done() {
    const Work done = end(Stream::compute);
    const bool in_layer = done.layer >= 0 && done.layer < iteration().layers;
    if (rule_ == nullptr || !in_layer || !rule_->works_in_layers()) return next_compute();
    layer_ = done.layer;
    sub_batch_ = static_cast<std::int32_t>(done.sub_batch);
    waits_in_layer_ = true;
    schedule(now_, Kind::residency_check);
  }

  // A step of a layer, or a piece of work in it, has ended, or copies have: the rule says what comes next.
  void work() {
    LayerWork next = rule_->work(layer_, sub_batch_, *this);
    if (next.kind == LayerWork::Kind::turns) next = rule_->work(layer_, sub_batch_, *this);  // one by one
    if (next.kind == LayerWork::Kind::waits) return;
    waits_in_layer_ = false;
    if (next.kind == LayerWork::Kind::none) {
      // The stream was idle while the layer waited.
      if (running_) use(Stream::compute).stall += now_ - state(Stream::compute).idle_since;
      state(Stream::compute).idle_since = now_;
      return next_compute();
    }
    state(Stream::compute)
        .queue.push_front({.duration = next.time, .layer = layer_, .sub_batch = static_cast<std::size_t>(sub_batch_)});
    start(Stream::compute);
  }

  void finish() {
    result_.finishes.push_back(now_);
    result_.uses.push_back(uses_);
    running_ = false;
    if (++current_ < iterations_.size()) schedule(now_ + iterations_[current_].gap, Kind::begin);
  }

  void start(Stream stream) {
    StreamState& s = state(stream);
    s.working = true;
    s.started = s.timed_at = now_;
    if (running_) use(stream).stall += std::max(Duration{}, now_ - std::max(s.idle_since, iteration_start_));
    const Work& work = s.queue.front();
    if (stream == Stream::compute) {
      const bool copies = state(Stream::h2d).working || state(Stream::d2h).working;
      const bool shared = copies && work.layer >= 0;
      s.end = schedule(now_ + (shared ? times(work.duration, surroundings_.links.sharing.compute) : work.duration),
                       Kind::compute_done);
      return;
    }
    s.launch_left = work.copy.launch;
    s.transfer_left = work.copy.transfer;
    s.launched = now_ + work.copy.launch;
    if (s.launched > now_) s.launch_end = schedule(s.launched, Kind::launch_done);
    time_copy(stream);
  }

  // Rounded up.
  static Duration times(Duration work, const Slowdown& by) {
    return Duration(static_cast<std::int64_t>((Wide{work.count()} * by.num + by.den - 1) / by.den));
  }

  void time_copy(Stream stream) {
    StreamState& s = state(stream);
    const SimTime time = now_ + s.launch_left + plain_needed(s.transfer_left, s.share);
    const std::map<Stream, Kind> kinds{{Stream::h2d, Kind::h2d_done},
                                       {Stream::d2h, Kind::d2h_done},
                                       {Stream::peer_in, Kind::peer_in_done},
                                       {Stream::peer_out, Kind::peer_out_done},
                                       {Stream::cpu, Kind::cpu_done}};
    s.end = schedule(time, kinds.at(stream));
  }

  // Bytes/s alone of the copy that transfers; < 0: none does. A copy that takes no time crosses no total.
  Real rate(Stream stream) {
    const StreamState& s = state(stream);
    if (!s.working || s.launched > now_) return -1;
    return plain_rate(s.queue.front().copy);
  }

  void share_links() {
    if (surroundings_.others_copy) return;
    PlainRates rates{};
    for (std::size_t way = 0; way < kWays; ++way) rates[way] = rate(kLinks[way]);
    const PlainRates shares = plain_shares(surroundings_.links, traffic_, rates);
    for (std::size_t way = 0; way < kWays; ++way) {
      if (rates[way] >= 0) set_share(kLinks[way], shares[way]);
    }
  }

  Work end(Stream stream) {
    StreamState& s = state(stream);
    const Work work = s.queue.front();
    s.queue.pop_front();
    events_.erase(s.launch_end);  // a copy of no transfer time ends before its launch does
    s.working = false;
    s.idle_since = now_;
    use(stream).busy += now_ - s.started;
    return work;
  }

  void change_links(const LinkChange& change) {
    if (surroundings_.others_copy) {
      return set_share(kLinks.at(change.link), static_cast<Real>(change.den) / static_cast<Real>(change.num));
    }
    traffic_ = change.traffic;
    share_links();
  }

  void set_share(Stream stream, Real share) {
    StreamState& s = state(stream);
    if (same_share(share, s.share)) return;
    const Real before = std::exchange(s.share, share);
    if (!s.working) return;
    const Duration elapsed = now_ - s.timed_at;
    const Duration in_launch = std::min(elapsed, s.launch_left);
    s.launch_left -= in_launch;
    s.transfer_left -= plain_done(elapsed - in_launch, before);
    s.timed_at = now_;
    events_.erase(s.end);
    time_copy(stream);
  }

  const std::vector<Iteration>& iterations_;
  const std::vector<LinkChange>& changes_;
  LayerRule* rule_;
  Surroundings surroundings_;
  std::vector<double> traffic_{};
  std::set<Event> events_{};
  std::int64_t sequence_ = 0;
  SimTime now_{};
  std::size_t current_ = 0;
  bool running_ = false;
  SimTime iteration_start_{};
  bool waits_in_layer_ = false;  // the rule may have work in layer_
  std::int32_t layer_ = 0;
  std::int32_t sub_batch_ = 0;
  bool waits_for_rule_ = false;  // at_layer_start was called, but the step does not compute yet
  std::array<StreamState, kStreams> streams_{};
  Uses uses_{};
  Result result_{};
};

}  // namespace

Result execute(const std::vector<Iteration>& iterations, const std::vector<LinkChange>& changes, LayerRule* rule,
               const Surroundings& surroundings) {
  return EventExecutor(iterations, changes, rule, surroundings).execute();
}

}  // namespace spillway::oracle
