// The books of an instance: what it did in the measured span.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/api/decision.hpp"
#include "sim/core/prefetch.hpp"
#include "sim/core/units.hpp"
#include "sim/engine/iteration_runner.hpp"
#include "sim/metrics/engine_totals.hpp"

namespace spillway {

/// Integrates the levels of an instance over time, and books each iteration to the part of the measured span that it
/// covers. O(1) per call.
class Ledger {
 public:
  /// State of the instance that lasts until its next event.
  struct Levels {
    Blocks gpu_total{};
    Blocks gpu_used{};
    Blocks host_used{};
    std::int64_t running = 0;  // in the batch
    std::int64_t waiting = 0;  // not in the batch
    std::int64_t cached = 0;   // conversations whose KV is kept after a turn
  };

  /// Before the first call of advance(): there is nothing to book of the time before `now`.
  void begin_at(SimTime now) { advanced_ = now; }
  /// Before the run: the policy streams layers, and the GPU offers `gpu_blocks` at the start.
  void stream_layers(Blocks gpu_blocks);

  /// Whether the books go up to `now`, so that advance() has nothing to do.
  [[nodiscard]] bool is_at(SimTime now) const { return measuring_ && now == advanced_; }
  /// Time goes on to `now`; the instance had these levels since the call before. `span_begin` may be kNever as long as
  /// the span has not begun. True when this call begins the measured span.
  bool advance(SimTime now, SimTime span_begin, const Levels& levels);
  /// An iteration starts now.
  void started(SimTime now);
  /// It has been executed: right after its start, ahead of time, or when it ends. `short_of_kv`: KV capacity kept its
  /// batch small.
  void executed(const ExecutedIteration& iteration, bool short_of_kv);
  /// The iteration ends now.
  void ended();
  /// The run ends now, perhaps within an iteration. `copied`: copying time since the iteration before, when no
  /// iteration runs.
  void stop(SimTime now, const LinkTimes& copied);
  /// The run ends at `end`, with the last completion of another instance: the time from this one's last completion on
  /// counts as idle. Books that go beyond `end` add nothing else of that time. Not while an iteration runs.
  void rest_until(SimTime end, SimTime span_begin, const Levels& levels);

  void preempted(Leave how);
  /// Known tokens that a cache held.
  struct Hit {
    Tokens all{};
    Tokens on_host{};  // of these
    Tokens on_disk{};  // of these
  };
  /// A request was admitted with `asked` known tokens.
  void asked_prefix(Tokens asked, const Hit& hit);
  /// A new turn repeats `asked` tokens of its conversation, of which so many are on the GPU and on the host alone.
  void asked_history(Tokens asked, Tokens on_gpu, Tokens on_host);
  /// The KV connector did so much on the scheduler's thread, in so many seconds.
  void offloaded(const OffloadingCounts& counts, double seconds) {
    totals_.offloading += counts;
    totals_.connector_time += seconds;
  }
  /// The worker's thread was busy for so many seconds with starting copies of the KV connector.
  void started_copies(double seconds) { totals_.connector_start_time += seconds; }
  /// The disk did so much.
  void used_disk(const DiskCounts& counts) { totals_.disk += counts; }
  void capacity_changed(SimTime now, Blocks capacity);

  /// Throws InvariantError unless the links carried what the iterations were charged with, over the whole run, and
  /// `after_them`: what was issued after the last one.
  void check_links(const LinkBytes& carried, const LinkBytes& after_them) const;
  /// Sums over the measured span; all zero when it has not begun.
  [[nodiscard]] EngineTotals totals() const;
  /// An iteration without copies will run soon: asks the caches for what it uses.
  SPILLWAY_PREFETCHES void prefetch_members() const {
    const auto* const first = reinterpret_cast<const char*>(this);
    prefetch(first, static_cast<std::size_t>(reinterpret_cast<const char*>(&copied_) - first));
  }

 private:
  /// Integrals over time in which nothing runs. They count only once another iteration follows, because the measured
  /// span ends with the last completion.
  struct IdleTime {
    double seconds = 0.0;
    double waiting = 0.0;
    double kv = 0.0;
    double host_kv = 0.0;
    double capacity = 0.0;
    double cached = 0.0;
    std::int64_t peak_cached = 0;
  };

  /// The part of an ExecutedIteration that is booked when it ends.
  struct InFlight {
    SimTime start{};
    SimTime end{};
    bool copies = false;  // see copied_
  };
  struct Copied {
    Duration layer_stall{};
    Duration request_stall{};
    LinkBytes issued{};
    LinkTimes copying{};
    Executor::Bubbles bubbles{};
    Duration cpu_busy{};
  };

  [[nodiscard]] EngineTotals zero() const;
  void advance_layers(double seconds, const Levels& levels);
  void count_idle_time();
  /// So many measured seconds of the iteration in flight have passed.
  void spend_time(double seconds) {
    for (std::size_t r = 0; r < spending_.size(); ++r) totals_.resource_time[r] += spending_[r] * seconds;
    if (short_of_kv_) {
      for (std::size_t r = 0; r < spending_short_of_kv_.size(); ++r) {
        totals_.time_short_of_kv[r] += spending_short_of_kv_[r] * seconds;
      }
    }
    totals_.gpu_time += on_gpu_ * seconds;
    totals_.layer_time += in_layers_ * seconds;
  }
  /// Sets what the time of the iteration that starts is spent on.
  void spend(const ExecutedIteration& iteration, bool short_of_kv);
  /// Books the iteration in flight up to `end`.
  void book_iteration(SimTime end);
  /// `copying` counts up to `end`; it is spread evenly from `start` to `whole_end`. Adds that of KV to `kv`.
  void book_copying(const LinkTimes& copying, SimTime start, SimTime end, SimTime whole_end, Duration& kv);

  // Every iteration reads or writes most of what comes before copied_.
  bool streams_layers_ = false;
  bool measuring_ = false;
  bool running_ = false;
  bool short_of_kv_ = false;  // the iteration in flight
  SimTime begin_{};           // of the measured span, once it has begun
  SimTime advanced_{};
  IdleTime idle_;                              // since the last completion
  InFlight iteration_;                         // while running_, else the last one
  SimTime previous_end_{};                     // of the iteration before
  std::array<double, kResources> spending_{};  // of the iteration in flight, shares of its length
  double on_gpu_ = 0.0;                        // likewise, without waits and the engine's CPU time
  double in_layers_ = 0.0;                     // likewise
  double unspent_ = 0.0;                       // measured seconds of it before these shares were known
  EngineTotals totals_;
  std::array<double, kResources> spending_short_of_kv_{};  // as spending_, of the share of Resource::kv_capacity
  Copied copied_{};                                        // of iteration_, if it copies
  LinkBytes charged_{};                                    // bytes of all iterations so far, booked or not
  std::vector<LayerTotals::Change> capacities_;
};

}  // namespace spillway
