// Predicted / measured under the analytic model (roofline.hpp), kernel by kernel.
#pragma once

#include <span>
#include <vector>

#include "hwmodels/calibration/measurements.hpp"
#include "hwmodels/catalog.hpp"

namespace spillway::hwmodels {

/// Predicted / measured of each row. The profile must state the figures that the analytic model uses.
[[nodiscard]] std::vector<double> roofline_ratios(const GpuProfile& gpu, std::span<const GemmRow> rows);
[[nodiscard]] std::vector<double> roofline_ratios(const GpuProfile& gpu, std::span<const AttentionRow> rows);
[[nodiscard]] std::vector<double> roofline_ratios(const GpuProfile& gpu, std::span<const ElementwiseRow> rows);
[[nodiscard]] std::vector<double> roofline_ratios(const GpuProfile& gpu, std::span<const CopyRow> rows);
[[nodiscard]] std::vector<double> roofline_ratios(const GpuProfile& gpu, std::span<const AllReduceRow> rows);

}  // namespace spillway::hwmodels
