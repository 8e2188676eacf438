#include "cuda_calibrate/measure/gemm_shapes.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace spillway::calibrate {
namespace {

constexpr std::int64_t kUnit = 128;
constexpr std::int64_t kFlattest = 64;
constexpr std::array<std::int64_t, 18> kSteps{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512};

double squared_distance(const WeightShape& a, const WeightShape& b) {
  const double n = std::log(static_cast<double>(a.n) / static_cast<double>(b.n));
  const double k = std::log(static_cast<double>(a.k) / static_cast<double>(b.k));
  return n * n + k * k + (n + k) * (n + k);
}

}  // namespace

std::vector<WeightShape> designed_shapes(std::int64_t count, std::int64_t most_elements) {
  std::vector<WeightShape> candidates;
  candidates.reserve(kSteps.size() * kSteps.size());
  for (const std::int64_t n : kSteps) {
    for (const std::int64_t k : kSteps) {
      const bool flat = n > kFlattest * k || k > kFlattest * n;
      if (!flat && n * kUnit * k * kUnit <= most_elements) candidates.push_back({n * kUnit, k * kUnit});
    }
  }
  const WeightShape middle{4096, 4096};
  const auto wanted = static_cast<std::size_t>(std::max<std::int64_t>(count, 0));
  std::vector<WeightShape> chosen;
  chosen.reserve(wanted);
  std::vector<double> nearest(candidates.size(), std::numeric_limits<double>::infinity());
  while (chosen.size() < std::min(wanted, candidates.size())) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < candidates.size(); ++i) {
      const bool better = chosen.empty()
                              ? squared_distance(candidates[i], middle) < squared_distance(candidates[best], middle)
                              : nearest[i] > nearest[best];
      if (better) best = i;
    }
    chosen.push_back(candidates[best]);
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      nearest[i] = std::min(nearest[i], squared_distance(candidates[i], chosen.back()));
    }
  }
  return chosen;
}

}  // namespace spillway::calibrate
