// Where requests come from: a trace or a generator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/core/request.hpp"

namespace spillway {

/// A pull stream of requests in order of arrival. Memory does not depend on its length.
///
/// A request may depend on what became of an earlier one, as the next turn of a conversation does. So the engine tells
/// the source of every request that ends, and asks again when the next one arrives: that may then be earlier than it
/// was.
///
/// Contract: arrivals never decrease, and never lie before an end that the source was told of. The n-th request
/// delivered (from 0) has index n in `ended`. Throws DataError (file, row, column) on input that cannot be read.
class RequestSource {
 public:
  virtual ~RequestSource() = default;
  /// When to call next, as far as it is known now; kNever when no request is known, which is for ever once every
  /// request that was delivered has ended.
  [[nodiscard]] virtual SimTime next_arrival() = 0;
  /// Delivers the request that arrives at next_arrival(), every field of it; to be called only when there is such a
  /// time. False when no request comes of it after all, as with a turn whose conversation is not that far.
  virtual bool next(RequestSpec& request) = 0;
  /// A request that was delivered has ended, in whatever way.
  virtual void ended(const RequestRecord& record) { (void)record; }
  /// Requests that will never come, because one that they follow was not answered.
  [[nodiscard]] virtual std::int64_t unsent() const { return 0; }
  /// Requests so far whose prompt or answer was cut to the longest context that a client sends.
  [[nodiscard]] virtual std::int64_t shortened() const { return 0; }
  /// Requests in the whole stream when that is known before reading it, else -1: for progress only.
  [[nodiscard]] virtual std::int64_t expected() const { return -1; }
};

}  // namespace spillway
