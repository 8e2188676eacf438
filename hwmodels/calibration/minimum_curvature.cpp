#include "hwmodels/calibration/minimum_curvature.hpp"

#include <Eigen/IterativeLinearSolvers>
#include <Eigen/SparseCore>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>

#include "sim/core/error.hpp"

namespace spillway::hwmodels {
namespace {

constexpr double kTension = 0.1;
// Pull of each node to 0, so small that only nodes without any measured one feel it.
constexpr double kPull = 1e-9;
constexpr double kTolerance = 1e-8;

/// The quadratic form of the energy: a sum of squares of linear combinations of a few nodes. Measured nodes go to the
/// right-hand side.
class Energy {
 public:
  explicit Energy(const std::vector<double>& values) : values_(values), unknown_(values.size(), -1) {
    for (std::size_t node = 0; node < values.size(); ++node) {
      if (std::isnan(values[node])) unknown_[node] = unknowns_++;
    }
    right_ = Eigen::VectorXd::Zero(unknowns_);
    for (int i = 0; i < unknowns_; ++i) entries_.emplace_back(i, i, kPull);
  }

  /// Adds the square of sum of factors times values of the nodes.
  void add_square(std::span<const std::size_t> nodes, std::span<const double> factors) {
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const int row = unknown_[nodes[i]];
      if (row < 0) continue;
      for (std::size_t j = 0; j < nodes.size(); ++j) {
        const double product = factors[i] * factors[j];
        const int column = unknown_[nodes[j]];
        if (column < 0) {
          right_[row] -= product * values_[nodes[j]];
        } else {
          entries_.emplace_back(row, column, product);
        }
      }
    }
  }

  void fill(std::vector<double>& values) const {
    if (unknowns_ == 0) return;
    Eigen::SparseMatrix<double> matrix(unknowns_, unknowns_);
    matrix.setFromTriplets(entries_.begin(), entries_.end());
    Eigen::ConjugateGradient<Eigen::SparseMatrix<double>, Eigen::Lower | Eigen::Upper> solver(matrix);
    solver.setTolerance(kTolerance);
    const Eigen::VectorXd found = solver.solve(right_);
    for (std::size_t node = 0; node < values.size(); ++node) {
      if (unknown_[node] >= 0) values[node] = found[unknown_[node]];
    }
  }

 private:
  const std::vector<double>& values_;
  std::vector<int> unknown_;  // the position of each node among those to be found; -1: measured
  int unknowns_ = 0;
  Eigen::VectorXd right_;
  std::vector<Eigen::Triplet<double>> entries_;
};

}  // namespace

void fill_by_minimum_curvature(std::vector<double>& values, const std::vector<GridLine>& lines) {
  const std::vector<double> measured = values;
  Energy energy(measured);
  for (const GridLine& line : lines) {
    SPILLWAY_CHECK(line.gaps.size() + 1 == line.nodes.size(), "a line has a gap between each two nodes");
    for (std::size_t i = 0; i + 1 < line.nodes.size(); ++i) {
      const double factor = std::sqrt(kTension / line.gaps[i]);
      energy.add_square(std::array{line.nodes[i], line.nodes[i + 1]}, std::array{-factor, factor});
    }
    for (std::size_t i = line.smooth_from; i + 2 < line.nodes.size(); ++i) {
      const double before = line.gaps[i];
      const double after = line.gaps[i + 1];
      const double scale = std::sqrt((1.0 - kTension) * 2.0 / (before + after));
      energy.add_square(std::array{line.nodes[i], line.nodes[i + 1], line.nodes[i + 2]},
                        std::array{scale / before, -scale * (1.0 / before + 1.0 / after), scale / after});
    }
  }
  energy.fill(values);
}

}  // namespace spillway::hwmodels
