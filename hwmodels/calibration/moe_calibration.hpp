// Fused mixture-of-experts kernels of a calibration.
#pragma once

#include "hwmodels/calibration/calibration_task.hpp"
#include "hwmodels/calibration/kernel_fits.hpp"

namespace spillway::hwmodels {

/// Fits each kernel in each number format. The held-out error is that of whole shapes, with all their distributions of
/// the load. Start values come from `hints`; where neither a base nor GEMM rows give these, from the MoE rows. Throws
/// DataError when all rows together are too few.
void calibrate_moe(const CalibrationTask& task, FitHints hints, FittedKernels& out);

}  // namespace spillway::hwmodels
