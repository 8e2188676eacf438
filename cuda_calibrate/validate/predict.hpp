// What the simulator says that a setting takes, from a GPU profile as a run would load it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cuda_calibrate/validate/schedule.hpp"
#include "cuda_calibrate/validate/settings.hpp"
#include "hwmodels/catalog.hpp"
#include "hwmodels/models/engine_side.hpp"

namespace spillway::calibrate {

/// Products by the profile's GEMM model in 2-byte numbers, copies and what they cost each other and compute as in every
/// execution model, CPU attention by the profile's fit, else by the host's DRAM. No engine: nothing is added to them.
class Predictor {
 public:
  /// `host`: for CPU attention where the profile has no fit of it. `threads` >= 1 of CPU attention. Throws ConfigError
  /// that names each thing the profile lacks: the GEMM fit, a direction's copies.
  Predictor(const hwmodels::GpuProfile& gpu, const std::optional<hwmodels::HostProfile>& host, std::int64_t threads);

  /// Throws ConfigError when the experiment takes what the profile has not: CPU attention.
  [[nodiscard]] Simulated predict(const Experiment& experiment) const;
  /// What held_out_settings() takes: half of the GPU's memory, and kHostBytes.
  [[nodiscard]] Scale scale() const;
  /// Mechanisms among those of the settings that the profile has no fit of, where the plain figures of the link stand
  /// for it as they do in a run; one sentence each.
  [[nodiscard]] std::vector<std::string> stand_ins(const std::vector<Setting>& settings) const;
  [[nodiscard]] const hwmodels::GpuProfile& gpu() const { return gpu_; }

  static constexpr std::int64_t kHostBytes = std::int64_t{12} << 30;

 private:
  [[nodiscard]] double multiply_seconds(const Multiply& multiply) const;
  [[nodiscard]] double attention_seconds(const HostAttention& attention) const;
  [[nodiscard]] bool attends() const { return gpu_.fitted.cpu_attention || host_; }
  /// Bytes/s of KV at `threads_` threads.
  [[nodiscard]] double host_attention_rate() const;
  [[nodiscard]] Duration cpu_time(const HostAttention& attention) const;
  [[nodiscard]] StepTimes times_of(const LayerSwapping& setting) const;
  [[nodiscard]] StepTimes times_of(const WeightPrefetch& setting) const;
  [[nodiscard]] StepTimes times_of(const SwapIn& setting) const;
  [[nodiscard]] StepTimes times_of(const PageOut& setting) const;
  [[nodiscard]] StepTimes times_of(const CpuOverlap& setting) const;

  hwmodels::GpuProfile gpu_;
  std::optional<hwmodels::HostProfile> host_;
  std::int64_t threads_;
  hwmodels::EngineSide link_;
};

}  // namespace spillway::calibrate
