// A plain router: it keeps the list of what it has sent and counts it anew for every question.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sim/core/request.hpp"
#include "tests/oracle/naive_engine.hpp"

namespace spillway::oracle {

struct NaiveRouting {
  std::string rule;                   // a router's name
  std::function<double()> uniform{};  // draws in [0, 1), for rules that draw
  std::int64_t balance_abs = 64;
  double balance_rel = 1.5;
  double cache_threshold = 0.3;
  Duration staleness{};
};

/// A request is sent to a replica: by its client, or again by the router.
struct Sending {
  std::size_t serial = 0;
  RequestSpec spec{};
  SimTime at{};
  std::size_t replica = 0;  // of those behind the router, from 0
  SimTime end = kNever;
  bool entered = false;    // it has passed the front end
  bool forgotten = false;  // the replica has gone down since
};

class NaiveRouter {
 public:
  virtual ~NaiveRouter() = default;
  [[nodiscard]] virtual bool any_up() const = 0;
  /// Chooses a replica, one of which must be up. Returns the position in sent().
  virtual std::size_t send(std::size_t serial, const RequestSpec& spec, SimTime now) = 0;
  /// In order. Whoever learns more of a sending writes it here.
  [[nodiscard]] std::vector<Sending>& sent() { return sent_; }
  /// The replica has gone down.
  void forget(std::size_t replica) {
    for (Sending& one : sent_) one.forgotten = one.forgotten || one.replica == replica;
  }

 protected:
  std::vector<Sending> sent_;
};

/// A router before `count` of the replicas, from `first` on; a replica that is down is null. `routing` and `replicas`
/// must outlive it. Its calls throw std::logic_error on a rule that they do not know.
std::unique_ptr<NaiveRouter> make_naive_router(const NaiveRouting& routing, Tokens block_tokens,
                                               const std::vector<std::unique_ptr<NaiveReplica>>& replicas,
                                               std::size_t first, std::size_t count);

}  // namespace spillway::oracle
