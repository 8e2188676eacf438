// Copies of KV blocks between GPU and host around an iteration.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "sim/api/layer_rule.hpp"

namespace spillway {

/// Issues its copies at the first layer start of the iteration, each direction as a FIFO in the order in which they
/// were added, blocking ones first.
///
///  * Every step waits until all blocking copies are done: vLLM's swap in and out before the forward pass
///    (Worker.execute_model waits for the cache operations before it runs the model), and KV loaded for the prompts of
///    this iteration.
///  * Nothing waits for background copies; they go on beside this iteration and later ones.
///
/// A direction is one FIFO: a swap-out also waits for the background copies issued before it. Copies added later wait
/// for the next iteration.
class KvCopies final : public LayerRule {
 public:
  void add(Copy copy) {
    copy.tag = kBlocking;
    blocking_.push_back(copy);
  }
  void add_background(Copy copy) {
    copy.tag = kBackground;
    background_.push_back(copy);
  }
  /// No copy waits to be issued and none is in flight.
  [[nodiscard]] bool none() const {
    return blocking_.empty() && background_.empty() && blocking_in_flight_ == 0 && background_in_flight_ == 0;
  }
  /// Direction of the blocking copy that ended last: the steps waited for this direction.
  [[nodiscard]] Stream held_by() const { return held_by_; }
  /// Background copies that have ended since the last call; they end in the order in which they were added.
  [[nodiscard]] std::int64_t take_background_done() { return std::exchange(background_done_, 0); }

  void at_layer_start(std::int32_t layer, std::int32_t sub_batch, CopySink& sink) override {
    if (layer != 0 || sub_batch != 0) return;
    for (const Copy& copy : blocking_) sink.issue(copy);
    for (const Copy& copy : background_) sink.issue(copy);
    blocking_in_flight_ += blocking_.size();
    background_in_flight_ += background_.size();
    blocking_.clear();
    background_.clear();
  }
  void at_copy_done(const Copy& copy, CopySink& /*sink*/) override {
    if (copy.tag == kBlocking) {
      --blocking_in_flight_;
      held_by_ = copy.stream;
    } else {
      --background_in_flight_;
      ++background_done_;
    }
  }
  [[nodiscard]] std::int32_t quiet(std::int32_t layer) const override {
    const bool issues = layer == 0 && !(blocking_.empty() && background_.empty());
    return issues || blocking_in_flight_ > 0 ? 0 : std::numeric_limits<std::int32_t>::max();
  }
  [[nodiscard]] bool ready(std::int32_t /*layer*/, std::int32_t /*sub_batch*/) const override {
    return blocking_in_flight_ == 0;
  }
  [[nodiscard]] std::int32_t held_by(std::int32_t /*layer*/, std::int32_t /*sub_batch*/) const override {
    return kRequestCopies;
  }

 private:
  static constexpr std::int32_t kBlocking = 0;
  static constexpr std::int32_t kBackground = 1;

  std::vector<Copy> blocking_;
  std::vector<Copy> background_;
  std::size_t blocking_in_flight_ = 0;
  std::size_t background_in_flight_ = 0;
  std::int64_t background_done_ = 0;
  Stream held_by_ = Stream::h2d;
};

}  // namespace spillway
