// Copies of KV blocks around an iteration.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <utility>
#include <vector>

#include "sim/api/layer_rule.hpp"

namespace spillway {

/// Issues its copies at the first layer start of the iteration, each stream as a FIFO: blocking ones first, then
/// those of layers in the order of the layers, then background copies.
///
///  * Every step waits until all blocking copies are done: vLLM's swap in and out before the forward pass
///    (Worker.execute_model waits for the cache operations before it runs the model), and KV loaded for the prompts of
///    this iteration.
///  * Blocking copies in turn start when the other blocking copies are done, and so do all copies below.
///  * A layer waits for the copies of its own share.
///  * A copy after a layer starts when that layer has computed. The first layer of the next iteration waits for it, and
///    all copies above wait until it has ended: they may take the same blocks further.
///  * Nothing waits for background copies; they go on beside this iteration and later ones. They may also start at
///    once. Those that yield start one by one, while no copy to the GPU is in flight and none after a layer.
///
/// A stream is one FIFO: a swap-out also waits for the background copies issued before it. Copies added later wait
/// for the next iteration.
class KvCopies final : public LayerRule {
 public:
  /// Bytes at the start of the object that none() uses.
  static constexpr std::size_t kHead = 16;

  void add(Copy copy, bool in_turn = false) {
    copy.tag = kBlocking;
    ++here_;
    (in_turn ? in_turn_ : blocking_).push_back(copy);
  }
  /// Copy::layer is the layer that waits.
  void add_for_layer(Copy copy) {
    copy.tag = kLayered;
    ++here_;
    layered_.push_back(copy);
  }
  /// Copy::layer is the layer that computes what is copied.
  void add_after_layer(Copy copy) {
    copy.tag = kAfterLayer;
    ++here_;
    after_layers_.push_back(copy);
  }
  /// `ticket` >= 0 names the copy when it has ended.
  void add_background(Copy copy, std::int32_t ticket) {
    copy.tag = kBackground;
    ++here_;
    copy.layer = ticket;
    background_.push_back(copy);
  }
  /// A background copy that yields.
  void add_yielding(Copy copy, std::int32_t ticket) {
    copy.tag = kYielding;
    ++here_;
    copy.layer = ticket;
    to_yield_.push_back(copy);
  }
  /// The run is over: copies that yield and have not started never do.
  void stop() {
    here_ -= to_yield_.size() + yielding_.size();
    to_yield_.clear();
    yielding_.clear();
  }
  /// No copy waits to be issued and none is in flight.
  [[nodiscard]] bool none() const { return here_ == 0; }
  /// Stream of the copy with waiting steps that ended last: the steps waited for this stream.
  [[nodiscard]] Stream waited_on() const { return waited_on_; }
  /// Tickets of the background copies that have ended since the last call, in the order of their ends.
  /// Valid until the next call.
  [[nodiscard]] const std::vector<std::int32_t>& take_ended() {
    taken_.clear();
    std::swap(taken_, ended_);
    return taken_;
  }

  /// Starts the background copies that wait for an iteration.
  void issue_background(CopySink& sink) { issue_unless_leaving(sink); }

  void at_layer_start(std::int32_t layer, std::int32_t sub_batch, CopySink& sink) override {
    if (sub_batch != 0) return;
    layer == 0 ? issue_unless_leaving(sink) : issue_computed(layer, sink);
  }
  void at_copy_done(const Copy& copy, CopySink& sink) override {
    --here_;
    if (inbound(copy)) --inbound_in_flight_;
    if (copy.tag == kYielding) yields_in_flight_ = false;
    if (copy.tag == kBackground || copy.tag == kYielding) {
      ended_.push_back(copy.layer);
    } else {
      end_waited(copy, sink);
    }
    issue_yielding(sink);
  }
  [[nodiscard]] std::int32_t quiet(std::int32_t layer) const override {
    const bool issues =
        !after_layers_.empty() || (layer == 0 && !(blocking_.empty() && in_turn_.empty() && layered_.empty() &&
                                                   background_.empty() && to_yield_.empty()));
    const bool waits = blocking_left_ + layered_in_flight_ + leaving_ > 0;
    return issues || waits ? 0 : std::numeric_limits<std::int32_t>::max();
  }
  /// What is in flight is in the streams. Layers repeat while nothing waits but copies after layers that are like the
  /// last one that left, one for each layer.
  [[nodiscard]] Recurrence recurs(std::int32_t layer) const override {
    if (layer == 0 || blocking_left_ + layered_in_flight_ > 0 || held_back_) return {};
    if (after_layers_.empty()) return {leaving_ > 0 ? 0 : std::numeric_limits<std::int32_t>::max(), 0};
    if (!yielding_.empty() || left_last_.layer != layer - 2) return {};
    Copy like = left_last_;
    std::int32_t layers = 0;
    for (const Copy& copy : after_layers_) {
      ++like.layer;
      if (copy != like) break;
      ++layers;
    }
    return {layers, 0};
  }
  void repeat(std::int32_t /*first*/, std::int32_t count) override {
    if (after_layers_.empty()) return;
    // As many have left and ended.
    after_layers_.erase(after_layers_.begin(), after_layers_.begin() + count);
    here_ -= static_cast<std::size_t>(count);
    left_last_.layer += count;
  }
  [[nodiscard]] bool ready(std::int32_t layer, std::int32_t /*sub_batch*/) const override {
    if (blocking_left_ > 0 || (layer == 0 && leaving_ > 0)) return false;
    const auto at = static_cast<std::size_t>(layer);
    return layered_in_flight_ == 0 || at >= of_layer_.size() || of_layer_[at] == 0;
  }
  [[nodiscard]] Wait waits_for(std::int32_t /*layer*/, std::int32_t /*sub_batch*/) const override {
    return Wait::requests;
  }
  void at_layers_end(CopySink& sink) override { issue_computed(std::numeric_limits<std::int32_t>::max(), sink); }

 private:
  static constexpr std::int32_t kBlocking = 0;
  static constexpr std::int32_t kLayered = 1;
  static constexpr std::int32_t kBackground = 2;
  static constexpr std::int32_t kAfterLayer = 3;
  static constexpr std::int32_t kYielding = 4;

  static bool inbound(const Copy& copy) { return copy.stream == Stream::h2d || copy.stream == Stream::peer_in; }
  /// A copy that steps have waited for has ended.
  void end_waited(const Copy& copy, CopySink& sink) {
    waited_on_ = copy.stream;
    if (copy.tag == kBlocking) {
      --blocking_left_;
      if (!in_turn_.empty() && blocking_left_ == in_turn_.size()) issue_in_turn(sink);
    } else if (copy.tag == kAfterLayer) {
      --leaving_;
      if (held_back_) issue_unless_leaving(sink);
    } else {
      --layered_in_flight_;
      --of_layer_[static_cast<std::size_t>(copy.layer)];
    }
  }

  /// All copies but those after layers.
  void issue_unless_leaving(CopySink& sink) {
    held_back_ = leaving_ > 0;
    if (held_back_) return;
    const bool at_once = blocking_.empty();
    blocking_left_ += blocking_.size() + in_turn_.size();
    issue(blocking_, sink);
    if (at_once || in_turn_.empty()) issue_in_turn(sink);
  }
  /// What starts once the first blocking copies are done.
  void issue_in_turn(CopySink& sink) {
    issue(in_turn_, sink);
    if (!std::ranges::is_sorted(layered_, {}, &Copy::layer)) std::ranges::stable_sort(layered_, {}, &Copy::layer);
    for (const Copy& copy : layered_) {
      const auto waiting = static_cast<std::size_t>(copy.layer);
      if (of_layer_.size() <= waiting) of_layer_.resize(waiting + 1);
      ++of_layer_[waiting];
    }
    layered_in_flight_ += layered_.size();
    issue(layered_, sink);
    issue(background_, sink);
    yielding_.insert(yielding_.end(), to_yield_.begin(), to_yield_.end());
    to_yield_.clear();
    issue_yielding(sink);
  }
  void issue_yielding(CopySink& sink) {
    if (yielding_.empty() || yields_in_flight_ || inbound_in_flight_ + leaving_ > 0) return;
    yields_in_flight_ = true;
    sink.issue(yielding_.front());
    yielding_.pop_front();
  }
  /// The layers before `layer` have computed.
  void issue_computed(std::int32_t layer, CopySink& sink) {
    while (!after_layers_.empty() && after_layers_.front().layer < layer) {
      left_last_ = after_layers_.front();
      after_layers_.pop_front();
      ++leaving_;
      Copy copy = left_last_;
      copy.layer = 0;  // so that copies after all layers are alike
      sink.issue(copy);
    }
  }

  void issue(std::vector<Copy>& copies, CopySink& sink) {
    inbound_in_flight_ += static_cast<std::size_t>(std::ranges::count_if(copies, inbound));
    for (const Copy& copy : copies) sink.issue(copy);
    copies.clear();
  }

  // The head:
  std::size_t here_ = 0;  // copies that wait to be issued or are in flight
  std::vector<Copy> blocking_;
  std::vector<Copy> in_turn_;
  std::vector<Copy> layered_;
  std::vector<Copy> background_;
  std::vector<Copy> to_yield_;     // background copies that yield
  std::deque<Copy> yielding_;      // those whose turn has come, except for what is on its way to the GPU
  bool yields_in_flight_ = false;  // one of them is
  std::size_t inbound_in_flight_ = 0;
  std::deque<Copy> after_layers_;  // in the order of the layers
  Copy left_last_{.layer = -1};    // the last of them that was issued
  std::size_t leaving_ = 0;        // those of them in flight
  bool held_back_ = false;         // other copies wait until these have ended
  std::size_t blocking_left_ = 0;  // in flight or in turn
  std::size_t layered_in_flight_ = 0;
  std::vector<std::int32_t> of_layer_;  // copies in flight that a layer waits for
  std::vector<std::int32_t> ended_;
  std::vector<std::int32_t> taken_;  // by the last take_ended()
  Stream waited_on_ = Stream::h2d;
};

}  // namespace spillway
