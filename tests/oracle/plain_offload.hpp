// The policies that leave whole tensors of layers on the host, by their published rules, as
// recurrences over whole nanoseconds. It shares no code with policies/ or sim/exec/. Experts are not placed one by
// one here, so a model may be dense, and its layers may differ.
//
// Readings, where the rules are silent
//  * Each tensor is one copy with a launch of its own. The tensors of a layer cross the link together. Reads in
//    place launch nothing.
//  * An expert tensor is read in place in the share of its experts that the iteration uses; all other tensors as a
//    whole. Bytes and times are rounded to the nearest for each layer.
//  * "Layer" counts all layers of the model. A layer without a tensor that may leave is none of the offloaded
//    layers, wherever it is in its group.
//  * A copy that ends at the instant at which a layer wants to start has arrived.
//  * Slots are taken in turn. That is "slot j mod p" where p divides the number of offloaded layers.
//  * More slots than offloaded layers: (j + p) mod N all the same, so a layer that is in a slot is copied again.
#pragma once

#include <cstdint>
#include <vector>

namespace spillway::oracle {

struct PlainTensor {
  std::int64_t bytes = 0;
  bool experts = false;
};

/// A byte crosses the link in 1 ns.
struct PlainOffloadModel {
  std::vector<std::vector<PlainTensor>> tensors{};  // by layer
  std::vector<std::int64_t> compute{};              // ns, by layer
  std::int64_t launch = 0;                          // ns of one copy
  bool experts_only = false;                        // no other tensor may leave
};

struct PlainOffloadCounts {
  std::int64_t host = 0;     // bytes of all tensors there
  std::int64_t largest = 0;  // of the layer that has the most there
  std::int64_t copied = 0;   // bytes whose copy or read has ended

  // How often something special happened. A test that compares must meet each of them.
  std::int64_t split = 0;     // a layer has tensors on both sides
  std::int64_t overshot = 0;  // the last tensor exceeds the budget
  std::int64_t in_part = 0;   // some of the experts were read
  std::int64_t waited = 0;    // a layer waited for its copy
  std::int64_t arrived = 0;   // it found what had been copied for it
  std::int64_t queued = 0;    // a copy waited for the one before
  std::int64_t ran_on = 0;    // a copy was under way, or waited, when an iteration ended
  std::int64_t unequal = 0;   // an offloaded layer has fewer bytes than another one
  std::int64_t turned = 0;    // the slots do not divide the offloaded layers
  std::int64_t spare = 0;     // there are more slots than offloaded layers
};

/// `budget`: bytes, of which the last tensor may exceed. `in_place`: the GPU reads the host, `faster` / `slower`
/// times as fast as a copy.
class PlainUva {
 public:
  PlainUva(PlainOffloadModel model, std::int64_t budget, bool in_place, std::int64_t faster, std::int64_t slower);
  /// Returns the end of an iteration that starts at `start` and uses `used` of `experts` experts in each layer.
  std::int64_t iterate(std::int64_t start, std::int64_t used, std::int64_t experts);
  [[nodiscard]] const PlainOffloadCounts& counts() const { return counts_; }

 private:
  PlainOffloadModel model_;
  std::vector<std::vector<PlainTensor>> host_;
  bool in_place_;
  std::int64_t faster_;
  std::int64_t slower_;
  PlainOffloadCounts counts_{};
};

/// Groups of `group` layers of which the last `in_group` are on the host; `ahead` p slots.
class PlainPrefetch {
 public:
  PlainPrefetch(PlainOffloadModel model, std::int64_t group, std::int64_t in_group, std::int64_t ahead);
  std::int64_t iterate(std::int64_t start);
  [[nodiscard]] const PlainOffloadCounts& counts() const { return counts_; }

 private:
  struct Layer {
    std::int64_t layer = 0;  // of the model
    std::int64_t bytes = 0;
    std::int64_t tensors = 0;
    std::int64_t ready = -1;  // when its last copy ends; -1: none has been started
  };
  struct Copy {
    std::int64_t end = 0;
    std::int64_t bytes = 0;
  };

  PlainOffloadModel model_;
  std::vector<Layer> offloaded_;
  std::int64_t ahead_;
  std::int64_t link_free_ = 0;
  std::vector<Copy> copies_;  // that had not ended after the last iteration
  PlainOffloadCounts counts_{};
};

}  // namespace spillway::oracle
