#include "tests/oracle/naive_cluster.hpp"

#include <algorithm>
#include <cmath>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace spillway::oracle {
namespace {

struct ClusterRequest {
  RequestSpec spec{};  // its arrival is when its client sent it
  SimTime end = kNever;
  SimTime deadline = kNever;  // once it has reached a scheduler or has had to wait for a replica
  bool given_up = false;
};

class NaiveCluster final : private NaiveSurroundings {
 public:
  explicit NaiveCluster(const NaiveClusterConfig& config) : config_(config), of_each_(config.engine) {
    of_each_.requests.clear();
    of_each_.follows.clear();
    for (std::size_t i = 0; i < config.replicas; ++i) replicas_.push_back(make_naive_replica(of_each_, *this));
    router_ = make_naive_router(config.routing, config.engine.block_tokens, replicas_, 0, config.replicas);
    for (std::size_t i = 0; i < config.engine.requests.size(); ++i) {
      if (config.engine.follows[i].after < 0) coming_.emplace(config.engine.requests[i].arrival, i);
    }
  }

  NaiveClusterResult run() {
    const auto live = [](const ClusterRequest& one) { return one.end == kNever; };
    do {
      NaiveReplica* first = nullptr;
      NaiveInstant of_engine(kNever, 0, 0);
      for (const auto& replica : replicas_) {
        auto next = replica ? replica->next_event() : std::nullopt;
        // Replicas that stay up go on in order of their numbers, others in that in which their events became known.
        if (next && config_.failures.empty()) std::get<2>(*next) = 0;
        if (!next || *next >= of_engine) continue;
        of_engine = *next;
        first = replica.get();
      }
      const bool fails = failed_ < config_.failures.size();
      const NaiveInstant failure(fails ? config_.failures[failed_].at : kNever, 2, 0);
      const std::optional<std::size_t> impatient = next_to_give_up();
      const NaiveInstant deadline(impatient ? requests_[*impatient].deadline : kNever, 2, 1);
      const NaiveInstant entry(on_the_way_.empty() ? kNever : enters(on_the_way_.front()), 3, 0);
      const NaiveInstant sending(coming_.empty() ? kNever : coming_.begin()->first, 3, 1);
      const NaiveInstant next = std::min({of_engine, failure, deadline, entry, sending});
      const auto& until = config_.engine.until;
      if (until && NaiveInstant(*until, 6, 0) < next) {
        cut();
        break;
      }
      if (std::get<0>(next) == kNever) {
        give_up_waiting();
        break;
      }
      now_ = std::get<0>(next);
      if (next == of_engine) {
        first->step();
      } else if (next == failure) {
        change(config_.failures[failed_++]);
      } else if (next == deadline) {
        give_up(*impatient);
      } else if (next == entry) {
        enter();
      } else {
        arrive();
      }
    } while (!coming_.empty() || std::any_of(requests_.begin(), requests_.end(), live));
    result_.sent.assign(replicas_.size(), 0);
    for (const Sending& one : router_->sent()) ++result_.sent[one.replica];
    for (const auto& replica : replicas_) {
      if (replica && !over_) result_.replicas.push_back(replica->stop(std::nullopt));
    }
    return result_;
  }

 private:
  // --- clients and the front end
  [[nodiscard]] SimTime enters(std::size_t sending) const {
    return router_->sent()[sending].at + config_.engine.front_end;
  }
  void arrive() {
    ClusterRequest& request = requests_.emplace_back();
    request.spec = config_.engine.requests[coming_.begin()->second];
    request.spec.arrival = now_;
    coming_.erase(coming_.begin());
    send(requests_.size() - 1);
  }
  void send(std::size_t serial) {
    if (!router_->any_up()) {
      waiting_.push_back(serial);
      may_give_up(serial);
      return;
    }
    on_the_way_.push_back(router_->send(serial, requests_[serial].spec, now_));
    if (config_.engine.front_end == Duration{}) enter();
  }
  /// What was sent first has passed the front end. At one instant that comes before what is sent then.
  void enter() {
    const std::size_t sending = on_the_way_.front();
    on_the_way_.pop_front();
    const std::size_t serial = router_->sent()[sending].serial;
    const std::unique_ptr<NaiveReplica>& replica = replicas_[router_->sent()[sending].replica];
    if (!replica) {
      router_->sent()[sending].end = now_;
      return config_.retry ? send(serial) : end(serial, Outcome::lost);
    }
    router_->sent()[sending].entered = true;
    const auto number = static_cast<std::uint32_t>(serial);
    replica->enter(requests_[serial].spec, number, number, now_);
    if (requests_[serial].end == kNever) may_give_up(serial);
  }
  void may_give_up(std::size_t serial) {
    const auto& timeout = config_.engine.request_timeout;
    ClusterRequest& request = requests_[serial];
    if (!timeout || request.deadline != kNever) return;
    request.deadline = std::max(now_, request.spec.arrival + *timeout);
    patience_.push_back(serial);
  }
  [[nodiscard]] std::vector<std::size_t> outside() const {
    std::vector<std::size_t> serials(waiting_.begin(), waiting_.end());
    for (const std::size_t sending : on_the_way_) serials.push_back(router_->sent()[sending].serial);
    return serials;
  }
  /// The request whose client gives up next: of equal deadlines the one that was known first.
  [[nodiscard]] std::optional<std::size_t> next_to_give_up() const {
    std::optional<std::size_t> next;
    for (const std::size_t serial : patience_) {
      const ClusterRequest& one = requests_[serial];
      if (one.end != kNever || one.given_up) continue;
      if (!next || one.deadline < requests_[*next].deadline) next = serial;
    }
    return next;
  }
  void give_up(std::size_t serial) {
    requests_[serial].given_up = true;
    const Sending* const last = last_sending(serial);
    if (last != nullptr && last->entered && last->end == kNever) {
      return replicas_[last->replica]->expire(static_cast<std::uint32_t>(serial), now_);
    }
    end(serial, Outcome::timed_out);
    waiting_.remove(serial);
    on_the_way_.remove_if([&](std::size_t sending) { return router_->sent()[sending].serial == serial; });
  }
  void give_up_waiting() {
    if (waiting_.empty()) throw std::logic_error("requests wait for ever");
    for (const std::size_t serial : waiting_) end(serial, Outcome::lost);
  }
  void cut() {
    over_ = true;
    now_ = *config_.engine.until;
    for (const auto& replica : replicas_) {
      if (replica) result_.replicas.push_back(replica->stop(now_));
    }
    for (const std::size_t serial : outside()) end(serial, Outcome::unfinished);
  }
  /// A request ends in no engine: nothing of it has been computed.
  void end(std::size_t serial, Outcome outcome) {
    const RequestSpec& spec = requests_[serial].spec;
    RequestRecord record;
    record.index = serial;
    record.client = spec.client;
    record.outcome = outcome;
    record.arrival = spec.arrival;
    record.end = now_;
    record.input = spec.input;
    record.output = spec.output;
    record.traits = spec.traits;
    ended(record);
  }

  // --- replicas that go down
  void change(const NaiveFailure& failure) {
    std::unique_ptr<NaiveReplica>& replica = replicas_[failure.replica];
    if (failure.up) {
      replica = make_naive_replica(of_each_, *this);
      for (const std::size_t serial : std::exchange(waiting_, {})) send(serial);
      return;
    }
    const std::vector<RequestRecord> live = replica->go_down(now_);
    replica.reset();
    router_->forget(failure.replica);
    for (const RequestRecord& record : live) {
      if (record.outcome != Outcome::lost || !config_.retry) {
        ended(record);
      } else {
        last_sending(record.index)->end = now_;
        send(record.index);
      }
    }
  }

  // --- what the engines see
  [[nodiscard]] std::uint64_t next_sequence() override { return sequence_++; }
  [[nodiscard]] SimTime next_turn(std::int64_t conversation) const override {
    SimTime next = kNever;
    for (const auto& [time, position] : coming_) {
      if (config_.engine.requests[position].traits.conversation == conversation) next = std::min(next, time);
    }
    for (const ClusterRequest& one : requests_) {
      const bool live = one.end == kNever;
      if (live && one.spec.traits.conversation == conversation) next = std::min(next, one.spec.arrival);
    }
    return next;
  }
  /// Null: the request was never sent.
  [[nodiscard]] Sending* last_sending(std::size_t serial) {
    Sending* last = nullptr;
    for (Sending& one : router_->sent()) {
      if (one.serial == serial) last = &one;
    }
    return last;
  }
  void ended(const RequestRecord& of_engine) override {
    requests_[of_engine.index].end = now_;
    RequestRecord record = of_engine;
    if (Sending* const last = last_sending(record.index); last != nullptr) {
      last->end = std::min(last->end, now_);
      record.replica = static_cast<std::uint32_t>(last->replica);
    }
    result_.records.push_back(record);
    if (record.outcome != Outcome::finished) return;
    const std::vector<Follows>& follows = config_.engine.follows;
    for (std::size_t i = 0; i < follows.size(); ++i) {
      if (follows[i].after >= 0 && follows[i].after == record.traits.conversation) {
        coming_.emplace(now_ + follows[i].think, i);
      }
    }
  }

  const NaiveClusterConfig& config_;
  NaiveConfig of_each_;
  std::vector<std::unique_ptr<NaiveReplica>> replicas_;  // null: down
  std::multimap<SimTime, std::size_t> coming_;           // positions of requests that clients will send, if known
  std::vector<ClusterRequest> requests_;                 // by serial number
  std::unique_ptr<NaiveRouter> router_;
  std::vector<std::size_t> patience_;  // serial numbers, in the order of knowing their deadlines
  std::list<std::size_t> on_the_way_;  // of what the router has sent: what is in the front end
  std::list<std::size_t> waiting_;     // serial numbers of those that wait for a replica
  std::size_t failed_ = 0;             // failures so far
  std::uint64_t sequence_ = 0;
  SimTime now_{};
  bool over_ = false;
  NaiveClusterResult result_;
};

}  // namespace

NaiveClusterResult run_naive_cluster(const NaiveClusterConfig& config) { return NaiveCluster(config).run(); }

}  // namespace spillway::oracle
