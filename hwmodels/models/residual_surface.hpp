// The smoothed residual of a kernel model: a correction factor that tends to 1 away from the measured points.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace spillway::hwmodels {

/// Coordinates on log2_line scales. `work` changes from call to call (tokens, batch, context). `shape` belongs to the
/// LLM (n and k, heads). A coordinate that a kernel does not use is always 0.
struct ResidualPoint {
  std::array<double, 2> work{};
  std::array<double, 2> shape{};
};

/// log(measured / modelled) = sum over anchors of weight * K(work) * K(shape), with the rational quadratic kernel
/// K(x, y) = 1 / (1 + sum ((x - y) / length)^2): the predictive mean of a Gaussian process whose anchors are a spread
/// subset of the measured points (Rasmussen and Williams 2006, 4.2.1 and 8.3.1). It tends to 0 far from every anchor.
struct ResidualSurface {
  std::array<double, 2> work_lengths{1.0, 1.0};   // octaves; > 0
  std::array<double, 2> shape_lengths{1.0, 1.0};  // octaves; > 0
  std::vector<ResidualPoint> anchors;
  std::vector<double> weights;  // one per anchor

  /// K(work) * K(shape) of two points.
  [[nodiscard]] double kernel(const ResidualPoint& a, const ResidualPoint& b) const;
  /// O(anchors).
  [[nodiscard]] double log_ratio(const ResidualPoint& point) const;
};

/// The surface for one shape. Anchors with equal work coordinates are summed.
class ResidualSlice {
 public:
  ResidualSlice() = default;  // a factor of 1 everywhere
  ResidualSlice(const ResidualSurface& surface, const std::array<double, 2>& shape);
  [[nodiscard]] bool empty() const { return terms_.empty(); }
  /// The factor on the modelled time. O(distinct work coordinates).
  [[nodiscard]] double ratio(const std::array<double, 2>& work) const;

 private:
  struct Term {
    std::array<double, 2> work{};
    double weight = 0.0;
  };
  std::array<double, 2> lengths_{1.0, 1.0};
  std::vector<Term> terms_;
};

/// A slice tabulated at every half octave of both work coordinates over [0, kOctaves], with bilinear interpolation:
/// O(1) per call, however many anchors. The fitted attention surfaces have lengths of four octaves, so the table
/// follows the slice to 1% (tested). Coordinates outside the table are moved to its edge.
class ResidualTable {
 public:
  static constexpr std::size_t kOctaves = 24;

  ResidualTable() = default;  // a factor of 1 everywhere
  explicit ResidualTable(const ResidualSlice& slice);
  [[nodiscard]] double ratio(double work0, double work1) const;

 private:
  static constexpr std::size_t kNodes = 2 * kOctaves + 1;
  std::vector<double> ratios_;  // kNodes * kNodes, row by row of the first coordinate; empty: 1 everywhere
};

}  // namespace spillway::hwmodels
