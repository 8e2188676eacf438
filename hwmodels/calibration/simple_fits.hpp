// Fits of the lines and curves of simple_kernels.hpp to measured rows.
#pragma once

#include <span>
#include <vector>

#include "hwmodels/calibration/measurements.hpp"
#include "hwmodels/models/simple_kernels.hpp"

namespace spillway::hwmodels {

/// Fits by relative least squares: errors count as fractions of the measured time. Each fit needs at least as many rows
/// as parameters. It throws DataError when the rows do not determine every parameter, such as rows of one size.
[[nodiscard]] ElementwiseModel fit_elementwise(std::span<const ElementwiseRow> rows);
/// Knots at the measured sizes, at most 32 for each number of ranks, spread evenly on a log scale.
[[nodiscard]] AllReduceModel fit_all_reduce(std::span<const AllReduceRow> rows);
/// One model for each direction and mechanism in the rows; duplex rows are left out. The line is fitted to the sizes of
/// 64 KiB and more where there are at least two, else to all sizes. The small curve has the measured sizes below 64 KiB
/// (up to 64 KiB for batched copies, whose time per descriptor has a step that no line follows). It ends on the line,
/// at the next measured size.
[[nodiscard]] std::vector<CopyModel> fit_copies(std::span<const CopyRow> rows);
/// Assumes nothing better than the rows show. When all rows are bound by their threads, the total bandwidth is that of
/// the largest number of threads. When no row is, one thread has its share of the total bandwidth.
[[nodiscard]] CpuAttentionModel fit_cpu_attention(std::span<const CpuAttentionRow> rows);
/// Uses all rows, whatever their tensor parallelism.
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
