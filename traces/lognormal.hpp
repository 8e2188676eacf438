// Lognormal distributions as users state them: by mean and coefficient of variation.
#pragma once

#include <cmath>

#include "sim/core/random.hpp"

namespace spillway::traces {

/// The largest coefficient of variation (standard deviation over mean) that a user may state.
inline constexpr double kMaxCv = 100.0;

struct Lognormal {
  double mu = 0.0;
  double sigma = 0.0;
};

/// sigma^2 = ln(1 + cv^2), mu = ln(mean) - sigma^2 / 2. `mean` > 0.
[[nodiscard]] inline Lognormal lognormal_of(double mean, double cv) {
  const double variance = portable_log(1.0 + cv * cv);
  return {portable_log(mean) - 0.5 * variance, std::sqrt(variance)};
}

}  // namespace spillway::traces
