#include "hwmodels/models/simple_kernels.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include "sim/core/error.hpp"

namespace spillway::hwmodels {
namespace {

/// Two neighbouring points of an axis, and the position between them: 0 at the lower point, 1 at the upper one, more
/// beyond the axis.
struct Cell {
  std::size_t lower = 0;
  std::size_t upper = 0;
  double fraction = 0.0;
};

/// The cell of `value` among the points of the axis from index `first` on.
Cell cell_of(const std::vector<double>& axis, std::size_t first, double value) {
  if (first + 1 == axis.size() || value <= axis[first]) return {first, first, 0.0};
  const auto begin = axis.begin() + static_cast<std::ptrdiff_t>(first);
  const auto upper = static_cast<std::size_t>(std::upper_bound(begin + 1, axis.end() - 1, value) - axis.begin());
  return {upper - 1, upper, (value - axis[upper - 1]) / (axis[upper] - axis[upper - 1])};
}

/// The cell of a number of chunk tokens or decodes. 0 has its own point, because another kernel runs then.
Cell cell_of_count(const std::vector<double>& axis, double count) {
  if (count <= 0.0) return {};
  SPILLWAY_CHECK(axis.size() > 1, "the tables hold attention of such batches");
  return cell_of(axis, 1, count);
}

}  // namespace

double Curve::at(double size) const {
  SPILLWAY_CHECK(!points.empty(), "a curve has at least one point");
  if (points.size() == 1) return points.front().seconds;
  const auto above = std::upper_bound(points.begin() + 1, points.end() - 1, size,
                                      [](double value, const Point& point) { return value < point.size; });
  const Point& right = *above;
  const Point& left = *(above - 1);
  const double fraction = (size - left.size) / (right.size - left.size);
  const double seconds = left.seconds + fraction * (right.seconds - left.seconds);
  return std::max(seconds, size < points.front().size ? points.front().seconds : 0.0);
}

double ElementwiseModel::seconds(double bytes) const { return launch_seconds + bytes / bandwidth; }

double AllReduceModel::seconds(std::int64_t ranks, double bytes) const {
  if (ranks <= 1) return 0.0;
  SPILLWAY_CHECK(!by_ranks.empty() && by_ranks.begin()->first >= 2, "all-reduce curves have 2 ranks or more");
  auto measured = by_ranks.lower_bound(ranks);
  if (measured == by_ranks.end()) --measured;
  const auto& [measured_ranks, curve] = *measured;
  if (measured_ranks == ranks) return curve.at(bytes);
  const auto asked = static_cast<double>(ranks);
  const auto known = static_cast<double>(measured_ranks);
  return curve.at(bytes * ((asked - 1.0) * known) / (asked * (known - 1.0)));
}

double CopyModel::seconds(double block_bytes) const {
  if (!small.points.empty() && block_bytes <= small.points.back().size) return small.at(block_bytes);
  return launch_seconds + block_bytes / bandwidth;
}

double CpuAttentionModel::seconds(std::int64_t threads, double kv_bytes) const {
  return launch_seconds + kv_bytes / std::min(static_cast<double>(threads) * bandwidth_per_thread, bandwidth);
}

double HostModel::seconds(std::int64_t sequences) const {
  return fixed_seconds + per_sequence_seconds * static_cast<double>(sequences);
}

bool LayerTables::holds(bool chunks, bool decodes) const {
  return !attention_seconds.empty() && (!chunks || chunk_axis.size() > 1) && (!decodes || decodes_axis.size() > 1);
}

double LayerTables::attention(double chunk, double chunk_context, double decodes, double decode_context) const {
  if (chunk <= 0.0 && decodes <= 0.0) return 0.0;
  SPILLWAY_CHECK(!attention_seconds.empty(), "the tables hold attention");
  const std::array<Cell, 4> cells{
      cell_of_count(chunk_axis, chunk), cell_of(chunk_context_axis, 0, chunk > 0.0 ? chunk_context : 0.0),
      cell_of_count(decodes_axis, decodes), cell_of(decode_context_axis, 0, decodes > 0.0 ? decode_context : 0.0)};
  const std::array<std::size_t, 4> lengths{chunk_axis.size(), chunk_context_axis.size(), decodes_axis.size(),
                                           decode_context_axis.size()};
  double seconds = 0.0;
  for (unsigned corner = 0; corner < 16; ++corner) {
    double weight = 1.0;
    std::size_t index = 0;
    for (std::size_t axis = 0; axis < 4; ++axis) {
      const bool upper = ((corner >> axis) & 1U) != 0;
      weight *= upper ? cells[axis].fraction : 1.0 - cells[axis].fraction;
      index = index * lengths[axis] + (upper ? cells[axis].upper : cells[axis].lower);
    }
    seconds += weight * attention_seconds[index];
  }
  return std::max(seconds, 0.0);
}

double IterationModel::seconds(double tokens, double context, double chunk_pairs) const {
  return fixed_seconds + token_seconds * tokens + context_seconds * context + pair_seconds * chunk_pairs;
}

}  // namespace spillway::hwmodels
