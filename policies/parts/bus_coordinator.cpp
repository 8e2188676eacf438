#include "policies/parts/bus_coordinator.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "policies/parts/quantities.hpp"
#include "policies/parts/weight_stream.hpp"
#include "sim/core/error.hpp"

namespace spillway {
namespace {

constexpr const char* kAsked = "mean_bus_demand_gb_per_s";
constexpr const char* kOverload = "bus_overload_fraction";

/// What an instance needs of the bus.
struct Need {
  double rate = 0.0;  // bytes/s of all its GPUs
  std::int64_t gpus = 1;
  bool residents = true;  // it runs requests already
  [[nodiscard]] double each() const { return rate / real(gpus); }
};

/// Does an instance that runs requests get less than it needs, when the bus gives each GPU an even share and what one
/// leaves goes to the others?
bool one_falls_short(std::vector<Need> needs, double bus) {
  std::ranges::sort(needs, {}, &Need::each);
  std::int64_t gpus = 0;
  for (const Need& need : needs) gpus += need.gpus;
  auto first_short = needs.begin();
  while (first_short != needs.end() && first_short->each() * real(gpus) <= bus) {
    bus -= first_short->rate;
    gpus -= first_short->gpus;
    ++first_short;
  }
  return std::any_of(first_short, needs.end(), [](const Need& need) { return need.residents; });
}

}  // namespace

std::size_t BusCoordinator::take(std::int64_t gpus) {
  seats_.push_back({.gpus = gpus});
  return seats_.size() - 1;
}

BusUser BusCoordinator::whole(const Seat& seat, const BusUser& user) {
  BusUser all = user;
  all.layer = user.layer * seat.gpus;
  all.least = std::min(user.least, user.layers + 1);
  all.most = std::min(user.most, user.layers + 1);
  return all;
}

void BusCoordinator::run(std::size_t seat, const BusUser& user, SimTime now) {
  Seat& mine = seats_[seat];
  const BusUser all = whole(mine, user);
  if (mine.busy && mine.user == all) return;
  advance(now);
  mine.user = all;
  mine.busy = true;
  std::erase(busy_, seat);
  busy_.push_back(seat);
  divide();
}

void BusCoordinator::rest(std::size_t seat, SimTime now) {
  Seat& mine = seats_[seat];
  if (!mine.busy) return;
  advance(now);
  mine.busy = false;
  std::erase(busy_, seat);
  divide();
}

void BusCoordinator::divide() {
  std::vector<BusUser> users;
  users.reserve(busy_.size());
  for (const std::size_t seat : busy_) users.push_back(seats_[seat].user);
  std::vector<std::int32_t> intervals;
  overloaded_ = false;
  if (users.size() == 1) {
    intervals = {users.front().least};
  } else if (!users.empty()) {
    intervals = coordinate_intervals(users, bus_).intervals;
    overloaded_ = intervals.empty();
    if (overloaded_) std::ranges::transform(users, std::back_inserter(intervals), &BusUser::most);
  }
  asked_ = 0.0;
  for (std::size_t i = 0; i < users.size(); ++i) {
    seats_[busy_[i]].interval = intervals[i];
    asked_ += streaming_rate(users[i], intervals[i]).value();
  }
}

bool BusCoordinator::admits(std::size_t seat, const BusUser& user, bool residents) const {
  const BusUser mine = whole(seats_[seat], user);
  if (mine.least > mine.most && residents) return false;
  std::vector<Need> needs{{streaming_rate(mine, mine.most).value(), seats_[seat].gpus, residents}};
  double sum = needs.front().rate;
  if (sum == 0.0) return true;  // it leaves the bus alone
  for (const std::size_t other : busy_) {
    if (other == seat) continue;
    const BusUser& peer = seats_[other].user;
    needs.push_back({.rate = streaming_rate(peer, peer.most).value(), .gpus = seats_[other].gpus});
    sum += needs.back().rate;
  }
  return needs.size() == 1 || sum < bus_.value() || !one_falls_short(std::move(needs), bus_.value());
}

void BusCoordinator::advance(SimTime now) {
  const double seconds = to_seconds(now - std::exchange(now_, now));
  if (busy_.empty()) return;
  busy_seconds_ += seconds;
  asked_bytes_ += asked_ * seconds;
  if (overloaded_) overloaded_seconds_ += seconds;
}

Figures BusCoordinator::figures() const {
  if (busy_seconds_ == 0.0) return {};
  return {{kAsked, gigabytes(asked_bytes_ / busy_seconds_)}, {kOverload, overloaded_seconds_ / busy_seconds_}};
}

std::optional<std::int32_t> BusSeat::interval() const {
  const BusCoordinator::Seat& mine = coordinator_->seats_[seat_];
  const bool resident = mine.interval && *mine.interval > mine.user.layers;
  return resident ? kAllResident : mine.interval;
}

std::vector<FigureDefinition> bus_figures() {
  return {{kAsked, "GB/s",
           "Bytes of weights per second that the instances on one bus need, with the intervals of their coordinator "
           "and with their SLOs as iteration times. Mean over the time in which at least one of them is busy, in the "
           "whole run. Null for instances that share no bus, or are not coordinated."},
          {kOverload, "fraction",
           "Share of the time in which the bus is overloaded: no choice of intervals keeps the demand below its "
           "bandwidth, so SLOs may be missed. Relative to the time in which at least one instance on the bus is busy. "
           "Null for instances that share no bus, or are not coordinated.",
           Better::smaller},
          {kRefusedRequests, "requests",
           "Requests that were rejected because requests that ran would have missed their SLO: no choice of intervals "
           "keeps the instances below the bandwidth of the bus, or leaves enough memory. With several replicas, a "
           "request is rejected only after every replica that is up has refused it. All instances, in the whole run. "
           "Null for instances that share no bus, or are not coordinated.",
           Better::smaller, Merge::sum},
          {kReroutedRequests,
           "requests",
           "Refusals, for the reason of refused_requests, after which the request was sent to another replica. A "
           "request counts once per refusal. All instances, in the whole run. Null for instances that share no bus, or "
           "are not coordinated.",
           {},
           Merge::sum}};
}

}  // namespace spillway
