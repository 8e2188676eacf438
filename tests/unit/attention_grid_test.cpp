#include "hwmodels/calibration/attention_grid.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "hwmodels/calibration/minimum_curvature.hpp"
#include "sim/core/random.hpp"

namespace spillway::hwmodels {
namespace {

constexpr double kNaN = kUnmeasured;

std::vector<double> filled(std::vector<double> values, const std::vector<GridLine>& lines) {
  fill_by_minimum_curvature(values, lines);
  return values;
}

// A straight line has no curvature, and the tension of a node between two others is least on the line between them.
TEST(MinimumCurvature, Fill_WhenMeasuredNodesLieOnALine_ThenMissingNodesDoToo) {
  const std::vector<double> values = filled({1.0, kNaN, 4.0, 5.0}, {{{0, 1, 2, 3}, {1.0, 2.0, 1.0}}});
  EXPECT_EQ(values[0], 1.0);
  EXPECT_NEAR(values[1], 2.0, 1e-6);
  EXPECT_EQ(values[2], 4.0);
  EXPECT_EQ(values[3], 5.0);
}

// Beyond 0 and 1 the next step d minimises 0.9 (d - 1)^2 + 0.1 d^2, so 0.9 (d - 1) + 0.1 d = 0 and d = 0.9. Where
// curvature starts at the second node, only 0.1 d^2 is left and d = 0.
TEST(MinimumCurvature, Fill_WhenANodeLiesBeyondTheMeasuredOnes_ThenTensionShortensTheStep) {
  EXPECT_NEAR(filled({0.0, 1.0, kNaN}, {{{0, 1, 2}, {1.0, 1.0}}})[2], 1.9, 1e-6);
  EXPECT_NEAR(filled({0.0, 1.0, kNaN}, {{{0, 1, 2}, {1.0, 1.0}, 1}})[2], 1.0, 1e-6);
}

// Gaps of 1 and 2: the second difference is d / 2 - 1 and its square counts 0.9 * 2 / 3 = 0.6; the slope's counts
// 0.1 / 2. The minimum of 0.6 (d / 2 - 1)^2 + 0.05 d^2 is at 0.6 (d / 2 - 1) + 0.1 d = 0, so d = 1.5.
TEST(MinimumCurvature, Fill_WhenGapsDiffer_ThenTheirLengthCounts) {
  EXPECT_NEAR(filled({0.0, 1.0, kNaN}, {{{0, 1, 2}, {1.0, 2.0}}})[2], 2.5, 1e-6);
}

// Node 2 is a corner between two lines: beside 1 on one of them and beside 3 on the other, it takes the mean.
TEST(MinimumCurvature, Fill_WhenLinesCross_ThenEachPulls) {
  EXPECT_NEAR(filled({1.0, 3.0, kNaN}, {{{0, 2}, {1.0}}, {{1, 2}, {1.0}}})[2], 2.0, 1e-6);
}

TEST(MinimumCurvature, Fill_WhenNoLineLeadsToAMeasuredNode_ThenIsZero) {
  const std::vector<double> values = filled({7.0, kNaN, kNaN}, {{{1, 2}, {1.0}}});
  EXPECT_EQ(values, (std::vector<double>{7.0, 0.0, 0.0}));
}

/// A call by its parts: 20 us, 0.1 us per chunk token, 50 ps per token pair, 1 ns per token before the chunk, 0.3 us
/// per decode, 4 ns per KV token.
double law(const GridPoint& point) {
  const auto [chunk, chunk_context, decodes, decode_context] = point;
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  return 20e-6 + 0.1e-6 * real(chunk) + 50e-12 * real(chunk) * (real(chunk_context) + 0.5 * real(chunk)) +
         1e-9 * real(chunk_context) + 0.3e-6 * real(decodes) + 4e-9 * real(decodes * decode_context);
}

/// The law on powers of four, with pure calls once. 5 * 6 * 5 * 6 nodes.
std::vector<GridPoint> lattice() {
  std::vector<GridPoint> points;
  for (const std::int64_t chunk : {0, 16, 64, 256, 1024}) {
    for (const std::int64_t chunk_context : {0, 16, 64, 256, 1024, 4096}) {
      if (chunk == 0 && chunk_context > 0) continue;
      for (const std::int64_t decodes : {0, 1, 4, 16, 64}) {
        for (const std::int64_t decode_context : {16, 64, 256, 1024, 4096, 16384}) {
          if (decodes == 0 && (decode_context > 16 || chunk == 0)) continue;
          points.push_back({chunk, chunk_context, decodes, decodes == 0 ? 0 : decode_context});
        }
      }
    }
  }
  return points;
}

double at(const LayerTables& tables, const GridPoint& point) {
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  return tables.attention(real(point[0]), real(point[1]), real(point[2]), real(point[3]));
}

// 4 * 6 chunks alone, 4 * 6 decodes alone, 24 * 24 of both.
TEST(AttentionGrid, Tabulate_WhenTheGridIsFull_ThenNothingIsInterpolated) {
  std::map<GridPoint, double> measured;
  for (const GridPoint& point : lattice()) measured[point] = law(point);
  ASSERT_EQ(measured.size(), 24U + 24U + 576U);
  const AttentionGrid grid(measured);
  EXPECT_FALSE(grid.first_missing());
  LayerTables tables;
  const auto [nodes, interpolated] = grid.tabulate(tables);
  EXPECT_EQ(nodes, 624U);
  EXPECT_EQ(interpolated, 0U);
  for (const auto& [point, seconds] : measured) EXPECT_EQ(at(tables, point), seconds);
}

// The points follow the law of the fit, so the missing nodes must, too: what is left over is the prior of the fit.
TEST(AttentionGrid, Tabulate_WhenPointsFollowTheLaw_ThenMissingNodesFollowIt) {
  for (const double share : {0.7, 0.3, 0.1}) {
    RandomStream random(7, 1, "points");
    std::map<GridPoint, double> measured;
    for (const GridPoint& point : lattice()) {
      if (random.uniform() < share) measured[point] = law(point);
    }
    const AttentionGrid grid(measured);
    ASSERT_TRUE(grid.first_missing());
    LayerTables tables;
    const auto [nodes, interpolated] = grid.tabulate(tables);
    EXPECT_EQ(nodes, 624U);
    // Beside a chunk, 64 decodes are on the line through 4 and 16 where both were measured.
    std::size_t continued = 0;
    for (const auto& [chunk, chunk_context, decodes, decode_context] : lattice()) {
      if (chunk == 0 || decodes != 64 || measured.contains({chunk, chunk_context, 64, decode_context})) continue;
      const bool line = measured.contains({chunk, chunk_context, 4, decode_context}) &&
                        measured.contains({chunk, chunk_context, 16, decode_context});
      continued += line ? 1U : 0U;
    }
    EXPECT_EQ(interpolated + continued, 624U - measured.size());
    for (const GridPoint& point : lattice()) {
      const auto known = measured.find(point);
      if (known != measured.end()) {
        EXPECT_EQ(at(tables, point), known->second);
      } else {
        EXPECT_NEAR(at(tables, point) / law(point), 1.0, 0.02) << point_text(point) << ", share " << share;
      }
    }
  }
}

// Another kernel for each kind of call: times the factors 1 (chunks alone), 3 (decodes alone) and 2 (both). Missing
// nodes take the factor of their own kind.
TEST(AttentionGrid, Tabulate_WhenKindsOfCallsDiffer_ThenEachKeepsItsOwnFactor) {
  const auto time = [](const GridPoint& point) {
    return law(point) * (point[0] == 0 ? 3.0 : point[2] == 0 ? 1.0 : 2.0);
  };
  RandomStream random(7, 1, "points");
  std::map<GridPoint, double> measured;
  for (const GridPoint& point : lattice()) {
    if (random.uniform() < 0.7) measured[point] = time(point);
  }
  LayerTables tables;
  AttentionGrid(measured).tabulate(tables);
  for (const GridPoint& point : lattice()) {
    EXPECT_NEAR(at(tables, point) / time(point), 1.0, 0.1) << point_text(point);
  }
}

// Mixed calls take four times the law, calls of one kind take the law. Beside the chunk, one decode is missing. A curve
// through the other kernels' factor of 1 would pull it below 3.6.
TEST(AttentionGrid, Tabulate_WhenAPointNextToAnotherKindIsMissing_ThenFollowsItsOwnKind) {
  const auto time = [](const GridPoint& point) { return law(point) * (point[0] > 0 && point[2] > 0 ? 4.0 : 1.0); };
  std::map<GridPoint, double> measured;
  for (const std::int64_t chunk : {0, 256}) {
    for (const std::int64_t decodes : {0, 1, 2, 4, 8, 16, 32}) {
      const GridPoint point{chunk, 0, decodes, decodes > 0 ? 4096 : 0};
      if (chunk + decodes > 0 && !(chunk > 0 && decodes == 1)) measured[point] = time(point);
    }
  }
  LayerTables tables;
  AttentionGrid(measured).tabulate(tables);
  const GridPoint missing{256, 0, 1, 4096};
  EXPECT_NEAR(at(tables, missing) / law(missing), 4.0, 0.4);
}

// 3,000 points with hardly a value in common would span 10^12 nodes. The coarse grid gives the law back between its
// nodes, at the points and elsewhere.
TEST(AttentionGrid, Tabulate_WhenPointsLieOnNoGrid_ThenACoarseGridFollowsThem) {
  RandomStream random(3, 1, "scattered");
  const auto draw = [&](double low, double high) {
    return static_cast<std::int64_t>(low * std::pow(high / low, random.uniform()));
  };
  const auto any_call = [&](std::size_t kind) {
    GridPoint point{};
    if (kind != 0) point[0] = draw(16, 2048);
    if (kind != 0) point[1] = draw(1, 8192) - 1;
    if (kind != 1) point[2] = draw(1, 128);
    if (kind != 1) point[3] = draw(16, 8192);
    return point;
  };
  std::map<GridPoint, double> measured;
  for (std::size_t i = 0; i < 3000; ++i) {
    const GridPoint point = any_call(i % 3);
    measured[point] = law(point);
  }
  LayerTables tables;
  const auto [nodes, interpolated] = AttentionGrid(measured).tabulate(tables);
  EXPECT_LE(tables.attention_seconds.size(), AttentionGrid::kMostNodes);
  EXPECT_GE(tables.attention_seconds.size(), AttentionGrid::kMostNodes / 4);
  EXPECT_GT(interpolated, nodes / 2);
  EXPECT_EQ(tables.chunk_axis.front(), 0.0);
  EXPECT_EQ(tables.decodes_axis.front(), 0.0);
  for (std::size_t i = 0; i < 300; ++i) {
    const GridPoint point = any_call(i % 3);
    EXPECT_NEAR(at(tables, point) / law(point), 1.0, 0.05) << point_text(point);
  }
}

}  // namespace
}  // namespace spillway::hwmodels
