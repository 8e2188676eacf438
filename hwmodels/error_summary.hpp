// How far predictions are from measurements.
#pragma once

#include <cstdint>

namespace spillway::hwmodels {

/// Statistics of predicted / measured - 1, as fractions.
struct ErrorSummary {
  std::int64_t n = 0;
  double median = 0.0;  // of the absolute value
  double p95 = 0.0;     // of the absolute value, interpolated as numpy does
  double bias = 0.0;    // mean, signed

  bool operator==(const ErrorSummary&) const = default;
};

}  // namespace spillway::hwmodels
