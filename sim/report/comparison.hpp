// The result of `compare` as text, JSON and CSV.
#pragma once

#include <string>

#include "sim/study/comparison.hpp"

namespace spillway {

[[nodiscard]] std::string to_comparison_table(const Comparison& comparison);
[[nodiscard]] std::string to_comparison_json(const Comparison& comparison);
/// One row per configuration and metric: configuration, metric, value, half_width, difference, difference_half_width,
/// relative_difference, verdict.
[[nodiscard]] std::string to_comparison_csv(const Comparison& comparison);

}  // namespace spillway
