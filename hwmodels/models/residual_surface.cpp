#include "hwmodels/models/residual_surface.hpp"

#include <algorithm>
#include <cstdint>

#include "hwmodels/models/exact_math.hpp"

namespace spillway::hwmodels {
namespace {

double rational_quadratic(const std::array<double, 2>& a, const std::array<double, 2>& b,
                          const std::array<double, 2>& lengths) {
  const double x = (a[0] - b[0]) / lengths[0];
  const double y = (a[1] - b[1]) / lengths[1];
  return 1.0 / (1.0 + (x * x + y * y));
}

}  // namespace

double ResidualSurface::kernel(const ResidualPoint& a, const ResidualPoint& b) const {
  return rational_quadratic(a.work, b.work, work_lengths) * rational_quadratic(a.shape, b.shape, shape_lengths);
}

double ResidualSurface::log_ratio(const ResidualPoint& point) const {
  double sum = 0.0;
  for (std::size_t i = 0; i < anchors.size(); ++i) sum += weights[i] * kernel(point, anchors[i]);
  return sum;
}

ResidualSlice::ResidualSlice(const ResidualSurface& surface, const std::array<double, 2>& shape)
    : lengths_(surface.work_lengths) {
  for (std::size_t i = 0; i < surface.anchors.size(); ++i) {
    const ResidualPoint& anchor = surface.anchors[i];
    const double weight = surface.weights[i] * rational_quadratic(shape, anchor.shape, surface.shape_lengths);
    terms_.push_back({anchor.work, weight});
  }
  std::stable_sort(terms_.begin(), terms_.end(), [](const Term& a, const Term& b) { return a.work < b.work; });
  std::size_t kept = 0;
  for (const Term& term : terms_) {
    if (kept > 0 && terms_[kept - 1].work == term.work) {
      terms_[kept - 1].weight += term.weight;
    } else {
      terms_[kept++] = term;
    }
  }
  terms_.resize(kept);
}

double ResidualSlice::ratio(const std::array<double, 2>& work) const {
  double sum = 0.0;
  for (const Term& term : terms_) sum += term.weight * rational_quadratic(work, term.work, lengths_);
  return exp_near_zero(sum);
}

ResidualTable::ResidualTable(const ResidualSlice& slice) {
  if (slice.empty()) return;
  ratios_.resize(kNodes * kNodes);
  for (std::size_t i = 0; i < kNodes; ++i) {
    for (std::size_t j = 0; j < kNodes; ++j) {
      ratios_[i * kNodes + j] = slice.ratio({static_cast<double>(i) * 0.5, static_cast<double>(j) * 0.5});
    }
  }
}

double ResidualTable::ratio(double work0, double work1) const {
  if (ratios_.empty()) return 1.0;
  constexpr double kLast = static_cast<double>(kNodes - 1);
  const double x = std::clamp(2.0 * work0, 0.0, kLast);
  const double y = std::clamp(2.0 * work1, 0.0, kLast);
  const auto i = std::min(static_cast<std::size_t>(x), kNodes - 2);
  const auto j = std::min(static_cast<std::size_t>(y), kNodes - 2);
  const double fx = x - static_cast<double>(i);
  const double fy = y - static_cast<double>(j);
  const double* row = &ratios_[i * kNodes + j];
  const double low = row[0] + fy * (row[1] - row[0]);
  const double high = row[kNodes] + fy * (row[kNodes + 1] - row[kNodes]);
  return low + fx * (high - low);
}

}  // namespace spillway::hwmodels
