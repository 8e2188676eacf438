// Filling the nodes of a grid that were not measured from those that were.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

namespace spillway::hwmodels {

/// Nodes that follow each other along one axis of a grid, with the distances between neighbours.
struct GridLine {
  std::vector<std::size_t> nodes;
  std::vector<double> gaps;     // gaps[i] > 0, from nodes[i] to nodes[i + 1]
  std::size_t smooth_from = 0;  // curvature counts from this position on, slope along the whole line
};

inline constexpr double kUnmeasured = std::numeric_limits<double>::quiet_NaN();

/// Replaces each kUnmeasured value. The other values stay. The result minimises the bending energy of the grid under
/// tension,
///   (1 - T) sum over triples of neighbours of h (second difference)^2 + T sum over neighbours of (difference)^2 / h,
/// T = 0.1: gridding by minimum curvature (Briggs 1974, Geophysics 39) with the tension of Smith and Wessel (1990,
/// Geophysics 55), which keeps what lies beyond the measured nodes near them. Nodes that no line joins to a measured
/// node become 0. Conjugate gradients: O(nodes) memory, O(nodes iterations) time. The same input gives the same values.
void fill_by_minimum_curvature(std::vector<double>& values, const std::vector<GridLine>& lines);

}  // namespace spillway::hwmodels
