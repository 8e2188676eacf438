// Layer tables from the measured kernels of one model.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "hwmodels/calibration/attention_grid.hpp"
#include "hwmodels/calibration/measurements.hpp"
#include "hwmodels/models/simple_kernels.hpp"

namespace spillway::hwmodels {

/// Fewest attention rows that are interpolated when they cover no full grid: well above the terms of the law.
inline constexpr std::size_t kFewestScattered = 16;

/// Whether the attention rows cover every combination of their values. A call without a chunk, or without decodes, is
/// needed once only. Beside a chunk the largest number of decodes may be missing (AttentionGrid).
[[nodiscard]] bool is_full_grid(std::span<const MixedRow> attention);

/// Curves of the layers and the grid of attention. Full grids keep their times; of other rows, missing nodes of the
/// grid that they span are interpolated (AttentionGrid). Throws DataError with every point that is measured twice, and,
/// for rows that cover no full grid, when one of the three kinds of calls (chunks alone, decodes alone, both) is
/// missing beside the others, or with fewer than kFewestScattered rows.
[[nodiscard]] LayerTables tabulate_layers(std::span<const LayerRow> layers, std::span<const MixedRow> attention);

/// The attention grid alone. Returns how much of it is interpolated. Throws as tabulate_layers() does.
AttentionGrid::Coverage tabulate_attention(std::span<const MixedRow> attention, LayerTables& tables);

/// Predicted / measured of each row. Throws DataError for a row of a kernel that has no table.
[[nodiscard]] std::vector<double> ratios(const LayerTables& tables, std::span<const LayerRow> rows);
[[nodiscard]] std::vector<double> ratios(const LayerTables& tables, std::span<const MixedRow> rows);

}  // namespace spillway::hwmodels
