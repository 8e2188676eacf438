// Calibration of GEMM and attention kernels, with their error on held-out series.
#pragma once

#include <vector>

#include "hwmodels/calibration/calibration_task.hpp"
#include "hwmodels/calibration/kernel_fits.hpp"
#include "hwmodels/fitted.hpp"

namespace spillway::hwmodels {

/// Rows, and predicted / measured of each by a model that was fitted without its fold; 0: not predicted.
template <class Row>
struct HeldOutRows {
  std::vector<Row> rows;
  std::vector<double> ratios;
};

/// Where the fits start: the device's figures as measured, else those of the base profile. Without a base, peak figures
/// come from the fastest GEMM rows, and the number of SMs is the one of a list of known GPUs under which the GEMM rows
/// fit best.
[[nodiscard]] FitHints hints_for(const CalibrationTask& task);

/// Fits one GEMM model per number format. Returns the held-out rows of the 2-byte format.
HeldOutRows<GemmRow> calibrate_gemms(const CalibrationTask& task, FitHints hints, FittedKernels& out);

/// Fits decode and prefill attention, each where it has rows. Returns the held-out rows of decode attention.
HeldOutRows<AttentionRow> calibrate_attention(const CalibrationTask& task, const FitHints& hints, FittedKernels& out);

/// Fits the share of mixed calls that behaves as one fused launch. Needs a table of the named model that holds decodes
/// alone, chunks alone and both together; else does nothing.
void calibrate_mixed_attention(const CalibrationTask& task, const FitHints& hints, FittedKernels& out);

}  // namespace spillway::hwmodels
