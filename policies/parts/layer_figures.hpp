// Figures of policies that stream layers. Each of them reports those that it has.
#pragma once

#include <vector>

#include "sim/api/figure.hpp"

namespace spillway {

inline constexpr const char* kMeanInterval = "mean_interval_layers";
inline constexpr const char* kSloRisk = "slo_risk_fraction";
inline constexpr const char* kMeanDwell = "mean_dwell_ms";
inline constexpr const char* kMaxDwell = "max_dwell_ms";
inline constexpr const char* kPeakHostLayers = "peak_host_layer_bytes";

[[nodiscard]] inline std::vector<FigureDefinition> layer_figures() {
  return {{kMeanInterval, "layers",
           "Offloading interval N, averaged over the iterations that stream weights: the weights of every N-th layer "
           "live on the host. Null when all weights stay on the GPU."},
          {kSloRisk, "fraction",
           "Share of the run's iterations that streamed more weights than their latency SLO allows, because the GPU "
           "had no memory for more weights, or had not loaded them yet. Null for a policy that follows no SLO."},
          {kMeanDwell, "ms",
           "Dwell of a layer: from the start of its copy to the host to the end of its copy back. Mean of the whole "
           "run."},
          {kMaxDwell, "ms", "Longest dwell of a layer in the whole run."},
          {kPeakHostLayers, "bytes",
           "Most bytes that streamed layers used on the host at once, per GPU, in the whole run: weights, or the KV of "
           "layers that were on the host or under way."}};
}

}  // namespace spillway
