#include "hwmodels/calibration/least_squares.hpp"

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <unsupported/Eigen/NonLinearOptimization>
#include <unsupported/Eigen/NumericalDiff>
#include <utility>

namespace spillway::hwmodels {
namespace {

constexpr double kRobustScale = 0.1;
constexpr double kStep = 1e-3;  // of the numeric derivatives, in log p

/// Its square is rho(x); its sign is the sign of x.
double robust(double x) {
  const double scaled = x / kRobustScale;
  const double root = std::sqrt(1.0 + scaled * scaled);
  // 2 (root - 1) without cancellation.
  return x * std::sqrt(2.0 / (root + 1.0));
}

/// The interface that Eigen's Levenberg-Marquardt requires.
class LogLeastSquares {
 public:
  LogLeastSquares(const std::vector<double>& start, std::size_t rows, const LogRatios& log_ratios, double prior)
      : start_(start), rows_(rows), log_ratios_(log_ratios), prior_(prior) {}

  [[nodiscard]] int inputs() const { return static_cast<int>(start_.size()); }
  [[nodiscard]] int values() const { return static_cast<int>(rows_ + start_.size()); }

  int operator()(const Eigen::VectorXd& log_parameters, Eigen::VectorXd& errors) const {
    const std::vector<double> parameters = exponentials(log_parameters);
    std::vector<double> ratios(rows_);
    log_ratios_(parameters, ratios);
    for (std::size_t i = 0; i < rows_; ++i) errors[static_cast<Eigen::Index>(i)] = robust(ratios[i]);
    for (std::size_t i = 0; i < start_.size(); ++i) {
      errors[static_cast<Eigen::Index>(rows_ + i)] = prior_ * std::log(parameters[i] / start_[i]);
    }
    return 0;
  }

  int df(const Eigen::VectorXd& at, Eigen::MatrixXd& jacobian) const {
    Eigen::VectorXd here(values());
    Eigen::VectorXd there(values());
    (*this)(at, here);
    for (Eigen::Index i = 0; i < at.size(); ++i) {
      Eigen::VectorXd moved = at;
      moved[i] += kStep;
      (*this)(moved, there);
      jacobian.col(i) = (there - here) / kStep;
    }
    return 0;
  }

  static std::vector<double> exponentials(const Eigen::VectorXd& logs) {
    std::vector<double> values(static_cast<std::size_t>(logs.size()));
    std::transform(logs.begin(), logs.end(), values.begin(), [](double x) { return std::exp(x); });
    return values;
  }

 private:
  const std::vector<double>& start_;
  std::size_t rows_;
  const LogRatios& log_ratios_;
  double prior_;
};

double squared_distance(const ResidualPoint& a, const ResidualPoint& b, const SurfaceShape& shape) {
  double sum = 0.0;
  for (std::size_t i = 0; i < 2; ++i) {
    const double work = (a.work[i] - b.work[i]) / shape.work_lengths[i];
    const double model = (a.shape[i] - b.shape[i]) / shape.shape_lengths[i];
    sum += work * work + model * model;
  }
  return sum;
}

/// Indices of points that are far from each other, starting with the first point; fewer than most_anchors when all
/// other points repeat them.
std::vector<std::size_t> farthest_points(std::span<const ResidualPoint> points, const SurfaceShape& shape) {
  std::vector<std::size_t> chosen;
  std::vector<double> distance(points.size(), std::numeric_limits<double>::infinity());
  std::size_t next = 0;
  while (chosen.size() < std::min(shape.most_anchors, points.size()) && distance[next] > 0.0) {
    chosen.push_back(next);
    for (std::size_t i = 0; i < points.size(); ++i) {
      distance[i] = std::min(distance[i], squared_distance(points[i], points[chosen.back()], shape));
    }
    next = static_cast<std::size_t>(std::max_element(distance.begin(), distance.end()) - distance.begin());
  }
  return chosen;
}

}  // namespace

std::vector<std::size_t> scattered(std::size_t count) {
  std::vector<std::pair<std::uint64_t, std::size_t>> order;
  order.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t z = (i + 1) * 0x9E37'79B9'7F4A'7C15U;  // SplitMix64
    z = (z ^ (z >> 30U)) * 0xBF58'476D'1CE4'E5B9U;
    z = (z ^ (z >> 27U)) * 0x94D0'49BB'1331'11EBU;
    order.emplace_back(z ^ (z >> 31U), i);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::size_t> numbers;
  numbers.reserve(count);
  for (const auto& [hash, number] : order) numbers.push_back(number);
  return numbers;
}

double quantile(const std::vector<double>& sorted, double q) {
  const double position = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const auto above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (position - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

ErrorSummary summarise(std::vector<double> ratios) {
  ErrorSummary summary;
  if (ratios.empty()) return summary;
  summary.n = static_cast<std::int64_t>(ratios.size());
  summary.bias = std::accumulate(ratios.begin(), ratios.end(), 0.0) / static_cast<double>(ratios.size()) - 1.0;
  for (double& ratio : ratios) ratio = std::abs(ratio - 1.0);
  std::sort(ratios.begin(), ratios.end());
  summary.median = quantile(ratios, 0.5);
  summary.p95 = quantile(ratios, 0.95);
  return summary;
}

FittedParameters fit_positive(const std::vector<double>& start, std::size_t rows, const LogRatios& log_ratios,
                              double prior) {
  LogLeastSquares problem(start, rows, log_ratios, prior);
  Eigen::VectorXd logs(static_cast<Eigen::Index>(start.size()));
  std::transform(start.begin(), start.end(), logs.begin(), [](double p) { return std::log(p); });
  Eigen::LevenbergMarquardt<LogLeastSquares> solver(problem);
  solver.parameters.maxfev = 400;
  solver.minimize(logs);
  return {LogLeastSquares::exponentials(logs), solver.fvec.squaredNorm()};
}

ResidualSurface fit_residual(std::span<const ResidualPoint> points, std::span<const double> log_ratios,
                             const SurfaceShape& shape) {
  ResidualSurface surface{shape.work_lengths, shape.shape_lengths, {}, {}};
  for (const std::size_t i : farthest_points(points, shape)) surface.anchors.push_back(points[i]);
  const auto anchors = static_cast<Eigen::Index>(surface.anchors.size());
  const auto rows = static_cast<Eigen::Index>(points.size());
  if (anchors == 0) return surface;
  const auto anchor = [&](Eigen::Index i) -> const ResidualPoint& {
    return surface.anchors[static_cast<std::size_t>(i)];
  };
  Eigen::MatrixXd across(anchors, rows);
  Eigen::MatrixXd among(anchors, anchors);
  for (Eigen::Index i = 0; i < anchors; ++i) {
    for (Eigen::Index j = 0; j < rows; ++j) {
      across(i, j) = surface.kernel(anchor(i), points[static_cast<std::size_t>(j)]);
    }
    for (Eigen::Index j = 0; j < anchors; ++j) among(i, j) = surface.kernel(anchor(i), anchor(j));
  }
  constexpr double kJitter = 1e-8;
  Eigen::MatrixXd normal = shape.noise_variance * among;
  normal.diagonal().array() += kJitter;
  normal.selfadjointView<Eigen::Lower>().rankUpdate(across);
  const Eigen::Map<const Eigen::VectorXd> targets(log_ratios.data(), rows);
  const Eigen::VectorXd weights = normal.selfadjointView<Eigen::Lower>().ldlt().solve(across * targets);
  surface.weights.assign(weights.begin(), weights.end());
  return surface;
}

}  // namespace spillway::hwmodels
