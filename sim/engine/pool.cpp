#include "sim/engine/pool.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

namespace spillway {

Pool::Pool(std::size_t first, std::span<Replica> replicas, const SimTime& now, const MakeRouter& make_router,
           LookAt look_at)
    : first_(first), replicas_(replicas), now_(now), look_at_(std::move(look_at)), up_(replicas.size()) {
  std::iota(up_.begin(), up_.end(), std::size_t{0});
  if (make_router) router_ = make_router(*this);
}

std::size_t Pool::send(const RequestSpec& request) {
  SPILLWAY_CHECK(any_up(), "a request is sent while no replica is up");
  const std::size_t chosen = router_ ? router_->choose(request) : up_.front();
  SPILLWAY_CHECK(chosen < replicas_.size() && replicas_[chosen].up, "a request was routed to a replica that is not up");
  return count_sent(chosen);
}

std::size_t Pool::count_sent(std::size_t replica) {
  ++replicas_[replica].sent;
  return first_ + replica;
}

bool Pool::any_other(std::span<const std::size_t> refused_by) const {
  return std::ranges::any_of(up_, [&](std::size_t replica) { return !is_among(refused_by, replica); });
}

std::size_t Pool::send_on(const RequestSpec& request, std::span<const std::size_t> refused_by) {
  SPILLWAY_CHECK(any_other(refused_by), "a request is sent on while no other replica is up");
  const auto order = [&](std::size_t replica) {
    return std::tuple(is_among(refused_by, replica), outstanding(replica));
  };
  const std::size_t chosen = *std::ranges::min_element(up_, {}, order);
  if (router_) router_->sent_on(request, chosen);
  return count_sent(chosen);
}

void Pool::ended(std::size_t replica, Outcome outcome) {
  Replica& one = replicas_[replica - first_];
  ++one.ended;
  one.finished += outcome == Outcome::finished ? 1 : 0;
  if (router_) router_->ended(replica - first_);
}

void Pool::set_up(std::size_t replica, bool up) {
  const std::size_t number = replica - first_;
  replicas_[number].up = up;
  const auto place = std::ranges::lower_bound(up_, number);
  if (up) {
    up_.insert(place, number);
  } else {
    up_.erase(place);
  }
  if (router_) router_->changed(number, up);
}

double Pool::kv_used(std::size_t replica) const {
  look_at_(first_ + replica);
  const Instance& instance = *replicas_[replica].instance;
  const auto number = [](Blocks blocks) { return static_cast<double>(blocks.count()); };
  return number(instance.gpu_blocks_used()) / number(instance.tier(kGpuTier).total);
}

ReplicaPools::ReplicaPools(std::span<Replica> replicas, const SimTime& now, std::span<const PoolConfig> pools,
                           const Pool::LookAt& look_at) {
  for (const PoolConfig& pool : pools) {
    const std::size_t first = pool_of_.size();
    SPILLWAY_CHECK(0 < pool.replicas && pool.replicas <= replicas.size() - first, "a pool without a replica");
    pool_of_.resize(first + pool.replicas, pools_.size());
    pools_.push_back(std::make_unique<Pool>(first, replicas.subspan(first, pool.replicas), now, pool.router, look_at));
  }
  SPILLWAY_CHECK(pool_of_.size() == replicas.size(), "a replica without a pool");
}

}  // namespace spillway
