// Statistics of repeated timings. No timing is dropped: outliers are part of the machine's behaviour, and the median is
// robust against them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/core/error.hpp"

namespace spillway::calibrate {

struct Spread {
  double median = 0.0;
  double p10 = 0.0;
  double p90 = 0.0;
  std::int64_t n = 0;
};

/// The quantile `q` in [0, 1] of ascending values: linear between the two order statistics around position (n - 1) q,
/// counted from 0 (type 7 of Hyndman and Fan, 1996). Requires at least one value.
[[nodiscard]] inline double quantile_of_sorted(std::span<const double> ascending, double q) {
  SPILLWAY_CHECK(!ascending.empty(), "a quantile of nothing");
  const double position = static_cast<double>(ascending.size() - 1) * q;
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, ascending.size() - 1);
  const double share = position - static_cast<double>(below);
  return ascending[below] + share * (ascending[above] - ascending[below]);
}

/// The spread of at least one value, in any order. O(n log n).
[[nodiscard]] inline Spread spread_of(std::span<const double> values) {
  std::vector<double> ascending(values.begin(), values.end());
  std::sort(ascending.begin(), ascending.end());
  return {quantile_of_sorted(ascending, 0.5), quantile_of_sorted(ascending, 0.1), quantile_of_sorted(ascending, 0.9),
          static_cast<std::int64_t>(ascending.size())};
}

}  // namespace spillway::calibrate
