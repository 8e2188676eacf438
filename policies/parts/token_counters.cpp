#include "policies/parts/token_counters.hpp"

#include <algorithm>

namespace spillway {

std::size_t TokenCounters::index(std::uint32_t name) {
  const auto [at, fresh] = by_name_.try_emplace(name, clients_.size());
  if (fresh) clients_.emplace_back();
  return at->second;
}

double TokenCounters::step_price(const Client& client, std::int64_t step) const {
  if (!prices_.profile) return prices_.token(0, 1) * static_cast<double>(client.running.size());
  double price = 0.0;
  for (const Running& request : client.running) price += prices_.token(request.input, step - request.first_step);
  return price;
}

TokenCounters::Client& TokenCounters::settled(std::size_t c) {
  Client& client = clients_[c];
  if (!prices_.profile) {
    client.counter += step_price(client, steps_) * static_cast<double>(steps_ - client.settled);
  } else if (!client.running.empty()) {
    for (std::int64_t step = client.settled + 1; step <= steps_; ++step) client.counter += step_price(client, step);
  }
  client.settled = steps_;
  return client;
}

std::size_t TokenCounters::poorer(std::size_t a, std::size_t b) {
  if (a == kNobody || b == kNobody) return std::min(a, b);
  return std::pair(settled(a).counter, a) < std::pair(settled(b).counter, b) ? a : b;
}

std::size_t TokenCounters::poorest() {
  std::size_t best = resting_.empty() ? kNobody : resting_.begin()->second;
  for (const std::size_t c : running_) {
    if (clients_[c].waiting > 0) best = poorer(best, c);
  }
  return best;
}

void TokenCounters::take_out(std::size_t c) {
  const Client& client = clients_[c];
  if (client.waiting > 0 && client.running.empty()) resting_.erase({client.counter, c});
}

void TokenCounters::put_back(std::size_t c) {
  const Client& client = clients_[c];
  if (client.waiting > 0 && client.running.empty()) resting_.insert({client.counter, c});
}

void TokenCounters::arrived(const RequestView& request) {
  const std::size_t c = index(request.client);
  if (clients_[c].waiting == 0) {
    std::size_t level = poorest();
    if (level == kNobody && lifts_to_last_left_) level = last_left_;
    if (level != kNobody) settled(c).counter = std::max(settled(c).counter, settled(level).counter);
  }
  take_out(c);
  clients_[c].queue.push_back(request.id);
  ++clients_[c].waiting;
  put_back(c);
}

void TokenCounters::one_waits_less(std::size_t c) {
  take_out(c);
  Client& client = clients_[c];
  if (--client.waiting == 0) {
    std::vector<RequestId>().swap(client.queue);
    client.head = 0;
    last_left_ = c;
  }
  put_back(c);
}

void TokenCounters::dropped(std::uint32_t client) { one_waits_less(index(client)); }

RequestId TokenCounters::next(const View& view) {
  const std::size_t c = poorest();
  if (c == kNobody) return kNoRequest;
  Client& client = clients_[c];
  while (!view.alive(client.queue[client.head])) ++client.head;
  return client.queue[client.head];
}

void TokenCounters::pop(std::uint32_t client) {
  const std::size_t c = index(client);
  ++clients_[c].head;
  one_waits_less(c);
}

void TokenCounters::joined(const RequestView& request) {
  const std::size_t c = index(request.client);
  take_out(c);
  Client& client = settled(c);
  if (client.running.empty()) {
    client.runs_at = running_.size();
    running_.push_back(c);
  }
  client.counter += prices_.prompt(request.input.count());
  // The prompt's iteration gives its first token, and the first decode step the second.
  client.running.push_back({request.id, request.input.count(), steps_ - 1});
}

void TokenCounters::left(RequestId id, std::uint32_t name) {
  const std::size_t c = index(name);
  Client& client = settled(c);
  std::erase_if(client.running, [&](const Running& request) { return request.id == id; });
  if (!client.running.empty()) return;
  running_[client.runs_at] = running_.back();
  clients_[running_.back()].runs_at = client.runs_at;
  running_.pop_back();
  put_back(c);
}

void TokenCounters::pay_again() {
  for (const std::size_t c : running_) settled(c).counter += step_price(clients_[c], steps_);
}

}  // namespace spillway
