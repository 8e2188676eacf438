// Which weight matrices are multiplied, so that a model of matrices that were never measured can be fitted.
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

/// `count` shapes, spread as far from each other as can be: from n, k = 128 {1, 2, 3, 4, 6, 8, 12, ..., 512} with
/// n k <= `most_elements` and neither more than 64 times the other, as no layer is flatter; first (4096, 4096), or what
/// comes nearest to it, then each time the one whose nearest chosen neighbour is farthest, by the Euclidean distance of
/// (ln n, ln k, ln (n k)); ties go to the smaller n, then k. Of the ways to choose matrices that were tried on A100,
/// H100 and H200 tables, this one left the smallest errors for shapes that were not measured (latency study of
/// 2026-11-20, section 2). Fewer when there are not so many.
[[nodiscard]] std::vector<WeightShape> designed_shapes(std::int64_t count, std::int64_t most_elements);

}  // namespace spillway::calibrate
