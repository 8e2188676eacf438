// What each layer of an iteration waits for, and which copy to issue next.
#pragma once

#include <cstdint>

#include "sim/core/units.hpp"

namespace spillway {

/// The four engines that work side by side on one GPU and its host. Each runs its work in FIFO order.
enum class Stream : std::uint8_t { compute, h2d, d2h, cpu };
inline constexpr int kStreams = 4;

/// One copy between host and GPU, as a layer rule issues it.
struct Copy {
  Stream stream = Stream::h2d;  // h2d or d2h
  std::int32_t layer = 0;       // what is copied, in the rule's own terms
  std::int32_t tag = 0;         // free for the rule
  Bytes bytes{};                // charged on the link
  Duration launch{};            // fixed part; a slower link does not stretch it
  Duration transfer{};          // bytes / bandwidth when nothing else uses the link, rounded by the copy model
};

/// Takes the copies that a rule wants to start. A copy joins the end of its stream's FIFO at once.
class CopySink {
 public:
  virtual ~CopySink() = default;
  virtual void issue(const Copy& copy) = 0;
};

/// A pure state machine over layers and copies.
///
/// Contract
///  * It never sees the clock: the same sequence of calls gives the same copies.
///  * `at_layer_start(layer, sub_batch)` is called exactly once per step, when the compute stream has finished the step
///    before it and this step's CPU attention of the previous layer is done, just before its residency check. Copies
///    issued here start no earlier than this instant.
///  * `at_copy_done(copy)` is called when a copy has ended, also between two iterations (a copy in flight outlives the
///    iteration that issued it). At one instant: first every copy that ends then (d2h before h2d: space is freed before
///    it is filled, and only then does a layer that was waited for arrive, so a rule can tell from its own state
///    whether compute stood still when a copy ended), then the layer start, then the residency check.
///  * `at_copies_done()` is called at every instant at which copies have ended, after the last of them, unless a layer
///    starts at that instant: then its at_layer_start has its place. A step that waits is checked after it. So a rule
///    that starts a copy whenever another ends sees, at the end of a layer, the layer that follows.
///  * `ready(layer, sub_batch)` is the residency check: may the step compute now? Asked right after at_layer_start and,
///    while the step waits, after the last at_copy_done of an instant. It must not change the rule's state.
///  * `quiet(layer)` says how many of the layers from this one on, each of a single sub-batch, are ready and would
///    start without issuing anything, as long as no copy ends. For as many of them as start before that, or fewer, one
///    call of `skip(first, count)` may stand for their at_layer_start, which it must be the same as. 0: it cannot tell.
///  * A rule that leaves a step waiting with no copy in flight deadlocks; the executor reports a broken invariant.
class LayerRule {
 public:
  virtual ~LayerRule() = default;
  virtual void at_layer_start(std::int32_t layer, std::int32_t sub_batch, CopySink& sink) = 0;
  virtual void at_copy_done(const Copy& copy, CopySink& sink) = 0;
  virtual void at_copies_done(CopySink& /*sink*/) {}
  [[nodiscard]] virtual std::int32_t quiet(std::int32_t /*layer*/) const { return 0; }
  virtual void skip(std::int32_t /*first*/, std::int32_t /*count*/) {}
  [[nodiscard]] virtual bool ready(std::int32_t layer, std::int32_t sub_batch) const = 0;
};

}  // namespace spillway
