#include "sim/exec/executor.hpp"

#include <boost/container/small_vector.hpp>
#include <cstdlib>
#include <limits>
#include <string>
#include <utility>

#include "sim/core/error.hpp"

namespace spillway {
namespace {

constexpr std::int64_t kRatioLimit = std::int64_t{1} << 31;
constexpr std::int64_t kMostTimelessCopies = 1'000'000;  // at one instant; beyond it a rule issues them for ever

__extension__ using Wide = __int128;  // holds every product of two int64

// A product with a slowdown's term, which is below 2^31, holds 64 bits.
bool is_short(Duration x) { return (x.count() >> 32) == 0; }

// floor and ceil of x * num / den
Duration scale_down(Duration x, std::int64_t num, std::int64_t den) {
  if (is_short(x)) return Duration(x.count() * num / den);
  return Duration(static_cast<std::int64_t>(Wide{x.count()} * num / den));
}
Duration scale_up(Duration x, std::int64_t num, std::int64_t den) {
  if (is_short(x)) return Duration((x.count() * num + den - 1) / den);
  return Duration(static_cast<std::int64_t>((Wide{x.count()} * num + den - 1) / den));
}

void check(const Slowdown& slowdown) {
  SPILLWAY_CHECK(1 <= slowdown.den && slowdown.den <= slowdown.num && slowdown.num < kRatioLimit,
                 "invalid slowdown " + std::to_string(slowdown.num) + "/" + std::to_string(slowdown.den));
}

/// Field by field: the caller has just written some of them, and wider reads would have to wait for that.
void assign(Copy& to, const Copy& from) {
  to.stream = from.stream;
  to.layer = from.layer;
  to.bytes = from.bytes;
  to.launch = from.launch;
  to.transfer = from.transfer;
  to.tag = from.tag;
  to.owner = from.owner;
  to.alike = from.alike;
}

/// Takes the copies that a rule issues in several calls, and repeats the calls on behalf of the rule.
class IssuedCopies final : public LayerRule, public CopySink {
 public:
  using Heard = std::array<bool, kStreams>;

  void clear() {
    count_ = 0;
    call_ = calls_ = 0;
  }
  void begin_call() { call_ = calls_++; }
  [[nodiscard]] std::size_t count() const { return count_; }
  /// Since there were `before`, the last call, and no other one, has issued one copy on each of `lanes`, equal to the
  /// one in `copies` but for its layer and tag. `copies` take over these.
  bool replace(std::array<Copy, 2>& copies, std::size_t before, std::span<const std::size_t> lanes) const {
    if (count_ - before != lanes.size()) return false;
    for (const std::size_t lane : lanes) {
      Copy& copy = copies[lane];
      const bool second = lanes.size() == 2 && issued_[before].copy.stream != copy.stream;
      const Copy& next = issued_[before + (second ? 1 : 0)].copy;
      copy.layer = next.layer;
      copy.tag = next.tag;
      if (copy != next) return false;
    }
    return true;
  }
  void issue(const Copy& copy) override {
    if (count_ == issued_.size()) issued_.emplace_back();
    Issued& next = issued_[count_++];
    next.call = call_;
    assign(next.copy, copy);
  }
  void issue_all(CopySink& sink) const {
    for (std::size_t i = 0; i < count_; ++i) sink.issue(issued_[i].copy);
  }

  /// From now on, as many calls as there were issue the same copies again. The observer has heard of their copies, so
  /// it hears of none meanwhile. Later calls are the rule's.
  void repeat(LayerRule& rule, Heard& heard) {
    call_ = 0;
    rule_ = &rule;
    heard_ = &heard;
    again_ = std::exchange(heard, {});
  }
  void at_layer_start(std::int32_t layer, std::int32_t sub_batch, CopySink& sink) override {
    rule_->at_layer_start(layer, sub_batch, sink);
  }
  void at_copy_done(const Copy& copy, CopySink& sink) override {
    if (call_ == calls_) return rule_->at_copy_done(copy, sink);
    repeat_call(sink);
  }
  void at_copies_done(CopySink& sink) override {
    if (call_ == calls_) return rule_->at_copies_done(sink);
    repeat_call(sink);
  }
  [[nodiscard]] bool ready(std::int32_t layer, std::int32_t sub_batch) const override {
    return rule_->ready(layer, sub_batch);
  }
  /// All of the calls have come again.
  [[nodiscard]] bool repeated() const { return call_ == calls_; }

 private:
  struct Issued {
    std::size_t call = 0;
    Copy copy{};
  };
  void repeat_call(CopySink& sink) {
    for (std::size_t i = 0; i < count_; ++i) {
      if (issued_[i].call == call_) sink.issue(issued_[i].copy);
    }
    if (++call_ == calls_) *heard_ = again_;
  }

  boost::container::small_vector<Issued, 2> issued_{2};  // the first ones; the others keep their place
  std::size_t count_ = 0;
  std::size_t calls_ = 0;
  std::size_t call_ = 0;
  LayerRule* rule_ = nullptr;
  Heard* heard_ = nullptr;
  Heard again_{};
};

}  // namespace

void CopyObserver::went_round(const CopyRounds& rounds) {
  SimTime started = rounds.started;
  SimTime waited = rounds.waited;
  SimTime ended = rounds.ended;
  for (std::int32_t i = 0; i < rounds.count; ++i) {
    copied(rounds.copy, started, ended);
    if (waited < ended) this->waited(rounds.what, waited, ended);
    ended = ended + rounds.period;
    started = ended - rounds.each;
    waited = ended - rounds.wait;
  }
}

void CopyStream::issue(const Copy& copy, SimTime now) {
  if (!busy()) {
    assign(in_flight_, copy);
    issued_when_free_ = true;
    size_ = 1 + copy.alike;
    return start(now);
  }
  size_ += 1 + copy.alike;
  if (queued_.full()) queued_.set_capacity(std::max<std::size_t>(8, 2 * queued_.capacity()));
  queued_.push_back(copy);
}

inline Copy CopyStream::complete() {
  const Copy done = in_flight_;
  free_since_ = finish_;
  finish_ = launched_ = kNever;
  --size_;
  issued_when_free_ = false;
  if (in_flight_.alike > 0) {
    --in_flight_.alike;
    start(free_since_);
  } else if (!queued_.empty()) {
    in_flight_ = queued_.front();
    queued_.pop_front();
    start(free_since_);
  }
  return done;
}

inline void CopyStream::start(SimTime now) {
  ++starts_;
  started_ = timed_at_ = now;
  launch_left_ = in_flight_.launch;
  transfer_left_ = in_flight_.transfer;
  launched_ = now + launch_left_;
  time_rest();
}

inline Duration CopyStream::slowed(Duration transfer) const {
  return slowdown_.none() ? transfer : scale_up(transfer, slowdown_.num, slowdown_.den);
}

Duration CopyStream::each() const { return in_flight_.launch + slowed(in_flight_.transfer); }

void CopyStream::complete_of_run(std::int32_t count, SimTime end) {
  free_since_ = end;
  in_flight_.alike = static_cast<std::int16_t>(in_flight_.alike - count);
  size_ -= count;
  start(end);
}

inline void CopyStream::time_rest() {
  Duration transfer = transfer_left_;
  if (!slowdown_.none()) {
    // Layers move the same bytes again and again, so most copies take as long as the one before.
    if (transfer_left_ != known_.transfer || slowdown_ != known_.slowdown) {
      known_ = {slowdown_, transfer_left_, slowed(transfer_left_)};
    }
    transfer = known_.slowed;
  }
  finish_ = timed_at_ + launch_left_ + transfer;
}

void CopyStream::change_slowdown(const Slowdown& slowdown, SimTime now) {
  // Shares that come out alike may differ in their last bits, and a copy that is timed anew loses a part of a
  // nanosecond.
  const std::int64_t now_times = slowdown.num * slowdown_.den;  // each below 2^31
  const std::int64_t then_times = slowdown_.num * slowdown.den;
  if (std::abs(now_times - then_times) <= now_times >> 40) return;
  if (busy()) {
    const Duration elapsed = now - timed_at_;
    const Duration launched = std::min(elapsed, launch_left_);
    launch_left_ -= launched;
    if (elapsed > launched) {
      const Duration slowed = elapsed - launched;
      const Duration done = slowdown_.none() ? slowed : scale_down(slowed, slowdown_.den, slowdown_.num);
      transfer_left_ -= std::min(transfer_left_, done);
    }
    timed_at_ = now;
  }
  slowdown_ = slowdown;
  if (busy()) time_rest();
}

void CopyStream::note(SimTime start, SimTime now, State& state) const {
  state.slowdown = slowdown_;
  state.queued.assign(queued_.begin(), queued_.end());
  if (busy()) {
    state.free_since = {};
    state.timed_at = timed_at_ - now;
    state.started = started_ - now;
    state.launch_left = launch_left_;
    state.transfer_left = transfer_left_;
    state.in_flight = in_flight_;
    return;
  }
  // Work before the iteration decides nothing in it.
  state.free_since = used_since(start) ? free_since_ - now : Duration(std::numeric_limits<std::int64_t>::min());
  state.timed_at = state.started = state.launch_left = state.transfer_left = {};
  state.in_flight = {};
}

void CopyStream::shift(SimTime start, Duration by) {
  if (!used_since(start)) return;
  free_since_ = free_since_ + by;
  if (!busy()) return;
  finish_ = finish_ + by;
  launched_ = launched_ + by;
  started_ = started_ + by;
  timed_at_ = timed_at_ + by;
}

Executor::Executor(const CopySharing& sharing, CopyObserver* observer)
    : Executor(CopyLinks(sharing), sharing.compute, observer) {
  for (const Slowdown& slowdown : {sharing.h2d, sharing.d2h}) check(slowdown);
}

Executor::Executor(CopyLinks links, const Slowdown& compute, CopyObserver* observer, bool others_copy)
    : interference_(compute), observer_(observer), others_copy_(others_copy), links_(std::move(links)) {
  for (std::size_t i = 0; i < heard_.size() && observer != nullptr; ++i) {
    heard_[i] = observer->hears_of(static_cast<Stream>(i));
  }
  check(compute);
}

SimTime Executor::next_other_done() const {
  SimTime next = kNever;
  for (std::size_t i = 2; i < kLanes; ++i) next = std::min(next, copies_[i].finish());
  return next;
}

inline CopyStream& Executor::next_to_end() {
  CopyStream* next = &copies_[lane(Stream::d2h)];
  const auto or_else = [&](Stream stream) {
    CopyStream& other = copies_[lane(stream)];
    if (other.finish() < next->finish()) next = &other;
  };
  if (lanes_used_ == 2) {
    or_else(Stream::h2d);
    return *next;
  }
  for (const Stream stream : {Stream::peer_out, Stream::h2d, Stream::peer_in, Stream::cpu}) or_else(stream);
  return *next;
}

void Executor::use_lane(std::size_t lane) {
  if (lane >= lanes_used_) lanes_used_ = kLanes;
  if (lane < links_.streams()) links_used_ = links_.streams();
}

void Executor::issue(const Copy& copy) {
  const std::size_t at = lane(copy.stream);
  CopyStream& stream = copies_[at];
  if (at >= links_used_) use_lane(at);
  const bool starts = !stream.busy();
  if (starts) charge_stall(copy.stream, stream.free_since(), now_);
  const std::int64_t copies = 1 + copy.alike;
  issued_[at] += copy.bytes * copies;
  copies_under_way_ += copies;
  if (copy.owner == kRequestCopies) {
    if (for_requests_ == 0) for_requests_since_ = now_;
    for_requests_ += copies;
  }
  const bool shared_before = !shares_host_link_only();
  if (!others_copy_) links_.expect(copy);
  stream.issue(copy, now_);
  if (!starts || at >= links_.streams()) return;
  // Copies that share nothing but the host link can wait for others of this instant.
  shares_due_ = shares_host_link_only();
  if (shares_due_) return;
  if (shared_before && launches_known_ && copy.launch > Duration{}) {
    launch_at_ = earlier(launch_at_, stream.launched());  // until then it takes no share
  } else {
    share_links();
  }
}

void Executor::update_shares() {
  if (shares_host_link_only()) {
    set_duplexed(both_directions());
    if (links_.idle()) launch_at_ = kNever;
    return;
  }
  launch_at_ = kNever;
  launches_known_ = true;
  Transfers transfers{};
  for (std::size_t i = 0; i < links_used_; ++i) {
    transfers[i] = copies_[i].transferring(now_);
    if (transfers[i] == nullptr) launch_at_ = earlier(launch_at_, copies_[i].launched());
  }
  if (others_copy_) return;
  const Slowdowns& slowdowns = links_.alone(transfers);
  if (!slowed_ && &slowdowns == &CopyLinks::kUnslowed) return;
  slowed_ = false;
  for (std::size_t i = 0; i < links_used_; ++i) {
    copies_[i].set_slowdown(slowdowns[i], now_);
    slowed_ |= !copies_[i].slowdown().none();
  }
}

void Executor::set_duplexed(bool both) {
  duplexed_ = both;
  const Slowdowns& slowdowns = links_.on_host_link(both);
  for (std::size_t i = 0; i < 2; ++i) copies_[i].set_slowdown(slowdowns[i], now_);
}

void Executor::set_traffic(std::vector<double> shares) {
  forget_pairs();
  links_.set_traffic(std::move(shares));
  update_shares();
}

void Executor::set_slowdowns(const Slowdowns& slowdowns, SimTime at) {
  forget_pairs();
  for (std::size_t i = 0; i < slowdowns.size(); ++i) {
    if (slowdowns[i] == copies_[i].slowdown()) continue;
    check(slowdowns[i]);
    copies_[i].set_slowdown(slowdowns[i], at);
  }
}

SimTime Executor::next_event() const {
  if (copies_ended_) return now_;
  const bool waits = at_gate_ || (in_layer_ && compute_free_ <= now_);
  if (iteration_start_ == kNever || waits) return next_copy_event();
  return std::min(next_copy_event(), compute_free_);
}

SimTime Executor::next_event(const IterationPlan& plan) const {
  const SimTime next = next_event();
  // A copy in flight that slows the layers down stays in flight until its own event.
  if (next != compute_free_ || copies_ended_ || at_gate_ || layer_ >= plan.layers || !may_be_quiet(plan)) return next;
  return std::min(next_copy_event(),
                  compute_free_ + stretched(plan.sub_batches.front().gpu.at(0)) * quiet_layers(plan));
}

inline Duration Executor::stretched(Duration work) const {
  if (interference_.none() || next_host_copy_done() == kNever) return work;
  return scale_up(work, interference_.num, interference_.den);
}

void Executor::settle(LayerRule* rule) {
  if (!std::exchange(copies_ended_, false) || rule == nullptr) return;
  rule->at_copies_done(*this);
  share_started();
}

void Executor::count_timeless(const Copy& copy) {
  if (timeless_at_ != now_) timeless_ = 0;
  timeless_at_ = now_;
  SPILLWAY_CHECK(++timeless_ <= kMostTimelessCopies,
                 "more than " + std::to_string(kMostTimelessCopies) + " copies that take no time ended at " +
                     std::to_string(now_.ns()) + " ns: the layer rule issues them for ever, the last one for layer " +
                     std::to_string(copy.layer));
}

Duration Executor::copying(Stream stream) const {
  const CopyStream& copies = copies_[lane(stream)];
  return use(stream).busy + (copies.size() > 0 ? now_ - copies.started() : Duration{});
}

void Executor::run_copies(LayerRule* rule, SimTime until) {
  SPILLWAY_CHECK(now_ <= until, "time runs back from " + std::to_string(now_.ns()) + " ns");
  for (;;) {
    CopyStream& next = next_to_end();
    const SimTime finish = next.finish();
    const SimTime event = earlier(finish, launch_at_);
    if (copies_ended_ && event > now_ && until > now_) {
      settle(rule);
      continue;
    }
    if (event > until || event == kNever) break;
    now_ = event;
    if (event < finish) {
      share_links();
      continue;
    }
    const SimTime started = next.started();
    const Duration busy = now_ - started;
    const Copy copy = next.complete();
    --copies_under_way_;
    if (busy == Duration{}) count_timeless(copy);
    if (lane(copy.stream) < links_.streams()) share_ended(next);
    StreamUse& use = use_of(copy.stream);
    use.busy += busy;
    use.bytes += copy.bytes;
    if (copy.owner == kRequestCopies && --for_requests_ == 0) copied_for_requests_ += now_ - for_requests_since_;
    if (hears_of(copy.stream)) observer_->copied(copy, started, now_);
    if (rule == nullptr) continue;
    rule->at_copy_done(copy, *this);
    share_started();
    copies_ended_ = true;
  }
  if (until != kNever) now_ = until;
}

// Brings the state to `target` or `until`, whichever is first; returns whether it reached `target`.
inline bool Executor::reach(LayerRule* rule, SimTime target, SimTime until) {
  const SimTime stop = std::min(target, until);
  if (next_copy_event() <= stop || (copies_ended_ && now_ < stop)) run_copies(rule, stop);
  now_ = stop;
  return target <= until;
}

void Executor::begin(const IterationPlan& plan, SimTime start) {
  SPILLWAY_CHECK(iteration_start_ == kNever, "an iteration begins before the previous one has finished");
  SPILLWAY_CHECK(plan.layers >= 0 && !plan.sub_batches.empty(), "an iteration needs layers and sub-batches");
  SPILLWAY_CHECK(now_ <= start, "time runs back from " + std::to_string(now_.ns()) + " ns");
  reach(plan.rule, start, start);

  // Without waits and interference no event can delay any part of the iteration; otherwise only `before` is safe.
  const bool interference = !interference_.none() && next_host_copy_done() != kNever;
  const bool unhindered = plan.rule == nullptr && !interference;
  Duration work{};
  for (const SubBatchTimes& sub : plan.sub_batches) {
    SPILLWAY_CHECK(sub.gpu.fits(plan.layers), "the number of layer times differs from the number of layers");
    work += sub.before;
    if (unhindered) work += sub.gpu.total(plan.layers) + sub.after;
  }
  iteration_start_ = start;
  compute_free_ = start + work;
  use_of(Stream::compute).busy += work;
  layer_ = unhindered ? plan.layers + 1 : 0;
  sub_batch_ = 0;
  at_gate_ = false;
  in_layer_ = false;
}

void Executor::finish_some(LayerRule* rule) {
  while (copies_ended_ || next_copy_event() <= now_) {
    if (next_copy_event() <= now_) run_copies(rule, now_);
    settle(rule);
  }
}

bool Executor::end_instant(LayerRule* rule) {
  const bool waited = copies_ended_;
  finish_copies(rule);
  return waited;
}

inline void Executor::count_wait(Wait what, SimTime from, SimTime until) {
  waited_[static_cast<std::size_t>(what)] += until - from;
  if (hears_of(Stream::compute) && until > from) observer_->waited(what, from, until);
  if (waits_for_cpu_attention(what)) bubbles_[sub_batch_ == 0 ? 0 : 1] += until - from;
}

// A step waits: goes on to the next copy event. Returns whether that is not later than `until`.
bool Executor::wait(LayerRule* rule, Wait what, SimTime until) {
  SPILLWAY_CHECK(next_copy_done() != kNever, "layer " + std::to_string(layer_) + ", sub-batch " +
                                                 std::to_string(sub_batch_) + " waits at " + std::to_string(now_.ns()) +
                                                 " ns with no copy in flight");
  const SimTime from = now_;
  const bool reached = reach(rule, next_copy_event(), until);
  count_wait(what, from, now_);
  if (reached) finish_copies(rule);
  return reached;
}

// Brings the state to the start of the next GPU step, a layer; returns whether that is not later than `until`.
inline bool Executor::reach_layer(LayerRule* rule, SimTime until) {
  if (!at_gate_) {
    if (!reach(rule, compute_free_, until)) return false;
    if (rule == nullptr) return true;
    at_gate_ = true;
    copies_ended_ = false;
    rule->at_layer_start(layer_, sub_batch_, *this);
    share_started();
    finish_copies(rule);
  }
  while (!rule->ready(layer_, sub_batch_)) {
    if (!wait(rule, rule->waits_for(layer_, sub_batch_), until)) return false;
  }
  at_gate_ = false;
  return true;
}

// The same for the work after the layers.
bool Executor::reach_after(LayerRule* rule, SimTime until) {
  if (!at_gate_) {
    if (!reach(rule, compute_free_, until)) return false;
    if (rule == nullptr) return true;
    at_gate_ = true;
    if (sub_batch_ == 0) {
      rule->at_layers_end(*this);
      share_started();
    }
  }
  while (rule->unfinished(sub_batch_)) {
    finish_copies(rule);
    const std::optional<Wait> what = rule->unfinished(sub_batch_);
    if (what && !wait(rule, *what, until)) return false;
  }
  at_gate_ = false;
  return true;
}

// Starts the next GPU step now.
inline void Executor::compute(const IterationPlan& plan, bool works_in_layers) {
  const auto sub = static_cast<std::size_t>(sub_batch_);
  const SubBatchTimes& times = plan.sub_batches[sub];
  const bool is_layer = layer_ < plan.layers;
  const Duration work = stretched(is_layer ? times.gpu.at(layer_) : times.after);
  use_of(Stream::compute).stall += now_ - compute_free_;
  use_of(Stream::compute).busy += work;
  compute_free_ = now_ + work;
  in_layer_ = is_layer && works_in_layers;
  if (!in_layer_) next_step(plan);
}

void Executor::go_round(const IterationPlan& plan, const LayerWork& work, SimTime until) {
  CopyStream& copies = copies_[lane(Stream::h2d)];
  // Nothing else copies, so nothing changes how long the copies take, and nothing else happens.
  const bool keeps_slowdown = shares_host_link_only() ? !duplexed_ : !others_copy_ && !slowed_ && links_.free_alone();
  const bool alone = !copies_ended_ && copies.busy() && copies.size() == copies_under_way_;
  if (!keeps_slowdown || !alone || (work.in_turn ? copies.size() > 1 : copies.run() == 0)) return;
  const Duration each = copies.each();
  const Duration time = work.in_turn ? work.time : stretched(work.time);
  const Duration period = work.in_turn ? each + time : each;
  const SimTime first = copies.finish();
  if (first <= now_ || first > until || each == Duration{} || time > period) return;
  const std::int32_t most = work.in_turn ? work.alike : std::min(work.alike, copies.run());
  const auto count = static_cast<std::int32_t>(std::min<std::int64_t>(most, (until - first) / period + 1));
  const std::int32_t others = count - 1;
  const CopyRounds rounds{.copy = copies.in_flight(),
                          .count = count,
                          .what = work.wait,
                          .started = copies.started(),
                          .waited = now_,
                          .ended = first,
                          .period = period,
                          .each = each,
                          .wait = period - time};
  waited_[static_cast<std::size_t>(work.wait)] += first - now_ + rounds.wait * others;
  StreamUse& compute = use_of(Stream::compute);
  compute.stall += first - compute_free_ + rounds.wait * others;
  compute.busy += time * count;
  worked_.all += work.time * count;
  if (work.arithmetic) worked_.arithmetic += work.time * count;
  StreamUse& use = use_of(Stream::h2d);
  use.busy += first - rounds.started + each * others;
  use.bytes += rounds.copy.bytes * count;
  now_ = first + period * others;
  compute_free_ = now_ + time;
  if (work.in_turn) {
    use.stall += time * others;
    issued_[lane(Stream::h2d)] += rounds.copy.bytes * others;
    copies.complete_last(now_);
    copies_under_way_ = 0;
  } else {
    copies.complete_of_run(count, now_);
    copies_under_way_ -= count;
  }
  share_links();
  if (hears_of(Stream::h2d) || hears_of(Stream::compute)) observer_->went_round(rounds);
  plan.rule->skip_rounds(count);
}

bool Executor::work_in_layer(const IterationPlan& plan, SimTime until) {
  if (now_ < compute_free_) {
    if (!reach(plan.rule, compute_free_, until)) return false;
    finish_copies(plan.rule);
  }
  for (;;) {
    const LayerWork work = plan.rule->work(layer_, sub_batch_, *this);
    share_started();
    if (work.kind == LayerWork::Kind::waits) {
      if (work.alike > 0) {
        const SimTime before = now_;
        go_round(plan, work, until);
        if (now_ > before) {
          if (!reach(plan.rule, compute_free_, until)) return false;
          finish_copies(plan.rule);
          continue;
        }
      }
      const bool ended = copies_ended_ || next_copy_event() <= now_;  // at this instant
      if (ended) finish_copies(plan.rule);
      if (!ended && !wait(plan.rule, work.wait, until)) return false;
      continue;
    }
    // Whatever is next, the compute stream has been idle since its last piece.
    use_of(Stream::compute).stall += now_ - compute_free_;
    if (work.kind == LayerWork::Kind::none) {
      compute_free_ = now_;
      in_layer_ = false;
      next_step(plan);
      return true;
    }
    const Duration time = stretched(work.time);
    // Equal pieces that start before the next copy event, and by `until`, are taken together.
    std::int64_t pieces = 1;
    if (work.alike > 0 && time > Duration{}) {
      const SimTime last = earlier(next_copy_event() - Duration(1), until);
      pieces = std::clamp<std::int64_t>((last - now_) / time, 0, work.alike) + 1;
      if (pieces > 1) plan.rule->skip_alike(static_cast<std::int32_t>(pieces - 1));
    }
    worked_.all += work.time * pieces;
    if (work.arithmetic) worked_.arithmetic += work.time * pieces;
    use_of(Stream::compute).busy += time * pieces;
    now_ = now_ + time * (pieces - 1);
    compute_free_ = now_ + time;
    if (!reach(plan.rule, compute_free_, until)) return false;
    finish_copies(plan.rule);
  }
}

inline bool Executor::compute_quiet_layers(const IterationPlan& plan, Duration every, SimTime until) {
  if (copies_ended_) return false;
  const SimTime last = earlier(next_copy_event() - Duration(1), until);  // that a layer may start
  if (last < now_) return false;
  const std::int32_t quiet = quiet_layers(plan);
  if (quiet == 0) return false;
  const Duration work = stretched(every);
  const std::int64_t starts = work > Duration{} ? (last - now_) / work + 1 : quiet;
  const auto count = static_cast<std::int32_t>(std::min<std::int64_t>(starts, quiet));
  plan.rule->skip(layer_, count);
  now_ = now_ + work * (count - 1);
  compute_free_ = now_ + work;
  use_of(Stream::compute).busy += work * count;
  layer_ += count;
  return true;
}

bool Executor::pairs_repeat() {
  constexpr std::int32_t kMostMissed = 64;
  constexpr std::int32_t kPassed = 4096;
  if (passed_ > 0) {
    --passed_;
    return false;
  }
  const bool ends_next = launch_at_ == kNever && !copies_ended_ && shares_host_link_only();
  if (!ends_next || !copies_[0].busy() || !copies_[1].busy() || for_requests_ > 0) return false;
  // A copy that was queued has started before shares could change.
  if (!copies_[0].issued_when_free() || !copies_[1].issued_when_free()) return false;
  const SimTime at = std::max(copies_[0].started(), copies_[1].started());
  if (at == left_at_) return false;
  const Pair now{{copies_[0].timing(at), copies_[1].timing(at)}};
  if (repeated_.period > Duration{} && now == repeated_.pair) return true;
  if (noted_pair_.known && at == noted_pair_.at) return false;
  const NotedPair before = std::exchange(noted_pair_, {.known = true,
                                                       .at = at,
                                                       .pair = now,
                                                       .use = {use_of(Stream::h2d), use_of(Stream::d2h)},
                                                       .starts = {copies_[0].starts(), copies_[1].starts()}});
  if (++missed_ >= kMostMissed) passed_ = kPassed;
  return before.known && before.pair == now && follows(before);
}

bool Executor::follows(const NotedPair& before) {
  const SimTime at = noted_pair_.at;
  const std::size_t first = first_of_pair();
  const CopyStream& ends_first = copies_[first];
  RepeatedPair repeated{.pair = noted_pair_.pair, .period = at - before.at};
  const bool wait_for_each_other = ends_first.started() == at;
  const Duration idle = wait_for_each_other ? at + repeated.period - ends_first.finish() : Duration{};
  for (std::size_t i = 0; i < 2; ++i) {
    repeated.use[i] = noted_pair_.use[i] - before.use[i];
    // Each has followed one like it, at once or when both had ended.
    const Duration waited = i == first ? idle : Duration{};
    const StreamUse one{.busy = repeated.period - waited, .stall = waited, .bytes = copies_[i].in_flight().bytes};
    if (repeated.use[i] != one || noted_pair_.starts[i] != before.starts[i] + 1) return false;
  }
  const bool in_turn = wait_for_each_other || ends_first.started() + repeated.period == ends_first.finish();
  if (copies_[1 - first].started() != at || !in_turn) return false;
  repeated_ = repeated;
  return true;
}

void Executor::repeat_pairs(const IterationPlan& plan, Duration every, SimTime until) {
  LayerRule& rule = *plan.rule;
  const Duration work = stretched(every);
  const auto compute_layers = [&](std::int32_t count) {
    use_of(Stream::compute).busy += work * count;
    compute_free_ = compute_free_ + work * count;
    layer_ += count;
    at_gate_ = false;
  };
  const std::size_t first = first_of_pair();
  const std::array<std::size_t, 2> order{first, 1 - first};
  const SimTime start = std::max(copies_[0].started(), copies_[1].started());  // of the first pair
  const Duration period = repeated_.period;
  const Duration lead = start - copies_[first].started();  // of the first one over the other one
  const Duration to_first_end = copies_[first].finish() - start;
  const bool joint = to_first_end == period;
  const bool wait_for_each_other = lead == Duration{};
  std::array<Copy, 2> copies{copies_[0].in_flight(), copies_[1].in_flight()};
  IssuedCopies at_ends;  // in the calls for the last pair of which the rule has heard an end
  IssuedCopies at_gate;
  SimTime at = start;      // of the pair in flight
  SimTime told = start;    // up to here, the rule has heard of all that has ended
  std::int64_t pairs = 0;  // that have ended, followed by one like them
  bool repeats = true;
  bool all_told = false;  // it was told that all copies of that instant have ended
  const SimTime entered = now_;
  // A cut at the end of a pair leaves open what follows it.
  while (repeats && at + period < until) {
    const SimTime first_end = at + to_first_end;
    const SimTime last_end = at + period;
    while (!at_gate_ && compute_free_ < first_end && layer_ < plan.layers) {
      if (const std::int32_t quiet = quiet_layers(plan); quiet > 0) {
        const std::int64_t starts = (first_end - compute_free_ - Duration(1)) / work + 1;
        const auto count = static_cast<std::int32_t>(std::min<std::int64_t>(starts, quiet));
        rule.skip(layer_, count);
        compute_layers(count);
        continue;
      }
      now_ = compute_free_;
      rule.at_layer_start(layer_, 0, at_gate);
      at_gate_ = true;
      if (at_gate.count() == 0 && rule.ready(layer_, 0)) compute_layers(1);
    }
    // Copies that start with a layer, and layers that start between the ends, are executed step by step.
    const bool starts_at_end = !at_gate_ && compute_free_ == last_end && layer_ < plan.layers;
    if (at_gate.count() > 0 || (!at_gate_ && compute_free_ <= last_end && !starts_at_end)) break;
    at_ends.clear();
    for (std::size_t i = 0; i < (joint ? 1 : 2) && repeats; ++i) {
      const SimTime now = i == 0 ? first_end : last_end;
      const bool waits = at_gate_;
      const Wait what = waits ? rule.waits_for(layer_, 0) : Wait::layers;
      const SimTime waits_since = std::max(told, compute_free_);
      told = now_ = now;
      const std::size_t before = at_ends.count();
      const auto lanes = std::span(order).subspan(i, joint ? 2 : 1);
      for (const std::size_t lane : lanes) {
        const Copy& copy = copies[lane];
        if (hears_of(copy.stream)) observer_->copied(copy, lane == first ? at - lead : at, now);
        at_ends.begin_call();
        rule.at_copy_done(copy, at_ends);
        repeats = at_ends.count() == before;
        if (!repeats) break;  // what it has issued may end before the other one
      }
      if (waits) count_wait(what, waits_since, now);
      all_told = repeats;
      if (!all_told) break;
      at_ends.begin_call();
      if (starts_at_end && now == last_end) {
        rule.at_layer_start(layer_, 0, at_ends);
        at_gate_ = true;
      } else {
        rule.at_copies_done(at_ends);
      }
      std::span<const std::size_t> next = lanes;
      if (wait_for_each_other) next = now < last_end ? std::span<const std::size_t>() : order;
      repeats = at_ends.replace(copies, before, next);
      if (!repeats || !at_gate_ || !rule.ready(layer_, 0)) continue;
      use_of(Stream::compute).stall += now - compute_free_;
      compute_free_ = now;
      compute_layers(1);
      repeats = now == last_end || compute_free_ > last_end;
    }
    if (!repeats) break;
    at = told;
    ++pairs;
  }
  // The streams catch up: to the start of the last pair that the rule knows, and from there on by themselves.
  if (told > start) {
    const std::int64_t whole = repeats ? pairs - 1 : pairs;
    for (std::size_t i = 0; i < 2; ++i) {
      copies_[i].shift(iteration_start_, period * whole);
      copies_[i].rename(copies[i].layer, copies[i].tag);
      StreamUse& use = use_[i + 1];
      use = use + repeated_.use[i] * whole;
      issued_[i] += repeated_.use[i].bytes * whole;
    }
    now_ = entered + period * whole;
    at_ends.repeat(rule, heard_);
    run_copies(&at_ends, told);
    if (all_told || at_gate_) finish_copies(&at_ends);
    SPILLWAY_CHECK(at_ends.repeated(),
                   "a pair of copies did not repeat the one before at " + std::to_string(told.ns()) + " ns");
    noted_pair_.known = false;
  }
  if (pairs > 0) {
    missed_ = 0;
  } else {  // nor may the next one
    left_at_ = start;
    repeated_ = {};
  }
  if (at_gate_ && compute_free_ > now_) run_copies(&rule, compute_free_);
  if (at_gate.count() == 0) return;
  at_gate.issue_all(*this);
  share_started();
  finish_copies(&rule);
}

void Executor::note(std::uint64_t rule, Noted& noted) const {
  noted.at = now_;
  noted.state.rule = rule;
  noted.state.compute_free = compute_free_ - now_;
  noted.state.launch = launch_at_ == kNever ? std::nullopt : std::optional(launch_at_ - now_);
  noted.state.duplexed = duplexed_;
  noted.state.contended = links_.contended();
  noted.state.for_requests = for_requests_;
  for (std::size_t i = 0; i < kLanes; ++i) copies_[i].note(iteration_start_, now_, noted.state.copies[i]);
  noted.use = use_;
  noted.waited = waited_;
  noted.bubbles = bubbles_;
  noted.issued = issued_;
  noted.for_requests_since = for_requests_since_;
  noted.copied_for_requests = copied_for_requests_;
}

void Executor::repeat_layers(const IterationPlan& plan, SimTime until) {
  const LayerRule::Recurrence recurs = plan.rule->recurs(layer_);
  if (recurs.layers == 0 || copies_ended_) return;
  note(recurs.state, next_noted_);
  // Copies of requests are under way all the time, or again and again.
  const bool since_then = for_requests_ > 0 && noted_.for_requests_since != next_noted_.for_requests_since;
  const bool alike = !since_then || noted_.for_requests_since - noted_.at == for_requests_since_ - now_;
  const bool repeats = noted_layer_ == layer_ - 1 && alike && noted_.state == next_noted_.state;
  std::swap(noted_, next_noted_);
  noted_layer_ = layer_;
  if (!repeats) return;
  const Duration period = noted_.at - next_noted_.at;
  std::int64_t count = std::min(recurs.layers, plan.layers - layer_);
  if (period > Duration{}) count = std::min(count, (until - now_) / period);
  const auto repeat = [count](auto& totals, const auto& before) {
    for (std::size_t i = 0; i < totals.size(); ++i) totals[i] = totals[i] + (totals[i] - before[i]) * count;
  };
  repeat(use_, next_noted_.use);
  repeat(waited_, next_noted_.waited);
  repeat(bubbles_, next_noted_.bubbles);
  repeat(issued_, next_noted_.issued);
  const Duration by = period * count;
  copied_for_requests_ += (copied_for_requests_ - next_noted_.copied_for_requests) * count;
  if (since_then) for_requests_since_ = for_requests_since_ + by;
  now_ = now_ + by;
  compute_free_ = compute_free_ + by;
  if (launch_at_ != kNever) launch_at_ = launch_at_ + by;
  for (CopyStream& copies : copies_) copies.shift(iteration_start_, by);
  plan.rule->repeat(layer_, static_cast<std::int32_t>(count));
  layer_ += static_cast<std::int32_t>(count);
}

RunOutcome Executor::run(const IterationPlan& plan, SimTime until) {
  SPILLWAY_CHECK(iteration_start_ != kNever, "no iteration has begun");
  SPILLWAY_CHECK(now_ <= until, "time runs back from " + std::to_string(now_.ns()) + " ns");
  const SubBatchTimes& first = plan.sub_batches.front();
  const bool quiet = may_be_quiet(plan);
  const bool recurs = may_recur(plan);
  const bool works_in_layers = plan.rule != nullptr && plan.rule->works_in_layers();
  const bool pairs = quiet && !works_in_layers && first.gpu.at(0) > Duration{};
  noted_layer_ = -1;  // what slows copies down may have changed since
  while (layer_ <= plan.layers) {
    if (in_layer_) {
      if (!work_in_layer(plan, until)) return {false, until};
      continue;
    }
    if (recurs && sub_batch_ == 0 && !at_gate_ && layer_ < plan.layers) repeat_layers(plan, until);
    if (quiet && !at_gate_ && layer_ < plan.layers) {
      if (!reach(plan.rule, compute_free_, until)) return {false, until};
      if (pairs && copies_under_way_ == 2 && pairs_repeat()) {
        repeat_pairs(plan, first.gpu.at(0), until);
        continue;
      }
      if (compute_quiet_layers(plan, first.gpu.at(0), until)) continue;
    }
    const bool reached = layer_ < plan.layers ? reach_layer(plan.rule, until) : reach_after(plan.rule, until);
    if (!reached) return {false, until};
    compute(plan, works_in_layers);
  }
  if (!reach(plan.rule, compute_free_, until)) return {false, until};
  iteration_start_ = kNever;
  return {true, now_};
}

}  // namespace spillway
