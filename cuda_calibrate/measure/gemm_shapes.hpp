// The weight matrices to multiply, chosen so that a fitted model also covers matrices that were never measured.
#pragma once

#include <cstdint>
#include <vector>

namespace spillway::calibrate {

/// y[m][n] = x[m][k] w[n][k].
struct WeightShape {
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool operator==(const WeightShape&) const = default;
};

/// `count` shapes, as far from each other as possible. Candidates are n, k = 128 {1, 2, 3, 4, 6, 8, 12, ..., 512} with
/// n k <= `most_elements` and a ratio of at most 64, because no layer is flatter. The first shape is (4096, 4096), or
/// the nearest candidate. Each further shape is the candidate farthest from its nearest chosen neighbour, by the
/// Euclidean distance of (ln n, ln k, ln (n k)); ties go to the smaller n, then k. Returns fewer shapes if there are
/// fewer candidates.
/// Why far apart: GEMM models (hwmodels/models/gemm.hpp) fitted to 32 such shapes with 6 values of m had median / p95
/// errors on other shapes of 5.5% / 22% (A100), 4.7% / 18% (H100) and 5.8% / 21% (H200). Random shapes gave the same
/// medians but larger p95 errors. Data: bf16 tables of ai-dynamo/aiconfigurator 095f58a.
[[nodiscard]] std::vector<WeightShape> designed_shapes(std::int64_t count, std::int64_t most_elements);

}  // namespace spillway::calibrate
