// Virtual token counters: what each client has paid for the tokens that it was given.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "sim/api/view.hpp"

namespace spillway {

/// What a client pays for a prompt of p tokens, and for the q-th token of its answer.
struct Prices {
  bool profile = false;  // h(p, q), fitted to the time that a request takes, instead of 1 and 2

  [[nodiscard]] double prompt(std::int64_t p) const { return profile ? h(p, 0) : static_cast<double>(p); }
  [[nodiscard]] double token(std::int64_t p, std::int64_t q) const { return profile ? h(p, q) - h(p, q - 1) : 2.0; }
  static double h(std::int64_t input_tokens, std::int64_t output_tokens) {
    const auto p = static_cast<double>(input_tokens);
    const auto q = static_cast<double>(output_tokens);
    return 0.21001891 * p + 0.10075395 * q + 0.0039868 * p * q + 0.00324733 * q * q + 1.14601454;
  }
};

/// The clients, in the order in which they were first seen: who waits, and what each has paid. O(clients) per call that
/// compares them, else O(running requests of one client).
///
/// Source: Sheng et al., OSDI 2024, Algorithm 2; VTC-artifact (192c2e2), slora/server/router/vtc_req_queue.py.
class TokenCounters {
 public:
  /// `lifts_to_last_left`: also when nobody waits (VTC, Algorithm 2).
  TokenCounters(Prices prices, bool lifts_to_last_left) : prices_(prices), lifts_to_last_left_(lifts_to_last_left) {}

  void arrived(const View& view, const RequestView& request) {
    const std::size_t c = index(request.client);
    const bool was_empty = !waits(c, view);
    clients_[c].waiting.push_back(request.id);
    if (was_empty) lift(c, view);
  }
  /// The first request of the client that waits and has paid least, the one first seen among equals; or kNoRequest.
  [[nodiscard]] RequestId next(const View& view) {
    std::size_t best = clients_.size();
    for (std::size_t c = 0; c < clients_.size(); ++c) {
      if (waits(c, view) && (best == clients_.size() || counter(c) < counter(best))) best = c;
    }
    return best == clients_.size() ? kNoRequest : clients_[best].waiting.front();
  }
  /// The first request of a client leaves its queue.
  void pop(std::uint32_t client) {
    const std::size_t c = index(client);
    clients_[c].waiting.pop_front();
    if (clients_[c].waiting.empty()) last_left_ = c;
  }
  void joined(const RequestView& request) {
    Client& client = settled(index(request.client));
    client.counter += prices_.prompt(request.input.count());
    // The prompt's iteration gives its first token, and the first decode step the second.
    client.running.push_back({request.id, request.input.count(), steps_ - 1});
  }
  void left(RequestId id, std::uint32_t client) {
    std::erase_if(settled(index(client)).running, [&](const Running& request) { return request.id == id; });
  }
  /// Everyone who runs has taken a token and owes for it. O(1): counters are settled when they are looked at.
  void decoded() { ++steps_; }
  /// Everyone who runs pays once more for the last step.
  void pay_again() {
    for (std::size_t c = 0; c < clients_.size(); ++c) settled(c).counter += step_price(clients_[c], steps_);
  }
  /// What a client has paid, lifts included; 0 for one never seen.
  [[nodiscard]] double paid(std::uint32_t client) { return counter(index(client)); }

 private:
  struct Running {
    RequestId id;
    std::int64_t input = 0;
    std::int64_t first_step = 0;  // it has steps - first_step tokens
  };
  struct Client {
    std::deque<RequestId> waiting;
    std::vector<Running> running;
    double counter = 0.0;      // what it has paid up to ...
    std::int64_t settled = 0;  // ... this decode step
  };

  std::size_t index(std::uint32_t name) {
    const auto [at, fresh] = by_name_.try_emplace(name, clients_.size());
    if (fresh) clients_.emplace_back();
    return at->second;
  }
  /// Forgets requests whose clients gave up.
  [[nodiscard]] bool waits(std::size_t c, const View& view) {
    std::deque<RequestId>& waiting = clients_[c].waiting;
    while (!waiting.empty() && !view.alive(waiting.front())) {
      waiting.pop_front();
      if (waiting.empty()) last_left_ = c;
    }
    return !waiting.empty();
  }
  [[nodiscard]] double step_price(const Client& client, std::int64_t step) const {
    if (!prices_.profile) return prices_.token(0, 1) * static_cast<double>(client.running.size());
    double price = 0.0;
    for (const Running& request : client.running) price += prices_.token(request.input, step - request.first_step);
    return price;
  }
  Client& settled(std::size_t c) {
    Client& client = clients_[c];
    if (!prices_.profile) {
      client.counter += step_price(client, steps_) * static_cast<double>(steps_ - client.settled);
    } else {
      for (std::int64_t step = client.settled + 1; step <= steps_; ++step) client.counter += step_price(client, step);
    }
    client.settled = steps_;
    return client;
  }
  [[nodiscard]] double counter(std::size_t c) { return settled(c).counter; }

  /// A client that comes back starts level with the poorest of the others that wait: idling earns nothing.
  void lift(std::size_t c, const View& view) {
    std::size_t level = clients_.size();
    for (std::size_t other = 0; other < clients_.size(); ++other) {
      if (other == c || !waits(other, view)) continue;
      if (level == clients_.size() || counter(other) < counter(level)) level = other;
    }
    if (level == clients_.size() && lifts_to_last_left_ && last_left_ < clients_.size()) level = last_left_;
    if (level < clients_.size()) settled(c).counter = std::max(counter(c), counter(level));
  }

  const Prices prices_;
  const bool lifts_to_last_left_;
  std::vector<Client> clients_;
  std::unordered_map<std::uint32_t, std::size_t> by_name_;  // only looked up
  std::int64_t steps_ = 0;
  std::size_t last_left_ = SIZE_MAX;  // the client whose queue became empty last
};

}  // namespace spillway
