#include "sim/exec/executor.hpp"

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

/// Whether they are equal but for their names.
bool are_alike(const Copy& a, const Copy& b) {
  return a.stream == b.stream && a.bytes == b.bytes && a.launch == b.launch && a.transfer == b.transfer &&
         a.owner == b.owner && a.alike == b.alike;
}

}  // namespace

void CopyObserver::went_round(const CopyRounds& rounds) {
  SimTime started = rounds.started;
  SimTime waited = rounds.waited;
  SimTime ended = rounds.ended;
  for (std::int32_t i = 0; i < rounds.count; ++i) {
    copied(rounds.copy, started, ended);
    if (waited < ended) this->waited(rounds.what, waited, ended);
    started = ended;
    ended = ended + rounds.each;
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

Duration CopyStream::time_of(const Copy& copy) const { return copy.launch + slowed(copy.transfer); }

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
  if (peers_used_) or_else(Stream::peer_out);
  or_else(Stream::h2d);
  if (peers_used_) or_else(Stream::peer_in);
  or_else(Stream::cpu);
  return *next;
}

void Executor::use_lane(std::size_t lane) {
  if (lane >= lanes_used_) lanes_used_ = kLanes;
  if (lane < links_.streams()) links_used_ = links_.streams();
  if (between_gpus(lane)) peers_used_ = true;
}

void Executor::issue(const Copy& copy) {
  const std::size_t at = lane(copy.stream);
  CopyStream& stream = copies_[at];
  if (at >= links_used_ || (between_gpus(at) && !peers_used_)) use_lane(at);
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
  for_each_link([&](std::size_t i) {
    transfers[i] = copies_[i].transferring(now_);
    if (transfers[i] == nullptr) launch_at_ = earlier(launch_at_, copies_[i].launched());
  });
  if (others_copy_) return;
  const Slowdowns& slowdowns = links_.alone(transfers);
  if (!slowed_ && &slowdowns == &CopyLinks::kUnslowed) return;
  slowed_ = false;
  for_each_link([&](std::size_t i) {
    copies_[i].set_slowdown(slowdowns[i], now_);
    slowed_ |= !copies_[i].slowdown().none();
  });
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
  const SimTime done = next_copy_done();
  SPILLWAY_CHECK(done != kNever, "layer " + std::to_string(layer_) + ", sub-batch " + std::to_string(sub_batch_) +
                                     " waits at " + std::to_string(now_.ns()) + " ns with no copy in flight");
  const SimTime event = earlier(done, launch_at_);
  const SimTime stop = earlier(event, until);
  const SimTime from = now_;
  if (event <= until || (copies_ended_ && now_ < stop)) run_copies(rule, stop);
  now_ = stop;
  const bool reached = event <= until;
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
  const bool alone = !copies_ended_ && copies.run() > 0 && copies.size() == copies_under_way_;
  if (!alone || !host_copies_alone()) return;
  const Duration each = copies.time_of(copies.in_flight());
  const Duration time = stretched(work.time);
  const SimTime first = copies.finish();
  if (first <= now_ || first > until || each == Duration{} || time > each) return;
  const std::int32_t most = std::min(work.alike, copies.run());
  const auto count = static_cast<std::int32_t>(std::min<std::int64_t>(most, (until - first) / each + 1));
  const std::int32_t others = count - 1;
  const CopyRounds rounds{.copy = copies.in_flight(),
                          .count = count,
                          .what = work.wait,
                          .started = copies.started(),
                          .waited = now_,
                          .ended = first,
                          .each = each,
                          .wait = each - time};
  waited_[static_cast<std::size_t>(work.wait)] += first - now_ + rounds.wait * others;
  StreamUse& compute = use_of(Stream::compute);
  compute.stall += first - compute_free_ + rounds.wait * others;
  compute.busy += time * count;
  worked_.all += work.time * count;
  if (work.arithmetic) worked_.arithmetic += work.time * count;
  StreamUse& use = use_of(Stream::h2d);
  use.busy += first - rounds.started + each * others;
  use.bytes += rounds.copy.bytes * count;
  now_ = first + each * others;
  compute_free_ = now_ + time;
  copies.complete_of_run(count, now_);
  copies_under_way_ -= count;
  share_links();
  if (hears_of(Stream::h2d) || hears_of(Stream::compute)) observer_->went_round(rounds);
  plan.rule->skip_rounds(count);
}

void Executor::take_turns(const IterationPlan& plan, const LayerWork& work, SimTime until) {
  const LayerTurns& turns = *work.turns;
  if (!others_copy_) links_.expect(turns.copy);
  const bool heard = hears_of(Stream::h2d) || hears_of(Stream::compute);
  if (heard || copies_under_way_ > 0 || copies_ended_ || !host_copies_alone()) return;
  CopyStream& copies = copies_[lane(Stream::h2d)];
  const Duration each = copies.time_of(turns.copy);
  const Duration copying = each * turns.copies;
  const SimTime end = now_ + copying + turns.time;
  if (each == Duration{} || end > until) return;
  waited_[static_cast<std::size_t>(work.wait)] += copying;
  StreamUse& compute = use_of(Stream::compute);
  compute.stall += now_ - compute_free_ + copying;
  compute.busy += turns.time;
  worked_.all += turns.time;
  worked_.arithmetic += turns.arithmetic;
  now_ = end - turns.after_last;
  compute_free_ = end;
  StreamUse& use = use_of(Stream::h2d);
  charge_stall(Stream::h2d, copies.free_since(), now_ - copying);  // before the first copy and between the others
  use.busy += copying;
  use.bytes += turns.copy.bytes * turns.copies;
  issued_[lane(Stream::h2d)] += turns.copy.bytes * turns.copies;
  copies.free_again(now_);
  plan.rule->skip_turns();
}

bool Executor::work_in_layer(const IterationPlan& plan, SimTime until) {
  if (now_ < compute_free_) {
    if (!reach(plan.rule, compute_free_, until)) return false;
    finish_copies(plan.rule);
  }
  for (;;) {
    const LayerWork work = plan.rule->work(layer_, sub_batch_, *this);
    share_started();
    if (work.kind == LayerWork::Kind::turns) {
      take_turns(plan, work, until);
      if (now_ < compute_free_) reach(plan.rule, compute_free_, until);
      continue;
    }
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

/// Takes the copies that a rule issues in several calls, and repeats the calls on behalf of the rule. On each lane, the
/// first copy that is like that of a pair is kept as a name.
class Executor::IssuedCopies final : public LayerRule, public CopySink {
 public:
  explicit IssuedCopies(const std::array<Copy, 2>& pair) : pair_(pair) {}

  void clear() {
    count_ = calls_ = 0;
    like_ = 0;
    others_.clear();
  }
  void begin_call() { ++calls_; }
  [[nodiscard]] std::uint32_t count() const { return count_; }
  /// There is one copy like that of the pair on each lane of `lanes`, a set of bits, and no other one.
  [[nodiscard]] bool repeat_on(std::uint32_t lanes) const { return like_ == lanes && others_.empty(); }
  /// `copy` gets the name of the one that is like that of the pair on `lane`.
  void rename(std::size_t lane, Copy& copy) const {
    copy.layer = like_those_[lane].layer;
    copy.tag = like_those_[lane].tag;
  }
  void issue(const Copy& copy) override {
    const std::uint32_t lane = copy.stream == pair_[0].stream ? 0 : 1;
    if (are_alike(copy, pair_[lane]) && (like_ >> lane & 1U) == 0) {
      like_ |= 1U << lane;
      like_those_[lane] = {count_++, calls_, copy.layer, copy.tag};
    } else {
      issue_other(copy);
    }
  }
  void issue_all(CopySink& sink) const {
    for (std::uint32_t i = 0; i < count_; ++i) sink.issue(issued(i).copy);
  }

  /// From now on, as many calls as there were issue the same copies again. The observer has heard of their copies, so
  /// it hears of none meanwhile. Later calls are the rule's.
  void repeat(LayerRule& rule, std::array<bool, kStreams>& heard) {
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
  struct LikeThose {
    std::uint32_t position = 0;
    std::uint32_t call = 0;
    std::int32_t layer = 0;
    std::int32_t tag = 0;
  };
  struct Issued {
    std::uint32_t call = 0;  // from 1 on; 0: before the first begin_call()
    Copy copy{};
  };
  /// Not inlined: issue() would save registers for it in every call.
  [[gnu::noinline]] void issue_other(const Copy& copy) {
    others_.push_back({calls_, copy});
    ++count_;
  }
  [[nodiscard]] Issued issued(std::uint32_t position) const {
    std::size_t other = position;
    for (std::size_t lane = 0; lane < pair_.size(); ++lane) {
      const LikeThose& like = like_those_[lane];
      if ((like_ >> lane & 1U) == 0 || like.position > position) continue;
      if (like.position < position) {
        --other;
        continue;
      }
      Issued found{like.call, pair_[lane]};
      rename(lane, found.copy);
      return found;
    }
    return others_[other];
  }
  void repeat_call(CopySink& sink) {
    ++call_;
    for (std::uint32_t i = 0; i < count_; ++i) {
      if (const Issued one = issued(i); one.call == call_) sink.issue(one.copy);
    }
    if (call_ == calls_) *heard_ = again_;
  }

  const std::array<Copy, 2>& pair_;
  std::array<LikeThose, 2> like_those_{};
  std::uint32_t like_ = 0;   // lanes that have one, as bits
  std::uint32_t calls_ = 0;  // away from count_: read as one word with it, it would wait for its last write
  std::vector<Issued> others_;
  std::uint32_t count_ = 0;
  std::uint32_t call_ = 0;
  LayerRule* rule_ = nullptr;
  std::array<bool, kStreams>* heard_ = nullptr;
  std::array<bool, kStreams> again_{};
};

/// Pairs of copies of which each repeats the one before: the rule hears of their ends, and layers compute meanwhile.
class Executor::PairRun {
 public:
  /// The first pair is in flight.
  PairRun(Executor& executor, const IterationPlan& plan, Duration work)
      : executor_(executor),
        rule_(*plan.rule),
        plan_(plan),
        work_(work),
        first_(executor.first_of_pair()),
        start_(std::max(executor.copies_[0].started(), executor.copies_[1].started())),
        period_(executor.repeated_.period),
        lead_(start_ - executor.copies_[first_].started()),
        to_first_end_(executor.copies_[first_].finish() - start_) {}

  /// While each pair ends before `until`.
  void go_on(SimTime until) {
    const SimTime entered = executor_.now_;
    const bool joint = to_first_end_ == period_;
    const bool wait_for_each_other = lead_ == Duration{};
    const std::uint32_t after_first = wait_for_each_other ? 0U : 1U << first_;
    // What follows a pair is not known if the run is cut at its end.
    while (at_ + period_ < until) {
      const SimTime first_end = at_ + to_first_end_;
      const SimTime last_end = at_ + period_;
      start_layers(first_end);
      // Copies that start with a layer, and layers that start between the ends, are executed step by step.
      const bool computes = !executor_.at_gate_;
      const SimTime free = executor_.compute_free_;
      const bool starts_at_end = computes && free == last_end && executor_.layer_ < plan_.layers;
      if (from_gate_.count() > 0 || (computes && free <= last_end && !starts_at_end)) break;
      at_ends_.clear();
      if (!joint) {
        repeats_ = told_ends(0, 1, first_end) && goes_on(after_first, false, last_end);
        if (!repeats_) break;
      }
      repeats_ = told_ends(joint ? 0 : 1, 2, last_end) && goes_on(kBoth, starts_at_end, last_end);
      if (!repeats_) break;
      for (std::size_t lane = 0; lane < 2; ++lane) at_ends_.rename(lane, copies_[lane]);
      at_ = last_end;
      ++pairs_;
    }
    catch_up(entered);
  }

 private:
  static constexpr std::uint32_t kBoth = 0b11;

  void compute_layers(std::int32_t count) {
    executor_.use_of(Stream::compute).busy += work_ * count;
    executor_.compute_free_ = executor_.compute_free_ + work_ * count;
    executor_.layer_ += count;
    executor_.at_gate_ = false;
  }
  /// Layers start before `end`, until one has to wait, or issues copies.
  void start_layers(SimTime end) {
    while (!executor_.at_gate_ && executor_.compute_free_ < end && executor_.layer_ < plan_.layers) {
      if (const std::int32_t quiet = executor_.quiet_layers(plan_); quiet > 0) {
        const std::int64_t starts = (end - executor_.compute_free_ - Duration(1)) / work_ + 1;
        const auto count = static_cast<std::int32_t>(std::min<std::int64_t>(starts, quiet));
        rule_.skip(executor_.layer_, count);
        compute_layers(count);
        continue;
      }
      executor_.now_ = executor_.compute_free_;
      rule_.at_layer_start(executor_.layer_, 0, from_gate_);
      executor_.at_gate_ = true;
      if (from_gate_.count() == 0 && rule_.ready(executor_.layer_, 0)) compute_layers(1);
    }
  }
  /// The rule hears that copies of the pair end `now`: those with the numbers `from` to `to` - 1, in the order of their
  /// ends. Returns false when it has issued a copy at once, which may end before the next one.
  bool told_ends(std::size_t from, std::size_t to, SimTime now) {
    const bool waits = executor_.at_gate_;
    const Wait what = waits ? rule_.waits_for(executor_.layer_, 0) : Wait::layers;
    const SimTime waits_since = std::max(told_, executor_.compute_free_);
    told_ = executor_.now_ = now;
    const std::uint32_t before = at_ends_.count();
    all_told_ = true;
    for (std::size_t i = from; i < to && all_told_; ++i) {
      const std::size_t lane = first_ ^ i;
      const Copy& copy = copies_[lane];
      if (executor_.hears_of(copy.stream)) executor_.observer_->copied(copy, i == 0 ? at_ - lead_ : at_, now);
      at_ends_.begin_call();
      rule_.at_copy_done(copy, at_ends_);
      all_told_ = at_ends_.count() == before;
    }
    if (waits) executor_.count_wait(what, waits_since, now);
    return all_told_;
  }
  /// The rule has heard of all copies that end now. The layer that waits starts, if it may. Returns whether the rule
  /// has answered the ends of the pair with its like on `lanes` and with nothing else, and no layer ends by `last_end`,
  /// the end of the pair.
  [[gnu::always_inline]] bool goes_on(std::uint32_t lanes, bool starts_layer, SimTime last_end) {
    at_ends_.begin_call();
    if (starts_layer) {
      rule_.at_layer_start(executor_.layer_, 0, at_ends_);
      executor_.at_gate_ = true;
    } else {
      rule_.at_copies_done(at_ends_);
    }
    if (!at_ends_.repeat_on(lanes)) return false;
    if (!executor_.at_gate_ || !rule_.ready(executor_.layer_, 0)) return true;
    executor_.use_of(Stream::compute).stall += told_ - executor_.compute_free_;
    executor_.compute_free_ = told_;
    compute_layers(1);
    return told_ == last_end || executor_.compute_free_ > last_end;
  }
  /// The streams go to the start of the last pair of which the rule has heard an end, and on from there by themselves.
  void catch_up(SimTime entered) {
    Executor& executor = executor_;
    if (told_ > start_) {
      const std::int64_t whole = repeats_ ? pairs_ - 1 : pairs_;
      for (std::size_t i = 0; i < 2; ++i) {
        executor.copies_[i].shift(executor.iteration_start_, period_ * whole);
        executor.copies_[i].rename(copies_[i].layer, copies_[i].tag);
        StreamUse& use = executor.use_of(copies_[i].stream);
        use = use + executor.repeated_.use[i] * whole;
        executor.issued_[i] += executor.repeated_.use[i].bytes * whole;
      }
      executor.now_ = entered + period_ * whole;
      at_ends_.repeat(rule_, executor.heard_);
      executor.run_copies(&at_ends_, told_);
      if (all_told_ || executor.at_gate_) executor.finish_copies(&at_ends_);
      SPILLWAY_CHECK(at_ends_.repeated(),
                     "a pair of copies did not repeat the one before at " + std::to_string(told_.ns()) + " ns");
      executor.noted_pair_.known = false;
    }
    if (pairs_ > 0) {
      executor.missed_ = 0;
    } else {  // nor may the next one
      executor.left_at_ = start_;
      executor.repeated_ = {};
    }
    if (executor.at_gate_ && executor.compute_free_ > executor.now_) {
      executor.run_copies(&rule_, executor.compute_free_);
    }
    if (from_gate_.count() == 0) return;
    from_gate_.issue_all(executor);
    executor.share_started();
    executor.finish_copies(&rule_);
  }

  Executor& executor_;
  LayerRule& rule_;
  const IterationPlan& plan_;
  const Duration work_;      // of a layer
  const std::size_t first_;  // lane of the one that ends first
  const SimTime start_;      // of the first pair: both are in flight
  const Duration period_;
  const Duration lead_;  // of the one that ends first over the other one
  const Duration to_first_end_;
  std::array<Copy, 2> copies_{executor_.copies_[0].in_flight(), executor_.copies_[1].in_flight()};
  IssuedCopies at_ends_{copies_};    // in the calls for the last pair of which the rule has heard an end
  IssuedCopies from_gate_{copies_};  // when a layer started
  SimTime at_ = start_;              // of the pair in flight
  SimTime told_ = start_;            // up to here, the rule has heard of all that has ended
  std::int64_t pairs_ = 0;           // that have ended, followed by one like them
  bool repeats_ = true;
  bool all_told_ = false;  // it was told that all copies of that instant have ended
};

void Executor::repeat_pairs(const IterationPlan& plan, Duration every, SimTime until) {
  PairRun(*this, plan, stretched(every)).go_on(until);
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
