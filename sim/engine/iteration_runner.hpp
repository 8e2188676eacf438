// Executes the iterations of an instance: times its sub-batches, issues its copies and runs the executor.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/api/execution_model.hpp"
#include "sim/api/layer_policy.hpp"
#include "sim/core/prefetch.hpp"
#include "sim/core/units.hpp"
#include "sim/engine/clock_governor.hpp"
#include "sim/engine/instance_config.hpp"
#include "sim/engine/instance_observer.hpp"
#include "sim/exec/cpu_attention.hpp"
#include "sim/exec/executor.hpp"
#include "sim/exec/expert_draw.hpp"
#include "sim/exec/kv_copies.hpp"
#include "sim/exec/rule_set.hpp"
#include "sim/metrics/engine_totals.hpp"

namespace spillway {

/// Bytes on the links to the host and to other GPUs, and those that the host's CPU reads.
struct LinkBytes {
  Bytes h2d{};
  Bytes d2h{};
  Bytes peer_in{};
  Bytes peer_out{};
  Bytes cpu{};
  bool operator==(const LinkBytes&) const = default;
  friend LinkBytes operator+(const LinkBytes& a, const LinkBytes& b) {
    return {a.h2d + b.h2d, a.d2h + b.d2h, a.peer_in + b.peer_in, a.peer_out + b.peer_out, a.cpu + b.cpu};
  }
  friend LinkBytes operator-(const LinkBytes& a, const LinkBytes& b) {
    return {a.h2d - b.h2d, a.d2h - b.d2h, a.peer_in - b.peer_in, a.peer_out - b.peer_out, a.cpu - b.cpu};
  }
};
/// Time in which a copy was under way on each link to the host, and KV of requests on any link.
struct LinkTimes {
  Duration h2d{};
  Duration d2h{};
  Duration kv{};  // from the issue of a copy to its end; without copies of layers and of attention on the CPU
  friend LinkTimes operator-(const LinkTimes& a, const LinkTimes& b) {
    return {a.h2d - b.h2d, a.d2h - b.d2h, a.kv - b.kv};
  }
};

/// What an iteration took and what it was spent on.
struct ExecutedIteration {
  SimTime start{};
  SimTime end{};
  Duration layer{};          // compute of one layer, all sub-batches, attention on the CPU included
  Duration alone{};          // length without stalls and without the slowdown by copies
  Duration around{};         // part of `alone` before and after the layers
  TimeShares shares{};       // of `alone`, without attention on the CPU
  Duration cpu_attention{};  // part of `alone` in which the GPU waits for attention on the CPU
  /// Compute waited for copies of layers, for KV that requests swap or load, for queries on the way to the CPU, for
  /// attention there, and for its outputs on the way back. What the first two count as.
  Duration layer_stall{};
  Duration request_stall{};
  struct CpuStall {
    Duration queries{};
    Duration attention{};
    Duration outputs{};
    [[nodiscard]] Duration sum() const { return queries + attention + outputs; }
  };
  CpuStall cpu_stall{};
  Executor::Bubbles bubbles{};  // the same by the sub-batch that waited
  Duration expert_stall{};      // compute waited for experts on the CPU
  Duration cpu_busy{};          // attention on the CPU beside the GPU
  Resource layers_wait_for = Resource::h2d;
  Resource requests_wait_for = Resource::h2d;
  [[nodiscard]] Duration stall() const { return layer_stall + request_stall + cpu_stall.sum() + expert_stall; }
  LinkBytes issued{};         // copies that the iteration put on the links
  LinkTimes copying{};        // from start to end
  LinkTimes copied_before{};  // from the end of the iteration before to the start
};

/// Moves and loads of KV blocks are collected until the next iteration, which issues them. A policy that streams layers
/// issues copies of its own through its layer rules. All share the streams and each stream is one FIFO: when the first
/// layer starts, the rules' copies join it before those of requests.
///
/// An iteration takes one shape for each sub-batch, in the order in which the GPU takes them. A policy that streams
/// layers may split a single one further.
///
/// An instance whose links are private runs an iteration in one call. One that shares a link with another instance
/// begins it, goes on to each next_event(), settles the instant, and hears how much its transfers slow down.
class IterationRunner final : private CopyObserver {
 public:
  /// How the instance's copies reach the host. `others_copy`: other instances copy over some of the shared links.
  struct Surroundings {
    CopyRoute route{};
    std::span<const BytesPerSecond> links{};  // the shared ones; they outlive the runner
    bool others_copy = false;
  };
  /// The graph must outlive the runner.
  IterationRunner(const ExecutionModel& model, const KvLayout& kv, const TierGraph& graph, Surroundings surroundings);
  IterationRunner(const IterationRunner&) = delete;
  IterationRunner& operator=(const IterationRunner&) = delete;

  /// Before the first iteration: the layer policies of `policy` stream layers; it outlives the runner.
  void stream_layers(const Policy& policy);
  /// Before the first iteration: reports sub-batches, waits and copies. It outlives the runner.
  void observe(InstanceObserver& observer) {
    observer_ = &observer;
    executor_ = make_executor();
  }
  /// Before the first iteration, after stream_layers.
  void set_traffic(std::span<const LinkTraffic> traffic);
  /// Before the first iteration: the layer policies ask which experts each iteration uses. It outlives the runner.
  void draw_experts(ExpertDraw& draw) { draw_ = &draw; }

  /// The blocks of `move` go on route number `route` of the graph. `ticket` >= 0 names moves that no iteration and no
  /// layer waits for.
  void move(std::size_t route, const Move& move, std::int32_t ticket);
  /// For how long the thread that starts such a move is busy with that.
  [[nodiscard]] Duration start_time(std::size_t route, const Move& move) const;
  /// Blocks come from the host cache: the next iteration waits for them.
  void load(Blocks blocks) {
    loaded_ += blocks;
    loads_lent_ = cache_is_lent_;
  }
  /// The host cache is in lent memory from now on, or on the host. What was loaded before comes from where it was.
  void place_cache(bool lent) { cache_is_lent_ = lent; }
  /// KV of prompt tokens, in so many blocks, that the next iteration computes leaves for the host layer by layer.
  void send_out(Tokens tokens, Blocks blocks) {
    leaving_tokens_ += tokens;
    leaving_blocks_ += blocks;
  }
  /// The GPU's memory was busy for so long with copies of others, which read it or write to it. The iteration that
  /// starts next makes up for that: work that memory limits takes as much longer as these copies took beside it.
  void share_memory(Duration busy) { memory_busy_ += busy; }
  /// No iteration starts now: the moves that none waits for begin all the same.
  void start_moves(SimTime now);
  /// Executes the iteration that starts now. `stored` blocks go to the host cache beside it.
  [[nodiscard]] ExecutedIteration run(std::span<const BatchShape> shapes, SimTime start, Blocks stored);

  /// As ExecutionModel::least of the iteration that ran last; 0 where copies might take part in it.
  [[nodiscard]] Duration least() const { return least_; }

  // The same in steps.
  void begin(std::span<const BatchShape> shapes, SimTime start, Blocks stored) {
    prepare(shapes, start);
    begin_prepared(shapes, stored);
  }
  /// Goes on to `until`; true when the iteration has ended by then. Between iterations only copies go on.
  bool go_to(SimTime until);
  /// The iteration that has ended.
  [[nodiscard]] const ExecutedIteration& take_result() {
    finished_ = false;
    return result_;
  }
  /// The run ends at `now`: what the iteration has come to.
  [[nodiscard]] const ExecutedIteration& cut(SimTime now);
  /// The next call of go_to. Neither a transfer nor the iteration starts or ends before.
  [[nodiscard]] SimTime next_event() const;
  /// All else that happens at `now` has happened.
  void settle(SimTime now);
  /// As of the last settle().
  [[nodiscard]] Transfers transfers() const { return executor_.transfers(); }
  [[nodiscard]] const CopyLinks& links() const { return executor_.links(); }
  /// From `now` on, which is not after next_event().
  void set_slowdowns(const Slowdowns& slowdowns, SimTime now) { executor_.set_slowdowns(slowdowns, now); }

  /// The iteration has ended: the layer policies get the report, each with its own stall.
  void report(LayerReport report);
  /// Moves that nobody waited for and that have ended by `now`, since the last call: their tickets, and kStored for a
  /// copy to the host cache. In the order of their ends. Valid until the next call.
  [[nodiscard]] const std::vector<std::int32_t>& take_ended(SimTime now);
  static constexpr std::int32_t kStored = -1;
  /// When a copy on private links may end, if no iteration starts before; kNever: nothing is under way.
  [[nodiscard]] SimTime next_copy_event() const;

  /// No iteration starts any more: time since the end of the last one in which copies were under way.
  [[nodiscard]] LinkTimes copied_until(SimTime now);
  /// Bytes that were issued between iterations since the last one: the next iteration is charged with them, if there is
  /// one.
  [[nodiscard]] LinkBytes uncharged() const { return between_; }
  /// Lets every copy arrive that was issued; returns the bytes that the links carried in the whole run.
  [[nodiscard]] LinkBytes drain();

  /// An iteration without copies will run soon: asks the caches for what it uses.
  SPILLWAY_PREFETCHES void prefetch_members() const {
    const auto* const first = reinterpret_cast<const char*>(&surroundings_ + 1);
    const auto* const executor = reinterpret_cast<const char*>(&executor_);
    prefetch(first, static_cast<std::size_t>(executor - first) + Executor::kHead);
    prefetch(&copies_, KvCopies::kHead);
  }

 private:
  /// From `at` on, each flow of other traffic uses such a share of the idle links.
  struct LinkChange {
    SimTime at{};
    std::vector<double> shares{};
  };
  /// Time for which copies kept links busy; those to other GPUs in both directions together.
  struct Busy {
    Duration h2d{};
    Duration d2h{};
    Duration peer{};
  };
  /// Totals at the start of the iteration.
  struct Totals {
    Duration stalled{};
    Executor::Waited waited{};
    Executor::Bubbles bubbles{};
    Duration cpu_busy{};
    Executor::Worked worked{};
    LinkBytes issued{};
    Busy busy{};  // only where layers stream
    LinkTimes copying{};
  };

  /// Whose copies use the links: a layer policy, or the requests, which have no policy.
  struct Part {
    LayerPolicy* policy = nullptr;
    LayerRule* rule = nullptr;  // of the last iteration
    Duration stall{};           // of the last iteration
  };
  /// Blocks that are to move.
  struct Pending {
    std::size_t route = 0;
    CopyMechanism mechanism = CopyMechanism::many;
    Waits waits = Waits::nobody;
    bool yields = false;
    bool in_turn = false;
    Blocks blocks{};
    std::int32_t ticket = -1;
  };

  [[nodiscard]] bool hears_of(Stream stream) const override {
    if (observer_ != nullptr) return true;
    const auto hears = [stream](const Part& one) { return one.policy != nullptr && one.policy->hears_of(stream); };
    return stream != Stream::compute && std::ranges::any_of(parts_, hears);
  }
  void copied(const Copy& copy, SimTime started, SimTime ended) override {
    observer_ == nullptr ? tell_policy(copy, started, ended) : tell_both(copy, started, ended);
  }
  void tell_policy(const Copy& copy, SimTime started, SimTime ended) {
    LayerPolicy* const policy = part(copy.owner).policy;
    if (policy != nullptr) policy->copied(copy, started, ended);
  }
  /// By itself, so that the usual call is a tail call.
  [[gnu::noinline]] void tell_both(const Copy& copy, SimTime started, SimTime ended) {
    observer_->copied(copy, started, ended);
    tell_policy(copy, started, ended);
  }
  void went_round(const CopyRounds& rounds) override;
  void waited(Wait what, SimTime from, SimTime until) override {
    if (observer_ != nullptr) observer_->waited(what, from, until);
  }
  /// Reports a sub-batch that takes so long before its first layer.
  void report_sub_batch(const BatchShape& shape, Duration before);
  Part& part(std::int32_t owner) { return parts_[static_cast<std::size_t>(owner)]; }
  [[nodiscard]] const Part& part(std::int32_t owner) const { return parts_[static_cast<std::size_t>(owner)]; }
  /// The rule that hears of copies now; null: none. Blocks of requests may be under way beyond their iteration.
  [[nodiscard]] LayerRule* rule();
  /// No iteration starts any more: the layers start no copies that no iteration is charged with.
  void stop_layers();
  /// One copy of blocks; `share` of `shares` equal parts, the last part with what is left over.
  [[nodiscard]] Copy copy_of(Stream stream, Blocks blocks, std::int64_t copies_per_block, CopyMechanism mechanism,
                             std::int32_t share = 0, std::int32_t shares = 1) const {
    return copy_of(stream, kv_.block_bytes * blocks.count(), blocks, copies_per_block, mechanism, share, shares);
  }
  /// The same of bytes that fill the blocks in part.
  [[nodiscard]] Copy copy_of(Stream stream, Bytes bytes, Blocks blocks, std::int64_t copies_per_block,
                             CopyMechanism mechanism, std::int32_t share, std::int32_t shares) const;
  void queue(const Pending& move);
  /// Sums over the sub-batches of an iteration.
  struct Times {
    Duration before{};
    Duration layer{};
    Duration after{};
    Duration all_layers{};
    TimeShares shares{};
    Duration cpu_attention{};
    Duration least{};
  };
  /// The time of a sub-batch, which is added to the sums.
  IterationTime time_of(const BatchShape& shape, Duration cpu_attention, Times& sums);
  /// Adds to compute_.
  void add_compute(const IterationTime& time);
  /// The iteration makes up for the time in which the memory was busy. Returns that time, which the sums include then.
  Duration make_up(Times& sums);
  /// The figures of an iteration that do not depend on copies.
  static void fill(ExecutedIteration& iteration, const Times& sums);
  /// The iteration only computes. It touches no more of the runner than it needs: in a fleet, all of that comes from
  /// far away.
  [[nodiscard]] ExecutedIteration run_alone(std::span<const BatchShape> shapes, SimTime start);
  /// Times an iteration that may copy.
  void prepare(std::span<const BatchShape> shapes, SimTime start);
  void begin_prepared(std::span<const BatchShape> shapes, Blocks stored);
  /// Fills sub_batches_ and times_.
  void time_sub_batches(std::span<const BatchShape> shapes);
  /// Moves the GPU's attention of each sub-batch but the last to the step of the one after it: a step of sub-batch s is
  /// then its linear layers and the attention of s - 1, which is NEO's two stages per layer.
  void attend_beside_next();
  /// Attention on the CPU takes part in the iteration.
  void prepare_cpu_attention(std::span<const BatchShape> shapes);
  void add_sub_batch(const BatchShape& shape, Duration cpu_attention);
  /// Gives each layer of each sub-batch the time of its kind.
  void tell_layers_apart();
  void queue_copies(Blocks stored);
  /// Queues what send_out() has collected.
  void send_computed();
  [[nodiscard]] Executor make_executor();
  /// Nothing copies or is about to, so the iteration only computes.
  [[nodiscard]] bool only_computes(std::span<const BatchShape> shapes, Blocks stored) const {
    const auto on_cpu = [](const BatchShape& shape) { return shape.cpu_sequences > 0; };
    return layers_ == nullptr && moves_.empty() && copies_.none() && loaded_ + stored + leaving_blocks_ == Blocks(0) &&
           link_changes_.empty() && std::ranges::none_of(shapes, on_cpu);
  }
  /// Fills what result_ says of copies and waits up to `end`.
  void account(SimTime end);
  void change_link();
  [[nodiscard]] SimTime next_change() const { return link_changes_.empty() ? kNever : link_changes_.back().at; }
  /// Lets copies go on to `now` between iterations.
  void copy_until(SimTime now);
  /// The same; the next iteration is charged with what layers issue.
  void copy_and_charge(SimTime now, bool instant_is_over = false);
  [[nodiscard]] LinkBytes issued() const;
  [[nodiscard]] LinkBytes issued_since(const LinkBytes& before) const { return issued() - before; }
  [[nodiscard]] Busy busy_links() const {
    return {executor_.use(Stream::h2d).busy, executor_.use(Stream::d2h).busy,
            executor_.use(Stream::peer_in).busy + executor_.use(Stream::peer_out).busy};
  }
  [[nodiscard]] LinkTimes copying() const {
    return {executor_.copying(Stream::h2d), executor_.copying(Stream::d2h), executor_.copying_for_requests()};
  }

  const Surroundings surroundings_;
  // Every iteration reads or writes what comes before `executor_`, and the heads of that and of `copies_`.
  const ExecutionModel& model_;
  LayerPolicy* layers_ = nullptr;
  ExpertDraw* draw_ = nullptr;
  InstanceObserver* observer_ = nullptr;
  ClockGovernor clock_;
  std::vector<Pending> moves_;  // of the next iteration, or beside it
  Blocks loaded_{};
  bool cache_is_lent_;
  bool loads_lent_ = false;  // loaded_ comes from lent memory
  Duration memory_busy_{};   // by others, which no iteration has made up for
  Duration least_{};         // see least()
  Tokens leaving_tokens_{};
  Blocks leaving_blocks_{};
  std::vector<LinkChange> link_changes_;  // to come, the next one last
  const bool several_kinds_;              // of layers
  bool several_ = false;                  // parts that may copy
  bool running_ = false;                  // an iteration that may copy has begun and not ended
  bool finished_ = false;                 // it has ended at result_.end, and nobody has taken its result
  bool copies_count_ = false;             // copies may slow it down, or are issued in it
  bool attends_on_cpu_ = false;           // so did the last iteration
  LinkTimes copied_at_end_{};             // of the last iteration
  LinkBytes between_{};                   // issued since that iteration
  Executor executor_;
  const KvLayout& kv_;
  const TierGraph& graph_;
  KvCopies copies_;                                                // of KV blocks
  std::array<Part, static_cast<std::size_t>(kCopyOwners)> parts_;  // by owner of copies
  // Of the last iteration that might copy:
  std::vector<SubBatchTimes> sub_batches_;
  std::vector<Duration> attention_of_;  // of each of them, per layer, on the GPU
  Times times_;
  LayerCompute compute_;
  ExecutedIteration result_;
  std::vector<std::array<Duration, kMostLayerKinds>> kinds_;  // of each sub-batch, where layers are of several kinds
  std::vector<Duration> layer_times_;                         // then of each of their layers
  CpuAttention attention_;
  std::vector<CpuAttentionWork> attention_work_;
  RuleSet rules_;  // of the parts, if there are several
  IterationPlan plan_;
  Totals at_start_;
};

}  // namespace spillway
