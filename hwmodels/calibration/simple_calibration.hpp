// Calibration of what a line, a curve or a table describes (simple_kernels.hpp), with the error on held-out rows. Each
// function fits what has rows and leaves the rest of `out` alone.
#pragma once

#include "hwmodels/calibration/calibration_task.hpp"
#include "hwmodels/fitted.hpp"

namespace spillway::hwmodels {

/// Elementwise kernels, CPU attention, host times and whole iterations.
void calibrate_lines(const CalibrationTask& task, FittedKernels& out);
void calibrate_all_reduce(const CalibrationTask& task, FittedKernels& out);
/// One model for each direction and mechanism of copies.
void calibrate_copies(const CalibrationTask& task, FittedKernels& out);
/// Layer tables. Mixed calls that lie on no grid make no table, and that is an error only when
/// calibrate_mixed_attention could not use them before.
void calibrate_layer_tables(const CalibrationTask& task, FittedKernels& out);

}  // namespace spillway::hwmodels
