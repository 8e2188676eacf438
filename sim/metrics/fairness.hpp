// Fairness: how evenly an instance serves its clients.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "sim/core/units.hpp"

namespace spillway {

/// Numbers clients from 0 in order of first appearance. Amortised O(1); repeated calls for one client cost one
/// comparison each.
class ClientNumbers {
 public:
  /// The client's number; a new client gets the next free number.
  [[nodiscard]] std::size_t of(std::uint32_t client) {
    if (client != last_client_ || numbers_.empty()) {
      last_client_ = client;
      last_number_ = numbers_.try_emplace(client, numbers_.size()).first->second;
    }
    return last_number_;
  }
  [[nodiscard]] std::size_t size() const { return numbers_.size(); }

 private:
  std::unordered_map<std::uint32_t, std::size_t> numbers_;
  std::uint32_t last_client_ = 0;
  std::size_t last_number_ = 0;
};

/// Service of one client in the measured span.
struct ClientService {
  std::uint32_t client = 0;
  std::int64_t service = 0;  // weighted tokens
  Duration active{};         // time in which it had a live request
};

/// Figures of FairnessMeter.
struct FairnessTotals {
  /// Weighted tokens; empty when never two clients were backlogged at an observation.
  std::optional<std::int64_t> max_service_difference{};
  std::int64_t observations = 0;         // at which at least two clients were backlogged
  std::vector<ClientService> clients{};  // in order of first arrival
  /// Adds another instance that was never live at the same time: service and time add, differences do not. O(clients).
  void add(const FairnessTotals& other);
};

/// Jain, Chiu and Hawe, DEC-TR-301, 1984: (sum x)^2 / (n * sum x^2), from 1/n (one gets all) to 1 (equal shares).
/// Empty for fewer than two values and when all are 0.
[[nodiscard]] std::optional<double> jain_index(std::span<const double> values);
/// Jain's index over the clients' service per second of active time; clients without active time are left out.
[[nodiscard]] std::optional<double> jain_index(const FairnessTotals& totals);

/// Observes one instance and sums the service of each client.
///
///  * Service of a client, in weighted tokens: the prompt's tokens once, when its request is first scheduled, plus
///  twice
///    the generated tokens (weights 1 and 2, as in VTC). Tokens recomputed after a preemption do not count.
///  * A client is backlogged while one of its live requests waits outside the batch, whether or not the request
///    has KV on the host.
///  * A client's counter grows with its service. When a client becomes backlogged while others are, its counter is
///    lifted to the least of theirs if it is below (VTC's lift): idle time earns no credit, and service that others got
///    before the client came does not count against it.
///  * The service difference is the largest minus the least counter of the backlogged clients. It is observed when an
///    iteration ends in the measured span; with n clients seen so far, after every max(1, n / 8)-th iteration, because
///    an observation costs O(backlogged clients).
///
/// Source: Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024, sections 3 and 4.
///
/// Cost: amortised O(1) per iteration whatever the number of decodes (they are counted per client, and a step is one
/// increment); O(log n) per change of a request, and O(sqrt(batch)) when a client becomes backlogged. A single client
/// is neither ordered nor observed. Memory O(clients). All sums are of whole tokens and nanoseconds, so their order
/// does not matter.
class FairnessMeter {
 public:
  static constexpr std::int64_t kGeneratedWeight = 2;

  /// The measured span begins at `begin`, which is not later than the next call. Earlier service does not count, while
  /// counters and backlogs go on.
  void begin(SimTime begin);

  /// A request of `client` begins to wait. Returns the client's number, which all other calls need.
  [[nodiscard]] std::int32_t arrived(std::uint32_t client, SimTime now) {
    const auto number = static_cast<std::int32_t>(numbers_.of(client));
    if (numbers_.size() > clients_.size()) add(client);
    Client& c = at(number);
    if (c.live++ == 0) c.active_since = now;
    left(number);
    return number;
  }
  /// A waiting request joins the batch. `prompt`: its tokens when it joins for the first time, else 0.
  void joined(std::int32_t client, Tokens prompt) {
    if (--at(client).waiting == 0 && at(client).at >= 0) leave_backlog(client);
    serve(client, prompt.count());
  }
  /// A request leaves the batch and waits.
  void left(std::int32_t client) {
    if (at(client).waiting++ == 0 && clients_.size() > 1) enter_backlog(client);
  }
  /// A request ended, `in_batch` or waiting.
  void ended(std::int32_t client, bool in_batch, SimTime now) {
    if (!in_batch) joined(client, Tokens(0));
    Client& c = at(client);
    if (--c.live == 0) c.active += now - c.active_since;
  }

  /// A request starts, or stops, to take part in every full decode step.
  void started_decoding(std::int32_t client) { change_decoding(client, 1); }
  void stopped_decoding(std::int32_t client) { change_decoding(client, -1); }
  /// Every decode generated a token.
  void stepped() { ++steps_; }
  /// One request generated a token that `stepped` does not count.
  void emitted(std::int32_t client) { serve(client, kGeneratedWeight); }

  void iteration_ended() {
    if (++since_observation_ < period_) return;
    since_observation_ = 0;
    if (measuring_ && backlogged_ >= 2) observe();
  }

  /// To be called at the end of the run, when every request has ended.
  [[nodiscard]] FairnessTotals totals() const;

 private:
  /// `service` and `lift` are as if the present decodes had run since step 0: see service_of.
  struct Client {
    std::uint32_t client = 0;
    std::int32_t live = 0;      // requests
    std::int32_t waiting = 0;   // requests outside the batch
    std::int32_t decoding = 0;  // requests that decode
    std::int32_t at = -1;       // position in its group's heap; -1: not backlogged, or alone
    std::int64_t service = 0;
    std::int64_t lift = 0;          // counter - service
    std::int64_t before_begin = 0;  // service before the measured span
    Duration active{};              // up to active_since
    SimTime active_since{};         // valid while live > 0
  };
  /// Backlogged clients with equally many decodes. Their counters grow at one rate, so their order stays. A binary heap
  /// with the least counter on top.
  struct Group {
    std::vector<std::int32_t> heap;
    std::size_t listed_at = 0;  // position in rates_ unless the heap is empty
  };

  [[nodiscard]] Client& at(std::int32_t client) { return clients_[static_cast<std::size_t>(client)]; }
  [[nodiscard]] const Client& at(std::int32_t client) const { return clients_[static_cast<std::size_t>(client)]; }
  [[nodiscard]] std::int64_t service_of(const Client& c) const {
    return c.service + kGeneratedWeight * c.decoding * steps_;
  }
  [[nodiscard]] std::int64_t counter_of(const Client& c) const { return service_of(c) + c.lift; }
  [[nodiscard]] std::int64_t key(std::int32_t client) const { return at(client).service + at(client).lift; }

  void serve(std::int32_t client, std::int64_t tokens) {
    at(client).service += tokens;
    if (at(client).at >= 0) sift_down(group_of(client).heap, static_cast<std::size_t>(at(client).at));
  }
  void change_decoding(std::int32_t client, std::int32_t by) {
    const bool ordered = at(client).at >= 0;
    if (ordered) remove(client);
    at(client).decoding += by;
    at(client).service -= kGeneratedWeight * by * steps_;
    if (ordered) insert(client);
  }
  void add(std::uint32_t client);
  void enter_backlog(std::int32_t client);
  void leave_backlog(std::int32_t client);
  void insert(std::int32_t client);
  void remove(std::int32_t client);
  void sift_up(std::vector<std::int32_t>& heap, std::size_t from);
  void sift_down(std::vector<std::int32_t>& heap, std::size_t from);
  [[nodiscard]] Group& group_of(std::int32_t client) { return groups_[static_cast<std::size_t>(at(client).decoding)]; }
  [[nodiscard]] std::int64_t least_counter() const;
  void observe();

  ClientNumbers numbers_;
  std::vector<Client> clients_;
  std::vector<Group> groups_;  // by number of decodes
  std::vector<std::size_t>
      rates_;  // groups that are not empty: O(sqrt(batch)), as the sum of their decodes is at most the batch
  std::int64_t backlogged_ = 0;
  std::int64_t steps_ = 0;
  std::int64_t period_ = 1;  // iterations from one observation to the next
  std::int64_t since_observation_ = 0;
  bool measuring_ = false;
  std::int64_t observations_ = 0;
  std::int64_t max_difference_ = 0;
};

}  // namespace spillway
