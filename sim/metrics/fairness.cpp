#include "sim/metrics/fairness.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "sim/core/error.hpp"

namespace spillway {
namespace {

constexpr std::int64_t kClientsPerIteration = 8;  // that observing may cost, on average

}  // namespace

std::optional<double> jain_index(std::span<const double> values) {
  double sum = 0.0;
  double squares = 0.0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  if (values.size() < 2 || !(squares > 0.0)) return std::nullopt;
  return sum * sum / (static_cast<double>(values.size()) * squares);
}

std::optional<double> jain_index(const FairnessTotals& totals) {
  std::vector<double> rates;
  for (const ClientService& client : totals.clients) {
    if (client.active.count() > 0) rates.push_back(static_cast<double>(client.service) / to_seconds(client.active));
  }
  return jain_index(rates);
}

void FairnessTotals::add(const FairnessTotals& other) {
  if (other.max_service_difference) {
    max_service_difference = std::max(max_service_difference.value_or(0), *other.max_service_difference);
  }
  observations += other.observations;
  ClientNumbers numbers;
  for (const ClientService& client : clients) static_cast<void>(numbers.of(client.client));
  for (const ClientService& client : other.clients) {
    const std::size_t number = numbers.of(client.client);
    if (number == clients.size()) {
      clients.push_back(client);
    } else {
      clients[number].service += client.service;
      clients[number].active += client.active;
    }
  }
}

void FairnessMeter::begin(SimTime begin) {
  measuring_ = true;
  for (Client& client : clients_) {
    client.before_begin = service_of(client);
    client.active = Duration(0);
    client.active_since = std::max(client.active_since, begin);
  }
}

void FairnessMeter::add(std::uint32_t client) {
  clients_.emplace_back().client = client;
  period_ = std::max<std::int64_t>(1, static_cast<std::int64_t>(clients_.size()) / kClientsPerIteration);
  // The first client was alone until now, and nothing was ordered.
  if (clients_.size() == 2 && clients_.front().waiting > 0) enter_backlog(0);
}

void FairnessMeter::enter_backlog(std::int32_t client) {
  Client& c = at(client);
  if (backlogged_ > 0) c.lift += std::max<std::int64_t>(0, least_counter() - counter_of(c));
  insert(client);
  ++backlogged_;
}

void FairnessMeter::leave_backlog(std::int32_t client) {
  remove(client);
  --backlogged_;
}

std::int64_t FairnessMeter::least_counter() const {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const std::size_t rate : rates_) least = std::min(least, counter_of(at(groups_[rate].heap.front())));
  return least;
}

void FairnessMeter::observe() {
  ++observations_;
  std::int64_t most = std::numeric_limits<std::int64_t>::min();
  for (const std::size_t rate : rates_) {
    for (const std::int32_t client : groups_[rate].heap) most = std::max(most, counter_of(at(client)));
  }
  max_difference_ = std::max(max_difference_, most - least_counter());
}

void FairnessMeter::insert(std::int32_t client) {
  const auto rate = static_cast<std::size_t>(at(client).decoding);
  if (rate >= groups_.size()) groups_.resize(rate + 1);
  Group& group = groups_[rate];
  if (group.heap.empty()) {
    group.listed_at = rates_.size();
    rates_.push_back(rate);
  }
  group.heap.push_back(client);
  sift_up(group.heap, group.heap.size() - 1);
}

void FairnessMeter::remove(std::int32_t client) {
  Group& group = group_of(client);
  const auto hole = static_cast<std::size_t>(std::exchange(at(client).at, -1));
  const std::int32_t moved = group.heap.back();
  group.heap.pop_back();
  if (hole < group.heap.size()) {
    group.heap[hole] = moved;
    sift_up(group.heap, hole);
    sift_down(group.heap, static_cast<std::size_t>(at(moved).at));
  }
  if (!group.heap.empty()) return;
  rates_[group.listed_at] = rates_.back();
  groups_[rates_[group.listed_at]].listed_at = group.listed_at;
  rates_.pop_back();
}

void FairnessMeter::sift_up(std::vector<std::int32_t>& heap, std::size_t from) {
  const std::int32_t client = heap[from];
  while (from > 0 && key(client) < key(heap[(from - 1) / 2])) {
    heap[from] = heap[(from - 1) / 2];
    at(heap[from]).at = static_cast<std::int32_t>(from);
    from = (from - 1) / 2;
  }
  heap[from] = client;
  at(client).at = static_cast<std::int32_t>(from);
}

void FairnessMeter::sift_down(std::vector<std::int32_t>& heap, std::size_t from) {
  const std::int32_t client = heap[from];
  for (std::size_t child = 2 * from + 1; child < heap.size(); child = 2 * from + 1) {
    if (child + 1 < heap.size() && key(heap[child + 1]) < key(heap[child])) ++child;
    if (key(client) <= key(heap[child])) break;
    heap[from] = heap[child];
    at(heap[from]).at = static_cast<std::int32_t>(from);
    from = child;
  }
  heap[from] = client;
  at(client).at = static_cast<std::int32_t>(from);
}

FairnessTotals FairnessMeter::totals() const {
  FairnessTotals totals;
  totals.observations = observations_;
  if (observations_ > 0) totals.max_service_difference = max_difference_;
  if (!measuring_) return totals;
  totals.clients.reserve(clients_.size());
  for (const Client& client : clients_) {
    SPILLWAY_CHECK(client.live == 0, "fairness is summed up while a request is live");
    totals.clients.push_back({client.client, service_of(client) - client.before_begin, client.active});
  }
  return totals;
}

}  // namespace spillway
