// A scheduling decision: a change to the standing batch, staged step by step.
#pragma once

#include <cstdint>
#include <string_view>

#include "sim/core/request.hpp"
#include "sim/core/units.hpp"

namespace spillway {

/// Why a request leaves the batch before it has finished.
enum class Leave : std::uint8_t {
  preempt_recompute,  // KV dropped; its known tokens are computed again when it rejoins
  preempt_swap        // KV moves to the host; the copy is charged before the iteration
};

/// Why the head of the queue was not admitted; the report names the bottleneck by it.
enum class Blocked : std::uint8_t { kv_capacity, batch_size, token_budget };

/// Contract
///  * The standing batch stays: each decoding request takes one token per iteration until a decision says otherwise. An
///    empty decision means "the same again".
///  * Staging checks the step (phase, capacity, budget of known tokens) and throws InvariantError when it breaks a
///    promise; its memory effects show in the View at once, so sequential rules read as in their paper. Time passes
///    only when the engine runs the iteration, and no token is produced before.
///  * Decoding requests leave before `decodes` is staged, prefilling ones before a chunk of theirs is.
///  * Everything staged takes part in this iteration; staging is O(1), or O(blocks touched) with prefix caching.
class Decision {
 public:
  virtual ~Decision() = default;

  /// waiting -> prefilling, at the end of the batch order. Cached prefix blocks are taken and count as computed.
  virtual void join(RequestId id) = 0;
  /// swapped -> the phase it left; its KV is copied back to the GPU before the iteration.
  virtual void resume(RequestId id) = 0;
  /// Computes the next `tokens` known tokens of a prefilling request in this iteration, with the blocks that they need.
  virtual void chunk(RequestId id, Tokens tokens) = 0;
  /// Holds blocks for the first `upto` tokens of a request in the batch although they are not computed yet.
  virtual void reserve(RequestId id, Tokens upto) = 0;
  /// Takes a request out of the batch.
  virtual void leave(RequestId id, Leave why) = 0;
  /// Ends a waiting request that can never run.
  virtual void reject(RequestId id) = 0;

  /// Only the first `count` decoding requests in batch order take a token in this iteration (0: none). Without this
  /// call all do. Allocates the blocks of their next tokens. O(1) for all or none, else O(decoding).
  virtual void decodes(std::int64_t count) = 0;
  /// Nothing runs although requests are waiting; only an event (arrival, time-out) will wake the policy.
  virtual void idle() = 0;
  /// Notes why the queue's head was left waiting in this iteration.
  virtual void blocked(Blocked why) = 0;
};

}  // namespace spillway
