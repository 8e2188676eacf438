// What decides when an instance lends memory that is for its own KV.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "sim/core/units.hpp"

namespace spillway {

/// The KV memory of an instance that lends. `waiting` and the blocks are those of this instant.
struct LenderView {
  std::int64_t waiting = 0;  // requests that are not in the batch
  Blocks all{};              // KV memory of its GPUs, with what is lent
  Blocks used{};             // by its own requests
  Blocks lent{};             // offered, and not back yet
};

/// What is to change. The default: nothing.
struct LendingDecision {
  Blocks offer{};        // so many from now on; only while none are lent, and at most those not used
  bool reclaim = false;  // all that is lent; the blocks come back once the borrower holds none of them
};

/// Decides what an instance lends, and when it wants that back. The engine executes: it resizes the memory of both
/// sides, and waits for what is reclaimed. Reclaiming again what is reclaimed already has no effect.
class Informer {
 public:
  virtual ~Informer() = default;
  [[nodiscard]] virtual LendingDecision iteration_ended(const LenderView& view) = 0;
  /// A request needs more than the memory that is there: it leaves a batch in which it was alone, or waits while
  /// nothing runs.
  [[nodiscard]] virtual LendingDecision memory_lacking(const LenderView& view) = 0;
  virtual void request_ended() {}
};

/// Called for each instance, and anew for one that comes up after a failure.
using MakeInformer = std::function<std::unique_ptr<Informer>()>;

}  // namespace spillway
