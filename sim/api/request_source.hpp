// Where requests come from: a trace or a generator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/core/request.hpp"

namespace spillway {

/// A pull stream of requests in order of arrival. Memory does not depend on its length.
///
/// A request may depend on the end of an earlier request, as the next turn of a conversation does. So the engine calls
/// `ended` for every request that ends, and then asks again for the next arrival, which may now be earlier.
///
/// Contract: arrivals never decrease, and never precede an end reported by `ended`. The n-th delivered request (from 0)
/// has index n in `ended`. Throws DataError (file, row, column) on input that cannot be read.
class RequestSource {
 public:
  virtual ~RequestSource() = default;
  /// When to call next(), as far as the source knows now; kNever when it knows no request. After every delivered
  /// request has ended, kNever is final.
  [[nodiscard]] virtual SimTime next_arrival() = 0;
  /// Delivers the request that arrives at next_arrival() and sets every field of it. Call it only when there is such a
  /// time. Returns false when no request comes after all, as for a turn whose conversation has not got that far.
  virtual bool next(RequestSpec& request) = 0;
  /// A delivered request has ended, with any outcome.
  virtual void ended(const RequestRecord& record) { (void)record; }
  /// When the turn arrives, or has arrived, that follows the last answer of a conversation and has not ended; kNever
  /// when there is none, or when the source does not know it yet. For policies that know the future
  /// (PolicyInfo::knows_future).
  [[nodiscard]] virtual SimTime next_turn(std::int64_t conversation) const {
    (void)conversation;
    return kNever;
  }
  /// Requests that will never come, because a request that they follow was not answered.
  [[nodiscard]] virtual std::int64_t unsent() const { return 0; }
  /// Requests so far whose prompt or answer was cut to the longest context of a client.
  [[nodiscard]] virtual std::int64_t shortened() const { return 0; }
  /// Requests so far that a client sent later than they were due, because too many were in flight.
  struct HeldBack {
    std::int64_t requests = 0;
    double seconds = 0.0;  // all together
    Duration longest{};
  };
  [[nodiscard]] virtual HeldBack held_back() const { return {}; }
  /// Requests in the whole stream if known before reading it, else -1. For progress only.
  [[nodiscard]] virtual std::int64_t expected() const { return -1; }
};

}  // namespace spillway
