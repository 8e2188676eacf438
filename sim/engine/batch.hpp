// The standing batch as aggregates: the cost of an iteration follows what changed in the batch, not its size.
#pragma once

#include <array>
#include <cstdint>
#include <memory_resource>
#include <optional>
#include <vector>

#include "sim/api/decision.hpp"
#include "sim/api/view.hpp"
#include "sim/core/prefetch.hpp"
#include "sim/core/request.hpp"
#include "sim/core/units.hpp"
#include "sim/kv/block_store.hpp"
#include "sim/kv/kv_windows.hpp"

namespace spillway {

/// A request that has been scheduled at least once and has not ended.
///
/// While a member decodes, `computed`, `computing` and `finish_step` are relative to the batch's clocks, so that a
/// decode step does not touch the member: its computed tokens are computed + Batch::steps(), its computing time is
/// computing + Batch::decode_time(). In every other phase they are plain values. A decode step is a token of each
/// decode, so steps are counted in tokens.
struct Member {
  RequestId id{};
  Phase phase = Phase::waiting;
  bool late = false;         // its last token came before the batch's last decode step
  bool covered = false;      // holds every block that it will ever need: never grows
  bool answered = false;     // decodes, but generates only padding from now on
  bool handed_over = false;  // it took KV over from another instance, or lost what it took
  bool delivered = false;    // prefilling: another instance computed its KV, except that of its last known token
  bool fetching = false;     // waiting: blocks of it are on their way from the connector's tier
  bool on_host = false;      // in the batch: its blocks are on kHostTier, and the CPU attends for it
  std::int32_t sub_batch = 0;
  std::int32_t apart_at = -1;  // decoding: position in Batch::apart(); -1: not in it
  std::int32_t prev = -1;      // batch order
  std::int32_t next = -1;
  std::int32_t ring_prev = -1;  // requests that finish in the same step
  std::int32_t ring_next = -1;
  std::int32_t growth_at = -1;      // position in its growth class
  std::int32_t client_number = -1;  // of the FairnessMeter
  std::uint64_t order = 0;          // when it joined the batch
  Tokens input{};
  Tokens output{};
  Tokens known{};  // waiting, prefilling, swapped: input + generated; decoding: unused
  Tokens computed{};
  Tokens missing{};  // prefilling: tokens of the context that were dropped, so `computed` does not count them
  Tokens staged{};   // known tokens that the current iteration computes, while prefilling
  Tokens finish_step{};
  Blocks promised{};         // of input + max_new_tokens
  Blocks held{};             // of its context, on any tier; decoding: lower bound, see Batch::held
  std::int32_t holder = -1;  // in the books of Residency: its leading blocks; -1: all blocks are simply on the GPU
  Duration computing{};
  SimTime prompted = kNever;  // when another instance had computed its prompt; kNever: none has
  SimTime first_scheduled = kNever;
  SimTime first_token = kNever;
  SimTime last_token{};  // valid when late or not decoding
  Tokens cached{};
  std::int32_t preempted_recompute = 0;
  std::int32_t preempted_swap = 0;
  std::vector<std::int32_t> blocks;  // prefix caching only: its block table; on_host: its prefix, until it decodes
  std::size_t named = 0;             // leading blocks of it whose hash is known
  BlockHash chain = 0;               // hash of the last of these
  Blocks loaded{};                   // waiting: the last of its blocks came from the connector's tier
  Tokens from_disk{};                // waiting: tokens of these that came from the disk
  std::int32_t stores = -1;          // its blocks that the connector stores; -1: none yet
};

/// Members and their sums. All calls are O(1) unless stated otherwise. start_decoding, stop_decoding and skip are
/// amortised O(log n) in the n decodes, and allocate nothing once the batch has had its largest size.
class Batch {
 public:
  /// What every step uses comes from `memory`, which must outlive the batch.
  Batch(Tokens block_tokens, bool with_identity, const std::optional<KvWindow>& window,
        std::pmr::memory_resource* memory)
      : block_(block_tokens),
        with_identity_(with_identity),
        members_(memory),
        growth_count_(static_cast<std::size_t>(block_.count()), memory),
        host_growth_count_(static_cast<std::size_t>(block_.count()), memory),
        growth_(with_identity ? static_cast<std::size_t>(block_.count()) : 0),
        longest_(memory),
        ring_(1024, -1, memory) {
    if (window) windows_.emplace(*window, block_tokens);
  }

  // --- members -------------------------------------------------------------------------------------------------------
  [[nodiscard]] std::int32_t create(RequestId id);
  void destroy(std::int32_t m);
  [[nodiscard]] Member& operator[](std::int32_t m) { return members_[static_cast<std::size_t>(m)]; }
  [[nodiscard]] const Member& operator[](std::int32_t m) const { return members_[static_cast<std::size_t>(m)]; }

  [[nodiscard]] Tokens computed(const Member& m) const {
    return m.phase == Phase::decoding ? m.computed + steps_ : m.computed;
  }
  [[nodiscard]] Tokens known(const Member& m) const {
    return m.phase == Phase::decoding ? m.computed + steps_ + Tokens(1) : m.known;
  }
  [[nodiscard]] Blocks held(const Member& m) const {
    if (m.phase != Phase::decoding || m.covered) return m.held;
    return blocks_for(computed(m), block_);
  }
  [[nodiscard]] Duration computing(const Member& m) const {
    return m.phase == Phase::decoding ? m.computing + decode_time_ : m.computing;
  }
  [[nodiscard]] SimTime last_token(const Member& m) const {
    return m.phase == Phase::decoding && !m.late ? last_step_end_ : m.last_token;
  }
  [[nodiscard]] bool grows_next(const Member& m) const {
    return m.phase == Phase::decoding && !m.covered && growth_class(m) == step_class_;
  }

  // --- batch order ---------------------------------------------------------------------------------------------------
  void append(std::int32_t m);  // at the end of the batch order
  void unlink(std::int32_t m);
  [[nodiscard]] std::int32_t first() const { return first_; }
  [[nodiscard]] std::int32_t last() const { return last_; }
  [[nodiscard]] std::int64_t size() const { return size_; }

  // --- decoding ------------------------------------------------------------------------------------------------------
  /// All known tokens but the last are computed: from now on one token per decode step.
  void start_decoding(std::int32_t m);
  /// Returns to plain values; the member keeps its phase-independent state and gets `phase`.
  void stop_decoding(std::int32_t m, Phase phase);
  [[nodiscard]] std::int64_t decoding() const { return decoding_; }
  /// Sum of the tokens that the decodes attend to in their next step.
  [[nodiscard]] Tokens decode_context() const { return context_ + (steps_ + Tokens(1)) * decoding_; }
  /// The decodes on the GPU that are not in sub-batch 0. In any order.
  [[nodiscard]] const std::vector<std::int32_t>& apart() const { return apart_; }
  /// The decodes of a sub-batch that attend on the CPU, and what they attend to in their next step.
  struct OnHost {
    std::int64_t sequences = 0;
    Tokens context{};
  };
  [[nodiscard]] OnHost on_host(std::int32_t sub_batch) const {
    const OnHost& relative = on_host_[static_cast<std::size_t>(sub_batch)];
    return {relative.sequences, relative.context + (steps_ + Tokens(1)) * relative.sequences};
  }
  /// Decodes on the GPU in sub-batch 0, and those that are neither.
  [[nodiscard]] bool all_together() const { return apart_.empty() && hosted_ == 0; }
  /// Moves a member of the batch to another sub-batch.
  void set_sub_batch(std::int32_t m, std::int32_t number);
  /// The most tokens that one decode attends to in its next step, those apart left out; 0 without decodes.
  [[nodiscard]] Tokens longest_decode() const {
    return longest_.empty() ? Tokens() : longest_.front().computed + steps_ + Tokens(1);
  }
  /// Blocks of the GPU that the decodes need for their next tokens: each at most one.
  [[nodiscard]] Blocks growth() const { return Blocks(growth_count_[step_class_]); }
  /// Blocks of the host likewise.
  [[nodiscard]] Blocks host_growth() const { return Blocks(host_growth_count_[step_class_]); }
  /// The decodes that need a block, in batch order; only with identity. O(m log m) in the m decodes whose last block is
  /// full, about one in `block_tokens` of all.
  [[nodiscard]] std::vector<std::int32_t>& growing();
  /// Decodes whose next token fills a block, in batch order; only with identity.
  [[nodiscard]] std::vector<std::int32_t>& filling();
  [[nodiscard]] Tokens steps() const { return steps_; }
  [[nodiscard]] Duration decode_time() const { return decode_time_; }

  /// Every decode has taken one step that began `duration` ago and ends now. O(1).
  void step(Duration duration) {
    steps_ += Tokens(1);
    step_class_ = next_class();
    decode_time_ += duration;
    if (windows_) windows_->step();
  }
  /// One decode sits out the step that is about to be taken. Call before `step`; the decode is late from then on.
  void skip(std::int32_t m, Duration duration);
  /// Steps until the first decode has all its tokens; `most` if that takes as many or more. O(steps).
  [[nodiscard]] std::int64_t steps_to_finish(std::int64_t most) const;
  /// The k members that have all their tokens after the last step, in batch order. O(k log k).
  [[nodiscard]] std::vector<std::int32_t>& finishing();

  /// The blocks that layers with a sliding window have freed. Decodes are counted here; a context that changes
  /// otherwise is told by its owner. Empty: there are no such layers.
  [[nodiscard]] std::optional<KvWindows>& windows() { return windows_; }

  // --- token gaps ----------------------------------------------------------------------------------------------------
  /// End of the step in which every decode that is not late emitted its last token.
  [[nodiscard]] SimTime last_step_end() const { return last_step_end_; }
  void set_last_step_end(SimTime end) { last_step_end_ = end; }
  /// `m` decodes, but emitted its last token at `when` and not at last_step_end.
  void mark_late(std::int32_t m, SimTime when);
  [[nodiscard]] const std::vector<std::int32_t>& late() const { return late_; }
  void clear_late();

  /// A step will be taken soon: asks the caches for what it uses outside of this object.
  SPILLWAY_PREFETCHES void prefetch_pointees() const {
    prefetch(growth_count_.data() + step_class_, 2 * sizeof(std::int64_t));
    prefetch(host_growth_count_.data() + step_class_, 2 * sizeof(std::int64_t));
    prefetch(ring_.data() + place_in_ring(steps_ + Tokens(1)), sizeof(std::int32_t));
    prefetch(longest_.data(), sizeof(Length));
  }

 private:
  /// A decode on the GPU in sub-batch 0.
  [[nodiscard]] static bool in_longest(const Member& member) {
    return member.phase == Phase::decoding && member.apart_at < 0 && !member.on_host;
  }
  /// A member decoded with `computed` tokens at some time, relative to the steps as in Member.
  struct Length {
    Tokens computed{};
    std::int32_t member = -1;
    auto operator<=>(const Length&) const = default;
  };
  [[nodiscard]] bool is_true(const Length& length) const {
    const Member& member = (*this)[length.member];
    return in_longest(member) && member.computed == length.computed;
  }

  /// A decode needs a block before the steps s with s mod block == this value: there (computed + s) mod block is 0.
  [[nodiscard]] std::size_t growth_class(const Member& m) const {
    // The absolute number of computed tokens is not negative, and neither are the steps.
    const std::int64_t now = (m.computed + steps_).count();
    const std::int64_t used = now - block_.count() * quotient(now, block_.count());
    const auto step = static_cast<std::int64_t>(step_class_);
    const std::int64_t c = step - used;
    return static_cast<std::size_t>(c < 0 ? c + block_.count() : c);
  }
  [[nodiscard]] std::size_t next_class() const {
    return step_class_ + 1 == static_cast<std::size_t>(block_.count()) ? 0 : step_class_ + 1;
  }
  [[nodiscard]] std::size_t place_in_ring(Tokens step) const {
    return static_cast<std::size_t>(step.count()) & (ring_.size() - 1);
  }
  void enter_ring(std::int32_t m);
  void leave_ring(std::int32_t m);
  // Covered members never grow. With identity they are listed too, because their blocks fill.
  void enter_growth(std::int32_t m);
  /// Joins the sums of its sub-batch on the host, apart_, or the heap of lengths.
  void enter_group(std::int32_t m);
  /// Leaves them; its entries in the heap are outdated then.
  void leave_group(std::int32_t m);
  void count_on_host(const Member& member, std::int64_t sign);
  void leave_growth(std::int32_t m);
  void grow_ring(Tokens span);
  // Heap entries may be outdated. Each decoding member has at least one current entry. The top entry is current.
  void enter_longest(std::int32_t m);
  void drop_outdated_longest();
  [[nodiscard]] std::vector<std::int32_t>& in_batch_order(const std::vector<std::int32_t>& members);

  Tokens block_;
  bool with_identity_;
  std::pmr::vector<Member> members_;
  std::vector<std::int32_t> free_;
  std::int32_t first_ = -1;
  std::int32_t last_ = -1;
  std::int64_t size_ = 0;
  std::uint64_t next_order_ = 0;

  Tokens steps_{};
  std::size_t step_class_ = 0;  // steps_ mod block
  Duration decode_time_{};
  std::int64_t decoding_ = 0;
  Tokens context_{};                                  // sum of Member::computed over decodes
  std::pmr::vector<std::int64_t> growth_count_;       // decodes on the GPU by growth class
  std::pmr::vector<std::int64_t> host_growth_count_;  // decodes on the host by growth class
  std::vector<std::vector<std::int32_t>> growth_;     // with identity: decodes by growth class, covered ones too
  std::vector<std::int32_t> apart_;
  std::array<OnHost, kMostSubBatches> on_host_{};  // by sub-batch; contexts are sums of Member::computed
  std::int64_t hosted_ = 0;                        // decodes in them
  std::pmr::vector<Length> longest_;               // a heap, the largest on top; O(decodes) entries
  std::pmr::vector<std::int32_t> ring_;            // by finish step modulo its size: first member
  std::optional<KvWindows> windows_;
  std::vector<std::int32_t> scratch_;
  std::vector<std::int32_t> late_;
  SimTime last_step_end_{};
};

}  // namespace spillway
