#include "hwmodels/calibration/linear_fits.hpp"

#include <fmt/format.h>

#include <Eigen/QR>
#include <cstddef>

namespace spillway::hwmodels {

std::optional<std::vector<double>> relative_fit(const std::vector<Equation>& rows) {
  const auto parameters = rows.empty() ? 0 : rows.front().factors.size();
  if (rows.size() < parameters || parameters == 0) return std::nullopt;
  Eigen::MatrixXd scaled(static_cast<Eigen::Index>(rows.size()), static_cast<Eigen::Index>(parameters));
  for (Eigen::Index i = 0; i < scaled.rows(); ++i) {
    const Equation& row = rows[static_cast<std::size_t>(i)];
    for (Eigen::Index j = 0; j < scaled.cols(); ++j) {
      scaled(i, j) = row.factors[static_cast<std::size_t>(j)] / row.seconds;
    }
  }
  // Columns of length 1: the rank must not depend on the units of the factors.
  const Eigen::VectorXd lengths = scaled.colwise().norm();
  if (lengths.minCoeff() <= 0.0) return std::nullopt;
  scaled *= lengths.cwiseInverse().asDiagonal();

  std::vector<Eigen::Index> kept(parameters);
  for (std::size_t j = 0; j < parameters; ++j) kept[j] = static_cast<Eigen::Index>(j);
  std::vector<double> values(parameters, 0.0);
  while (!kept.empty()) {
    constexpr double kRankThreshold = 1e-10;
    Eigen::ColPivHouseholderQR<Eigen::MatrixXd> solver;
    solver.setThreshold(kRankThreshold);
    solver.compute(scaled(Eigen::all, kept));
    if (solver.rank() < static_cast<Eigen::Index>(kept.size())) return std::nullopt;
    const Eigen::VectorXd solution = solver.solve(Eigen::VectorXd::Ones(scaled.rows()));
    Eigen::Index lowest = 0;
    if (solution.minCoeff(&lowest) >= 0.0) {
      for (std::size_t j = 0; j < kept.size(); ++j) {
        values[static_cast<std::size_t>(kept[j])] = solution[static_cast<Eigen::Index>(j)] / lengths[kept[j]];
      }
      break;
    }
    kept.erase(kept.begin() + lowest);
  }
  return values;
}

std::optional<FittedLine> line_through(std::span<const Sample> samples) {
  std::vector<Equation> rows;
  rows.reserve(samples.size());
  for (const Sample& sample : samples) rows.push_back({{1.0, sample.size}, sample.seconds});
  const auto fitted = relative_fit(rows);
  if (!fitted) return std::nullopt;
  return FittedLine{(*fitted)[0], (*fitted)[1]};
}

std::variant<LaunchAndBandwidth, Problem> launch_and_bandwidth(std::span<const Sample> samples,
                                                               const std::string& where) {
  const auto line = line_through(samples);
  if (!line) {
    return Problem{
        fmt::format("launch time and bandwidth need rows of at least 2 sizes, not {} of one", samples.size()), where,
        "measure another size"};
  }
  if (line->slope <= 0.0) {
    return Problem{fmt::format("the time of these {} rows does not grow with their bytes, so they give no bandwidth",
                               samples.size()),
                   where, "measure larger sizes"};
  }
  return LaunchAndBandwidth{line->at_zero, 1.0 / line->slope};
}

}  // namespace spillway::hwmodels
