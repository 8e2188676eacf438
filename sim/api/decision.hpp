// A scheduling decision: a change to the standing batch, staged step by step.
#pragma once

#include <cstdint>
#include <string_view>

#include "sim/api/residency.hpp"
#include "sim/core/request.hpp"
#include "sim/core/units.hpp"

namespace spillway {

/// Why a request leaves the batch before it has finished.
enum class Leave : std::uint8_t {
  preempt_recompute,  // KV dropped; its known tokens are computed again when it rejoins
  preempt_swap,       // KV goes where the offload policy puts it
  suspend             // likewise, but by plan (the end of a slice, a turn that others take), so it is no preemption;
                      // reserved blocks without KV are given back
};

/// Why the head of the queue was not admitted. The report derives the bottleneck from it.
enum class Blocked : std::uint8_t { kv_capacity, batch_size, token_budget };

/// Where state goes: what an offload policy decides.
class Placement {
 public:
  virtual ~Placement() = default;
  /// The KV of a conversation, or of a request that is not in the batch, moves; or full blocks of a request in the
  /// batch are copied from the GPU (Move::keep). O(runs).
  virtual void move(const Move& move) = 0;
  /// Blocks of a conversation, or of a request that is not in the batch, leave `tier`; kNoTier: every tier. Dropped
  /// blocks are computed again when their request joins. O(runs).
  virtual void drop(const Holder& holder, const BlockRange& range, TierId tier) = 0;
};

/// Sub-batches that a batch may have.
inline constexpr std::int32_t kMostSubBatches = 8;

/// Contract
///  * The standing batch stays: each decoding request takes one token per iteration until a decision says otherwise. An
///    empty decision means "the same again".
///  * Each call checks its step (phase, capacity, number of known tokens). A step that breaks a rule throws
///    BrokenPromise, which names the policy, the request, the time and the rule.
///  * The View shows the memory effects of a step at once, so a sequential rule reads as in its paper. Time passes only
///    when the engine runs the iteration. No token is produced before that.
///  * Decoding requests leave before `decodes` is staged, prefilling requests before their chunk is staged.
///  * A decision that only takes requests out of the batch is followed by another decision at the same instant.
///    Decisions must lead to tokens while requests are unfinished.
///  * Everything staged takes part in this iteration. Staging is O(1), or O(blocks touched) with prefix caching.
class Decision : public Placement {
 public:
  /// waiting -> prefilling, at the end of the batch order. The request takes its cached prefix blocks, and the KV that
  /// is kept for its conversation, which count as computed; OffloadPolicy::returns brings the latter to the GPU.
  virtual void join(RequestId id) = 0;
  /// swapped -> the phase that the request left, or prefilling if some of its KV was dropped. OffloadPolicy::returns
  /// brings its KV to the GPU. Call it before `decodes` for a request that was decoding.
  virtual void resume(RequestId id) = 0;
  /// OffloadPolicy::fetches brings the KV of a waiting or swapped request to the GPU, and makes room for its first
  /// `upto` tokens, while the request stays outside the batch. It may join or resume once KvSpace answers `now`. A
  /// request in the batch only gets room to grow, and stays there.
  virtual void fetch(RequestId id, Tokens upto) = 0;
  /// The engine considers a waiting request: its KV connector looks for blocks of it on the host and the disk, which is
  /// a use of them. Returns how many the request would load behind its cached prefix; 0 without a connector. After a
  /// positive answer `fetch` takes GPU blocks for the prefix and the load, and starts the load. The request is
  /// RequestView::fetching until that has ended; then its tokens are computed.
  [[nodiscard]] virtual Blocks look_up(RequestId /*id*/) { return Blocks(0); }
  /// Computes the next `tokens` known tokens of a prefilling request in this iteration and takes the blocks for them:
  /// at least 1, at most RequestView::remaining(), at most one chunk per request and iteration. Dropped tokens come
  /// first. A chunk that goes on behind them is still one sequence.
  virtual void chunk(RequestId id, Tokens tokens) = 0;
  /// Holds blocks for the first `upto` tokens of a prefilling request before they are computed: up to its known tokens,
  /// or for the whole answer (input + max_new_tokens).
  virtual void reserve(RequestId id, Tokens upto) = 0;
  /// From now on the request, which is in the batch, computes in this sub-batch, below kMostSubBatches. Requests that
  /// join or resume are in sub-batch 0. The GPU takes the sub-batches in turn, layer by layer, so it computes one while
  /// another attends on the CPU. Call it before the request's chunk or the decodes are staged. O(1), but an iteration
  /// with requests outside sub-batch 0 costs O(such requests).
  virtual void sub_batch(RequestId id, std::int32_t number) = 0;
  /// Takes a prefilling or decoding request out of the batch.
  virtual void leave(RequestId id, Leave why) = 0;
  /// Ends a waiting request that can never run.
  virtual void reject(RequestId id) = 0;

  /// Only the first `count` decoding requests in batch order take a token in this iteration (0: none). Without this
  /// call all of them do. Takes the blocks for their next tokens. Call it at most once. O(1) for all or none, else
  /// O(decoding).
  virtual void decodes(std::int64_t count) = 0;
  /// Nothing runs although requests are waiting. Only an event (arrival, time-out) wakes the policy, so one must be to
  /// come.
  virtual void idle() = 0;
  /// Notes why the head of the queue keeps waiting in this iteration.
  virtual void blocked(Blocked why) = 0;
};

}  // namespace spillway
