// Whole tensors of layers that live on the host, as vLLM and SGLang choose them: which ones, and the memory they take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/api/layer_policy.hpp"
#include "sim/api/parameter.hpp"

namespace spillway {

/// What of each layer is on the host.
class OffloadedTensors {
 public:
  struct Layer {
    Bytes dense{};    // of attention, dense MLPs, routers and shared experts
    Bytes experts{};  // of routed experts
    std::int64_t tensors = 0;
    [[nodiscard]] Bytes bytes() const { return dense + experts; }
  };

  /// Layers and their tensors in order, as long as less than `budget` is on the host: the last tensor may exceed it.
  /// `experts_only`: of routed experts alone. O(tensors).
  [[nodiscard]] static OffloadedTensors by_budget(const Deployment& deployment, Bytes budget, bool experts_only);
  /// The last `in_group` layers of each group of `group`: layer l where l mod group >= group - in_group. A group of 0:
  /// none. O(tensors).
  [[nodiscard]] static OffloadedTensors by_group(const Deployment& deployment, std::int64_t group,
                                                 std::int64_t in_group, bool experts_only);

  [[nodiscard]] const std::vector<Layer>& layers() const { return layers_; }
  [[nodiscard]] bool offloads(std::int32_t layer) const { return bytes(layer) > Bytes(0); }
  [[nodiscard]] Bytes bytes(std::int32_t layer) const { return layers_[static_cast<std::size_t>(layer)].bytes(); }
  /// Of all layers. O(1).
  [[nodiscard]] Bytes host() const { return host_; }
  /// Of the layer that has the most. O(1).
  [[nodiscard]] Bytes largest() const { return largest_; }
  /// Layers that have some. O(1).
  [[nodiscard]] std::int64_t offloaded() const { return offloaded_; }

 private:
  void take(std::size_t layer, const LayerTensor& tensor);

  std::vector<Layer> layers_;
  Bytes host_{};
  Bytes largest_{};
  std::int64_t offloaded_ = 0;
};

/// policy.offload_params: which tensors of a layer.
[[nodiscard]] Parameter offload_params_parameter(const std::string& source);
[[nodiscard]] bool experts_only(const Settings& settings);

/// The layout with these tensors on the host, and `buffers` for some of them on the GPU. `terms`: how they were chosen;
/// `more`: how to offload more. Throws ConfigError when the memory does not suffice, or when experts alone are asked
/// for and the model has none.
[[nodiscard]] Layout lay_out_offloaded(const Deployment& deployment, const Settings& settings,
                                       const OffloadedTensors& tensors, Bytes buffers, const std::string& terms,
                                       const std::string& more);
/// Whether such a layout leaves the KV that a default leaves (default_kv_of).
[[nodiscard]] bool leaves_default_kv(const Deployment& deployment, const OffloadedTensors& tensors, Bytes buffers);

}  // namespace spillway
