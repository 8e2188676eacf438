#include "sim/study/point_grid.hpp"

#include <algorithm>

#include "sim/study/locality.hpp"

namespace spillway {

bool PointGrid::varies(std::string_view key) const {
  const std::vector<std::string> keys = grid.keys();
  return std::ranges::find(keys, key) != keys.end();
}

Point PointGrid::point(std::int64_t index) const {
  Point point{shared, {}};
  const std::vector<std::string> keys = grid.keys();
  const std::vector<std::string> values = grid.values(index);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    std::optional<std::string> text = values[i];
    if (*text == "null") text.reset();
    point.assignments.push_back({keys[i], std::move(text), axis_origins[i], axis_places[i], {}});
  }
  point.other_localities = other_localities && !varies(kLocalityKey);
  return point;
}

}  // namespace spillway
