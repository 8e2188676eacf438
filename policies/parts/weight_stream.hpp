// Weights of offloaded layers, streamed from the host into staging buffers on the GPU while other layers compute.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "sim/api/layer_rule.hpp"
#include "sim/core/units.hpp"

namespace spillway {

/// The offloading interval with no layer on the host. A larger interval keeps more layers on the GPU: 1 keeps none,
/// kAllResident keeps all.
inline constexpr std::int32_t kAllResident = std::numeric_limits<std::int32_t>::max();

/// Layers on the host at an offloading interval: layers i, 2i, ..., floor(layers / i) * i, counted from 1. None when
/// the interval is 0 or above `layers`.
[[nodiscard]] constexpr std::int32_t host_layers(std::int32_t layers, std::int32_t interval) {
  return interval > 0 ? layers / interval : 0;
}

/// Buffers of one layer's weights on the GPU, through which the layers on the host stream. Two at interval 1, where a
/// layer computes while the next is copied, and with double buffering; else one. Never more than layers on the host.
[[nodiscard]] constexpr std::int32_t staging_buffers(std::int32_t layers, std::int32_t interval, bool double_buffer) {
  return std::min(host_layers(layers, interval), interval == 1 || double_buffer ? 2 : 1);
}

/// Time of all layers of an iteration that streams every interval-th layer, without double buffering or other traffic
/// on the link. `compute` and `transfer` are times of one layer, all its sub-batches included. With x = host_layers:
///
///   interval >= 2   x * (max((interval - 1) * compute, transfer) + compute) + (layers mod interval) * compute
///   interval 1      transfer + (layers - 1) * max(compute, transfer) + compute
///   none on host    layers * compute
///
/// Never longer at a larger interval: the time is layers * compute plus a stall of x * max(0, transfer - (interval - 1)
/// * compute), at interval 1 of transfer + (layers - 1) * max(0, transfer - compute). Source: Select-N, Fig. 7. O(1).
[[nodiscard]] Duration streamed_iteration(std::int32_t layers, std::int32_t interval, Duration compute,
                                          Duration transfer);

/// Which weights a WeightStream streams in an iteration, and how.
struct WeightStreaming {
  std::int32_t interval = kAllResident;  // 1..layers; 0 or above: nothing is offloaded
  /// A second interval whose layers on the host also stream: the interval of the iteration before, when KV needs memory
  /// so soon that its layers are not back yet while the layers of the new interval have already left.
  std::int32_t returning = kAllResident;
  Copy weights{};  // bytes and times of one layer's weights; the rule sets the other fields
  /// Two staging buffers at every interval: a group's copy starts when the copy before it has ended and the group
  /// before the last has computed, instead of with the group.
  bool double_buffer = false;
  /// Share of a layer's bytes that may be copied ahead of the layer's start, 0..1. A second copy with its own launch,
  /// issued when the layer is about to start, moves the rest.
  double prefetch_fraction = 1.0;
  /// Added to the launch of what a layer copies when it is about to start: the rest of its weights, or all of them if
  /// it is the iteration's first.
  Duration demand{};
};

/// Streams the weights of the layers on the host, in each iteration anew. The layers up to and including a layer on the
/// host are its group. The layers after the last group, the tail, only compute.
///
///   Copies run in the order of the groups. With b staging buffers (those of the interval) the copy of group g (from 0)
///   is issued when the last layer of group g - b has computed, that is when group g - b + 1 starts. The first b copies
///   are issued at the iteration's start. So with one buffer a group's first layer issues the copy of its last layer,
///   and with interval 1 layer k issues the copy of layer k + 1. A layer waits for its own copy. Weights never change,
///   so a buffer is free as soon as the last sub-batch has computed, with nothing to copy back.
///
/// An iteration inherits no filled buffers: its first copy starts with its first layer, also with double buffering. So
/// its time does not depend on other iterations, as a performance record needs it. The interval may change from one
/// iteration to the next, and no copy outlives the iteration that issued it.
///
/// DeepSpeed's ZeRO-Inference is interval 1, where with p the prefetched share of the transfer an iteration takes
/// transfer + (layers - 1) * (max(compute, p * transfer) + (1 - p) * transfer) + compute, launches aside.
///
/// Sources: Select-N, Fig. 7 (whose "moved back" needs no copy); ZeRO-Inference as Select-N describes it, and as in
/// FlexGen's benchmark, which prefetches 1/12 of a layer. O(1) per call and per copy.
class WeightStream final : public LayerRule {
 public:
  /// `layers` >= 1 of the model. Nothing is offloaded before the first call of stream().
  explicit WeightStream(std::int32_t layers);

  /// Takes effect when the next iteration's first layer starts. Throws InvariantError when a value is out of its range,
  /// or when offloaded layers have no bytes.
  void stream(const WeightStreaming& streaming);

  void at_layer_start(std::int32_t layer, std::int32_t sub_batch, CopySink& sink) override;
  void at_copy_done(const Copy& copy, CopySink& sink) override;
  /// The layers of a group ahead of the one on the host, which only compute.
  [[nodiscard]] std::int32_t quiet(std::int32_t layer) const override;
  [[nodiscard]] bool ready(std::int32_t layer, std::int32_t sub_batch) const override;

 private:
  struct Plan {
    std::int32_t interval = kAllResident;
    std::int32_t returning = kAllResident;
    std::int32_t buffers = 0;
    Copy ahead{};  // the prefetched part of each layer's weights
    Copy rest{};   // the other part; may have no bytes
    Copy whole{};
  };
  [[nodiscard]] bool on_host(std::int32_t layer) const {
    return (layer + 1) % plan_.interval == 0 || (layer + 1) % plan_.returning == 0;
  }
  /// The first layer from `layer` on that is on the host; `layers_` or more if there is none.
  [[nodiscard]] std::int32_t next_on_host(std::int32_t layer) const;
  /// Issues the copy of the next group, if there is one, when `layer` starts.
  void issue_next(std::int32_t layer, CopySink& sink);

  std::int32_t layers_;
  Plan next_{};  // of the iterations to come
  Plan plan_{};
  std::int32_t next_copied_ = 0;  // the layer whose copy is issued next
  std::int32_t arrived_ = -1;     // the last layer whose weights are complete
};

}  // namespace spillway
