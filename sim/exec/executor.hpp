// Executes one iteration on the streams of a GPU, as an integer scan over (layer, sub-batch).
#pragma once

#include <algorithm>
#include <array>
#include <boost/circular_buffer.hpp>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "sim/api/execution_model.hpp"
#include "sim/api/layer_rule.hpp"
#include "sim/core/error.hpp"
#include "sim/core/units.hpp"
#include "sim/exec/copy_links.hpp"

namespace spillway {

/// Time per layer: one value for every layer, or one per layer (the span must outlive its use). Every value >= 0.
class LayerTimes {
 public:
  constexpr LayerTimes(Duration every = Duration{}) : every_(every) {}
  constexpr LayerTimes(std::span<const Duration> each) : each_(each) {}

  [[nodiscard]] Duration at(std::int32_t layer) const {
    return each_.empty() ? every_ : each_[static_cast<std::size_t>(layer)];
  }
  [[nodiscard]] Duration total(std::int32_t layers) const {
    return each_.empty() ? every_ * layers : std::accumulate(each_.begin(), each_.end(), Duration{});
  }
  [[nodiscard]] bool fits(std::int32_t layers) const {
    return each_.empty() || each_.size() == static_cast<std::size_t>(layers);
  }
  [[nodiscard]] bool same() const { return each_.empty(); }

 private:
  Duration every_{};
  std::span<const Duration> each_{};
};

/// Durations of one sub-batch.
struct SubBatchTimes {
  Duration before{};  // compute stream, before the first layer of any sub-batch
  LayerTimes gpu{};   // compute stream
  Duration after{};   // compute stream, after the last layer of every sub-batch
};

/// One iteration. It owns nothing: the spans and the rule must outlive the run.
struct IterationPlan {
  std::int32_t layers = 0;
  std::span<const SubBatchTimes> sub_batches{};  // at least one, in the order in which the GPU takes them
  LayerRule* rule = nullptr;                     // null: no step waits for anything
};

/// Totals of one stream since the executor was made. All are integers, so a cut does not change them. The figures of an
/// iteration are the difference of two totals.
struct StreamUse {
  /// Time in which the stream worked. A copy counts as a whole when it ends, compute at the iteration's finish.
  Duration busy{};
  /// Time within an iteration in which the stream was idle before work that it started in this iteration. It counts at
  /// the start of that work. For compute, busy + stall = finish - start.
  Duration stall{};
  /// Bytes of the copies that ended; 0 for compute.
  Bytes bytes{};

  friend StreamUse operator-(const StreamUse& a, const StreamUse& b) {
    return {a.busy - b.busy, a.stall - b.stall, a.bytes - b.bytes};
  }
  friend StreamUse operator+(const StreamUse& a, const StreamUse& b) {
    return {a.busy + b.busy, a.stall + b.stall, a.bytes + b.bytes};
  }
  friend StreamUse operator*(const StreamUse& a, std::int64_t times) {
    return {a.busy * times, a.stall * times, a.bytes * times};
  }
  bool operator==(const StreamUse&) const = default;
};

/// A copy engine, or the CPU: a FIFO that does one copy at a time. A copy starts as soon as the one before it has
/// ended.
///
/// A copy takes launch + ceil(transfer * num / den), where num / den >= 1 is the stream's slowdown: 1 / share of the
/// links. When the slowdown changes at t, the copy in flight is timed anew from t: its work in "alone" nanoseconds
/// loses the launch and the floor(elapsed * den / num) of transfer done since it was last timed.
class CopyStream {
 public:
  /// End of the copy in flight if the slowdown stays; kNever when the stream is free.
  [[nodiscard]] SimTime finish() const { return finish_; }
  /// Start of the copy in flight.
  [[nodiscard]] SimTime started() const { return started_; }
  /// End of the launch of the copy in flight; kNever when the stream is free.
  [[nodiscard]] SimTime launched() const { return launched_; }
  /// End of the last copy that ended.
  [[nodiscard]] SimTime free_since() const { return free_since_; }
  [[nodiscard]] bool busy() const { return finish_ != kNever; }
  /// Copies in flight (at most one) and queued.
  [[nodiscard]] std::int64_t size() const { return size_; }
  /// How many of a run follow the copy in flight.
  [[nodiscard]] std::int32_t run() const { return busy() ? in_flight_.alike : 0; }
  /// How long such a copy takes while the slowdown stays.
  [[nodiscard]] Duration time_of(const Copy& copy) const;
  /// Of a run, so many copies have ended, at most run(), the last one at `end`. The slowdown stays.
  void complete_of_run(std::int32_t count, SimTime end);
  /// While it was free, copies have started and ended, the last one at `end`.
  void free_again(SimTime end) { free_since_ = end; }
  [[nodiscard]] const Copy& in_flight() const { return in_flight_; }
  /// The copy that transfers at `now`; null: none is in flight, or it launches.
  [[nodiscard]] const Copy* transferring(SimTime now) const { return launched_ <= now ? &in_flight_ : nullptr; }

  void issue(const Copy& copy, SimTime now);
  /// Ends the copy in flight at finish() and starts the next one.
  Copy complete();
  /// A ratio that is equal to within 2^-40 changes nothing. O(1).
  void set_slowdown(const Slowdown& slowdown, SimTime now) {
    if (slowdown != slowdown_) change_slowdown(slowdown, now);
  }
  [[nodiscard]] const Slowdown& slowdown() const { return slowdown_; }

  /// Copies that have started so far.
  [[nodiscard]] std::int64_t starts() const { return starts_; }
  /// The copy in flight was issued while the stream was free.
  [[nodiscard]] bool issued_when_free() const { return issued_when_free_; }
  /// All that decides when the copy in flight ends, and others like it. Times count from an instant.
  struct Timing {
    Bytes bytes{};
    Duration launch{};
    Duration transfer{};
    Duration started{};
    Duration timed_at{};
    Duration launch_left{};
    Duration transfer_left{};
    Slowdown slowdown{};
    bool operator==(const Timing&) const = default;
  };
  [[nodiscard]] Timing timing(SimTime from) const {
    return {in_flight_.bytes, in_flight_.launch, in_flight_.transfer, started_ - from,
            timed_at_ - from, launch_left_,      transfer_left_,      slowdown_};
  }
  /// The copy in flight is of another layer.
  void rename(std::int32_t layer, std::int32_t tag) {
    in_flight_.layer = layer;
    in_flight_.tag = tag;
  }

  /// All that decides what the stream does from an instant on. Times count from there.
  struct State {
    Duration free_since{};  // while it is free
    Duration timed_at{};    // and these while it is not
    Duration started{};
    Duration launch_left{};
    Duration transfer_left{};
    Slowdown slowdown{};
    Copy in_flight{};
    std::vector<Copy> queued{};
    bool operator==(const State&) const = default;
  };
  /// Its state at `now` in an iteration that began at `start`.
  void note(SimTime start, SimTime now, State& state) const;
  /// The same state `by` later.
  void shift(SimTime start, Duration by);

 private:
  /// It has worked in the iteration that began at `start`.
  [[nodiscard]] bool used_since(SimTime start) const { return busy() || free_since_ > start; }
  void start(SimTime now);
  [[nodiscard]] Duration slowed(Duration transfer) const;
  void time_rest();
  void change_slowdown(const Slowdown& slowdown, SimTime now);

  SimTime finish_ = kNever;
  SimTime started_{};
  SimTime launched_ = kNever;
  SimTime free_since_{};
  SimTime timed_at_{};  // when the two below were what was left
  Duration launch_left_{};
  Duration transfer_left_{};  // at slowdown 1
  Slowdown slowdown_{};
  /// How long a transfer takes with a slowdown. In another order than transfer_left_ and slowdown_, which a compiler
  /// would otherwise read together right after one of them was written, and wait for that.
  struct Known {
    Slowdown slowdown{};
    Duration transfer{};
    Duration slowed{};
  };
  Known known_{};
  Copy in_flight_{};
  boost::circular_buffer<Copy> queued_;
  std::int64_t size_ = 0;
  std::int64_t starts_ = 0;
  bool issued_when_free_ = false;
};

/// Equal copies, each of which started when the one before ended, and for each of which the compute stream waited.
struct CopyRounds {
  Copy copy{};
  std::int32_t count = 0;
  Wait what = Wait::layers;
  SimTime started{};  // of the first copy
  SimTime waited{};   // since when compute waited for it
  SimTime ended{};    // likewise
  Duration each{};    // how long each further copy takes
  Duration wait{};    // how long compute waits for it
};

/// Is told of every copy that has ended, before the rule is, and of every wait of the compute stream for a copy. What
/// goes on for long may be told in parts.
class CopyObserver {
 public:
  virtual ~CopyObserver() = default;
  /// Whether it is told of copies on `stream`; compute: of waits. Constant.
  [[nodiscard]] virtual bool hears_of(Stream /*stream*/) const { return true; }
  virtual void copied(const Copy& copy, SimTime started, SimTime ended) = 0;
  virtual void waited(Wait /*what*/, SimTime /*from*/, SimTime /*until*/) {}
  /// Many of both at once. Unless it is overridden, each is told by itself.
  virtual void went_round(const CopyRounds& rounds);
};

/// How far a run came.
struct RunOutcome {
  bool finished = false;
  SimTime time{};  // the iteration's finish, or the instant at which the run was cut
};

/// The executor and everything that outlives a cut or an iteration: time, position, copies in flight and queued,
/// totals. A copy of the object is a snapshot, without the state of the rule.
///
///   GPU order   every `before`, then layer by layer every sub-batch, then every `after`
///   gate        = end of the GPU step before; at_layer_start(k, s), or at_layers_end() for the first `after`, is
///   called
///               then
///   gpu(k, s)   starts at the first instant >= gate at which the rule is ready(k, s)
///   work(k, s)  of a rule that works in layers follows gpu(k, s): each piece starts at the first instant >= the end of
///               the one before at which the rule says so
///   after(s)    starts at the first instant >= gate at which the rule is not unfinished(s)
///   finish      = the end of the last `after`; copies may still be in flight
///
/// A copy takes its share of the links (CopyLinks) from the end of its launch until it ends: then shares change, and at
/// no other time but when other traffic does. A gpu(k, s) or after(s) that starts while a copy from or to the host is
/// in flight, launches included, takes ceil(time * num / den). `before` is mostly CPU time and is not slowed down.
///
/// Order at one instant: copies done (d2h, peer_out, h2d, peer_in, cpu), launch done, compute done, layer start or
/// layers end, at_copies_done, residency check. `until` is inclusive: a run cut at t has done everything that happens
/// at t.
///
/// Layers that repeat the one before (LayerRule::recurs) to the nanosecond are not executed one by one. Nor are pairs
/// of copies, one in each direction of the host link: while each pair follows the one before and repeats it to the
/// nanosecond, only the rule is called.
///
/// O(steps + copies) per iteration, those of repeated layers left out, O(copies) where the rule reports quiet layers.
/// Pieces that are alike count once, as long as no copy ends, and so do rounds and turns. O(sub-batches) without a rule
/// and times per layer, and with no copy in flight that slows compute down. Allocates only when a queue outgrows its
/// buffer, and when pairs stop repeating. Throws InvariantError when a step waits with no copy in flight, and when a
/// rule issues copies that take no time for ever.
class Executor final : private CopySink {
 public:
  /// The copies have links of their own. `observer` may be null.
  explicit Executor(const CopySharing& sharing = {}, CopyObserver* observer = nullptr);
  /// `compute`: slowdown of work that starts while a copy is in flight. `others_copy`: other instances copy over the
  /// same links, so set_slowdowns() says what the copies get.
  Executor(CopyLinks links, const Slowdown& compute, CopyObserver* observer, bool others_copy = false);

  /// Starts an iteration at `start` >= now(), after run_copies(plan.rule, start).
  void begin(const IterationPlan& plan, SimTime start);
  /// Runs the iteration begun with this plan up to its finish or `until` >= now(), whichever comes first. Call it again
  /// after a cut, with the same plan.
  RunOutcome run(const IterationPlan& plan, SimTime until);
  /// The same as begin() and run() for an iteration without a rule, whose work is `work`, while nothing copies. O(1).
  SimTime run_alone(SimTime start, Duration work) {
    SPILLWAY_CHECK(iteration_start_ == kNever && now_ <= start && copies_under_way_ == 0,
                   "an iteration runs alone beside another one or beside copies");
    use_of(Stream::compute).busy += work;
    return now_ = start + work;
  }
  /// Between iterations: lets the copies in flight go on up to `until` >= now(), or with kNever until all have ended.
  /// `rule` may be null.
  void run_copies(LayerRule* rule, SimTime until);
  /// Between iterations: a copy joins the end of its stream's FIFO now.
  void start_copy(const Copy& copy) {
    issue(copy);
    share_started();
  }

  /// From now() on, each flow of other traffic uses such a share of the idle links. Initially none.
  void set_traffic(std::vector<double> shares);

  // For copies beside those of other instances.
  /// The copies that transfer at now().
  [[nodiscard]] Transfers transfers() const {
    Transfers transfers{copies_[0].transferring(now_), copies_[1].transferring(now_)};
    for (std::size_t i = 2; i < links_used_; ++i) transfers[i] = copies_[i].transferring(now_);
    return transfers;
  }
  [[nodiscard]] const CopyLinks& links() const { return links_; }
  /// From `at` >= now() on, transfers take so many times as long as alone. Initially 1/1. No transfer starts or ends
  /// between the two.
  void set_slowdowns(const Slowdowns& slowdowns, SimTime at);
  /// No transfer starts or ends before this instant; it may be now(). kNever: not by itself.
  [[nodiscard]] SimTime next_event() const;
  /// The same of an iteration begun with this plan, whose rule reports quiet layers: they start and end no transfer.
  [[nodiscard]] SimTime next_event(const IterationPlan& plan) const;
  /// Nothing else happens at now(): does what waits for that, and says whether there was anything.
  bool end_instant(LayerRule* rule);

  [[nodiscard]] SimTime now() const { return now_; }
  [[nodiscard]] const StreamUse& use(Stream stream) const { return use_[static_cast<std::size_t>(stream)]; }
  /// The parts of the compute stream's stall, by what a step waited for.
  using Waited = std::array<Duration, kWaits>;
  [[nodiscard]] const Waited& waited() const { return waited_; }
  /// Of these, waits for attention on the CPU, its queries and outputs included: of steps of the first sub-batch, and
  /// of the others.
  using Bubbles = std::array<Duration, 2>;
  [[nodiscard]] const Bubbles& bubbles() const { return bubbles_; }
  /// Work of rules in layers, LayerRule::work, without the slowdown by copies.
  struct Worked {
    Duration all{};
    Duration arithmetic{};  // the part of it that is bound by arithmetic
  };
  [[nodiscard]] const Worked& worked_in_layers() const { return worked_; }
  /// Copies in flight and queued on `stream`, which is not compute.
  [[nodiscard]] std::size_t pending_copies(Stream stream) const {
    return static_cast<std::size_t>(copies_[lane(stream)].size());
  }
  /// Bytes of the copies that were issued on `stream`, which is not compute.
  [[nodiscard]] Bytes issued(Stream stream) const { return issued_[lane(stream)]; }
  /// Time up to now() in which `stream`, not compute, has copied: its busy time and what has passed of a copy in
  /// flight.
  [[nodiscard]] Duration copying(Stream stream) const;
  /// Time up to now() in which copies of requests (kRequestCopies), on any link, were under way: from the issue of a
  /// copy to its end. Several at once count once.
  [[nodiscard]] Duration copying_for_requests() const {
    return copied_for_requests_ + (for_requests_ > 0 ? now_ - for_requests_since_ : Duration{});
  }
  // Always inlined: the loops over steps ask all the time, and GCC makes calls of these once such a loop is long.
  /// When the next copy ends if no slowdown changes; kNever when no copy is in flight.
  [[nodiscard, gnu::always_inline]] SimTime next_copy_done() const {
    const SimTime next = next_host_copy_done();
    if (lanes_used_ == 2) return next;
    const SimTime with_cpu = earlier(next, copies_[kCpuLane].finish());
    return peers_used_ ? earlier(with_cpu, next_peer_done()) : with_cpu;
  }
  /// When a copy ends, or a launch whose end changes shares, if nothing changes earlier.
  [[nodiscard, gnu::always_inline]] SimTime next_copy_event() const { return earlier(next_copy_done(), launch_at_); }

  /// Bytes at the start of the object that an iteration without copies uses.
  static constexpr std::size_t kHead = 96;

 private:
  static constexpr std::size_t kLanes = kStreams - 1;  // every stream but compute
  static constexpr std::size_t kCpuLane = static_cast<std::size_t>(Stream::cpu) - 1;
  static constexpr std::size_t kPeerLane = static_cast<std::size_t>(Stream::peer_in) - 1;  // peer_out follows
  static std::size_t lane(Stream stream) {
    SPILLWAY_CHECK(stream != Stream::compute, "a copy on the compute stream");
    static_assert(static_cast<int>(Stream::compute) == 0 && static_cast<std::size_t>(Stream::h2d) == 1);
    return static_cast<std::size_t>(stream) - 1;
  }
  /// By value: std::min returns a reference, which is then read again.
  static constexpr SimTime earlier(SimTime a, SimTime b) { return b < a ? b : a; }
  [[nodiscard, gnu::always_inline]] SimTime next_host_copy_done() const {
    return earlier(copies_[0].finish(), copies_[1].finish());
  }
  [[nodiscard]] SimTime next_peer_done() const {
    return earlier(copies_[kPeerLane].finish(), copies_[kPeerLane + 1].finish());
  }
  static constexpr bool between_gpus(std::size_t lane) { return lane == kPeerLane || lane == kPeerLane + 1; }
  /// The stream whose copy ends first; of several, the one whose end the rule hears of first.
  [[nodiscard]] CopyStream& next_to_end();
  /// Counts `lane` among those in use.
  void use_lane(std::size_t lane);
  StreamUse& use_of(Stream stream) { return use_[static_cast<std::size_t>(stream)]; }

  void issue(const Copy& copy) override;
  /// Only the two directions of the instance's own host link may slow each other down.
  [[nodiscard]] bool shares_host_link_only() const { return !others_copy_ && !links_.contended(); }
  /// Gives each transfer its share of the links. Called after copies have started or ended, and at `launch_at_`.
  void share_links() {
    if (!shares_host_link_only()) {
      if (slowed_ || copies_under_way_ > 1 || others_copy_ || !links_.free_alone()) return update_shares();
      launch_at_ = kNever;  // the end of its launch changes nothing: no other copy is there
      launches_known_ = false;
      return;
    }
    if (links_.idle()) return;
    const bool both = both_directions();
    if (both == duplexed_ || copies_end_now()) return;
    set_duplexed(both);
  }
  /// The same when a copy has ended on `stream` and the next one may have started. With one copy less, nothing is
  /// slowed down that was not before.
  void share_ended(const CopyStream& stream) {
    const bool takes_share = stream.busy() && stream.launched() <= now_;
    if (shares_host_link_only() || slowed_ || others_copy_ || copies_under_way_ <= 1 || takes_share) {
      share_links();
    } else if (stream.busy()) {
      launch_at_ = earlier(launch_at_, stream.launched());
    }
  }
  /// The same for copies that a rule has issued together: between them, no time passes.
  void share_started() {
    if (std::exchange(shares_due_, false)) share_links();
  }
  void update_shares();
  /// `visit(lane)` for each lane in use that is a link.
  template <class Visit>
  void for_each_link(const Visit& visit) {
    visit(0);
    visit(1);
    if (peers_used_) {
      visit(kPeerLane);
      visit(kPeerLane + 1);
    }
    if (links_used_ > kCpuLane) visit(kCpuLane);
  }
  /// A transfer is slowed down while the other direction transfers, too. Sets `launch_at_`. While nothing transfers,
  /// the answer may be that of the instant at which both launches end.
  [[nodiscard]] bool both_directions() {
    const SimTime in = copies_[0].launched();
    const SimTime out = copies_[1].launched();
    const bool both = std::max(in, out) <= now_ || (in == out && in != kNever);
    launch_at_ = both ? kNever : std::max(in, out);
    return both;
  }
  /// What is in flight on the host link ends now, so shares change nothing before the next copy starts.
  [[nodiscard]] bool copies_end_now() const {
    const auto ends = [this](const CopyStream& copies) { return !copies.busy() || copies.finish() == now_; };
    return ends(copies_[0]) && ends(copies_[1]);
  }
  void set_duplexed(bool both);
  /// `work` that the compute stream starts now.
  [[nodiscard]] Duration stretched(Duration work) const;
  /// Calls at_copies_done if copies have ended now and no layer has started since.
  void settle(LayerRule* rule);
  /// A copy has ended at the instant of its start. Throws InvariantError when that goes on without end.
  void count_timeless(const Copy& copy);
  /// Handles every copy event of this instant.
  void finish_copies(LayerRule* rule) {
    if (copies_ended_ || next_copy_event() <= now_) finish_some(rule);
  }
  /// The same, where there are some.
  void finish_some(LayerRule* rule);
  bool reach(LayerRule* rule, SimTime target, SimTime until);
  bool reach_layer(LayerRule* rule, SimTime until);
  bool reach_after(LayerRule* rule, SimTime until);
  bool wait(LayerRule* rule, Wait what, SimTime until);
  void compute(const IterationPlan& plan, bool works_in_layers);
  /// While nothing else copies, nothing changes how long copies from the host take.
  [[nodiscard]] bool host_copies_alone() const {
    return shares_host_link_only() ? !duplexed_ : !others_copy_ && !slowed_ && links_.free_alone();
  }
  /// Does the rounds of `work`, which waits, that come before anything else and by `until`.
  void go_round(const IterationPlan& plan, const LayerWork& work, SimTime until);
  /// Does all of `work`, which takes turns, if nothing else happens meanwhile, nobody hears of it, and it ends by
  /// `until`.
  void take_turns(const IterationPlan& plan, const LayerWork& work, SimTime until);
  /// Goes on with what the rule computes after the step of a layer; returns whether it has come to its end by `until`.
  bool work_in_layer(const IterationPlan& plan, SimTime until);
  void next_step(const IterationPlan& plan) {
    if (++sub_batch_ < static_cast<std::int32_t>(plan.sub_batches.size())) return;
    sub_batch_ = 0;
    ++layer_;
  }
  /// Where the next layer may start: computes layers without any other event, up to the next event; `every`: time of
  /// each. Returns whether there were any.
  bool compute_quiet_layers(const IterationPlan& plan, Duration every, SimTime until);
  /// Layers may repeat the one before: they take the same times, and nobody follows each copy.
  [[nodiscard]] bool may_recur(const IterationPlan& plan) const {
    return plan.rule != nullptr && observer_ == nullptr &&
           std::ranges::all_of(plan.sub_batches, [](const SubBatchTimes& sub) { return sub.gpu.same(); });
  }
  /// Skips layers that do as the last one did, to the nanosecond. Before the first step of a layer.
  void repeat_layers(const IterationPlan& plan, SimTime until);
  /// The rule may report quiet layers.
  [[nodiscard]] static bool may_be_quiet(const IterationPlan& plan) {
    return plan.rule != nullptr && plan.sub_batches.size() == 1 && plan.sub_batches.front().gpu.same();
  }
  /// Layers that compute next and are quiet.
  [[nodiscard]] std::int32_t quiet_layers(const IterationPlan& plan) const {
    return std::min(plan.rule->quiet(layer_), plan.layers - layer_);
  }
  [[nodiscard]] bool hears_of(Stream stream) const { return heard_[static_cast<std::size_t>(stream)]; }
  /// Of a step: has waited for `what`.
  void count_wait(Wait what, SimTime from, SimTime until);
  /// Of the two copies that are in flight or queued: one in each direction of the host link is in flight, and they
  /// repeat the two before them.
  [[nodiscard]] bool pairs_repeat();
  /// Of these copies, the one that ends first; of two at once, the one from the GPU.
  [[nodiscard]] std::size_t first_of_pair() const { return copies_[0].finish() < copies_[1].finish() ? 0 : 1; }
  class IssuedCopies;
  class PairRun;
  /// Goes on with layers and pairs of copies while each pair repeats the one before and ends before `until`; `every`:
  /// time of each layer. To be called where a layer may start, right after pairs_repeat().
  void repeat_pairs(const IterationPlan& plan, Duration every, SimTime until);
  /// Charges the idle time of `stream` since `free_since` to work that starts at `start`.
  void charge_stall(Stream stream, SimTime free_since, SimTime start) {
    use_of(stream).stall += std::max(Duration{}, start - std::max(free_since, iteration_start_));
  }

  // An iteration without copies needs only the head, up to use_[compute].
  SimTime now_{};
  SimTime iteration_start_ = kNever;   // kNever between iterations
  std::int64_t copies_under_way_ = 0;  // in flight and queued
  std::int64_t for_requests_ = 0;      // of them, copies of requests
  SimTime for_requests_since_{};       // since when there is one
  Duration copied_for_requests_{};     // up to when there was none
  std::array<StreamUse, kStreams> use_{};
  Slowdown interference_;  // of compute by copies
  CopyObserver* observer_;
  std::array<bool, kStreams> heard_{};  // what it hears of
  bool others_copy_;
  bool copies_ended_ = false;  // now; the rule does not know it yet
  std::array<CopyStream, kLanes> copies_{};
  std::size_t lanes_used_ = 2;   // 2: nothing but host copies so far; else kLanes
  std::size_t links_used_ = 2;   // the same, of the lanes that are links
  bool peers_used_ = false;      // copies between GPUs have been issued
  SimTime launch_at_ = kNever;   // the next end of a launch that changes shares
  bool duplexed_ = false;        // the slowdowns of host copies are those of transfers in both directions
  bool slowed_ = true;           // on contended links: a slowdown may not be 1
  bool launches_known_ = false;  // on contended links: `launch_at_` is the first of all launches that end
  bool shares_due_ = false;      // copies have started since shares were last computed
  std::array<Bytes, kLanes> issued_{};
  Waited waited_{};
  Bubbles bubbles_{};
  SimTime timeless_at_{};      // instant of the last copy that took no time
  std::int64_t timeless_ = 0;  // such copies at that instant

  std::int32_t layer_ = 0;  // the step that computes next; layer == layers is `after`
  std::int32_t sub_batch_ = 0;
  bool at_gate_ = false;   // the gate has opened, and the rule was told
  bool in_layer_ = false;  // the step has started, and the rule may have work in its layer
  Worked worked_{};
  SimTime compute_free_{};
  CopyLinks links_;

  /// Before the first step of a layer: what decides all that follows, and the totals so far.
  struct Noted {
    /// Times count from `at`.
    struct State {
      std::uint64_t rule = 0;
      Duration compute_free{};
      std::optional<Duration> launch{};
      bool duplexed = false;
      bool contended = false;
      std::int64_t for_requests = 0;
      std::array<CopyStream::State, kLanes> copies{};
      bool operator==(const State&) const = default;
    };
    State state{};
    SimTime at{};
    std::array<StreamUse, kStreams> use{};
    Waited waited{};
    Bubbles bubbles{};
    std::array<Bytes, kLanes> issued{};
    SimTime for_requests_since{};
    Duration copied_for_requests{};
  };
  void note(std::uint64_t rule, Noted& noted) const;
  /// Two copies on the host link, one in each direction, with no change of shares to come before one of them ends: all
  /// that decides when they end. Times count from the start of the one that started last.
  struct Pair {
    std::array<CopyStream::Timing, 2> timing{};
    bool operator==(const Pair&) const = default;
  };
  /// One that is in flight, with the totals so far.
  struct NotedPair {
    bool known = false;
    SimTime at{};
    Pair pair{};
    std::array<StreamUse, 2> use{};
    std::array<std::int64_t, 2> starts{};
  };
  /// One that was followed by its like, which holds wherever the rule issues the same again.
  struct RepeatedPair {
    Pair pair{};
    Duration period{};               // 0: none so far
    std::array<StreamUse, 2> use{};  // of one pair
  };
  /// The noted pair has followed `before`, and no other copy has ended between them. Sets repeated_ then.
  [[nodiscard]] bool follows(const NotedPair& before);
  /// How long copies take has changed.
  void forget_pairs() {
    noted_pair_.known = false;
    repeated_ = {};
  }
  NotedPair noted_pair_{};
  RepeatedPair repeated_{};
  SimTime left_at_ = kNever;  // start of a pair that runs step by step although it repeats
  // Where pairs do not repeat, they are looked at now and then.
  std::int32_t missed_ = 0;        // pairs since one has repeated
  std::int32_t passed_ = 0;        // calls for which none is looked at
  Noted noted_{};                  // before the layer noted_layer_
  Noted next_noted_{};             // kept for its memory
  std::int32_t noted_layer_ = -1;  // -1: none in this run
};

}  // namespace spillway
