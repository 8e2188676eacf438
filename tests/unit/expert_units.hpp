// Small deployments of experts and times in units, for policies that place them.
#pragma once

#include "tests/unit/expert_bench.hpp"

namespace spillway {

inline constexpr double kUnit = 1e-6;  // a unit of time, s

/// An expert of 1,000 bytes takes the GPU `gpu` units, and the CPU `cpu` units to read. Its arithmetic takes no time.
inline Deployment small(std::int32_t layers, std::int32_t count, std::int32_t top_k, double gpu, double cpu) {
  ExpertDeployment experts;
  experts.count = count;
  experts.top_k = top_k;
  for (std::int32_t layer = 0; layer < layers; ++layer) experts.layers.push_back(layer);
  experts.bytes = Bytes(1000);
  experts.parameters = 1.0;
  experts.gpu_bandwidth = gpu > 0.0 ? 1000.0 / (gpu * kUnit) : 1e18;
  experts.gpu_flops = 1e18;
  experts.dram_peak = 1000.0 / (cpu * kUnit);
  experts.cpu_flops = RateByRows({{1, 1e18}});
  Deployment deployment;
  deployment.layers = layers;
  deployment.weights = Bytes(100) + experts.all_bytes();
  deployment.memory = Bytes(1'000'000);
  deployment.block_bytes = Bytes(10);
  deployment.gpu_kv = Bytes(1000);
  deployment.gpu_kv_given = true;
  deployment.experts = experts;
  return deployment;
}

/// Layers of `layer` units; a copy of an expert takes `copy` units.
inline ExpertModel model(std::int32_t layers, double layer, double copy) {
  return {layers, round_seconds(layer * kUnit), copy > 0.0 ? 1000.0 / (copy * kUnit) : 1e18};
}

inline double units(Duration time) { return to_seconds(time) / kUnit; }

inline const Overrides kNoCallTimes{
    {"policy.cpu_efficiency", 1.0}, {"policy.sync", Duration(0)}, {"policy.cpu_start", Duration(0)}};

inline Overrides with(Overrides overrides) {
  overrides.insert(overrides.end(), kNoCallTimes.begin(), kNoCallTimes.end());
  return overrides;
}

}  // namespace spillway
