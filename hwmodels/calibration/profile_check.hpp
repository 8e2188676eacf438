// The error of a profile, or of the analytic model, on measurements.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hwmodels/calibration/measurements.hpp"
#include "hwmodels/catalog.hpp"

namespace spillway::hwmodels {

/// One line of `calibrate check`.
struct CheckLine {
  std::string op;
  ErrorSummary error;
  std::int64_t outside = 0;        // rows beyond what was measured for the profile
  std::vector<std::string> worst;  // the largest errors: where, what was measured, what is predicted
};

/// The profile's error on rows that it has a model for, by op; `skipped` says what it has none for.
struct CheckReport {
  std::vector<CheckLine> lines;
  std::vector<std::string> skipped;
};
[[nodiscard]] CheckReport check_profile(const GpuProfile& profile, const Measurements& measurements);
/// The error of the analytic model. Throws ConfigError when copies were measured and the profile does not state the
/// figures of the link.
[[nodiscard]] CheckReport check_roofline(const GpuProfile& profile, const Measurements& measurements);

}  // namespace spillway::hwmodels
