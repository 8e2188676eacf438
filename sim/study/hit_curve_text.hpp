// The text of a hit curve: the value of experts.hit_curve.
#pragma once

#include <cstdint>
#include <string>

#include "sim/api/hit_curve.hpp"

namespace spillway {

inline constexpr const char* kHitCurveKey = "experts.hit_curve";

/// "64:0.67,128:0.81": slots of a layer, and the share of uses that find their expert there. Of layers with `experts`
/// experts. Throws ConfigError, which names the point at fault: it is no pair of numbers, slots are not from 1 to
/// `experts` or do not ascend, a share is not in [0, 1], falls, or is below 1 with a slot for every expert.
[[nodiscard]] HitCurve parse_hit_curve(const std::string& text, std::int64_t experts);

}  // namespace spillway
