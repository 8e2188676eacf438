#include "sim/study/hit_curve_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

#include "sim/core/error.hpp"
#include "sim/core/printable.hpp"
#include "sim/core/text.hpp"

namespace spillway {
namespace {

[[noreturn]] void refuse_point(std::string_view point, const std::string& why, const std::string& fix) {
  throw ConfigError(fmt::format("{}: point \"{}\" {}", kHitCurveKey, brief(std::string(point)), why), kHitCurveKey,
                    fix);
}

HitCurve::Point read_point(std::string_view text, std::int64_t experts) {
  const std::size_t colon = text.find(':');
  const bool pair = colon != std::string_view::npos;
  const auto slots = pair ? parse_number(text.substr(0, colon)) : std::nullopt;
  const auto share = pair ? parse_number(text.substr(colon + 1)) : std::nullopt;
  if (!slots || !share || *slots != std::floor(*slots)) {
    refuse_point(text, "is not SLOTS:SHARE", "write the curve as 64:0.67,128:0.81");
  }
  if (*slots < 1.0 || *slots > static_cast<double>(experts)) {
    refuse_point(text, fmt::format("has {:g} slots, and a layer has {} experts", *slots, experts),
                 fmt::format("give 1 to {} slots", experts));
  }
  if (*share < 0.0 || *share > 1.0) {
    refuse_point(text, fmt::format("has the share {:g}", *share), "give a share from 0 to 1");
  }
  if (*slots == static_cast<double>(experts) && *share < 1.0) {
    refuse_point(text, fmt::format("has a slot for each of the {} experts, so every use finds its expert", experts),
                 fmt::format("write it as {}:1, or leave it out", experts));
  }
  return {static_cast<std::int32_t>(*slots), *share};
}

}  // namespace

HitCurve parse_hit_curve(const std::string& text, std::int64_t experts) {
  std::vector<HitCurve::Point> points;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t comma = std::min(text.find(',', from), text.size());
    const std::string_view one = std::string_view(text).substr(from, comma - from);
    const HitCurve::Point point = read_point(one, experts);
    if (!points.empty() && point.slots <= points.back().slots) {
      refuse_point(one, fmt::format("comes after a point with {} slots", points.back().slots),
                   "give points by ascending slots");
    }
    if (!points.empty() && point.share < points.back().share) {
      refuse_point(one, fmt::format("falls below the share {:g} of {} slots", points.back().share, points.back().slots),
                   "give shares that do not fall: more slots find no fewer experts");
    }
    points.push_back(point);
    from = comma + 1;
  }
  return HitCurve(std::move(points));
}

}  // namespace spillway
