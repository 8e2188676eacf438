// A measured hit curve: the share of the uses of a layer's experts that find them in slots on the GPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

namespace spillway {

/// Straight lines between measured points, from 0 at no slots to 1 at a slot for every expert.
class HitCurve {
 public:
  struct Point {
    std::int32_t slots = 0;  // of a layer; ascending, from 1 on
    double share = 0.0;      // in [0, 1], not falling
    bool operator==(const Point&) const = default;
  };
  HitCurve() = default;
  explicit HitCurve(std::vector<Point> points) : points_(std::move(points)) {}

  [[nodiscard]] bool empty() const { return points_.empty(); }
  [[nodiscard]] const std::vector<Point>& points() const { return points_; }
  /// Of a layer with `experts` experts. O(points).
  [[nodiscard]] double at(std::int32_t slots, std::int32_t experts) const {
    if (slots >= experts) return 1.0;
    const auto next = std::ranges::find_if(points_, [slots](const Point& point) { return point.slots > slots; });
    const Point below = next == points_.begin() ? Point{} : *std::prev(next);
    const Point above = next == points_.end() ? Point{experts, 1.0} : *next;
    return below.share + (above.share - below.share) * static_cast<double>(slots - below.slots) /
                             static_cast<double>(above.slots - below.slots);
  }

 private:
  std::vector<Point> points_;
};

}  // namespace spillway
