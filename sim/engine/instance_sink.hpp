// Where an instance reports what happens to its requests.
#pragma once

#include <cstdint>

#include "sim/core/request.hpp"
#include "sim/core/units.hpp"

namespace spillway {

/// Metrics, logs and request sources listen here; an instance knows none of them. Calls of an instance come in order of
/// time, at most one call of token_gap per decode step and one per request that computes its last known token.
class InstanceSink {
 public:
  virtual ~InstanceSink() = default;
  /// `tokens` requests emitted a token at `now`, `gap` after their previous one.
  virtual void token_gap(Duration gap, std::int64_t tokens, SimTime now) = 0;
  /// A request has ended, with any outcome. The instance no longer knows it.
  virtual void ended(const RequestRecord& record) = 0;
  /// The instance refuses a request for the sake of others, and ended() follows. True: another replica will be asked.
  [[nodiscard]] virtual bool sends_on(std::uint32_t serial) {
    (void)serial;
    return false;
  }
  /// Of an instance that hands KV over: the KV of a request that finishes stays until Instance::let_go.
  [[nodiscard]] virtual bool hands_over(std::uint32_t serial) {
    (void)serial;
    return false;
  }
  /// Of an instance that hands KV over: the request joins the batch, and its prompt will be computed.
  virtual void begins_prompt(RequestId id) { (void)id; }
  /// Of an instance that takes KV over: so many blocks wait for KV of the request, until Instance::kv_arrived.
  virtual void awaits_kv(RequestId id, Blocks blocks) { (void)id, (void)blocks; }
};

}  // namespace spillway
