// What each layer of an iteration waits for, and which copy to issue next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "sim/core/units.hpp"

namespace spillway {

/// The streams that work side by side for one GPU. Each stream runs its work in FIFO order.
enum class Stream : std::uint8_t {
  compute,
  h2d,  // the link to the host, both ways
  d2h,
  peer_in,  // the links to other GPUs, both ways
  peer_out,
  cpu,  // attention or experts on the host's CPU
};
inline constexpr int kStreams = 6;

/// Owners of copies, in the order in which their rules are called. Weights come before KV: the next layers need them
/// anew in each iteration.
inline constexpr std::int32_t kWeightCopies = 0;   // of Policy::weights
inline constexpr std::int32_t kLayerCopies = 1;    // of Policy::layers
inline constexpr std::int32_t kRequestCopies = 2;  // of KV that requests swap or load
inline constexpr std::int32_t kCpuAttention = 3;   // attention on the CPU, with what it takes from the GPU and returns
inline constexpr std::int32_t kCopyOwners = 4;

/// Why a step waits: the copies of one owner, or one of the three parts of attention on the CPU.
enum class Wait : std::uint8_t {
  weights,
  layers,
  requests,
  cpu_attention,
  queries,  // are on the way to the CPU
  outputs,  // are on the way back
  experts,  // on the CPU, the way there and back included
};
inline constexpr std::size_t kWaits = 7;
[[nodiscard]] constexpr Wait wait_for(std::int32_t owner) { return static_cast<Wait>(owner); }
[[nodiscard]] constexpr bool waits_for_cpu_attention(Wait wait) {
  return wait >= Wait::cpu_attention && wait <= Wait::outputs;
}

/// One copy, as a layer rule issues it, or one piece of work on the CPU, whose bytes cross no link.
struct Copy {
  Stream stream = Stream::h2d;        // not compute
  std::int32_t layer = 0;             // what is copied, numbered by the rule
  Bytes bytes{};                      // charged to the link; cpu: KV or weights that the CPU reads
  Duration launch{};                  // fixed part; a slower link does not stretch it
  Duration transfer{};                // bytes / bandwidth of an idle link, rounded by the copy model
  std::int32_t tag = 0;               // free for the rule
  std::int16_t owner = kLayerCopies;  // which of several rules issued it; set by the engine
  std::int16_t alike = 0;             // as many equal copies follow it at once: a run
  bool operator==(const Copy&) const = default;
};

/// Takes the copies that a rule wants to start. A copy joins the end of its stream's FIFO at once, and so does its run:
/// at_copy_done is called for each, with as many `alike` as are left. Only a rule that works in layers issues runs. A
/// sink is valid during the call that it is given to.
class CopySink {
 public:
  virtual ~CopySink() = default;
  virtual void issue(const Copy& copy) = 0;
};

/// Equal copies from the host and pieces of work on the compute stream that take turns: the rule lets nothing copy or
/// compute beside any of them.
struct LayerTurns {
  Copy copy{};              // each of the copies: h2d, without a run
  std::int32_t copies = 0;  // > 0
  Duration time{};          // of all pieces
  Duration arithmetic{};    // of the pieces that are bound by arithmetic
  Duration after_last{};    // of the pieces that follow the last copy, at most `time`
};

/// What the compute stream does next within a layer.
struct LayerWork {
  enum class Kind : std::uint8_t {
    none,      // nothing more: the next layer may start
    waits,     // a copy must end first
    computes,  // from now on
    turns      // all of `turns`: skip_turns() follows, or the next calls return the same steps one by one
  };
  Kind kind = Kind::none;
  Duration time{};          // computes, or waits with `alike`: how long
  bool arithmetic = false;  // likewise: bound by arithmetic, not by memory
  /// computes: as many further calls would return this piece again and issue no copy, as long as no copy ends.
  /// waits: as many rounds, in each of which a copy from the host ends, and such a piece is computed. The copies are
  /// the next ones of the run in flight, whose last one is in no round. No call issues another copy, as long as no
  /// other copy ends. Above 0 only from rules that implement skip_alike and skip_rounds.
  std::int32_t alike = 0;
  Wait wait = Wait::layers;           // waits, turns: for copies of the rule, or for something else
  const LayerTurns* turns = nullptr;  // turns: of the rule, valid until its next call
};

/// A pure state machine over layers and copies.
///
/// Contract
///  * It never sees the clock: the same sequence of calls gives the same copies.
///  * `at_layer_start(layer, sub_batch)` is called exactly once per step, just before the step's residency check. The
///    compute stream has then finished the step before. Copies issued in this call start no earlier than this instant.
///  * `at_layers_end()` is called once per iteration, when the last step of the last layer has ended. The work that
///    follows the layers of a sub-batch starts once `unfinished(sub_batch)` is empty.
///  * `at_copy_done(copy)` is called when a copy has ended, also between two iterations: a copy in flight outlives the
///    iteration that issued it. The order at one instant is: all copies that end, the layer start, the residency check.
///    Copies out of the GPU (d2h, peer_out) end before copies into it (h2d, peer_in), so memory is freed before it is
///    filled; attention on the CPU ends last. A layer arrives after them, so a rule can see from its own state whether
///    compute stood still when a copy ended.
///  * `at_copies_done()` is called at every instant at which copies have ended, after the last of them. When a layer
///    starts at that instant, at_layer_start replaces it. A step that waits is checked after the call. So a rule that
///    starts a copy whenever another copy ends sees, at the end of a layer, the layer that follows.
///  * `ready(layer, sub_batch)` is the residency check: may the step compute now? It is called right after
///    at_layer_start and, while the step waits, after the last at_copy_done of an instant. It must not change the
///    rule's state. Nor must `unfinished`, which is called when the step before has ended and, while the work waits,
///    likewise.
///  * `quiet(layer)` returns how many layers from `layer` on, each with a single sub-batch, are ready and would start
///    without issuing a copy as long as no copy ends; 0: unknown. For that many layers, or fewer, one call of
///    `skip(first, count)` may replace their at_layer_start and must have the same effect.
///  * `recurs(layer)` returns for how many layers from `layer` on the calls of the rule depend on nothing but its state
///    and the calls before, whatever the number of the layer, and that state as a number; 0 layers: unknown. Called
///    where the first step of `layer` is next. If the state and the streams are then as they were one layer before, all
///    of these layers repeat that one. For `count` of them, `repeat(first, count)` may replace all calls and must have
///    the same effect.
///  * A rule that works_in_layers() has work on the compute stream of its own after a layer's step: routed experts,
///  each
///    of which may wait for its weights. `work(layer, sub_batch)` is called when the step has ended, again when the
///    work that it returned has ended, and while it waits after the last at_copy_done of an instant, until it returns
///    `none`. Copies issued in it start no earlier than this instant. Only then does the next layer start. For `count`
///    of the pieces that it said are alike, `skip_alike(count)` may replace the calls and must have the same effect.
///    So may `skip_rounds(count)` for rounds, and `skip_turns()` for turns, at_copy_done and at_copies_done included.
///    LayerPolicy::copied is not called for their copies.
///  * Several rules may share the streams: weights, KV slots, the blocks that requests swap. A rule hears only of its
///    own copies, which may queue behind those of others, and a step computes when every rule is ready.
///  * A rule that leaves a step waiting with no copy in flight deadlocks. The executor reports a broken invariant.
class LayerRule {
 public:
  virtual ~LayerRule() = default;
  virtual void at_layer_start(std::int32_t layer, std::int32_t sub_batch, CopySink& sink) = 0;
  virtual void at_copy_done(const Copy& copy, CopySink& sink) = 0;
  virtual void at_copies_done(CopySink& /*sink*/) {}
  [[nodiscard]] virtual std::int32_t quiet(std::int32_t /*layer*/) const { return 0; }
  virtual void skip(std::int32_t /*first*/, std::int32_t /*count*/) {}
  struct Recurrence {
    std::int32_t layers = 0;
    std::uint64_t state = 0;
  };
  [[nodiscard]] virtual Recurrence recurs(std::int32_t /*layer*/) const { return {}; }
  virtual void repeat(std::int32_t /*first*/, std::int32_t /*count*/) {}
  [[nodiscard]] virtual bool ready(std::int32_t layer, std::int32_t sub_batch) const = 0;
  /// What a step waits for, while it is not ready.
  [[nodiscard]] virtual Wait waits_for(std::int32_t /*layer*/, std::int32_t /*sub_batch*/) const {
    return Wait::layers;
  }
  /// Constant for an iteration.
  [[nodiscard]] virtual bool works_in_layers() const { return false; }
  [[nodiscard]] virtual LayerWork work(std::int32_t /*layer*/, std::int32_t /*sub_batch*/, CopySink& /*sink*/) {
    return {};
  }
  virtual void skip_alike(std::int32_t /*count*/) {}
  virtual void skip_rounds(std::int32_t /*count*/) {}
  virtual void skip_turns() {}
  virtual void at_layers_end(CopySink& /*sink*/) {}
  /// What the work after the layers of a sub-batch waits for.
  [[nodiscard]] virtual std::optional<Wait> unfinished(std::int32_t /*sub_batch*/) const { return std::nullopt; }
};

}  // namespace spillway
