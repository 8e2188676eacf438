#include "policies/parts/layer_swap.hpp"

#include <algorithm>
#include <utility>

#include "sim/core/error.hpp"

namespace spillway {

LayerSwap::LayerSwap(std::int32_t layers, std::int32_t on_host, bool check_at_completion, const SlotCopies& copies)
    : layers_(layers),
      on_host_(on_host),
      check_at_completion_(check_at_completion),
      copies_(copies),
      old_copies_(copies),
      current_(layers - 1) {
  SPILLWAY_CHECK(layers >= 3 && layers <= LayerSet::kMost && on_host >= 0 && on_host <= layers - 3,
                 "three layers stay on the GPU: one computes, one leaves, one arrives");
  for (std::int32_t layer = 0; layer < layers; ++layer) (layer < layers - on_host ? gpu_ : host_).insert(layer);
  peak_host_ = copies.out.bytes * on_host;
}

void LayerSwap::resize(std::int32_t on_host, const SlotCopies& copies) {
  SPILLWAY_CHECK(resized(), "the slots are resized before they have come to their last size");
  SPILLWAY_CHECK(on_host >= 0 && on_host <= layers_ - 3, "three layers stay on the GPU");
  on_host_ = on_host;
  old_copies_ = copies_;
  copies_ = copies;
  // If all layers stay on the GPU, no layer is copied out again: the slots shrink in place.
  if (on_host == 0) return;
  came_in_ = 0;
  for (std::int32_t layer = 0; layer < layers_; ++layer) old_.insert(layer);
}

void LayerSwap::recut(std::int32_t on_host, const SlotCopies& copies) {
  SPILLWAY_CHECK(on_host >= 0 && on_host <= layers_ - 3, "three layers stay on the GPU");
  on_host_ = on_host;
  copies_ = copies;
  const std::int32_t under_way = (going_in_ ? 1 : 0) + (going_out_ ? 1 : 0);
  LayerSet gpu;
  LayerSet host;
  for (std::int32_t layer = 0; layer < layers_; ++layer) {
    if (!gpu_.has(layer) && !host_.has(layer)) continue;  // the layer on its way
    (gpu.count() < layers_ - on_host - under_way ? gpu : host).insert(layer);
  }
  gpu_ = gpu;
  host_ = host;
  old_ = LayerSet();
}

void LayerSwap::at_layer_start(std::int32_t layer, std::int32_t sub_batch, CopySink& sink) {
  if (sub_batch > 0) return;  // the layer started with the first sub-batch
  if (started_) coldest_ = current_;
  started_ = true;
  current_ = layer;
  waited_ = false;
  if (!going_in_ || !going_out_) decide(sink);
}

void LayerSwap::at_copies_done(CopySink& sink) {
  const bool decides = std::exchange(waited_, false) || check_at_completion_;
  if (decides && (!going_in_ || !going_out_)) decide(sink);
}

void LayerSwap::at_copy_done(const Copy& copy, CopySink& /*sink*/) {
  waited_ = waited_ || !gpu_.has(current_);
  if (copy.stream == Stream::h2d) {
    going_in_ = false;
    gpu_.insert(copy.layer);
    if (!resized() && old_.has(copy.layer)) old_.erase(copy.layer);
    ++came_in_;
  } else {
    going_out_ = false;
    host_.insert(copy.layer);
  }
}

inline void LayerSwap::come_in(std::int32_t layer, CopySink& sink) {
  going_in_ = true;
  host_.erase(layer);
  issue(layer, slot_of(layer).in, sink);
}

inline void LayerSwap::go_out(std::int32_t layer, CopySink& sink) {
  going_out_ = true;
  gpu_.erase(layer);
  issue(layer, slot_of(layer).out, sink);
}

inline void LayerSwap::issue(std::int32_t layer, Copy& slot, CopySink& sink) {
  peak_host_ = std::max(peak_host_, slot.bytes * (layers_ - gpu_.count()));
  slot.layer = layer;
  sink.issue(slot);
}

void LayerSwap::decide(CopySink& sink) {
  const bool may_leave = !going_out_ && on_host_ > 0 && coldest_ != LayerSet::kNone && gpu_.has(coldest_) &&
                         layers_ - gpu_.count() < on_host_ + 2;
  const bool may_come = !going_in_ && host_.count() > on_host_;  // a slot on the GPU is free
  const std::int32_t hottest = may_leave || may_come ? host_.next_cyclic(current_) : LayerSet::kNone;
  if (may_leave) {
    const bool needed =
        host_.count() < on_host_ || (hottest != LayerSet::kNone && distance(hottest) < distance(coldest_));
    // If swaps are in step with layers, for example every second layer, the same layers would swap for ever. After each
    // layer could have swapped once, all would have their new slot, so swap the layers that still have the old slot.
    const bool stays = came_in_ >= layers_ && !resized() && !old_.has(coldest_) && gpu_.has(current_);
    if (needed && !stays) go_out(coldest_, sink);
  }
  if (may_come) come_in(hottest, sink);
  // After a raise by several layers, more than one may have to go before the layer that is waited for has a slot.
  if (!going_in_ && !going_out_ && !gpu_.has(current_)) {
    std::int32_t last = current_;
    while (!gpu_.has(last)) last = last > 0 ? last - 1 : layers_ - 1;
    go_out(last, sink);
  }
}

}  // namespace spillway
