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

/// What a calibration knows besides the measurements.
struct CalibrationContext {
  const GpuProfile* base = nullptr;  // null: no datasheet figures, and no analytic model for comparison
  // Name or file of the model whose layers or iterations were measured; empty: unknown.
  std::string layer_model;
};

/// Leaves out kinds of rows that are too few to fit and come only from files of the microbenchmarks (format
/// measurements-json), so that a short run or a small GPU does not prevent the other fits. Returns a sentence for each
/// kind, which is also noted with the first of its files. calibrate() refuses too few rows from other files.
std::vector<std::string> leave_out_scarce(Measurements& measurements);

/// Fits every op that has rows. The error comes from rows that are held out in five folds: whole (n, k) series of GEMM,
/// whole (heads, KV heads) series of attention, whole shapes of MoE modules, whole kernels of elementwise rows, whole
/// (threads, batch) series of CPU attention, whole (sequences, tensor_parallel) series of CPU times, and a fifth of the
/// iterations. For curves (all-reduce, copies, layer tables), every second size inside the measured range is held out.
/// Attention rows of layer tables that cover no full grid are held out in five folds, too. A fold is not counted when
/// the other folds do not determine every parameter. The models returned are fitted to all rows. `progress` is called
/// with each op before it is fitted. Without a base, the number of SMs is the one of a list of known GPUs under which
/// the GEMM rows fit best. Throws DataError when an op has too few rows for its model.
[[nodiscard]] FittedKernels calibrate(const Measurements& measurements, const CalibrationContext& context,
                                      const std::function<void(std::string_view op)>& progress);

}  // namespace spillway::hwmodels
