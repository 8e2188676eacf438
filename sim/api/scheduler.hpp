// The two halves of a policy: who runs (Scheduler) and where state lives (OffloadPolicy, which implements KvSpace).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sim/api/decision.hpp"
#include "sim/api/figure.hpp"
#include "sim/api/view.hpp"

namespace spillway {

/// Answers of a KvSpace.
enum class Fit : std::uint8_t {
  now,          // the memory is free, or the offload policy frees it at once; the request's KV is, or will be, in place
  after_moves,  // once moves have ended that are under way, or that Decision::fetch starts
  later,        // the memory is not free until a running request releases some
  never         // the request needs more than the space can ever hold
};

/// Memory for KV, as a scheduler asks for it: a scheduler never counts blocks. Every answer includes the steps that the
/// current decision has staged so far.
class KvSpace {
 public:
  virtual ~KvSpace() = default;
  /// May a waiting request be admitted with blocks for its first `upto` known tokens? Cached prefix blocks count
  /// towards them.
  [[nodiscard]] virtual Fit admits(const RequestView& request, Tokens upto) const = 0;
  /// May a request in the batch grow to `upto` tokens?
  [[nodiscard]] virtual Fit grows(const RequestView& request, Tokens upto) const = 0;
  /// Is memory free for the next token of the first `count` decoding requests in batch order?
  [[nodiscard]] virtual Fit decodes(std::int64_t count) const = 0;
  /// May a swapped request come back, with blocks for its first `upto` known tokens?
  [[nodiscard]] virtual Fit resumes(const RequestView& request, Tokens upto) const = 0;
  /// Where the state of a request should go if it is preempted now.
  [[nodiscard]] virtual Leave preempts(const RequestView& request) const = 0;
  /// Would a request that is suspended now keep all its KV? Default: preempted, it would.
  [[nodiscard]] virtual bool suspends_whole(const RequestView& request) const {
    return preempts(request) != Leave::preempt_recompute;
  }
  /// How many of the requests that `next()` names one after the other, until it returns kNoRequest, could be in the
  /// batch at once, each with blocks for its known tokens, if nobody else were? O(these). Default: as many as the GPU
  /// has blocks for.
  [[nodiscard]] virtual std::int64_t together(const View& view, const std::function<RequestId()>& next) const;
};

/// A block of the prefix cache that holds content, when its last user leaves it.
struct FreedBlock {
  const RequestView& request;  // the last user: waiting or swapped when it is preempted, prefilling when it ends
  Blocks position{};           // blocks of its context before this one
  std::int64_t hits = 0;       // requests that found the content on the GPU since the block holds it
};

/// What the content of a free block is worth. Not NaN. Minus infinity: nothing, so that it is forgotten at once.
using Retention = std::function<double(const View&, const FreedBlock&)>;

/// Decides where state lives. Constructed for one run, over the View of that run. A scheduler sees only the KvSpace.
///
/// Contract
///  * Each call stages its moves and drops at the Placement it gets. The engine checks and charges them.
///  * In one decision: `moved` for each move that has ended, `shrank`, then the scheduler's decision with the calls
///    that its steps cause, then `places`.
///  * The defaults are those of an engine that swaps whole requests to kHostTier, and keeps nothing.
class OffloadPolicy : public KvSpace {
 public:
  /// A request leaves the batch, preempted with its KV or suspended. Its KV may stay on the GPU, or go. Default: all of
  /// it goes to kHostTier, unless a copy is elsewhere, and the iteration waits.
  virtual void leaves(const View& view, const RequestView& request, Placement& placement);
  /// A request joins or resumes: where its KV will be while it is in the batch. kGpuTier, or, if the policy declares
  /// PolicyInfo::cpu_attention, kHostTier: then the CPU attends for it, all its blocks are taken there, and the KV of
  /// its prompt, which is computed in one chunk, leaves the GPU layer by layer. The next iteration waits until that is
  /// there. Default: kGpuTier.
  [[nodiscard]] virtual TierId attends(const View& /*view*/, const RequestView& /*request*/) const { return kGpuTier; }
  /// A request joins that the prefix cache knows a prefix of: whether it takes these blocks, and computes the rest. One
  /// that attends() on kHostTier uses them on the GPU until its prompt is computed, and all of its KV leaves for the
  /// host. Default: yes.
  [[nodiscard]] virtual bool takes_prefix(const View& /*view*/, const RequestView& /*request*/) const { return true; }
  /// A request joins or resumes: afterwards each of its blocks is on the GPU, or on its way there with an iteration or
  /// layers that wait for it, or dropped. One that attends() on kHostTier has every block there. Default: everything
  /// comes to the GPU, and the iteration waits; or everything goes to kHostTier likewise.
  virtual void returns(const View& view, const RequestView& request, Placement& placement);
  /// Decision::fetch of a request, which wants blocks for its first `upto` tokens: moves for which the request waits.
  /// In the batch it has its KV already, and waits for blocks alone. Default: none.
  virtual void fetches(const View& /*view*/, const RequestView& /*request*/, Tokens /*upto*/,
                       Placement& /*placement*/) {}
  /// A step needs `blocks` more blocks of the GPU than are free: drops that many, if it can. Default: nothing.
  virtual void makes_room(const View& /*view*/, Blocks /*blocks*/, Placement& /*placement*/) {}
  /// More blocks of a tier are in use than it has left, or were announced. Called in every decision until that is over.
  /// Default: nothing; a scheduler preempts for want of room on the GPU.
  virtual void shrank(const View& /*view*/, TierId /*tier*/, Placement& /*placement*/) {}
  /// The scheduler has decided who runs. Default: nothing.
  virtual void places(const View& /*view*/, Placement& /*placement*/) {}
  /// A request in the batch ends. True: its KV is kept for its conversation and replaces what was kept before. Default:
  /// nothing is kept.
  [[nodiscard]] virtual bool keeps(const View& /*view*/, const RequestView& /*request*/, Outcome /*outcome*/) {
    return false;
  }
  /// The order in which the GPU gives up free blocks of the prefix cache. Asked once, at the start of the run.
  ///
  /// Empty, the default: the least recently freed block is reused first (LRU), in O(1). Otherwise the function gives
  /// the value of each block when its last user leaves it, from the end of a context to its start. The block with the
  /// smallest value is reused first, and the least recently freed one among equals, in O(log free blocks). Blocks
  /// without content go before all others. A value stays until the block is used again. The View may still count the
  /// blocks that are being freed. Least frequently used first:
  ///
  ///     return [](const View&, const FreedBlock& block) { return static_cast<double>(block.hits); };
  [[nodiscard]] virtual Retention retention() const { return {}; }
  /// A move has ended that nobody, or only its request, waited for. It may have ended earlier, but not before the
  /// decision before.
  virtual void moved(const View& /*view*/, const Move& /*move*/) {}
  /// Figures of the run so far, as PolicyInfo::figures declares them.
  [[nodiscard]] virtual Figures figures() const { return {}; }
};

/// Decides who runs, once per iteration.
///
/// Contract
///  * `arrived` and `ended` come in event order and only between decisions. The policy's own decisions (leave, reject)
///    are not reported back.
///  * Time stands still in `decide`. It stages at least one step, or leaves the standing batch as it is, or calls
///    Decision::idle. A decision that runs nothing while requests are unfinished, without idle(), throws BrokenPromise.
class Scheduler {
 public:
  virtual ~Scheduler() = default;
  virtual void arrived(const RequestView& request) = 0;
  /// The iteration of the last decision has ended. Calls of `ended` for the requests that it finished follow.
  virtual void iteration_ended() {}
  /// The request has finished, or its client gave up.
  virtual void ended(RequestId id, Outcome outcome) = 0;
  virtual void decide(const View& view, const KvSpace& kv, Decision& decision) = 0;
  /// Figures of the run so far, as PolicyInfo::figures declares them.
  [[nodiscard]] virtual Figures figures() const { return {}; }
};

}  // namespace spillway
