#include "sim/engine/simulation.hpp"

#include <fmt/format.h>

#include <deque>
#include <vector>

#include "sim/core/event_queue.hpp"
#include "sim/engine/instance.hpp"

namespace spillway {
namespace {

enum Kind : std::uint32_t { kArrival, kIterationDone, kExpire, kHorizon };

class Simulation {
 public:
  explicit Simulation(const SimulationConfig& config)
      : config_(config), metrics_(config.metrics), instance_(config, metrics_) {}

  SimulationResult run() {
    expect();
    if (config_.until) queue_.push(*config_.until, EventPhase::observation, kHorizon);
    while (!over_ && (decision_pending_ || !queue_.empty())) {
      if (decision_is_next()) {
        decide();
      } else {
        const Event event = queue_.pop();
        observe_before(event.time);
        now_ = event.time;
        handle(static_cast<Kind>(event.kind));
      }
      expect();
      // Nothing is left that a later horizon could cut.
      if (instance_.live() == 0 && expected_.empty()) break;
    }
    if (!over_ && instance_.live() > 0) instance_.idles_for_ever();
    observe_before(now_ + Duration(1));
    if (over_) instance_.stop(now_);
    instance_.settle_links();
    SimulationResult result;
    const SimTime end = over_ ? now_ : last_completion_;
    result.statistics = metrics_.finish(end, instance_.totals(), config_.kv.gpu_blocks, config_.kv.host_blocks,
                                        !interrupted_, instance_.fairness());
    result.first_rejected = instance_.first_rejected();
    return result;
  }

  [[nodiscard]] SimTime now() const { return now_; }

 private:
  void handle(Kind kind) {
    switch (kind) {
      case kArrival:
        arrive();
        break;
      case kIterationDone:
        instance_.complete(now_);
        last_completion_ = now_;
        wake();
        break;
      case kExpire:
        expire();
        break;
      case kHorizon:
        over_ = true;
        break;
    }
  }

  /// An observation shows the state after the last event up to its instant.
  void observe_before(SimTime time) {
    if (!config_.on_observation) return;
    for (; next_observation_ < time; next_observation_ = next_observation_ + config_.observe_every) {
      config_.on_observation({next_observation_, instance_.live() - instance_.waiting(), instance_.waiting(),
                              instance_.gpu_blocks_used()});
    }
  }

  /// Makes sure that the queue has an event for the next arrival. An event for a later arrival stays in the queue and
  /// serves whatever arrives then.
  void expect() {
    const SimTime next = config_.source->next_arrival();
    if (next == kNever || (!expected_.empty() && next >= expected_.back())) return;
    SPILLWAY_CHECK(next >= now_, "the request source went back in time");
    expected_.push_back(next);
    queue_.push(next, EventPhase::arrival, kArrival);
  }

  void arrive() {
    expected_.pop_back();
    if (config_.source->next_arrival() != now_) return;
    if (!config_.source->next(spec_)) return;
    metrics_.submitted(static_cast<std::uint64_t>(submitted_), now_);
    const RequestId id = instance_.submit(spec_, static_cast<std::uint32_t>(submitted_), now_);
    ++submitted_;
    SPILLWAY_CHECK(submitted_ < UINT32_MAX, "more requests than a run can number");
    if (config_.request_timeout && instance_.alive(id)) {
      if (deadlines_.empty()) queue_.push(now_ + *config_.request_timeout, EventPhase::timer, kExpire);
      deadlines_.push_back(id);
    }
    wake();
  }

  void expire() {
    // Every request has the same time-out, so deadlines come in order of arrival and one timer is enough.
    while (!deadlines_.empty()) {
      const RequestId id = deadlines_.front();
      if (instance_.alive(id)) {
        const SimTime deadline = instance_.request(id).arrival + *config_.request_timeout;
        if (deadline > now_) {
          queue_.push(deadline, EventPhase::timer, kExpire);
          break;
        }
        instance_.expire(id, now_);
      }
      deadlines_.pop_front();
    }
    wake();
  }

  void wake() {
    if (!instance_.busy()) decision_pending_ = true;
  }

  /// A decision follows all events of its instant except observations, so it needs no event of its own.
  [[nodiscard]] bool decision_is_next() const {
    return decision_pending_ &&
           (queue_.empty() || queue_.top().time > now_ || queue_.top().phase() > EventPhase::decision);
  }

  void decide() {
    decision_pending_ = false;
    if (config_.stop != nullptr && config_.stop->load(std::memory_order_relaxed)) {
      over_ = interrupted_ = true;
      return;
    }
    const auto end = instance_.decide(now_);
    if (end) queue_.push(*end, EventPhase::compute_done, kIterationDone);
    if (config_.on_progress && ++decisions_ % config_.progress_iterations == 0) {
      config_.on_progress(Progress{now_, submitted_, submitted_ - instance_.live(),
                                   instance_.live() - instance_.waiting(), instance_.waiting(), decisions_});
    }
  }

  const SimulationConfig& config_;
  MetricsCollector metrics_;
  Instance instance_;
  EventQueue queue_;
  SimTime now_{};
  SimTime last_completion_{};
  SimTime next_observation_{};
  RequestSpec spec_;
  std::vector<SimTime> expected_;  // times of the arrival events in the queue, descending
  bool decision_pending_ = false;
  bool over_ = false;
  bool interrupted_ = false;
  std::int64_t submitted_ = 0;
  std::int64_t decisions_ = 0;
  std::deque<RequestId> deadlines_;  // in order of arrival; ended requests are skipped when their turn comes
};

}  // namespace

SimulationResult simulate(const SimulationConfig& config) {
  Simulation simulation(config);
  try {
    return simulation.run();
  } catch (const BrokenPromise&) {
    throw;
  } catch (const InvariantError& error) {
    throw InvariantError(
        fmt::format("policy {} at {} ns: {}", config.policy->name, simulation.now().ns(), error.what()));
  }
}

}  // namespace spillway
