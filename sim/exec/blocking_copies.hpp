// Copies that an iteration waits for before its first layer.
#pragma once

#include <cstddef>
#include <vector>

#include "sim/api/layer_rule.hpp"

namespace spillway {

/// Issues its copies at the first layer start of the iteration, in the order in which they were added (each direction
/// is a FIFO of its own), and holds every step until all of them are done: vLLM's swap in and out ahead of the forward
/// pass. Copies added later wait for the next iteration. No copy of another rule may be in flight. Source: vLLM v0,
/// Worker.execute_model: cache operations come before the model and are waited for.
class BlockingCopies final : public LayerRule {
 public:
  void add(const Copy& copy) { waiting_.push_back(copy); }

  void at_layer_start(std::int32_t layer, std::int32_t sub_batch, CopySink& sink) override {
    if (layer != 0 || sub_batch != 0) return;
    for (const Copy& copy : waiting_) sink.issue(copy);
    in_flight_ += waiting_.size();
    waiting_.clear();
  }
  void at_copy_done(const Copy& /*copy*/, CopySink& /*sink*/) override { --in_flight_; }
  [[nodiscard]] bool ready(std::int32_t /*layer*/, std::int32_t /*sub_batch*/) const override {
    return in_flight_ == 0;
  }

 private:
  std::vector<Copy> waiting_;
  std::size_t in_flight_ = 0;
};

}  // namespace spillway
