// Arithmetic that several files of this folder share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "sim/core/units.hpp"

namespace spillway::hwmodels {

/// The product of counts in floating point, where it cannot overflow.
[[nodiscard]] inline double product(std::initializer_list<std::int64_t> factors) {
  double all = 1.0;
  for (const std::int64_t factor : factors) all *= real(factor);
  return all;
}

/// The middle value, or the mean of the two middle ones. Needs at least one value.
[[nodiscard]] inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2.0;
}

}  // namespace spillway::hwmodels
