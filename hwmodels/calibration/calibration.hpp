// From measurements to kernel models with their held-out error.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "hwmodels/calibration/measurements.hpp"
#include "hwmodels/catalog.hpp"
#include "hwmodels/fitted.hpp"

namespace spillway::hwmodels {

/// What a calibration knows beside the measurements.
struct CalibrationContext {
  const GpuProfile* base = nullptr;  // null: no datasheet figures, and no analytic model to compare with
  // Name or file of the model whose layers or iterations were measured; empty: unknown.
  std::string layer_model;
};

/// Leaves out the rows of the microbenchmarks' files (format measurements-json) that are too few to fit, so that what a
/// short run or a small GPU could not measure does not keep the rest from being fitted. Returns a sentence for each
/// kind, which the first of its files notes as well. Rows that a table holds some of stay, for calibrate() to refuse.
std::vector<std::string> leave_out_scarce(Measurements& measurements);

/// Fits every op that has rows. Held out, in five folds, are whole (n, k) series of GEMM, whole (heads, KV heads)
/// series of attention, whole kernels of elementwise rows, whole (threads, batch) series of CPU attention, whole
/// (sequences, tensor_parallel) series of host times, and every fifth of whole iterations; of what is one curve
/// (all-reduce, copies, layer tables) every second size inside the measured range. A fold whose rest leaves a parameter
/// open is not predicted and not counted. The models returned are then fitted on all rows. `progress` is told the op at
/// hand. Without a base the number of SMs is the one of a list of known GPUs under which the GEMM rows fit best. Throws
/// DataError when an op has too few rows for its model.
[[nodiscard]] FittedKernels calibrate(const Measurements& measurements, const CalibrationContext& context,
                                      const std::function<void(std::string_view op)>& progress);

}  // namespace spillway::hwmodels
