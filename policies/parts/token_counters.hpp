// Virtual token counters: how much each client has paid for its tokens.
#pragma once

#include <cstdint>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/api/view.hpp"

namespace spillway {

/// Prices of a prompt of p tokens and of the q-th token of its answer.
struct Prices {
  bool profile = false;  // true: h(p, q), fitted to the time of a request; false: 1 and 2 per token

  [[nodiscard]] double prompt(std::int64_t p) const { return profile ? h(p, 0) : static_cast<double>(p); }
  [[nodiscard]] double token(std::int64_t p, std::int64_t q) const { return profile ? h(p, q) - h(p, q - 1) : 2.0; }
  static double h(std::int64_t input_tokens, std::int64_t output_tokens) {
    const auto p = static_cast<double>(input_tokens);
    const auto q = static_cast<double>(output_tokens);
    return 0.21001891 * p + 0.10075395 * q + 0.0039868 * p * q + 0.00324733 * q * q + 1.14601454;
  }
};

/// The clients in the order of their first requests, with their waiting requests and payments. Clients pay for tokens
/// step by step; a counter is settled when it is read.
///
/// Source: Sheng et al., OSDI 2024, Algorithm 2; VTC-artifact (192c2e2), slora/server/router/vtc_req_queue.py.
///
/// A counter moves only while its client runs, so the waiting clients that do not run stay sorted. Per call: O(clients
/// that run + log clients that wait), times the running requests of a client with the profile's prices.
class TokenCounters {
 public:
  /// `lifts_to_last_left`: a lift also when nobody waits (VTC, Algorithm 2).
  TokenCounters(Prices prices, bool lifts_to_last_left) : prices_(prices), lifts_to_last_left_(lifts_to_last_left) {}

  /// A request queues up behind the others of its client. The first request in the queue lifts the client's counter to
  /// that of the poorest other waiting client, so that a client earns nothing by idling.
  void arrived(const RequestView& request);
  /// A queued request ended without having run.
  void dropped(std::uint32_t client);
  /// The first request of the waiting client that has paid least, among equals of the client seen first; or kNoRequest.
  [[nodiscard]] RequestId next(const View& view);
  /// That request leaves its client's queue.
  void pop(std::uint32_t client);
  /// The request runs, and its client pays for the prompt.
  void joined(const RequestView& request);
  void left(RequestId id, std::uint32_t client);
  /// Every running request has taken a token, which its client owes. O(1).
  void decoded() { ++steps_; }
  /// Every client with a running request pays once more for the last step.
  void pay_again();
  /// The payments of a client, lifts included; 0 for an unknown client.
  [[nodiscard]] double paid(std::uint32_t client) { return settled(index(client)).counter; }

 private:
  struct Running {
    RequestId id;
    std::int64_t input = 0;
    std::int64_t first_step = 0;  // it has steps - first_step tokens
  };
  struct Client {
    std::vector<RequestId> queue;  // from `head` on; ended requests are dropped when they come to the head
    std::size_t head = 0;
    std::int64_t waiting = 0;  // live requests in the queue
    std::vector<Running> running;
    std::size_t runs_at = 0;   // its place in running_, while it runs
    double counter = 0.0;      // payments up to ...
    std::int64_t settled = 0;  // ... this decode step
  };
  static constexpr std::size_t kNobody = SIZE_MAX;

  std::size_t index(std::uint32_t name);
  [[nodiscard]] double step_price(const Client& client, std::int64_t step) const;
  Client& settled(std::size_t c);
  /// The client that has paid less, of equals the client seen first.
  [[nodiscard]] std::size_t poorer(std::size_t a, std::size_t b);
  /// The poorest waiting client; kNobody when no client waits.
  [[nodiscard]] std::size_t poorest();
  void one_waits_less(std::size_t c);
  /// A client is in resting_ while it waits and does not run. It is taken out before its counter or state changes, and
  /// put back afterwards.
  void take_out(std::size_t c);
  void put_back(std::size_t c);

  const Prices prices_;
  const bool lifts_to_last_left_;
  std::vector<Client> clients_;
  std::unordered_map<std::uint32_t, std::size_t> by_name_;  // only looked up
  std::set<std::pair<double, std::size_t>> resting_;        // (counter, client)
  std::vector<std::size_t> running_;                        // clients with a running request, in no order
  std::int64_t steps_ = 0;
  std::size_t last_left_ = kNobody;  // the client whose queue became empty last
};

}  // namespace spillway
