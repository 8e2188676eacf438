#include "sim/study/point_grid.hpp"

namespace spillway {

Point PointGrid::point(std::int64_t index) const {
  Point point{shared, {}};
  const std::vector<std::string> keys = grid.keys();
  const std::vector<std::string> values = grid.values(index);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    std::optional<std::string> text = values[i];
    if (*text == "null") text.reset();
    point.assignments.push_back({keys[i], std::move(text), axis_origins[i], axis_places[i], {}});
  }
  return point;
}

}  // namespace spillway
