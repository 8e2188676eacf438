// The error of whole decode iterations that are put together from held-out kernels.
#pragma once

#include <optional>

#include "hwmodels/calibration/calibration_task.hpp"
#include "hwmodels/calibration/gemm_and_attention.hpp"

namespace spillway::hwmodels {

/// Compares sums of predicted kernels with sums of measured ones: 32 layers of four GEMMs and one attention call, for
/// the shapes of five models, at every batch and context at which both GEMM and attention were measured. A shape that
/// was not measured is replaced by the nearest measured one, in both sums. Empty without rows of both kinds.
[[nodiscard]] std::optional<FitRecord> judge_decode_iterations(const CalibrationTask& task,
                                                               const HeldOutRows<GemmRow>& gemm,
                                                               const HeldOutRows<AttentionRow>& decode);

}  // namespace spillway::hwmodels
