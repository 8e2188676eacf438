// The replicas of a run, and the pools of them that a router chooses from.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sim/api/router.hpp"
#include "sim/core/units.hpp"
#include "sim/engine/instance.hpp"
#include "sim/engine/pool_config.hpp"

namespace spillway {

/// One instance and what the run knows of it. Every event of the instance needs the first line.
struct alignas(64) Replica {
  static constexpr std::size_t kNoGroup = SIZE_MAX;
  /// Ends an instance whose memory belongs to another object.
  struct Destroy {
    void operator()(Instance* instance) const { std::destroy_at(instance); }
  };
  std::unique_ptr<Instance, Destroy> instance;
  SimTime call = kNever;  // of its earliest event in the queue
  bool to_start = false;  // its policy will be asked at this instant
  std::size_t group = kNoGroup;
  bool up = true;
  // Requests:
  std::int64_t sent = 0;
  std::int64_t ended = 0;  // of them, lost ones included
  std::int64_t finished = 0;
  std::int64_t lost = 0;                            // when it went down
  std::optional<EngineTotals> totals{};             // of its instances so far that have ended
  FairnessTotals fairness{};                        // of them, too
  std::vector<std::pair<SimTime, SimTime>> down{};  // from, until; kNever: to the end
  /// The instance has ended. Throws InvariantError as Instance::settle_links does.
  void add_totals() {
    instance->settle_links();
    fairness.add(instance->fairness());
    if (totals) {
      totals->add(instance->totals());
    } else {
      totals = instance->totals();
    }
  }
};

/// Replicas of one kind behind a router, which chooses among those that are up. Replicas are known by their numbers in
/// the run; the router knows them from 0.
class Pool final : private Replicas {
 public:
  /// A router is about to look at an instance, whose number in the run it is: lets it do what it has put off.
  using LookAt = std::function<void(std::size_t replica)>;
  /// The replicas from `first` on. They and `now`, the run's clock, must outlive the pool and stay where they are.
  /// Without a router the first replica serves everything.
  Pool(std::size_t first, std::span<Replica> replicas, const SimTime& now, const MakeRouter& make_router,
       LookAt look_at);

  [[nodiscard]] bool any_up() const { return !up_.empty(); }
  /// The replica that serves a request, which counts as sent there. Some replica must be up.
  [[nodiscard]] std::size_t send(const RequestSpec& request);
  /// Whether a replica is up that is not among those that have refused a request. O(replicas), as the next one.
  [[nodiscard]] bool any_other(std::span<const std::size_t> refused_by) const;
  /// Of these replicas, the one with the fewest outstanding requests serves the request, the lowest of equal ones. It
  /// counts as sent there, too. The router hears of it, but does not choose: most routers would name the same replica
  /// again.
  [[nodiscard]] std::size_t send_on(const RequestSpec& request, std::span<const std::size_t> refused_by);
  /// A request that was sent to the replica has ended.
  void ended(std::size_t replica, Outcome outcome);
  /// The replica goes down, after its requests have ended, or comes up. O(replicas).
  void set_up(std::size_t replica, bool up);

 private:
  [[nodiscard]] std::size_t count() const override { return replicas_.size(); }
  [[nodiscard]] SimTime now() const override { return now_; }
  [[nodiscard]] std::span<const std::size_t> up() const override { return up_; }
  [[nodiscard]] std::int64_t outstanding(std::size_t replica) const override {
    return replicas_[replica].sent - replicas_[replica].ended;
  }
  [[nodiscard]] double kv_used(std::size_t replica) const override;
  /// The replica, as the router knows it, gets a request. Returns its number in the run.
  [[nodiscard]] std::size_t count_sent(std::size_t replica);
  [[nodiscard]] bool is_among(std::span<const std::size_t> refused_by, std::size_t replica) const {
    return std::ranges::find(refused_by, first_ + replica) != refused_by.end();
  }

  const std::size_t first_;
  std::span<Replica> replicas_;
  const SimTime& now_;
  const LookAt look_at_;
  std::vector<std::size_t> up_;  // as the router knows them, ascending
  std::unique_ptr<Router> router_;
};

/// All replicas of a run, in order: pools of instances of different kinds, which serve requests of their own. The kind
/// that hands KV over has two: that of prompts and then that of answers.
class ReplicaPools {
 public:
  /// As Pool. The pools together are all replicas.
  ReplicaPools(std::span<Replica> replicas, const SimTime& now, std::span<const PoolConfig> pools,
               const Pool::LookAt& look_at);

  [[nodiscard]] std::size_t count() const { return pools_.size(); }
  [[nodiscard]] std::size_t of(std::size_t replica) const { return pool_of_[replica]; }
  /// The numbers of its replicas.
  [[nodiscard]] std::pair<std::size_t, std::size_t> range(std::size_t pool) const {
    const auto [first, end] = std::equal_range(pool_of_.begin(), pool_of_.end(), pool);
    return {static_cast<std::size_t>(first - pool_of_.begin()), static_cast<std::size_t>(end - pool_of_.begin())};
  }
  [[nodiscard]] bool any_up(std::size_t pool) const { return pools_[pool]->any_up(); }
  [[nodiscard]] std::size_t send(const RequestSpec& request, std::size_t pool) { return pools_[pool]->send(request); }
  [[nodiscard]] bool any_other(std::size_t pool, std::span<const std::size_t> refused_by) const {
    return pools_[pool]->any_other(refused_by);
  }
  [[nodiscard]] std::size_t send_on(const RequestSpec& request, std::size_t pool,
                                    std::span<const std::size_t> refused_by) {
    return pools_[pool]->send_on(request, refused_by);
  }
  void ended(std::size_t replica, Outcome outcome) { pools_[of(replica)]->ended(replica, outcome); }
  void set_up(std::size_t replica, bool up) { pools_[of(replica)]->set_up(replica, up); }

 private:
  std::vector<std::unique_ptr<Pool>> pools_;
  std::vector<std::size_t> pool_of_;  // by replica
};

}  // namespace spillway
