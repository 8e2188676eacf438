// Copies of KV blocks around an iteration.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
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
///  * A layer waits for the copies of its own share.
///  * Nothing waits for background copies; they go on beside this iteration and later ones. They may also start at
///  once.
///
/// A stream is one FIFO: a swap-out also waits for the background copies issued before it. Copies added later wait
/// for the next iteration.
class KvCopies final : public LayerRule {
 public:
  void add(Copy copy) {
    copy.tag = kBlocking;
    blocking_.push_back(copy);
  }
  /// Copy::layer is the layer that waits.
  void add_for_layer(Copy copy) {
    copy.tag = kLayered;
    layered_.push_back(copy);
  }
  /// `ticket` >= 0 names the copy when it has ended.
  void add_background(Copy copy, std::int32_t ticket) {
    copy.tag = kBackground;
    copy.layer = ticket;
    background_.push_back(copy);
  }
  /// No copy waits to be issued and none is in flight.
  [[nodiscard]] bool none() const {
    return blocking_.empty() && layered_.empty() && background_.empty() && in_flight_ == 0;
  }
  /// Stream of the copy with waiting steps that ended last: the steps waited for this stream.
  [[nodiscard]] Stream waited_on() const { return waited_on_; }
  /// Tickets of the background copies that have ended since the last call, in the order of their ends.
  [[nodiscard]] std::vector<std::int32_t> take_ended() { return std::exchange(ended_, {}); }

  /// Starts the background copies that wait for an iteration.
  void issue_background(CopySink& sink) { issue(background_, sink); }

  void at_layer_start(std::int32_t layer, std::int32_t sub_batch, CopySink& sink) override {
    if (layer != 0 || sub_batch != 0) return;
    blocking_in_flight_ += blocking_.size();
    issue(blocking_, sink);
    std::ranges::stable_sort(layered_, {}, &Copy::layer);
    for (const Copy& copy : layered_) {
      const auto waiting = static_cast<std::size_t>(copy.layer);
      if (of_layer_.size() <= waiting) of_layer_.resize(waiting + 1);
      ++of_layer_[waiting];
    }
    layered_in_flight_ += layered_.size();
    issue(layered_, sink);
    issue(background_, sink);
  }
  void at_copy_done(const Copy& copy, CopySink& /*sink*/) override {
    --in_flight_;
    if (copy.tag == kBackground) {
      ended_.push_back(copy.layer);
      return;
    }
    waited_on_ = copy.stream;
    if (copy.tag == kBlocking) {
      --blocking_in_flight_;
    } else {
      --layered_in_flight_;
      --of_layer_[static_cast<std::size_t>(copy.layer)];
    }
  }
  [[nodiscard]] std::int32_t quiet(std::int32_t layer) const override {
    const bool issues = layer == 0 && !(blocking_.empty() && layered_.empty() && background_.empty());
    const bool waits = blocking_in_flight_ + layered_in_flight_ > 0;
    return issues || waits ? 0 : std::numeric_limits<std::int32_t>::max();
  }
  [[nodiscard]] bool ready(std::int32_t layer, std::int32_t /*sub_batch*/) const override {
    if (blocking_in_flight_ > 0) return false;
    const auto at = static_cast<std::size_t>(layer);
    return layered_in_flight_ == 0 || at >= of_layer_.size() || of_layer_[at] == 0;
  }
  [[nodiscard]] Wait waits_for(std::int32_t /*layer*/, std::int32_t /*sub_batch*/) const override {
    return Wait::requests;
  }

 private:
  static constexpr std::int32_t kBlocking = 0;
  static constexpr std::int32_t kLayered = 1;
  static constexpr std::int32_t kBackground = 2;

  void issue(std::vector<Copy>& copies, CopySink& sink) {
    in_flight_ += copies.size();
    for (const Copy& copy : copies) sink.issue(copy);
    copies.clear();
  }

  std::vector<Copy> blocking_;
  std::vector<Copy> layered_;
  std::vector<Copy> background_;
  std::size_t in_flight_ = 0;
  std::size_t blocking_in_flight_ = 0;
  std::size_t layered_in_flight_ = 0;
  std::vector<std::int32_t> of_layer_;  // copies in flight that a layer waits for
  std::vector<std::int32_t> ended_;
  Stream waited_on_ = Stream::h2d;
};

}  // namespace spillway
