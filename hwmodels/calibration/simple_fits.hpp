// Fits of the lines and curves of simple_kernels.hpp to measured rows.
#pragma once

#include <span>
#include <vector>

#include "hwmodels/calibration/measurements.hpp"
#include "hwmodels/models/simple_kernels.hpp"

namespace spillway::hwmodels {

/// Fits, each by relative least squares (errors count as fractions of what was measured). Every one needs at least as
/// many rows as parameters, and refuses with DataError rows that leave a parameter open (all of one size).
[[nodiscard]] ElementwiseModel fit_elementwise(std::span<const ElementwiseRow> rows);
/// Knots at the measured sizes, at most 32 for each number of ranks, spread evenly on a log scale.
[[nodiscard]] AllReduceModel fit_all_reduce(std::span<const AllReduceRow> rows);
/// One model for each direction and mechanism in the rows; duplex rows are left out. The line is fitted to the sizes of
/// 64 KiB and more where there are two of them, else to all. The small curve holds the measured sizes below 64 KiB (up
/// to 64 KiB for batched copies, whose descriptors have a cliff that no line follows) and ends on the line at the next
/// measured size.
[[nodiscard]] std::vector<CopyModel> fit_copies(std::span<const CopyRow> rows);
/// What no row shows is taken to be no better than what one does: with rows that all are bound by their threads, the
/// bandwidth is that of the most threads, and with none that is, a thread has its share of the bandwidth.
[[nodiscard]] CpuAttentionModel fit_cpu_attention(std::span<const CpuAttentionRow> rows);
/// Of all rows, whatever their tensor parallelism.
[[nodiscard]] HostModel fit_host(std::span<const HostRow> rows);
[[nodiscard]] IterationModel fit_iterations(std::span<const IterationRow> rows);

/// Predicted / measured of each row; copies: without duplex rows and rows of a mechanism that has no model.
[[nodiscard]] std::vector<double> ratios(const ElementwiseModel& model, std::span<const ElementwiseRow> rows);
[[nodiscard]] std::vector<double> ratios(const AllReduceModel& model, std::span<const AllReduceRow> rows);
[[nodiscard]] std::vector<double> ratios(std::span<const CopyModel> models, std::span<const CopyRow> rows);
[[nodiscard]] std::vector<double> ratios(const CpuAttentionModel& model, std::span<const CpuAttentionRow> rows);
[[nodiscard]] std::vector<double> ratios(const HostModel& model, std::span<const HostRow> rows);
[[nodiscard]] std::vector<double> ratios(const IterationModel& model, std::span<const IterationRow> rows);

}  // namespace spillway::hwmodels
