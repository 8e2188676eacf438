#include "sim/engine/simulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <memory_resource>
#include <new>
#include <utility>

#include "sim/core/event_queue.hpp"
#include "sim/core/huge_pages.hpp"
#include "sim/core/prefetch.hpp"
#include "sim/engine/handover_sharing.hpp"
#include "sim/engine/instance.hpp"
#include "sim/engine/journeys.hpp"
#include "sim/engine/lending.hpp"
#include "sim/engine/link_groups.hpp"
#include "sim/engine/link_sharing.hpp"

namespace spillway {
namespace {

enum Kind : std::uint32_t { kArrival, kEntry, kCall, kStep, kReplica, kTransfer, kExpire, kHorizon };

/// Passes what happens to requests on to metrics, to the caller and to the source, whose later requests may depend on
/// it.
class Recorder {
 public:
  explicit Recorder(const SimulationConfig& config) : config_(config), metrics_(config.metrics) {
    for (const PoolConfig& pool : config.pools) {
      MetricsConfig own = config.metrics;
      own.front_end = pool.front_end;
      own.offered = pool.offered;
      pools_.emplace_back(own);
    }
  }

  void submitted(std::uint32_t pool, std::uint64_t index, SimTime now) {
    metrics_.submitted(index, now);
    if (!pools_.empty()) pools_[pool].submitted(index, now);
  }
  void token_gap(std::size_t pool, Duration gap, std::int64_t tokens, SimTime now) {
    metrics_.token_gap(gap, tokens, now);
    if (!pools_.empty()) pools_[pool].token_gap(gap, tokens, now);
  }
  /// All measure the same span.
  void measure_from(SimTime begin) {
    for (MetricsCollector& pool : pools_) pool.begin_at(begin);
    conversations_.measure_from(begin);
  }
  void ended(const RequestRecord& record) {
    ++ended_;
    if (record.refused) {
      ++refused_;
    } else if (record.outcome == Outcome::rejected && !first_rejected_) {
      first_rejected_ = record;
    }
    const std::uint32_t pool = record.traits.pool;
    metrics_.ended(record, config_.pools.empty() ? config_.metrics.front_end : config_.pools[pool].front_end);
    if (!pools_.empty()) pools_[pool].ended(record);
    if (config_.on_request) config_.on_request(record);
    config_.source->ended(record);
    const std::int64_t conversation = record.traits.conversation;
    if (conversation < 0) return;
    conversations_.ended(conversation, config_.source->next_turn(conversation) != kNever, record.end);
  }

  [[nodiscard]] MetricsCollector& metrics() { return metrics_; }
  [[nodiscard]] MetricsCollector& metrics_of(std::size_t pool) { return pools_[pool]; }
  [[nodiscard]] ConversationMeter& conversations() { return conversations_; }
  [[nodiscard]] std::int64_t ended() const { return ended_; }
  [[nodiscard]] const std::optional<RequestRecord>& first_rejected() const { return first_rejected_; }
  [[nodiscard]] std::int64_t refused() const { return refused_; }

 private:
  const SimulationConfig& config_;
  MetricsCollector metrics_;
  std::vector<MetricsCollector> pools_;  // as SimulationConfig::pools
  ConversationMeter conversations_;
  std::int64_t ended_ = 0;
  std::optional<RequestRecord> first_rejected_;
  std::int64_t refused_ = 0;
};

/// One clock and one event queue for all instances. The cost of an event does not depend on their number, only on that
/// of the instances that share links with the one called. An instance may be behind the clock while nobody looks at it:
/// at() brings it up to date.
class Simulation final : public InstanceSink, public Journeys::Run {
 public:
  explicit Simulation(const SimulationConfig& config)
      : config_(config),
        recorder_(config),
        is_fleet_(config.instances.size() >= kFleet),
        memory_(is_fleet_ ? static_cast<std::pmr::memory_resource*>(&pools_of_blocks_)
                          : std::pmr::new_delete_resource()),
        places_(config.instances.size(), is_fleet_ ? &blocks_ : memory_),
        replicas_(config.instances.size()),
        pool_configs_(pools_of(config)),
        pools_(replicas_, now_, pool_configs_, [this](std::size_t replica) { look_at(replica); }),
        place_in_group_(config.instances.size()) {
    SPILLWAY_CHECK(!config.instances.empty(), "a simulation without an instance");
    lend_memory();
    join_links();
    find_buses();
    for (std::size_t i = 0; i < replicas_.size(); ++i) make_instance(i);
    if (is_fleet_) gather_policies();
    const bool beside_copies = std::ranges::any_of(groups_, &Group::beside_handovers);
    if (config.handover || !config.events.empty() || may_send_on()) {
      journeys_.emplace(config, pools_, replicas_, *this, beside_copies);
    }
    if (beside_copies) share_with_handovers();
    const bool shares_links =
        std::ranges::any_of(groups_, [](const Group& group) { return group.sharing.has_value(); });
    by_number_ = !journeys_ && config.loans.empty() && !shares_links;
    puts_off_ = by_number_ && !config.on_observation;
    for (std::size_t i = 0; i < config.events.size(); ++i) {
      queue_.push(config.events[i].at, EventPhase::timer, kReplica, static_cast<std::uint32_t>(i));
    }
    measure();
  }

  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  SimulationResult run() {
    expect();
    if (config_.until) queue_.push(*config_.until, EventPhase::observation, kHorizon);
    while (!over_) {
      if (to_start_.empty() && !links_change() && queue_.empty()) {
        // No replica will come up for the requests that wait for one. What they leave may let others go on.
        if (!journeys_ || journeys_->held() == 0) break;
        journeys_->lose_held();
        journeys_->follow();
        expect();
        continue;
      }
      if (start_is_next()) {
        start_pending();
      } else if (share_is_next()) {
        share();
      } else {
        const Event event = queue_.top();
        if (!take(event)) continue;
        if (is_fleet_) prefetch_second();
        observe_before(event.time);
        sample_before(event.time);
        now_ = event.time;
        handle(event);
      }
      expect();
      // Nothing is left that a later horizon could cut.
      if (live() == 0 && expected_.empty() && at_rest()) break;
    }
    if (!over_ && live() > 0) idles_for_ever();
    observe_before(now_ + Duration(1));
    sample_before(now_ + Duration(1));
    return result();
  }

  [[nodiscard]] SimTime now() const override { return now_; }
  /// The policy of the instance that was called last, for messages.
  [[nodiscard]] const std::string& policy() const { return config_.instances[current_].policy->name; }

 private:
  /// Replicas that share links, or one with links of its own.
  struct Group {
    LinkGroup joined{};
    std::vector<BytesPerSecond> capacities{};  // of the links
    bool beside_handovers = false;             // hand-overs cross some of the links, too
    std::optional<LinkSharing> sharing{};      // of several replicas, or beside hand-overs
    SimTime call = kNever;                     // of its earliest event in the queue
    bool to_share = false;                     // this instant ends with sharing the links anew
  };
  /// A request on its way from its client to the scheduler.
  struct Passing {
    RequestSpec spec{};
    std::uint32_t serial = 0;
    SimTime sent{};
    SimTime reaches{};  // the scheduler
    std::size_t replica = 0;
  };
  struct Deadline {
    SimTime at{};
    std::size_t replica = 0;
    RequestId id{};
  };
  static std::vector<PoolConfig> pools_of(const SimulationConfig& config) {
    std::vector<PoolConfig> pools = config.pools;
    if (pools.empty()) pools = {{config.instances.size(), config.router, config.front_end}};
    if (!config.handover) return pools;
    const Handover& handover = *config.handover;
    PoolConfig& prompts = pools.at(handover.kind);
    const PoolConfig answers{prompts.replicas - handover.prefill, handover.decode_router, {}};
    prompts.replicas = handover.prefill;
    pools.insert(pools.begin() + static_cast<std::ptrdiff_t>(handover.answers()), answers);
    return pools;
  }
  [[nodiscard]] std::size_t pool_of(std::size_t kind) const {
    return config_.handover ? config_.handover->pool_of(kind) : kind;
  }
  [[nodiscard]] std::size_t kind_of(std::size_t replica) const {
    const std::size_t pool = pools_.of(replica);
    return config_.handover ? config_.handover->kind_of(pool) : pool;
  }
  /// The kind has pools of prompts and of answers.
  [[nodiscard]] bool splits(std::size_t kind) const { return config_.handover && config_.handover->kind == kind; }
  /// The replicas of a kind, first and end.
  [[nodiscard]] std::pair<std::size_t, std::size_t> replicas_of(std::size_t kind) const {
    return {pools_.range(pool_of(kind)).first,
            pools_.range(splits(kind) ? config_.handover->answers() : pool_of(kind)).second};
  }
  void join_links() {
    const std::vector<bool> handed_over = links_of_handovers();
    for (LinkGroup& joined : link_groups(config_.instances)) {
      for (const std::size_t replica : joined.instances) replicas_[replica].group = groups_.size();
      Group& group = groups_.emplace_back();
      for (const std::size_t link : joined.links) group.capacities.push_back(config_.links.at(link));
      group.beside_handovers = std::ranges::any_of(joined.links, [&](std::size_t link) { return handed_over[link]; });
      const bool shares = joined.instances.size() > 1 || group.beside_handovers;
      if (shares) group.sharing.emplace(group.capacities, joined.instances.size());
      group.joined = std::move(joined);
      for (std::size_t m = 0; m < group.joined.instances.size(); ++m) place_in_group_[group.joined.instances[m]] = m;
    }
  }

  /// Of SimulationConfig::links, those that hand-overs cross.
  [[nodiscard]] std::vector<bool> links_of_handovers() const {
    std::vector<bool> crossed(config_.links.size());
    if (!config_.handover || crossed.empty()) return crossed;
    const Handover& handover = *config_.handover;
    const std::size_t decode = pool_configs_[handover.answers()].replicas;
    for (std::size_t from = 0; from < handover.prefill; ++from) {
      for (std::size_t to = 0; to < decode; ++to) {
        for (const HandoverPath::Crossing& crossing : handover.path(from, to).crossings) {
          if (crossing.link < crossed.size()) crossed[crossing.link] = true;
        }
      }
    }
    return crossed;
  }
  void share_with_handovers() {
    handover_sharing_.emplace(journeys_->transfers());
    for (std::size_t number = 0; number < groups_.size(); ++number) {
      Group& group = groups_[number];
      if (group.beside_handovers) handover_sharing_->add(number, *group.sharing, group.joined.links);
    }
  }

  void find_buses() {
    std::vector<const CopyRoute*> routes;
    for (const InstanceConfig& instance : config_.instances) routes.push_back(&instance.route);
    buses_ = shared_buses(routes, config_.links);
    for (const std::optional<LinkCrossing>& crossing : buses_) {
      if (crossing) bus_of_link_.try_emplace(crossing->link, config_.links[crossing->link]);
    }
  }

  [[nodiscard]] Instance& at(std::size_t replica) override {
    current_ = replica;
    if (Group* const group = sharing_group(replica)) group->sharing->touch(place_in_group_[replica]);
    Instance& instance = *replicas_[replica].instance;
    if (instance.puts_off()) bring_up_to_date(replica);
    return instance;
  }
  /// Does what the instance has put off, and lets it put off nothing more.
  void bring_up_to_date(std::size_t replica) {
    Instance& instance = *replicas_[replica].instance;
    catch_up(replica, now_);
    instance.stop_putting_off();
    // What is due now comes before whatever asks.
    instance.next_call() == now_ ? call(replica) : expect_call(replica);
  }
  void catch_up(std::size_t replica, SimTime until) {
    current_ = replica;
    decisions_ += replicas_[replica].instance->catch_up(until);
  }
  /// A router looks at the instance, which may put off its calls all the same.
  void look_at(std::size_t replica) {
    const Instance& instance = *replicas_[replica].instance;
    if (!instance.puts_off()) return;
    catch_up(replica, now_);
    if (instance.end() == now_) bring_up_to_date(replica);
  }
  [[nodiscard]] std::int64_t live() const { return submitted_ - recorder_.ended(); }
  /// No instance has a request. One may be withdrawn within an iteration, which goes on with it.
  [[nodiscard]] bool at_rest() const {
    return std::ranges::none_of(replicas_, [](const Replica& one) { return one.instance->live() > 0; });
  }
  /// The group with which a replica shares links; null: it has its links for itself.
  [[nodiscard]] Group* sharing_group(std::size_t replica) {
    const std::size_t number = replicas_[replica].group;
    return number == Replica::kNoGroup || !groups_[number].sharing ? nullptr : &groups_[number];
  }
  void lend_memory() {
    lent_.reserve(config_.loans.size());
    lent_series_.resize(config_.loans.size());
    asked_.resize(config_.loans.size(), kNever);
    loan_of_.resize(config_.loans.empty() ? 0 : replicas_.size(), nullptr);
    for (const Loan& loan : config_.loans) {
      lent_.emplace_back(loan);
      SPILLWAY_CHECK(loan_of_.at(loan.borrower) == nullptr, "an instance borrows twice, or borrows and lends");
      loan_of_[loan.borrower] = &loan;
      if (!loan.lender) continue;
      SPILLWAY_CHECK(loan_of_.at(*loan.lender) == nullptr, "an instance lends twice, or borrows and lends");
      loan_of_[*loan.lender] = &loan;
    }
  }
  [[nodiscard]] InstanceConfig on_bus(std::size_t replica) {
    InstanceConfig config = with_loan(replica);
    const std::optional<LinkCrossing>& crossing = buses_[replica];
    if (crossing) config.on_bus = {&bus_of_link_.at(crossing->link), crossing->gpus};
    return config;
  }
  [[nodiscard]] InstanceConfig with_loan(std::size_t replica) {
    InstanceConfig config = config_.instances[replica];
    if (loan_of_.empty() || loan_of_[replica] == nullptr) return config;
    const Loan& loan = *loan_of_[replica];
    LentMemory& lent = lent_[number_of(loan)];
    if (loan.borrower == replica) {
      config.borrows = &lent;
    } else {
      config.lends = &lent;
      config.informer = loan.informer;
    }
    return config;
  }
  /// The replica may have let go of memory for which its lender waits.
  void returned(std::size_t replica) {
    if (loan_of_.empty() || loan_of_[replica] == nullptr) return;
    const Loan& loan = *loan_of_[replica];
    if (loan.borrower != replica || !loan.lender) return;
    if (replicas_[*loan.lender].up && replicas_[*loan.lender].instance->waits_for_memory()) wake(*loan.lender);
  }
  /// The replica may want memory back from one that has nothing to run, and so does not ask. Each wakes the other, so
  /// this happens once at an instant.
  void wanted(std::size_t replica) {
    if (loan_of_.empty() || loan_of_[replica] == nullptr) return;
    const Loan& loan = *loan_of_[replica];
    const Replica& borrower = replicas_[loan.borrower];
    if (loan.borrower == replica || !borrower.up || !replicas_[replica].instance->waits_for_memory()) return;
    if (!borrower.instance->rests_with_contexts()) return;
    SimTime& asked = asked_[number_of(loan)];
    if (std::exchange(asked, now_) != now_) wake(loan.borrower);
  }
  [[nodiscard]] std::size_t number_of(const Loan& loan) const {
    return static_cast<std::size_t>(&loan - config_.loans.data());
  }
  /// A replica may refuse a request that another one of its pool may serve.
  [[nodiscard]] bool may_send_on() const {
    for (std::size_t i = 0; i < replicas_.size(); ++i) {
      const auto [first, last] = pools_.range(pools_.of(i));
      if (last - first > 1 && replicas_[i].instance->may_refuse()) return true;
    }
    return false;
  }
  void gather_policies() const {
    const auto address = [](const Replica& one) { return one.instance->policy_address(); };
    const auto [first, last] = std::ranges::minmax_element(replicas_, {}, address);
    HugePages::gather(address(*first), address(*last));
  }
  /// What a share that is computed anew costs depends on the number of links: each group sees its own.
  void make_instance(std::size_t replica) {
    Replica& one = replicas_[replica];
    InstanceConfig config = on_bus(replica);
    if (config_.observer) config.observer = config_.observer(replica);
    Group* const group = one.group == Replica::kNoGroup ? nullptr : &groups_[one.group];
    std::span<const BytesPerSecond> links;
    if (group != nullptr) {
      config.route = route_within(std::move(config.route), group->joined.links);
      links = group->capacities;
    }
    const bool shares = group != nullptr && group->sharing;
    one.instance.reset();  // the next one takes its place
    one.instance.reset(::new (&places_[replica]) Instance(config, *this, links, shares, memory_));
    if (shares) group->sharing->join(place_in_group_[replica], *one.instance);
  }

  // InstanceSink; what happens is that of the instance that was called last.
  void token_gap(Duration gap, std::int64_t tokens, SimTime now) override {
    recorder_.token_gap(kind_of(current_), gap, tokens, now);
  }
  void ended(const RequestRecord& of_instance) override {
    const bool lost = losing_ && of_instance.outcome == Outcome::unfinished;
    const Outcome outcome = lost ? Outcome::lost : of_instance.outcome;
    replicas_[current_].lost += lost ? 1 : 0;
    pools_.ended(current_, outcome);
    if (journeys_) return journeys_->ended(of_instance, current_, outcome);
    RequestRecord record = of_instance;
    record.replica = static_cast<std::uint32_t>(current_);
    recorder_.ended(record);
  }
  [[nodiscard]] bool sends_on(std::uint32_t number) override {
    return journeys_ && journeys_->sends_on(number, current_);
  }
  [[nodiscard]] bool hands_over(std::uint32_t number) override { return journeys_->hands_over(number, current_); }
  void begins_prompt(RequestId id) override { journeys_->begins_prompt(id.serial); }
  void awaits_kv(RequestId id, Blocks blocks) override { journeys_->awaits_kv(id.serial, blocks); }

  // Journeys::Run
  void pass(std::uint32_t serial, std::size_t pool) override {
    const Duration front_end = pool_configs_[pool].front_end;
    if (front_end == Duration{}) return journeys_->passed(serial);
    pass({.spec = {}, .serial = serial, .sent = {}, .reaches = now_ + front_end, .replica = 0});
  }
  void give_deadline(std::uint32_t serial, SimTime sent) override { give_deadline(sent, 0, {0, serial}); }
  void call_for_transfers(SimTime at) override { queue_.push(at, EventPhase::transfer_done, kTransfer); }
  void record_gap(Duration gap, SimTime now) override { token_gap(gap, 1, now); }
  void record(const RequestRecord& record) override { recorder_.ended(record); }

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
      case kStep:
        step(groups_[event.target]);
        break;
      case kReplica:
        change(config_.events[event.target]);
        break;
      case kTransfer:
        journeys_->collect_transfers();
        break;
      case kExpire:
        expire();
        break;
      case kHorizon:
        over_ = true;
        break;
    }
    if (journeys_) journeys_->follow();
  }

  /// Queues an event for when the instance wants to be called. An earlier event in the queue serves as well.
  void expect_call(std::size_t replica) {
    Replica& one = replicas_[replica];
    const SimTime wanted = one.instance->next_call();
    if (wanted >= one.call) return;
    one.call = wanted;
    const auto target = static_cast<std::uint32_t>(replica);
    if (by_number_) {
      queue_.push_by_target(wanted, EventPhase::compute_done, kCall, target);
    } else {
      queue_.push(wanted, EventPhase::compute_done, kCall, target);
    }
  }

  /// The same; the call may be put off. What an iteration did is then known later than when it ends, so not while that
  /// decides whether it was in the measured span.
  void expect_late_call(std::size_t replica) {
    if (puts_off_ && span_begin_ != kNever) replicas_[replica].instance->put_off();
    expect_call(replica);
  }

  /// The same for the members of a group, which have one event: few are called when they first want to be.
  void expect_step(std::size_t number) {
    Group& group = groups_[number];
    const SimTime wanted = group.sharing->next_call();
    if (group.to_share || wanted >= group.call) return;
    group.call = wanted;
    queue_.push(wanted, EventPhase::compute_done, kStep, static_cast<std::uint32_t>(number));
  }

  /// Takes the next event from the queue, unless it serves more members of a group at this instant. False: what it was
  /// for does not happen any more, and time does not come to it.
  bool take(const Event& event) {
    if (static_cast<Kind>(event.kind) == kStep) {
      Group& group = groups_[event.target];
      if (group.sharing->due(event.time) != LinkSharing::kNobody) return true;
      queue_.pop();
      group.call = kNever;
      expect_step(event.target);
      return false;
    }
    queue_.pop();
    if (static_cast<Kind>(event.kind) == kTransfer) return journeys_->is_transfer_due(event.time);
    if (static_cast<Kind>(event.kind) != kCall) return true;
    Replica& one = replicas_[event.target];
    if (one.call != event.time) return false;  // an earlier one took its place
    if (one.instance->puts_off()) catch_up(event.target, event.time);
    if (one.instance->next_call() == event.time) return true;
    one.call = kNever;
    expect_late_call(event.target);
    return false;
  }

  /// In a fleet, what an event touches of its instance has left the nearest caches since that instance's last event.
  /// Asking for it while the events before are handled hides most of the time that it takes to come: the members two
  /// events ahead, and then, once these are there, what they point to.
  void prefetch_next() const {
    if (queue_.empty() || static_cast<Kind>(queue_.top().kind) != kCall) return;
    instance_at(queue_.top().target).prefetch_pointees();
  }
  void prefetch_second() const {
    const Event* const second = queue_.second();
    if (second == nullptr || static_cast<Kind>(second->kind) != kCall) return;
    prefetch(&replicas_[second->target], 1);
    instance_at(second->target).prefetch_members();
  }
  /// The instance of a replica, without a look at the replica.
  [[nodiscard]] const Instance& instance_at(std::size_t replica) const {
    return *std::launder(reinterpret_cast<const Instance*>(&places_[replica]));
  }

  /// Calls the member whose turn it is.
  void step(Group& group) {
    const std::size_t member = group.sharing->due(now_);
    group.sharing->forget_call(member);
    call(group.joined.instances[member]);
  }

  void call(std::size_t replica) {
    replicas_[replica].call = kNever;
    using Advanced = Instance::Advanced;
    const Advanced advanced = at(replica).advance(now_);
    if (advanced == Advanced::iteration) {
      last_completion_ = now_;
      recorder_.conversations().reached(now_);
    }
    if (advanced != Advanced::nothing) wake(replica);
    returned(replica);
    wanted(replica);
    called(replica);
  }

  /// Copies of the replica may have started or ended now: if it has a group, this shares the links anew when the
  /// instant is over, and only then knows what comes next.
  void called(std::size_t replica) {
    Group* const group = sharing_group(replica);
    if (group == nullptr) return expect_late_call(replica);
    if (group->to_share) return;
    group->to_share = true;
    to_share_.push_back(replicas_[replica].group);
  }

  /// Shares follow the decisions of their instant, so they need no events either.
  [[nodiscard]] bool share_is_next() const {
    return links_change() && (queue_.empty() || queue_.top().time > now_ || queue_.top().phase() > EventPhase::start);
  }

  [[nodiscard]] bool links_change() const {
    return !to_share_.empty() || (handover_sharing_ && handover_sharing_->is_due());
  }

  void share() {
    for (const std::size_t group : to_share_) {
      groups_[group].to_share = false;
      if (groups_[group].beside_handovers) continue;
      groups_[group].sharing->share(now_);
      expect_step(group);
    }
    if (handover_sharing_) {
      for (const std::size_t group : handover_sharing_->share(to_share_, now_)) expect_step(group);
      journeys_->expect_transfers();
    }
    to_share_.clear();
  }

  /// An observation shows the state after the last event up to its instant.
  void observe_before(SimTime time) {
    if (!config_.on_observation) return;
    for (; next_observation_ < time; next_observation_ = next_observation_ + config_.observe_every) {
      Observation seen{.now = next_observation_, .waiting = outside()};
      for (const Replica& one : replicas_) {
        seen.running += one.instance->live() - one.instance->waiting();
        seen.waiting += one.instance->waiting();
        seen.gpu_blocks_used += one.instance->gpu_blocks_used();
      }
      config_.on_observation(seen);
    }
  }

  /// The same of the conversations, and of what is lent.
  void sample_before(SimTime time) {
    for (std::size_t i = 0; i < lent_.size(); ++i) {
      while (lent_series_[i].next() < time) lent_series_[i].add(lent_[i].state());
    }
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
    // What was sent earlier and has passed the front end comes first; expect() queues this arrival again.
    if (!passing_.empty() && passing_.front().reaches == now_) return;
    if (!config_.source->next(spec_)) return;
    const std::uint32_t kind = spec_.traits.pool;
    SPILLWAY_CHECK(kind < std::max<std::size_t>(1, config_.pools.size()), "a request for instances that are not there");
    recorder_.submitted(kind, static_cast<std::uint64_t>(submitted_), now_);
    measure();
    recorder_.conversations().arrived(spec_.traits.conversation, now_);
    const auto serial = static_cast<std::uint32_t>(submitted_);
    ++submitted_;
    SPILLWAY_CHECK(submitted_ < (journeys_ ? Journeys::kFirstAlias : UINT32_MAX),
                   "more requests than a run can number");
    if (journeys_) return journeys_->begin(serial, spec_);
    const std::size_t replica = pools_.send(spec_, kind);
    const Duration front_end = pool_configs_[kind].front_end;
    if (front_end == Duration{}) return enter(spec_, serial, now_, replica);
    pass({spec_, serial, now_, now_ + front_end, replica});
  }

  /// Requests that no instance knows of.
  [[nodiscard]] std::int64_t outside() const {
    return std::ssize(passing_) + (journeys_ ? journeys_->held() : std::int64_t{0});
  }

  void pass(Passing request) {
    // The last one, unless the front ends of several kinds differ.
    auto place = passing_.end();
    while (place != passing_.begin() && std::prev(place)->reaches > request.reaches) --place;
    const bool first = place == passing_.begin();
    if (first) queue_.push(request.reaches, EventPhase::arrival, kEntry);
    passing_.insert(place, std::move(request));
  }

  /// The request that is due first has passed the front end.
  void enter_next() {
    if (passing_.empty() || passing_.front().reaches > now_) return;  // an earlier event has seen to it
    const Passing next = std::move(passing_.front());
    passing_.pop_front();
    if (!passing_.empty()) queue_.push(passing_.front().reaches, EventPhase::arrival, kEntry);
    if (journeys_) return journeys_->passed(next.serial);
    enter(next.spec, next.serial, next.sent, next.replica);
  }

  /// The run ends before the request has reached the scheduler.
  void cut(const Passing& request) {
    RequestRecord record;
    record.index = request.serial;
    record.client = request.spec.client;
    record.outcome = Outcome::unfinished;
    record.replica = static_cast<std::uint32_t>(request.replica);
    record.arrival = request.sent;
    record.end = now_;
    record.input = request.spec.input;
    record.output = request.spec.output;
    record.traits = request.spec.traits;
    recorder_.ended(record);
  }

  /// A request of a client reaches the scheduler.
  void enter(const RequestSpec& spec, std::uint32_t serial, SimTime sent, std::size_t replica) {
    const RequestId id = at(replica).submit(spec, serial, serial, sent, now_);
    if (replicas_[replica].instance->alive(id)) give_deadline(sent, replica, id);
    wake(replica);
  }

  void give_deadline(SimTime sent, std::size_t replica, RequestId id) {
    if (!config_.request_timeout) return;
    const SimTime deadline = sent + *config_.request_timeout;
    // Nearly always the last one.
    auto place = deadlines_.end();
    while (place != deadlines_.begin() && std::prev(place)->at > deadline) --place;
    const bool first = place == deadlines_.begin();
    deadlines_.insert(place, {deadline, replica, id});
    if (first) queue_.push(std::max(now_, deadline), EventPhase::timer, kExpire);
  }

  /// Tells the instances when the measured span begins, once that is known.
  void measure() {
    const SimTime begin = recorder_.metrics().begin();
    if (begin == span_begin_) return;
    span_begin_ = begin;
    for (const Replica& one : replicas_) one.instance->measure_from(begin);
    recorder_.measure_from(begin);
    for (LentMemory& lent : lent_) lent.measure_from(begin);
    if (journeys_) journeys_->measure_from(begin);
  }

  void expire() {
    // Every request has the same time-out, so one timer is enough, for the earliest.
    while (!deadlines_.empty()) {
      const Deadline next = deadlines_.front();
      const bool lives =
          journeys_ ? journeys_->lives(next.id.serial) : replicas_[next.replica].instance->alive(next.id);
      if (lives) {
        if (next.at > now_) {
          queue_.push(next.at, EventPhase::timer, kExpire);
          break;
        }
        if (journeys_) {
          journeys_->give_up(next.id.serial);
        } else {
          at(next.replica).expire(next.id, now_);
          wake(next.replica);
        }
      }
      deadlines_.pop_front();
    }
  }

  /// Something has changed for an instance: when nothing runs, its policy is asked once this instant's events are over.
  void wake(std::size_t replica) override {
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
    if (is_fleet_) prefetch_next();
    if (config_.stop != nullptr && config_.stop->load(std::memory_order_relaxed)) {
      over_ = interrupted_ = true;
      return;
    }
    if (by_number_ && to_start_.size() > 1) std::ranges::sort(to_start_);
    // A decision may wake another replica.
    for (std::size_t next = 0; next < to_start_.size();) {
      const std::size_t replica = to_start_[next++];
      replicas_[replica].to_start = false;
      at(replica).start(now_);
      returned(replica);
      wanted(replica);
      called(replica);
      if (++decisions_ >= next_progress_ && config_.on_progress) progress();
    }
    to_start_.clear();
    if (journeys_) journeys_->follow();
  }

  void progress() {
    next_progress_ = decisions_ + config_.progress_iterations;
    Progress progress{.now = now_,
                      .submitted = submitted_,
                      .ended = recorder_.ended(),
                      .waiting = outside(),
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

  // --- failures
  // ---------------------------------------------------------------------------------------------------------

  void change(const ReplicaEvent& event) {
    Replica& one = replicas_[event.replica];
    if (one.up == event.up) return;
    if (event.up) {
      one.down.back().second = now_;
    } else {
      losing_ = true;
      at(event.replica).stop(now_);
      losing_ = false;
      one.add_totals();
      one.down.emplace_back(now_, kNever);
      make_instance(event.replica);
      one.call = kNever;
      called(event.replica);
    }
    one.instance->begin_at(now_);
    one.instance->measure_from(span_begin_);
    returned(event.replica);
    pools_.set_up(event.replica, event.up);
    event.up ? journeys_->came_up() : journeys_->went_down(event.replica);
  }

  // --- the result
  // -------------------------------------------------------------------------------------------------------

  SimulationResult result() {
    SimulationResult result;
    const SimTime end = over_ ? now_ : last_completion_;
    const bool several = replicas_.size() > 1 || !config_.events.empty();
    for (std::size_t i = 0; i < replicas_.size(); ++i) {
      Replica& one = replicas_[i];
      Instance& instance = at(i);
      if (over_ && one.up) {
        instance.stop(now_);
      } else if (several && one.up) {
        instance.rest_until(last_completion_);
      }
      SPILLWAY_CHECK(over_ || !instance.waits_for_handover(), "KV waits to be handed over, and the run has ended");
      one.add_totals();
      if (!one.down.empty()) count_idle_time(one, recorder_.metrics().begin(), end);
      result.instances.push_back(*one.totals);
    }
    if (journeys_) {
      journeys_->stop();
    } else {
      for (const Passing& one : passing_) cut(one);
    }
    for (std::size_t kind = 0; kind < config_.pools.size(); ++kind) {
      const auto [first, last] = replicas_of(kind);
      Engines engines = engines_of(first, last, end);
      result.pools.push_back(recorder_.metrics_of(kind).finish(
          end, engines.totals, engines.gpu_blocks, engines.host_blocks, !interrupted_, engines.fairness,
          std::move(engines.replicas), splits(kind) ? journeys_->handed_over() : std::nullopt));
    }
    Engines all = engines_of(0, replicas_.size(), end);
    ConversationMeter& conversations = recorder_.conversations();
    if (over_) conversations.reached(now_);
    all.totals.live_time = conversations.live_time();
    all.totals.peak_live = conversations.peak();
    result.statistics =
        recorder_.metrics().finish(end, all.totals, all.gpu_blocks, all.host_blocks, !interrupted_, all.fairness,
                                   std::move(all.replicas), journeys_ ? journeys_->handed_over() : std::nullopt);
    if (all.totals.peak_live > 0) result.statistics.conversations = series_.samples();
    result.statistics.links = link_use();
    result.statistics.lending = lending_use(end);
    result.first_rejected = recorder_.first_rejected();
    result.refused = recorder_.refused();
    return result;
  }

  [[nodiscard]] std::vector<LinkUse> link_use() const {
    std::vector<LinkUse> links;
    for (const BytesPerSecond& capacity : config_.handover ? config_.handover->links : config_.links) {
      links.push_back({capacity.value(), 0.0});
    }
    for (std::size_t i = 0; i < replicas_.size(); ++i) {
      const EngineTotals& totals = *replicas_[i].totals;
      const std::array<Bytes, kLinks> moved{totals.moved_h2d, totals.moved_d2h, totals.moved_peer_in,
                                            totals.moved_peer_out, totals.read_by_cpu};
      const auto routes = config_.instances[i].route.all();
      for (std::size_t lane = 0; lane < moved.size(); ++lane) {
        for (const LinkCrossing& crossing : *routes[lane]) {
          links[crossing.link].bytes += static_cast<double>(moved[lane].count() * crossing.gpus);
        }
      }
    }
    const std::vector<double> handed_over = journeys_ ? journeys_->moved() : std::vector<double>();
    for (std::size_t link = 0; link < handed_over.size(); ++link) links[link].bytes += handed_over[link];
    return links;
  }

  [[nodiscard]] std::vector<LendingUse> lending_use(SimTime end) const {
    std::vector<LendingUse> uses;
    for (std::size_t i = 0; i < lent_.size(); ++i) {
      const Loan& loan = config_.loans[i];
      uses.push_back({loan.borrower, loan.lender, loan.memory_bandwidth.value(), lent_[i].figures(end),
                      lent_series_[i].samples()});
    }
    return uses;
  }

  /// Replicas together.
  struct Engines {
    EngineTotals totals{};
    Blocks gpu_blocks{};
    Blocks host_blocks{};
    FairnessTotals fairness{};                  // of a single one
    std::vector<ReplicaStatistics> replicas{};  // of several
  };
  [[nodiscard]] Engines engines_of(std::size_t first, std::size_t last, SimTime end) {
    Engines engines;
    const bool several = last - first > 1 || !config_.events.empty();
    for (std::size_t i = first; i < last; ++i) {
      const Replica& one = replicas_[i];
      if (i == first) {
        engines.totals = *one.totals;
      } else {
        engines.totals.add(*one.totals);
      }
      if (several) {
        engines.replicas.push_back(statistics_of(one, recorder_.metrics().begin(), end));
        engines.replicas.back().pool = config_.handover && pools_.of(i) == config_.handover->answers() ? 1 : 0;
      }
      engines.gpu_blocks += config_.instances[i].kv.gpu_blocks;
      engines.host_blocks += config_.instances[i].kv.host_blocks;
    }
    merge_figures(first, last, engines.totals.figures);
    if (kind_of(first) != kind_of(last - 1)) hide_what_differs(first, last, end, engines);
    if (!several) engines.fairness = replicas_[first].fairness;
    return engines;
  }

  /// Makes the figures of the first replica those of all, each as it merges: means are of the replicas that have one.
  void merge_figures(std::size_t first, std::size_t last, std::vector<PolicyFigure>& figures) const {
    for (PolicyFigure& figure : figures) {
      double sum = 0.0;
      double largest = 0.0;
      std::int64_t count = 0;
      for (std::size_t i = first; i < last; ++i) {
        const std::vector<PolicyFigure>& own = replicas_[i].totals->figures;
        const auto same = std::ranges::find(own, figure.definition, &PolicyFigure::definition);
        if (same == own.end() || !same->value) continue;
        sum += *same->value;
        largest = count == 0 ? *same->value : std::max(largest, *same->value);
        ++count;
      }
      if (count == 0) continue;
      if (figure.definition.merge == Merge::mean) sum /= static_cast<double>(count);
      figure.value = figure.definition.merge == Merge::largest ? largest : sum;
    }
  }

  /// Figures of policies, and of the layers that they stream, say nothing about instances of other kinds. Blocks that
  /// come and go count with their mean number.
  void hide_what_differs(std::size_t first, std::size_t last, SimTime end, Engines& engines) {
    engines.totals.figures.clear();
    engines.totals.layers.reset();
    const double span = to_seconds(end - std::min(recorder_.metrics().begin(), end));
    for (std::size_t i = first; i < last && span > 0.0; ++i) {
      const std::optional<LayerTotals>& layers = replicas_[i].totals->layers;
      if (!layers) continue;
      engines.gpu_blocks -= config_.instances[i].kv.gpu_blocks;
      engines.gpu_blocks += Blocks(std::llround(layers->capacity_time / span));
    }
  }

  static double down_time(const Replica& one, SimTime begin, SimTime end) {
    double time = 0.0;
    for (const auto& [from, to] : one.down) {
      const Duration down = std::min(to, end) - std::max(from, std::min(begin, end));
      time += to_seconds(std::max(Duration{}, down));
    }
    return time;
  }
  /// A replica that was down was idle for the rest of the measured span: an instance does not know where that ends.
  static void count_idle_time(Replica& one, SimTime begin, SimTime end) {
    const double up = to_seconds(end - std::min(begin, end)) - down_time(one, begin, end);
    one.totals->resource_time[static_cast<std::size_t>(Resource::load)] = std::max(0.0, up - one.totals->busy_time);
  }
  static ReplicaStatistics statistics_of(const Replica& one, SimTime begin, SimTime end) {
    return {.sent = one.sent,
            .finished = one.finished,
            .lost = one.lost,
            .engine = *one.totals,
            .jain_index = jain_index(one.fairness),
            .max_service_difference = one.fairness.max_service_difference,
            .down_time = down_time(one, begin, end)};
  }

  static constexpr std::size_t kFleet = 64;  // so many instances do not fit the nearest caches

  /// Where an instance of a replica is, and after its failure the next one.
  struct alignas(Instance) Place {
    std::array<std::byte, sizeof(Instance)> bytes;
  };

  const SimulationConfig& config_;
  Recorder recorder_;
  std::vector<std::optional<LinkCrossing>> buses_;  // by replica
  std::map<std::size_t, HostBus> bus_of_link_;      // policies refer to them
  const bool is_fleet_;
  // Memory for a fleet, as large blocks, as their parts, and as parts that are used again.
  HugePages huge_pages_;
  std::pmr::monotonic_buffer_resource blocks_{HugePages::kPage, &huge_pages_};
  std::pmr::unsynchronized_pool_resource pools_of_blocks_{&blocks_};
  std::pmr::memory_resource* const memory_;
  std::pmr::vector<Place> places_;  // by replica
  std::vector<Replica> replicas_;
  const std::vector<PoolConfig> pool_configs_;
  ReplicaPools pools_;
  std::optional<Journeys> journeys_;  // if requests may change their replica
  bool losing_ = false;               // a replica goes down
  // Replicas concern each other through nothing but the requests that come and end. At one instant they are called, and
  // asked, in order of their numbers, so that it does not matter when each call became known.
  bool by_number_ = false;
  bool puts_off_ = false;  // such calls may also come late: nobody but metrics follows what happens in between
  std::vector<Group> groups_;
  std::optional<HandoverSharing> handover_sharing_;  // of the groups beside hand-overs; empty: there are none
  std::vector<std::size_t> place_in_group_;          // by replica
  std::size_t current_ = 0;
  EventQueue queue_;
  SimTime now_{};
  SimTime last_completion_{};
  SimTime span_begin_ = kNever;
  SimTime next_observation_{};
  ConversationSeries series_;
  std::vector<LentMemory> lent_;            // by loan; instances refer to them
  std::vector<LendingSeries> lent_series_;  // likewise
  std::vector<SimTime> asked_;              // likewise: when the borrower was last woken for what is reclaimed
  std::vector<const Loan*> loan_of_;        // by replica, in which it takes part; empty: there are no loans
  RequestSpec spec_;
  std::vector<SimTime> expected_;      // times of the arrival events in the queue, descending
  std::vector<std::size_t> to_start_;  // instances whose policies are asked at this instant, in order of waking
  std::vector<std::size_t> to_share_;  // groups that share their links anew when this instant ends, in order of calls
  bool over_ = false;
  bool interrupted_ = false;
  std::int64_t submitted_ = 0;
  std::int64_t decisions_ = 0;
  std::int64_t next_progress_ = config_.progress_iterations;  // in decisions
  std::deque<Passing> passing_;                               // in the order in which they reach the scheduler
  std::deque<Deadline> deadlines_;  // ascending; ended requests are skipped when their turn comes
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
