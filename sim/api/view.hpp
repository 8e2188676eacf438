// What a policy may see: the requests that have arrived, the standing batch and the memory tiers. Read-only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "sim/api/kv_window.hpp"
#include "sim/api/residency.hpp"
#include "sim/core/request.hpp"
#include "sim/core/units.hpp"

namespace spillway {

enum class Phase : std::uint8_t {
  waiting,     // not in the batch; holds no KV, unless some has been fetched
  prefilling,  // in the batch; some known tokens are not computed yet
  decoding,    // in the batch; every known token but the last is computed
  swapped      // preempted with its KV, which the offload policy has placed, or suspended; not in the batch
};

/// One request as a policy sees it, without its true output length.
struct RequestView {
  RequestId id{};
  Phase phase = Phase::waiting;
  std::uint32_t client = 0;
  SimTime arrival{};
  Tokens input{};
  Tokens max_new_tokens{};         // as the client asked
  Tokens known{};                  // input + generated so far: these tokens must be computed before the next token
  Tokens computed{};               // known tokens whose KV exists, on any tier
  Blocks held{};                   // blocks of its context, shared blocks included
  std::int64_t conversation = -1;  // -1: of none
  Tokens reusable{};               // while waiting: its first tokens that what is kept for its conversation covers
  TierId tier = kGpuTier;          // in the batch: where its KV is, and its attention; kHostTier: on the CPU
  std::int32_t sub_batch = 0;
  /// Waiting, and blocks of it are on their way from the engine's host tier or from another instance: it cannot join.
  bool fetching = false;
  [[nodiscard]] Tokens remaining() const { return known - computed; }
};

/// Sums over the standing batch, updated in O(1).
struct BatchTotals {
  std::int64_t running = 0;  // prefilling + decoding
  std::int64_t decoding = 0;
  Tokens decode_context{};  // sum of the tokens that the decoding requests attend to in their next step
  Blocks decode_growth{};   // blocks of the GPU that the decoding requests need for their next token
  Blocks host_growth{};     // blocks of kHostTier that they need
  /// Blocks of input + max_new_tokens over all running requests, and those that took blocks for KV of another instance
  /// and wait: the most that they may need.
  Blocks promised{};
};

/// Contract
///  * Current within a decision: every staged step shows at once. In Scheduler::arrived, iteration_ended and ended the
///    sums over the batch may still be those of the last decision.
///  * Batch order is the order in which requests joined the batch.
///  * O(1) per call unless noted. Ids must be of live requests.
class View {
 public:
  virtual ~View() = default;
  [[nodiscard]] SimTime now() const { return now_; }
  [[nodiscard]] const BatchTotals& batch() const { return batch_; }
  [[nodiscard]] const TierState& tier(TierId id) const { return tiers_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] Tokens block_tokens() const { return block_tokens_; }
  /// Free blocks that a new context of so many tokens needs in all until they are computed, piece by piece: layers with
  /// a window give blocks back before the last piece takes its own.
  [[nodiscard]] Blocks blocks_to_compute(Tokens tokens) const {
    const Blocks all = blocks_for(tokens, block_tokens_);
    return window_ ? all - window_->freed(window_->passed(tokens - window_->piece, block_tokens_)) : all;
  }
  /// The longest request, input + max_new_tokens. Longer requests never reach the policy.
  [[nodiscard]] Tokens max_model_len() const { return max_model_len_; }
  /// Requests share blocks with equal content. Then whole requests move, and none keeps a copy elsewhere.
  [[nodiscard]] bool caches_prefixes() const { return caches_prefixes_; }

  [[nodiscard]] virtual RequestView request(RequestId id) const = 0;
  /// False once the request has ended. Queues drop such ids lazily.
  [[nodiscard]] virtual bool alive(RequestId id) const = 0;
  /// The request that joined the batch last; kNoRequest when the batch is empty.
  [[nodiscard]] virtual RequestId last_joined() const = 0;
  /// Blocks of the GPU that the first `decodes` decoding requests in batch order need for their next token. O(1) for
  /// all of them, else O(decodes).
  [[nodiscard]] virtual Blocks decode_growth(std::int64_t decodes) const = 0;
  /// The decoding request that joined the batch last; kNoRequest when nothing decodes. O(prefills that joined later).
  [[nodiscard]] virtual RequestId last_decoding() const = 0;
  /// Does this decoding request need a block for its next token?
  [[nodiscard]] virtual bool grows_next(RequestId id) const = 0;

  /// While an iteration starts (LayerPolicy::begin): since when the request that has waited longest for the token that
  /// the iteration works on has waited: since its last token, since another instance computed its prompt, or since its
  /// client sent it. At other times, and when the iteration computes nothing, now(). O(requests of the iteration).
  [[nodiscard]] virtual SimTime waiting_since() const = 0;

  /// Where the context of a holder is, from its start. Empty: it holds nothing. Valid until the next call. O(runs).
  [[nodiscard]] virtual std::span<const KvRun> runs(const Holder& holder) const = 0;
  /// Length of the context that is kept for a conversation, dropped parts included; 0: nothing is kept.
  [[nodiscard]] virtual Tokens kept(std::int64_t conversation) const = 0;

  /// Only for policies that know the future (PolicyInfo::knows_future): when the next turn of a conversation at rest
  /// arrives, or has arrived; kNever: none will. Known from the first decision after the end of a turn on.
  [[nodiscard]] virtual SimTime next_turn(std::int64_t conversation) const {
    (void)conversation;
    return kNever;
  }

  struct CachedPrefix {
    Tokens tokens{};       // leading known tokens whose blocks are in the prefix cache, whole blocks, < known
    Blocks idle_blocks{};  // those of these blocks on the GPU that no request uses: taking them lowers `free`
    Blocks host_blocks{};  // those of these blocks that only the host has: each needs a free GPU block
  };
  /// O(blocks hit). Zero when prefix caching is off.
  [[nodiscard]] virtual CachedPrefix cached_prefix(RequestId id) const = 0;

 protected:
  SimTime now_{};
  BatchTotals batch_{};
  std::span<const TierState> tiers_{};
  Tokens block_tokens_{16};
  Tokens max_model_len_{};
  bool caches_prefixes_ = false;
  std::optional<KvWindow> window_{};
};

}  // namespace spillway
