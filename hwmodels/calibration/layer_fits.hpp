// Layer tables from the measured kernels of one model.
#pragma once

#include <span>
#include <vector>

#include "hwmodels/calibration/measurements.hpp"
#include "hwmodels/models/simple_kernels.hpp"

namespace spillway::hwmodels {

/// The attention rows must cover every combination of their values. A call without a chunk, or without decodes, is
/// needed once only. Beside a chunk the largest number of decodes may be missing, because it fills an engine's batch:
/// the line through the two numbers before it is continued. Throws DataError with every point that is measured twice,
/// else with the first point that is missing.
[[nodiscard]] LayerTables tabulate_layers(std::span<const LayerRow> layers, std::span<const MixedRow> attention);

/// Predicted / measured of each row. Throws DataError for a row of a kernel that has no table.
[[nodiscard]] std::vector<double> ratios(const LayerTables& tables, std::span<const LayerRow> rows);
[[nodiscard]] std::vector<double> ratios(const LayerTables& tables, std::span<const MixedRow> rows);

}  // namespace spillway::hwmodels
