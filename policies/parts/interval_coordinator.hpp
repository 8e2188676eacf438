// Select-N's coordinator: the offloading intervals of GPUs that stream weights over one bus.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/core/units.hpp"

namespace spillway {

/// A GPU that streams weights over a bus.
struct BusUser {
  std::int32_t layers = 0;
  Bytes layer{};         // weights of one layer
  Duration iteration{};  // of its tightest SLO, or its own; > 0
  /// Intervals that the SLO and the memory of its requests allow, 1 <= least <= most <= layers + 1. At layers + 1 no
  /// layer is on the host. An idle GPU is left out.
  std::int32_t least = 1;
  std::int32_t most = 1;
  bool operator==(const BusUser&) const = default;
};

/// The intervals of all GPUs, or why there are none.
struct BusChoice {
  std::vector<std::int32_t> intervals{};  // one for each GPU, in order; empty: the newcomer is refused
  BytesPerSecond rate{};                  // of all together; without intervals: the least that they could have
  std::string refused{};                  // the limit that binds
};

/// Weights per second that a GPU loads at an interval: host_layers(layers, interval) layers in each iteration.
[[nodiscard]] BytesPerSecond streaming_rate(const BusUser& gpu, std::int32_t interval);

/// The intervals at which all GPUs together load less than `bus` and keep the most bytes of weights on the host. Of
/// several such choices: that whose intervals differ the least, from the smallest to the largest; then that in which
/// the newcomer, the last GPU, has the smallest; then the smallest for the one before it, and so on. Intervals that
/// leave the same number of layers on the host are one, the smallest.
///
/// Refuses the newcomer when its least interval is above its largest, or when no choice keeps below `bus`: the others
/// keep what they have. Source: Select-N, Fig. 8, whose listing is for two GPUs, with the real L / i in place of whole
/// layers. No GPU streams a part of a layer, so whole layers count whatever policy.record says; the listing would put
/// fewer of them on the host. O(GPUs * distinct numbers of layers * sums of host bytes) for each spread of intervals
/// that is tried; the sums are at most GPUs * layers where GPUs have the same model.
[[nodiscard]] BusChoice coordinate_intervals(std::span<const BusUser> gpus, BytesPerSecond bus);

}  // namespace spillway
