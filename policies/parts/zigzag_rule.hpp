// FlexGen's runtime: loads, stores and compute of one (layer, micro-batch) step side by side, then a synchronisation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "sim/api/layer_rule.hpp"
#include "sim/core/error.hpp"

namespace spillway {

/// The loads and stores of the step of one layer and micro-batch. A copy of 0 bytes is not made: the data stays on the
/// GPU, or the CPU attends to it.
struct ZigzagCopies {
  Copy weights{};       // h2d, the layer's share on the host; only that of micro-batch 0 counts
  Copy kv_load{};       // h2d, the KV that the step attends to; peer_in if another GPU holds it
  Copy hidden_load{};   // h2d, the step's input
  Copy kv_store{};      // d2h, the step's new KV; peer_out likewise
  Copy hidden_store{};  // d2h, the step's output
};

/// The zig-zag block schedule over steps (j, k), layers j outside and micro-batches k inside. The start of a step
/// issues
///
///   h2d   the weights of layer j + 1 if k = 0, then the KV and the hidden states of the step after it
///   d2h   the KV and the hidden states of the step before it
///
/// The next step starts when the compute and all of these copies are done, so a step lasts as long as the
/// busiest of compute, h2d and d2h. CPU attention of the step before does not hold back the executor's compute, so the
/// plan's times must include it in SubBatchTimes::gpu. FlexGen's step includes it too.
///
/// Where a thread of the engine attends on the CPU, it cannot start copies meanwhile. Then (`weights_first`) the step
/// with k = 0 issues the weights of layer j + 1 alone, and the rest and its compute start when they are there.
///
/// KV that moves to another place between two iterations (`relocation`) does so before the first step, after all copies
/// of the last one, its stores included, and beside nothing else.
///
/// With one micro-batch the input of a step is the output of the step before, so it could not be loaded in time: the
/// hidden states must stay on the GPU.
///
/// Iterations of a request block:
///  * The data of the first step (weights of layer 0, its KV and hidden states) is loaded before it, and the iteration
///    waits for it. If the iteration before was called with `next`, it loaded the data with its last layer and step, as
///    FlexGen does from one token to the next.
///  * The last step's stores start with the next iteration, beside its first copies. After the last iteration of a
///    request block nothing reads them, so they are never made and cost nothing, as in FlexGen.
///  * Copies of the last step may be in flight when the iteration has finished. The next first step waits for them.
///
/// Source: Sheng et al., ICML 2023, Algorithm 1; FMInference/FlexGen (19753bc), flexgen/flex_opt.py,
/// generation_loop_overlap_multi_batch and load_weight. One copy per kind of data and step, at most 6 per step. O(1)
/// per call. No copy of another rule may be in flight.
class ZigzagRule final : public LayerRule {
 public:
  /// Call it before each iteration, with the copies of its layers * micro_batches steps in the order of the steps. The
  /// span must outlive the iteration. `next`: the first step of the following iteration of this request block, if
  /// known.
  void begin_iteration(std::int32_t layers, std::int32_t micro_batches, std::span<const ZigzagCopies> copies,
                       const std::optional<ZigzagCopies>& next = std::nullopt, bool weights_first = false,
                       const Copy& relocation = {}) {
    const auto steps = static_cast<std::size_t>(layers) * static_cast<std::size_t>(micro_batches);
    SPILLWAY_CHECK(layers > 0 && micro_batches > 0 && copies.size() == steps, "an iteration has copies for each step");
    SPILLWAY_CHECK(copies_.empty(), "every step of the iteration before has started");
    first_is_loaded_ = next_.has_value();
    micro_batches_ = static_cast<std::size_t>(micro_batches);
    copies_ = copies;
    next_ = next;
    step_ = 0;
    weights_first_ = weights_first;
    relocation_ = relocation;
  }
  /// The request block ends between two iterations. The stores of its last step are dropped.
  void end_block() {
    SPILLWAY_CHECK(copies_.empty(), "a block ends between two iterations");
    last_ = {};
    next_.reset();
  }

  void at_layer_start(std::int32_t layer, std::int32_t sub_batch, CopySink& sink) override {
    const std::size_t step = static_cast<std::size_t>(layer) * micro_batches_ + static_cast<std::size_t>(sub_batch);
    SPILLWAY_CHECK(step == step_ && step < copies_.size(), "steps start one by one, layer by layer");
    waiting_ = true;
    go_on(sink);
  }
  void at_copy_done(const Copy& /*copy*/, CopySink& sink) override {
    if (--in_flight_ == 0 && waiting_) go_on(sink);
  }
  [[nodiscard]] bool ready(std::int32_t /*layer*/, std::int32_t /*sub_batch*/) const override { return !waiting_; }

 private:
  /// Starts the waiting step once all copies are done.
  void go_on(CopySink& sink) {
    if (in_flight_ > 0) return;
    if (relocation_.bytes > Bytes(0)) {
      store_last(sink);
      if (in_flight_ == 0) relocate(sink);
      return;
    }
    if (step_ == 0 && !first_is_loaded_) {
      first_is_loaded_ = true;
      store_last(sink);
      issue(copies_[0].weights, Stream::h2d, sink);
      load(copies_[0], sink);
      if (in_flight_ > 0) return;
    }
    if (step_ % micro_batches_ == 0 && !next_weights_issued_) {
      issue_next_weights(sink);
      next_weights_issued_ = true;
      if (weights_first_ && in_flight_ > 0) return;
    }
    next_weights_issued_ = false;
    waiting_ = false;
    store_last(sink);
    last_ = copies_[step_++];
    if (step_ < copies_.size()) {
      load(copies_[step_], sink);
    } else {
      if (next_) load(*next_, sink);
      copies_ = {};
      step_ = 0;
    }
  }
  void relocate(CopySink& sink) {
    ++in_flight_;
    sink.issue(std::exchange(relocation_, Copy{}));
  }
  void issue_next_weights(CopySink& sink) {
    const std::size_t next_layer = step_ + micro_batches_;
    if (next_layer < copies_.size()) {
      issue(copies_[next_layer].weights, Stream::h2d, sink);
    } else if (next_) {
      issue(next_->weights, Stream::h2d, sink);
    }
  }
  void load(const ZigzagCopies& step, CopySink& sink) {
    issue(step.kv_load, step.kv_load.stream == Stream::peer_in ? Stream::peer_in : Stream::h2d, sink);
    issue(step.hidden_load, Stream::h2d, sink);
  }
  /// Issues the stores of the step before, once.
  void store_last(CopySink& sink) {
    issue(last_.kv_store, last_.kv_store.stream == Stream::peer_out ? Stream::peer_out : Stream::d2h, sink);
    issue(last_.hidden_store, Stream::d2h, sink);
    last_ = {};
  }
  void issue(const Copy& copy, Stream stream, CopySink& sink) {
    if (copy.bytes == Bytes(0)) return;
    SPILLWAY_CHECK(copy.stream == stream, "loads run on h2d and stores on d2h");
    ++in_flight_;
    sink.issue(copy);
  }

  std::size_t micro_batches_ = 0;
  std::span<const ZigzagCopies> copies_{};  // of the iteration, until its last step has started
  std::optional<ZigzagCopies> next_{};
  std::size_t step_ = 0;  // the next step
  ZigzagCopies last_{};   // the step that started last, until its stores are issued
  Copy relocation_{};     // of KV, which is still to be issued; 0 bytes: none
  bool first_is_loaded_ = false;
  bool weights_first_ = false;
  bool next_weights_issued_ = false;  // by the waiting step, whose other copies are not
  bool waiting_ = false;              // the executor has reached the step, but copies are not done
  std::int64_t in_flight_ = 0;
};

}  // namespace spillway
