#include "hwmodels/calibration/attention_grid.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <utility>

#include "hwmodels/calibration/least_squares.hpp"
#include "hwmodels/calibration/minimum_curvature.hpp"
#include "hwmodels/numbers.hpp"

namespace spillway::hwmodels {
namespace {

constexpr double kNothing = -1.0;

/// Octaves between no chunk (or no decode) and the fewest: about as far as a factor is the same for another kernel.
constexpr double kToZero = 4.0;
/// Tokens that a context counts in addition on its logarithmic axis: a tile or block that a kernel reads in any case.
constexpr double kTile = 16.0;

/// A node by its position on each axis.
using Position = std::array<std::size_t, 4>;

bool is_count(std::size_t axis) { return axis % 2 == 0; }

/// The place of a value on the logarithmic axis, in octaves.
double octaves(std::size_t axis, std::int64_t value) {
  return is_count(axis) ? std::log2(real(value)) : std::log2(real(value) + kTile);
}

/// The terms of the law: launch, chunk tokens, the pairs of tokens that a chunk attends to, the KV before it, decodes,
/// their KV.
constexpr std::size_t kTerms = 6;
std::array<double, kTerms> terms_of(const GridPoint& point) {
  const auto [chunk, chunk_context, decodes, decode_context] = point;
  return {1.0,
          real(chunk),
          real(chunk) * (real(chunk_context) + 0.5 * real(chunk)),
          real(chunk_context),
          real(decodes),
          real(decodes) * real(decode_context)};
}

/// t = sum of coefficients >= 0 times terms_of(point).
class AttentionLaw {
 public:
  explicit AttentionLaw(const std::map<GridPoint, double>& measured) {
    // Each term alone explains a fifth of the median time at its median: a start that the points then correct.
    std::vector<std::array<double, kTerms>> rows;
    std::vector<double> times;
    for (const auto& [point, seconds] : measured) {
      rows.push_back(terms_of(point));
      times.push_back(seconds);
    }
    std::vector<double> start;
    std::vector<std::size_t> used;
    for (std::size_t term = 0; term < kTerms; ++term) {
      std::vector<double> ratios;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        if (rows[i][term] > 0.0) ratios.push_back(times[i] / rows[i][term]);
      }
      if (ratios.empty()) continue;
      const auto middle = ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2);
      std::nth_element(ratios.begin(), middle, ratios.end());
      used.push_back(term);
      start.push_back(0.2 * *middle);
    }
    const FittedParameters fit =
        fit_positive(start, rows.size(), [&](std::span<const double> parameters, std::span<double> log_ratios) {
          for (std::size_t i = 0; i < rows.size(); ++i) {
            double seconds = 0.0;
            for (std::size_t j = 0; j < used.size(); ++j) seconds += parameters[j] * rows[i][used[j]];
            log_ratios[i] = std::log(seconds / times[i]);
          }
        });
    for (std::size_t j = 0; j < used.size(); ++j) coefficients_[used[j]] = fit.values[j];
  }

  [[nodiscard]] double seconds(const GridPoint& point) const {
    const std::array<double, kTerms> terms = terms_of(point);
    double sum = 0.0;
    for (std::size_t term = 0; term < kTerms; ++term) sum += coefficients_[term] * terms[term];
    return sum;
  }

 private:
  std::array<double, kTerms> coefficients_{};
};

/// The position of the value of an axis that is nearest in octaves. 0 on an axis of counts is only near to itself.
std::size_t nearest(const std::vector<std::int64_t>& values, std::size_t axis, std::int64_t value) {
  if (is_count(axis) && value == 0) return 0;
  const auto begin = values.begin() + (is_count(axis) ? 1 : 0);
  const auto above = std::lower_bound(begin, values.end(), value);
  if (above == begin) return static_cast<std::size_t>(begin - values.begin());
  if (above == values.end()) return values.size() - 1;
  const double middle = 0.5 * (octaves(axis, *(above - 1)) + octaves(axis, *above));
  return static_cast<std::size_t>(above - values.begin()) - (octaves(axis, value) < middle ? 1 : 0);
}

/// At most `most` of the values of an axis: both ends, and those nearest to equal steps in octaves between them.
std::vector<std::int64_t> thinned(const std::vector<std::int64_t>& values, std::size_t axis, std::size_t most) {
  if (values.size() <= most) return values;
  const std::size_t first = is_count(axis) ? 1 : 0;
  const double low = octaves(axis, values[first]);
  const double step =
      (octaves(axis, values.back()) - low) / static_cast<double>(std::max<std::size_t>(most - first - 1, 1));
  std::set<std::int64_t> kept{values.front(), values[first], values.back()};
  std::size_t at = first;
  for (std::size_t i = first + 1; i + 1 < most; ++i) {
    const double wanted = low + step * static_cast<double>(i - first);
    while (at + 1 < values.size() &&
           std::abs(octaves(axis, values[at + 1]) - wanted) <= std::abs(octaves(axis, values[at]) - wanted)) {
      ++at;
    }
    kept.insert(values[at]);
  }
  return {kept.begin(), kept.end()};
}

using Axes = std::array<std::vector<std::int64_t>, 4>;

double node_count(const Axes& axes) {
  double count = 1.0;
  for (const auto& axis : axes) count *= static_cast<double>(axis.size());
  return count;
}

/// The axes with their longest ones thinned until they span at most `most` nodes.
Axes thinned(const Axes& axes, double most) {
  Axes fewer = axes;
  std::size_t longest = 0;
  for (const auto& axis : axes) longest = std::max(longest, axis.size());
  while (node_count(fewer) > most) {
    longest -= std::max<std::size_t>(1, longest / 16);
    for (std::size_t axis = 0; axis < 4; ++axis) fewer[axis] = thinned(axes[axis], axis, longest);
  }
  return fewer;
}

/// Positions and numbers of the nodes. The last axis is the fastest.
class Numbering {
 public:
  explicit Numbering(const Axes& axes) : lengths_{axes[0].size(), axes[1].size(), axes[2].size(), axes[3].size()} {}

  [[nodiscard]] std::size_t size() const { return lengths_[0] * lengths_[1] * lengths_[2] * lengths_[3]; }
  /// Where a count is 0, all contexts are one node.
  [[nodiscard]] static Position own(Position node) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{2}}) {
      if (node[count] == 0) node[count + 1] = 0;
    }
    return node;
  }
  [[nodiscard]] std::size_t number(const Position& node) const {
    const Position here = own(node);
    return ((here[0] * lengths_[1] + here[1]) * lengths_[2] + here[2]) * lengths_[3] + here[3];
  }
  template <class Visit>
  void for_each(const Visit& visit) const {
    Position node{};
    for (node[0] = 0; node[0] < lengths_[0]; ++node[0]) {
      for (node[1] = 0; node[1] < lengths_[1]; ++node[1]) {
        for (node[2] = 0; node[2] < lengths_[2]; ++node[2]) {
          for (node[3] = 0; node[3] < lengths_[3]; ++node[3]) visit(node);
        }
      }
    }
  }

 private:
  std::array<std::size_t, 4> lengths_;
};

GridPoint value_at(const Axes& axes, const Position& node) {
  GridPoint point{};
  for (std::size_t axis = 0; axis < 4; ++axis) point[axis] = axes[axis][node[axis]];
  for (const std::size_t count : {std::size_t{0}, std::size_t{2}}) {
    if (point[count] == 0) point[count + 1] = 0;
  }
  return point;
}

bool is_empty_call(const Position& node) { return node[0] == 0 && node[2] == 0; }

/// The lines through all nodes along each axis. The empty call belongs to none, and neither do the contexts of a count
/// of 0, which are one node.
std::vector<GridLine> lines_of(const Axes& axes, const Numbering& numbering) {
  std::vector<GridLine> lines;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    numbering.for_each([&](const Position& start) {
      if (start[axis] != 0) return;
      // Lines of contexts of a count of 0 have no length. Of lines beside them, one stands for all contexts.
      if (!is_count(axis) && start[axis - 1] == 0) return;
      const Position own = Numbering::own(start);
      for (std::size_t other = 1; other < 4; other += 2) {
        if (other != axis + 1 && own[other] != start[other]) return;
      }
      // A line leads to each context of the count from the same node without it; all of them together pull like one.
      const double to_zero = is_count(axis) ? kToZero * static_cast<double>(axes[axis + 1].size()) : 0.0;
      GridLine line;
      std::size_t before = 0;
      for (Position node = start; node[axis] < axes[axis].size(); ++node[axis]) {
        if (is_empty_call(node)) continue;
        if (!line.nodes.empty()) {
          const bool from_zero = is_count(axis) && before == 0;
          line.gaps.push_back(from_zero ? to_zero
                                        : octaves(axis, axes[axis][node[axis]]) - octaves(axis, axes[axis][before]));
          if (from_zero) line.smooth_from = 1;
        }
        line.nodes.push_back(numbering.number(node));
        before = node[axis];
      }
      if (line.nodes.size() > 1) lines.push_back(std::move(line));
    });
  }
  return lines;
}

/// Gives each node without a time one, and returns their number. Nodes of a coarse grid have none yet: the points give
/// their factors to the nearest nodes.
std::size_t interpolate(const std::map<GridPoint, double>& measured, const Axes& axes, std::vector<double>& seconds) {
  const Numbering numbering(axes);
  const AttentionLaw law(measured);
  std::vector<double> sums(seconds.size());
  std::vector<double> counts(seconds.size());
  for (const auto& [point, time] : measured) {
    Position node{};
    for (std::size_t axis = 0; axis < 4; ++axis) node[axis] = nearest(axes[axis], axis, point[axis]);
    sums[numbering.number(node)] += std::log(time / law.seconds(point));
    counts[numbering.number(node)] += 1.0;
  }
  std::vector<double> factors(seconds.size(), kUnmeasured);
  std::size_t interpolated = 0;
  numbering.for_each([&](const Position& node) {
    const std::size_t number = numbering.number(node);
    if (counts[number] > 0.0) {
      factors[number] = sums[number] / counts[number];
    } else if (seconds[number] > 0.0) {
      factors[number] = std::log(seconds[number] / law.seconds(value_at(axes, node)));
    } else if (Numbering::own(node) == node && !is_empty_call(node)) {
      ++interpolated;
    }
  });
  fill_by_minimum_curvature(factors, lines_of(axes, numbering));
  numbering.for_each([&](const Position& node) {
    double& time = seconds[numbering.number(node)];
    if (!(time > 0.0)) time = law.seconds(value_at(axes, node)) * std::exp(factors[numbering.number(node)]);
  });
  return interpolated;
}

}  // namespace

std::string point_text(const GridPoint& point) {
  return fmt::format("a chunk of {} tokens after {}, {} decodes of {} tokens", point[0], point[1], point[2], point[3]);
}

AttentionGrid::AttentionGrid(std::map<GridPoint, double> measured) : measured_(std::move(measured)) {
  std::array<std::set<std::int64_t>, 4> values;
  values[0].insert(0);
  values[2].insert(0);
  for (const auto& [point, seconds] : measured_) {
    values[0].insert(point[0]);
    values[2].insert(point[2]);
    if (point[0] > 0) values[1].insert(point[1]);
    if (point[2] > 0) values[3].insert(point[3]);
  }
  for (std::size_t i = 0; i < 4; ++i) {
    if (values[i].empty()) values[i].insert(0);
    axes_[i].assign(values[i].begin(), values[i].end());
  }
}

std::optional<GridPoint> AttentionGrid::first_missing() const {
  for (const std::int64_t chunk : axes_[0]) {
    for (const std::int64_t chunk_context : axes_[1]) {
      for (const std::int64_t decodes : axes_[2]) {
        for (const std::int64_t decode_context : axes_[3]) {
          const GridPoint node{chunk, chunk > 0 ? chunk_context : 0, decodes, decodes > 0 ? decode_context : 0};
          if (!at(node)) return node;
        }
      }
    }
  }
  return std::nullopt;
}

AttentionGrid::Coverage AttentionGrid::tabulate(LayerTables& tables) const {
  const bool full = !first_missing();
  const bool coarse = !full && node_count(axes_) > real(kMostNodes);
  const Axes axes = coarse ? thinned(axes_, real(kMostNodes)) : axes_;
  const Numbering numbering(axes);
  std::vector<double> seconds(numbering.size(), kUnmeasured);
  if (!coarse) {
    numbering.for_each([&](const Position& node) {
      seconds[numbering.number(node)] = at(value_at(axes, node)).value_or(kUnmeasured);
    });
  }
  Coverage coverage;
  if (!full) coverage.interpolated = interpolate(measured_, axes, seconds);
  numbering.for_each([&](const Position& node) {
    tables.attention_seconds.push_back(is_empty_call(node) ? kNothing : seconds[numbering.number(node)]);
    if (!is_empty_call(node) && Numbering::own(node) == node) ++coverage.nodes;
  });
  std::array<std::vector<double>*, 4> into{&tables.chunk_axis, &tables.chunk_context_axis, &tables.decodes_axis,
                                           &tables.decode_context_axis};
  for (std::size_t i = 0; i < 4; ++i) into[i]->assign(axes[i].begin(), axes[i].end());
  return coverage;
}

std::optional<double> AttentionGrid::measured(const GridPoint& point) const {
  const auto found = measured_.find(point);
  return found == measured_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<double> AttentionGrid::at(const GridPoint& node) const {
  const auto [chunk, chunk_context, decodes, decode_context] = node;
  if (chunk == 0 && decodes == 0) return kNothing;
  if (chunk == 0) return measured({0, 0, decodes, decode_context});
  if (decodes == 0) return measured({chunk, chunk_context, 0, 0});
  if (const auto seconds = measured(node)) return seconds;
  return continued(node);
}

std::optional<double> AttentionGrid::continued(const GridPoint& point) const {
  const auto& decodes = axes_[2];
  if (decodes.size() < 4 || point[2] != decodes.back()) return std::nullopt;
  Curve line;
  for (const std::int64_t before : {decodes[decodes.size() - 3], decodes[decodes.size() - 2]}) {
    const auto seconds = measured({point[0], point[1], before, point[3]});
    if (!seconds) return std::nullopt;
    line.points.push_back({real(before), *seconds});
  }
  return line.at(real(point[2]));
}

}  // namespace spillway::hwmodels
