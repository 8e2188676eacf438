// Fits of positive parameters and of residual surfaces.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "hwmodels/error_summary.hpp"
#include "hwmodels/models/residual_surface.hpp"

namespace spillway::hwmodels {

/// The numbers below `count` in a fixed order that is unrelated to their size: of sorted rows, any run of these indices
/// is a fair sample, whatever the grid on which they were measured.
[[nodiscard]] std::vector<std::size_t> scattered(std::size_t count);

/// The q-quantile of at least one ascending value, by linear interpolation at rank (count - 1) q, as numpy does.
[[nodiscard]] double quantile(const std::vector<double>& sorted, double q);

/// Statistics of predicted / measured, in any order. All zero without ratios.
[[nodiscard]] ErrorSummary summarise(std::vector<double> ratios);

/// Writes log(predicted / measured) of every row for these parameters.
using LogRatios = std::function<void(std::span<const double> parameters, std::span<double> log_ratios)>;

struct FittedParameters {
  std::vector<double> values;
  double loss = 0.0;
};

/// Minimises sum over rows of rho(log ratio) + sum over parameters of (prior log(p / start))^2 by Levenberg-Marquardt
/// in log p, where rho(x) = 2 s^2 (sqrt(1 + (x / s)^2) - 1) with s = 0.1: least squares for errors up to 10%, absolute
/// deviations beyond, so that a few outliers do not bend the fit. The second sum keeps a parameter at its start value
/// when the rows do not determine it. `start` is positive.
[[nodiscard]] FittedParameters fit_positive(const std::vector<double>& start, std::size_t rows,
                                            const LogRatios& log_ratios, double prior = 0.03);

/// Lengths of a residual surface in octaves, the noise of one measurement relative to the spread of the surface, and
/// how many points it may keep.
struct SurfaceShape {
  std::array<double, 2> work_lengths{};
  std::array<double, 2> shape_lengths{};
  double noise_variance = 0.1;
  std::size_t most_anchors = 600;
};

/// Gaussian-process regression of log(measured / modelled) at `points`. With more points than `most_anchors` it keeps
/// those that farthest-point sampling finds and regresses all points on them (subset of regressors). O(points
/// anchors^2) time, O(points anchors) memory.
[[nodiscard]] ResidualSurface fit_residual(std::span<const ResidualPoint> points, std::span<const double> log_ratios,
                                           const SurfaceShape& shape);

}  // namespace spillway::hwmodels
