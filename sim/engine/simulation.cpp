#include "sim/engine/simulation.hpp"

#include <fmt/format.h>

#include <deque>
#include <memory>
#include <utility>

#include "sim/core/event_queue.hpp"
#include "sim/engine/instance.hpp"
#include "sim/engine/link_groups.hpp"

namespace spillway {
namespace {

enum Kind : std::uint32_t { kArrival, kEntry, kCall, kShare, kExpire, kHorizon };

/// Takes what instances report to metrics, to the caller and to the source, whose later requests may depend on it.
class Recorder final : public InstanceSink {
 public:
  explicit Recorder(const SimulationConfig& config) : config_(config), metrics_(config.metrics) {}

  void token_gap(Duration gap, std::int64_t tokens, SimTime now) override { metrics_.token_gap(gap, tokens, now); }
  void ended(const RequestRecord& record) override {
    ++ended_;
    if (record.outcome == Outcome::rejected && !first_rejected_) first_rejected_ = record;
    metrics_.ended(record);
    if (config_.on_request) config_.on_request(record);
    config_.source->ended(record);
    const std::int64_t conversation = record.traits.conversation;
    if (conversation < 0) return;
    conversations_.ended(conversation, config_.source->next_turn(conversation) != kNever, record.end);
  }

  [[nodiscard]] MetricsCollector& metrics() { return metrics_; }
  [[nodiscard]] ConversationMeter& conversations() { return conversations_; }
  [[nodiscard]] std::int64_t ended() const { return ended_; }
  [[nodiscard]] const std::optional<RequestRecord>& first_rejected() const { return first_rejected_; }

 private:
  const SimulationConfig& config_;
  MetricsCollector metrics_;
  ConversationMeter conversations_;
  std::int64_t ended_ = 0;
  std::optional<RequestRecord> first_rejected_;
};

/// One clock and one event queue for all instances. The cost of an event does not depend on their number.
class Simulation {
 public:
  explicit Simulation(const SimulationConfig& config) : config_(config), recorder_(config) {
    SPILLWAY_CHECK(!config.instances.empty(), "a simulation without an instance");
    replicas_.resize(config.instances.size());
    for (const LinkGroup& members : link_groups(config.instances)) {
      for (const std::size_t member : members) replicas_[member].group = groups_.size();
      groups_.push_back({.replicas = members});
    }
    for (std::size_t i = 0; i < replicas_.size(); ++i) {
      Replica& one = replicas_[i];
      one.instance = std::make_unique<Instance>(config.instances[i], recorder_, config.links, one.group != kNoGroup);
      if (one.group != kNoGroup) groups_[one.group].instances.push_back(one.instance.get());
    }
    add_shared_links(links_, config.links);
    measure();
  }

  SimulationResult run() {
    expect();
    if (config_.until) queue_.push(*config_.until, EventPhase::observation, kHorizon);
    while (!over_ && (!to_start_.empty() || !queue_.empty())) {
      if (start_is_next()) {
        start_pending();
      } else {
        const Event event = queue_.pop();
        observe_before(event.time);
        sample_before(event.time);
        now_ = event.time;
        handle(event);
      }
      expect();
      // Nothing is left that a later horizon could cut.
      if (live() == 0 && expected_.empty()) break;
    }
    if (!over_ && live() > 0) idles_for_ever();
    observe_before(now_ + Duration(1));
    sample_before(now_ + Duration(1));
    return result();
  }

  [[nodiscard]] SimTime now() const { return now_; }
  /// The policy of the instance that was called last, for messages.
  [[nodiscard]] const std::string& policy() const { return config_.instances[current_].policy->name; }

 private:
  struct Replica {
    std::unique_ptr<Instance> instance;
    SimTime call = kNever;  // of its earliest event in the queue
    bool to_start = false;  // it is in to_start_
    std::size_t group = kNoGroup;
  };
  static constexpr std::size_t kNoGroup = SIZE_MAX;
  /// Replicas that share links.
  struct Group {
    LinkGroup replicas{};
    std::vector<Instance*> instances{};
    bool to_share = false;  // an event of this instant will share the links anew
  };
  /// A request on its way from its client to the scheduler.
  struct Passing {
    RequestSpec spec{};
    std::uint32_t serial = 0;
    SimTime sent{};
  };
  struct Deadline {
    std::size_t replica = 0;
    RequestId id{};
  };

  [[nodiscard]] Instance& at(std::size_t replica) {
    current_ = replica;
    return *replicas_[replica].instance;
  }
  [[nodiscard]] std::int64_t live() const { return submitted_ - recorder_.ended(); }

  void handle(const Event& event) {
    switch (static_cast<Kind>(event.kind)) {
      case kArrival:
        arrive();
        break;
      case kEntry:
        enter_next();
        break;
      case kCall:
        call(event.target);
        break;
      case kShare:
        share(event.target);
        break;
      case kExpire:
        expire();
        break;
      case kHorizon:
        over_ = true;
        break;
    }
  }

  /// Queues an event for when the instance wants to be called. An earlier event in the queue serves as well.
  void expect_call(std::size_t replica) {
    Replica& one = replicas_[replica];
    const SimTime wanted = one.instance->next_call();
    if (wanted >= one.call) return;
    one.call = wanted;
    queue_.push(wanted, EventPhase::compute_done, kCall, static_cast<std::uint32_t>(replica));
  }

  void call(std::size_t replica) {
    replicas_[replica].call = kNever;
    using Advanced = Instance::Advanced;
    const bool due = at(replica).next_call() == now_;
    const Advanced advanced = due ? at(replica).advance(now_) : Advanced::nothing;
    if (advanced == Advanced::iteration) {
      last_completion_ = now_;
      recorder_.conversations().reached(now_);
    }
    if (advanced != Advanced::nothing) wake(replica);
    called(replica);
  }

  /// Copies of the replica may have started or ended now: if it has a group, this shares the links anew when the
  /// instant is over, and only then knows what comes next.
  void called(std::size_t replica) {
    const std::size_t group = replicas_[replica].group;
    if (group == kNoGroup) return expect_call(replica);
    if (groups_[group].to_share) return;
    groups_[group].to_share = true;
    queue_.push(now_, EventPhase::start, kShare, static_cast<std::uint32_t>(group));
  }

  void share(std::size_t group) {
    groups_[group].to_share = false;
    share_links(links_, groups_[group].instances, now_);
    for (const std::size_t replica : groups_[group].replicas) expect_call(replica);
  }

  /// An observation shows the state after the last event up to its instant.
  void observe_before(SimTime time) {
    if (!config_.on_observation) return;
    for (; next_observation_ < time; next_observation_ = next_observation_ + config_.observe_every) {
      Observation seen{.now = next_observation_, .waiting = std::ssize(passing_)};
      for (const Replica& one : replicas_) {
        seen.running += one.instance->live() - one.instance->waiting();
        seen.waiting += one.instance->waiting();
        seen.gpu_blocks_used += one.instance->gpu_blocks_used();
      }
      config_.on_observation(seen);
    }
  }

  /// The same of the conversations.
  void sample_before(SimTime time) {
    if (series_.next() >= time) return;
    ConversationCounts counts{.live = recorder_.conversations().live()};
    for (const Replica& one : replicas_) one.instance->count_cached(counts);
    while (series_.next() < time) series_.add(counts);
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
    recorder_.metrics().submitted(static_cast<std::uint64_t>(submitted_), now_);
    measure();
    recorder_.conversations().arrived(spec_.traits.conversation, now_);
    const auto serial = static_cast<std::uint32_t>(submitted_);
    ++submitted_;
    SPILLWAY_CHECK(submitted_ < UINT32_MAX, "more requests than a run can number");
    if (config_.front_end == Duration{}) return enter(spec_, serial, now_);
    passing_.push_back({spec_, serial, now_});
    if (passing_.size() == 1) queue_.push(now_ + config_.front_end, EventPhase::arrival, kEntry);
  }

  /// The request that left its client first has passed the front end.
  void enter_next() {
    const Passing next = std::move(passing_.front());
    passing_.pop_front();
    if (!passing_.empty()) {
      queue_.push(passing_.front().sent + config_.front_end, EventPhase::arrival, kEntry);
    }
    enter(next.spec, next.serial, next.sent);
  }

  /// The run ends before the request has reached the scheduler.
  void cut(const Passing& request) {
    RequestRecord record;
    record.index = request.serial;
    record.client = request.spec.client;
    record.outcome = Outcome::unfinished;
    record.arrival = request.sent;
    record.end = now_;
    record.input = request.spec.input;
    record.output = request.spec.output;
    record.traits = request.spec.traits;
    recorder_.ended(record);
  }

  /// A request of a client reaches the scheduler.
  void enter(const RequestSpec& spec, std::uint32_t serial, SimTime sent) {
    const std::size_t replica = config_.route ? config_.route(spec) : 0;
    SPILLWAY_CHECK(replica < replicas_.size(), "a request was routed to an instance that does not exist");
    const RequestId id = at(replica).submit(spec, serial, sent, now_);
    if (config_.request_timeout && at(replica).alive(id)) {
      if (deadlines_.empty()) {
        queue_.push(std::max(now_, sent + *config_.request_timeout), EventPhase::timer, kExpire);
      }
      deadlines_.push_back({replica, id});
    }
    wake(replica);
  }

  /// Tells the instances when the measured span begins, once that is known.
  void measure() {
    const SimTime begin = recorder_.metrics().begin();
    if (begin == span_begin_) return;
    span_begin_ = begin;
    for (const Replica& one : replicas_) one.instance->measure_from(begin);
    recorder_.conversations().measure_from(begin);
  }

  void expire() {
    // Every request has the same time-out, so deadlines come in order of arrival and one timer is enough.
    while (!deadlines_.empty()) {
      const Deadline next = deadlines_.front();
      Instance& instance = at(next.replica);
      if (instance.alive(next.id)) {
        const SimTime deadline = instance.request(next.id).arrival + *config_.request_timeout;
        if (deadline > now_) {
          queue_.push(deadline, EventPhase::timer, kExpire);
          break;
        }
        instance.expire(next.id, now_);
        wake(next.replica);
      }
      deadlines_.pop_front();
    }
  }

  /// Something has changed for an instance: when nothing runs, its policy is asked once this instant's events are over.
  void wake(std::size_t replica) {
    Replica& one = replicas_[replica];
    if (one.instance->busy() || one.to_start) return;
    one.to_start = true;
    to_start_.push_back(replica);
  }

  /// Decisions follow all events of their instant except observations, so they need no events of their own.
  [[nodiscard]] bool start_is_next() const {
    return !to_start_.empty() &&
           (queue_.empty() || queue_.top().time > now_ || queue_.top().phase() > EventPhase::decision);
  }

  void start_pending() {
    if (config_.stop != nullptr && config_.stop->load(std::memory_order_relaxed)) {
      over_ = interrupted_ = true;
      return;
    }
    for (const std::size_t replica : to_start_) {
      replicas_[replica].to_start = false;
      at(replica).start(now_);
      called(replica);
      if (config_.on_progress && ++decisions_ % config_.progress_iterations == 0) progress();
    }
    to_start_.clear();
  }

  void progress() const {
    Progress progress{.now = now_,
                      .submitted = submitted_,
                      .ended = recorder_.ended(),
                      .waiting = std::ssize(passing_),
                      .iterations = decisions_};
    for (const Replica& one : replicas_) progress.waiting += one.instance->waiting();
    progress.running = live() - progress.waiting;
    config_.on_progress(progress);
  }

  [[noreturn]] void idles_for_ever() {
    std::size_t replica = 0;
    while (replicas_[replica].instance->live() == 0) ++replica;
    at(replica).idles_for_ever();
  }

  SimulationResult result() {
    SimulationResult result;
    Blocks gpu_blocks;
    Blocks host_blocks;
    EngineTotals all;
    for (std::size_t i = 0; i < replicas_.size(); ++i) {
      Instance& instance = at(i);
      if (over_) instance.stop(now_);
      instance.settle_links();
      result.instances.push_back(instance.totals());
      if (i == 0) {
        all = result.instances.back();
      } else {
        all.add(result.instances.back());
      }
      gpu_blocks += config_.instances[i].kv.gpu_blocks;
      host_blocks += config_.instances[i].kv.host_blocks;
    }
    for (const Passing& one : passing_) cut(one);
    ConversationMeter& conversations = recorder_.conversations();
    if (over_) conversations.reached(now_);
    all.live_time = conversations.live_time();
    all.peak_live = conversations.peak();
    const FairnessTotals fairness = replicas_.size() == 1 ? replicas_[0].instance->fairness() : FairnessTotals{};
    result.statistics = recorder_.metrics().finish(over_ ? now_ : last_completion_, all, gpu_blocks, host_blocks,
                                                   !interrupted_, fairness);
    if (all.peak_live > 0) result.statistics.conversations = series_.samples();
    result.first_rejected = recorder_.first_rejected();
    return result;
  }

  const SimulationConfig& config_;
  Recorder recorder_;
  std::vector<Replica> replicas_;
  std::vector<Group> groups_;
  Links links_;  // those that replicas share
  std::size_t current_ = 0;
  EventQueue queue_;
  SimTime now_{};
  SimTime last_completion_{};
  SimTime span_begin_ = kNever;
  SimTime next_observation_{};
  ConversationSeries series_;
  RequestSpec spec_;
  std::vector<SimTime> expected_;      // times of the arrival events in the queue, descending
  std::vector<std::size_t> to_start_;  // instances whose policies are asked at this instant, in order of waking
  bool over_ = false;
  bool interrupted_ = false;
  std::int64_t submitted_ = 0;
  std::int64_t decisions_ = 0;
  std::deque<Passing> passing_;     // in order of sending
  std::deque<Deadline> deadlines_;  // in order of arrival; ended requests are skipped when their turn comes
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
        fmt::format("policy {} at {} ns: {}", simulation.policy(), simulation.now().ns(), error.what()));
  }
}

}  // namespace spillway
