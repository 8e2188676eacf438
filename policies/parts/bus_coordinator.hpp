// Select-N's coordinator in a run: it divides one bus among the instances that stream weights over it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "policies/parts/interval_coordinator.hpp"
#include "sim/api/figure.hpp"
#include "sim/core/units.hpp"

namespace spillway {

/// What all instances on a bus share (sim/api/host_bus.hpp). Instances talk to it through their BusSeat.
///
/// Idle instances do not count. A single busy instance takes the smallest interval that its SLO allows, as with a bus
/// of its own. Several are given the intervals of coordinate_intervals(). They are chosen anew when the batch of one
/// changes, which is the newcomer then, and when one becomes busy or idle. Each instance applies its interval in its
/// next iteration. When no choice keeps below the bus, all take their largest intervals, which ask for the least.
///
/// Source: Select-N, Fig. 8.
class BusCoordinator {
 public:
  explicit BusCoordinator(BytesPerSecond bus) : bus_(bus) {}

 private:
  friend class BusSeat;
  struct Seat {
    std::int64_t gpus = 1;
    bool busy = false;
    BusUser user{};                          // of all its GPUs together
    std::optional<std::int32_t> interval{};  // chosen last; empty before the first choice
  };

  [[nodiscard]] std::size_t take(std::int64_t gpus);
  void run(std::size_t seat, const BusUser& user, SimTime now);
  void rest(std::size_t seat, SimTime now);
  [[nodiscard]] bool admits(std::size_t seat, const BusUser& user, bool residents) const;
  /// The user with the weights of all GPUs of its seat; one more than `layers` stands for kAllResident.
  [[nodiscard]] static BusUser whole(const Seat& seat, const BusUser& user);
  void divide();
  void advance(SimTime now);
  [[nodiscard]] Figures figures() const;

  BytesPerSecond bus_;
  std::vector<Seat> seats_;
  std::vector<std::size_t> busy_;  // the newcomer last
  double asked_ = 0.0;             // bytes/s at the intervals of now
  bool overloaded_ = false;        // no choice keeps below the bus
  SimTime now_{};
  double busy_seconds_ = 0.0;  // in which an instance was busy
  double overloaded_seconds_ = 0.0;
  double asked_bytes_ = 0.0;
};

/// The place of one instance on a bus. It gives its place back when it is destroyed.
class BusSeat {
 public:
  /// `gpus` of the instance stream at the same time.
  BusSeat(std::shared_ptr<BusCoordinator> coordinator, std::int64_t gpus)
      : coordinator_(std::move(coordinator)), seat_(coordinator_->take(gpus)) {}
  ~BusSeat() { coordinator_->rest(seat_, coordinator_->now_); }
  BusSeat(const BusSeat&) = delete;
  BusSeat& operator=(const BusSeat&) = delete;

  /// The interval of the next iteration; empty before the first run(). kAllResident: no layer is on the host.
  [[nodiscard]] std::optional<std::int32_t> interval() const;
  /// The instance runs an iteration of a batch with these bounds, of one of its GPUs. least <= most, and either may be
  /// kAllResident. O(1) when the bounds are those of the iteration before, else as coordinate_intervals().
  void run(const BusUser& user, SimTime now) { coordinator_->run(seat_, user, now); }
  /// Nothing runs any more.
  void rest(SimTime now) { coordinator_->rest(seat_, now); }
  /// May a request join, with which the batch would have these bounds? `residents`: the batch has other requests.
  ///
  /// A request with which no interval would meet both the SLO and the memory is refused, unless it would be alone in
  /// its batch. A request with which the instances would need all of the bus, even at their largest intervals, is
  /// refused if one that runs requests would get less than it needs: the bus gives each GPU an even share, and what one
  /// leaves to the others. Otherwise it is served at the largest interval. O(instances * log).
  [[nodiscard]] bool admits(const BusUser& user, bool residents) const {
    return coordinator_->admits(seat_, user, residents);
  }
  /// Of the whole bus, as bus_figures() declares them.
  [[nodiscard]] Figures figures() const { return coordinator_->figures(); }

 private:
  std::shared_ptr<BusCoordinator> coordinator_;
  std::size_t seat_;
};

/// Requests that were rejected because BusSeat::admits refuses them, and refusals after which another replica was
/// asked.
inline constexpr const char* kRefusedRequests = "refused_requests";
inline constexpr const char* kReroutedRequests = "rerouted_requests";
/// The figures of BusSeat, and these two.
[[nodiscard]] std::vector<FigureDefinition> bus_figures();

}  // namespace spillway
