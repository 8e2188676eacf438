// The simulator's prediction of a setting, from a GPU profile loaded as in a run.
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

/// Products use the profile's GEMM model for 2-byte numbers. Copies, and the slowdown between copies and compute, are
/// those of every execution model. CPU attention uses the profile's fit, or else the host's DRAM bandwidth. No engine
/// overhead is added.
class Predictor {
 public:
  /// `host` supplies CPU attention if the profile has no fit of it. `threads` >= 1 is for CPU attention. Throws
  /// ConfigError that names each missing part of the profile: the GEMM fit, a direction's copies.
  Predictor(const hwmodels::GpuProfile& gpu, const std::optional<hwmodels::HostProfile>& host, std::int64_t threads);

  /// Throws ConfigError when the experiment needs CPU attention and the profile has none.
  [[nodiscard]] Simulated predict(const Experiment& experiment) const;
  /// The scale for held_out_settings(): half of the GPU's memory, and kHostBytes.
  [[nodiscard]] Scale scale() const;
  /// Mechanisms of the settings that the profile has no fit for, one sentence each. The link's plain figures replace
  /// the fit, as in a run.
  [[nodiscard]] std::vector<std::string> stand_ins(const std::vector<Setting>& settings) const;
  [[nodiscard]] const hwmodels::GpuProfile& gpu() const { return gpu_; }

  static constexpr std::int64_t kHostBytes = std::int64_t{12} << 30;

 private:
  [[nodiscard]] double multiply_seconds(const Multiply& multiply) const;
  [[nodiscard]] double attention_seconds(const HostAttention& attention) const;
  [[nodiscard]] bool attends() const { return gpu_.fitted.cpu_attention || host_; }
  /// KV bytes/s with `threads_` threads.
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
