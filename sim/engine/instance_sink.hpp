// Where an instance reports what happens to its requests.
#pragma once

#include <cstdint>

#include "sim/core/request.hpp"
#include "sim/core/units.hpp"

namespace spillway {

/// Metrics, logs and request sources listen here; an instance knows none of them. Calls come in order of time, at most
/// one call of token_gap per decode step and one per request that computes its last known token.
class InstanceSink {
 public:
  virtual ~InstanceSink() = default;
  /// `tokens` requests emitted a token at `now`, `gap` after their previous one.
  virtual void token_gap(Duration gap, std::int64_t tokens, SimTime now) = 0;
  /// A request has ended, with any outcome. The instance no longer knows it.
  virtual void ended(const RequestRecord& record) = 0;
};

}  // namespace spillway
