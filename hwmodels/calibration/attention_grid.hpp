// The grid of an engine's attention calls, from any set of measured points.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "hwmodels/models/simple_kernels.hpp"

namespace spillway::hwmodels {

/// A point of the attention grid: chunk, its context, decodes, their context. Without a chunk, or without decodes, the
/// context is 0.
using GridPoint = std::array<std::int64_t, 4>;

[[nodiscard]] std::string point_text(const GridPoint& point);

/// The grid that the values of the measured points span. Measured nodes keep their time. Beside a chunk the largest
/// number of decodes may be missing, because it fills an engine's batch: the line through the two numbers before it is
/// continued. Any other node that is missing is interpolated: its time is a law of launch, tokens, token pairs and KV
/// tokens, fitted to all points, times a factor that the measured nodes around it determine
/// (minimum_curvature.hpp, on logarithmic axes). Chunks alone and decodes alone are other kernels than both together,
/// so the factor follows slopes, not curvature, from one to the other. Where points span more than kMostNodes nodes,
/// the grid is coarser and each point gives its factor to the nearest node.
class AttentionGrid {
 public:
  static constexpr std::size_t kMostNodes = 100'000;

  explicit AttentionGrid(std::map<GridPoint, double> measured);

  /// The first node that is neither measured nor continued; empty for a full grid.
  [[nodiscard]] std::optional<GridPoint> first_missing() const;
  struct Coverage {
    std::size_t nodes = 0;         // with a time
    std::size_t interpolated = 0;  // of these
  };
  /// Writes the axes and the times.
  Coverage tabulate(LayerTables& tables) const;

 private:
  [[nodiscard]] std::optional<double> measured(const GridPoint& point) const;
  [[nodiscard]] std::optional<double> at(const GridPoint& node) const;
  [[nodiscard]] std::optional<double> continued(const GridPoint& point) const;

  std::map<GridPoint, double> measured_;
  std::array<std::vector<std::int64_t>, 4> axes_;
};

}  // namespace spillway::hwmodels
