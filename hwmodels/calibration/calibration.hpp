// From measurements to kernel models with their held-out error, and from a profile to its error on any measurements.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hwmodels/calibration/kernel_fits.hpp"
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

/// One line of `calibrate check`.
struct CheckLine {
  std::string op;
  ErrorSummary error;
  std::int64_t outside = 0;        // rows beyond what was measured for the profile
  std::vector<std::string> worst;  // places of the largest errors, with what was measured and predicted
};

/// The profile's error on rows that it has a model for, by op; `skipped` says what it has none for.
struct CheckReport {
  std::vector<CheckLine> lines;
  std::vector<std::string> skipped;
};
[[nodiscard]] CheckReport check_profile(const GpuProfile& profile, const Measurements& measurements);
/// The same of the analytic model, whose figures the profile must state: throws ConfigError when it lacks those of
/// copies that are to be judged.
[[nodiscard]] CheckReport check_roofline(const GpuProfile& profile, const Measurements& measurements);

/// Predicted / measured under the analytic model; what it does not know it does not predict.
[[nodiscard]] std::vector<double> roofline_ratios(const GpuProfile& gpu, std::span<const GemmRow> rows);
[[nodiscard]] std::vector<double> roofline_ratios(const GpuProfile& gpu, std::span<const AttentionRow> rows);
[[nodiscard]] std::vector<double> roofline_ratios(const GpuProfile& gpu, std::span<const ElementwiseRow> rows);
[[nodiscard]] std::vector<double> roofline_ratios(const GpuProfile& gpu, std::span<const CopyRow> rows);
[[nodiscard]] std::vector<double> roofline_ratios(const GpuProfile& gpu, std::span<const AllReduceRow> rows);

}  // namespace spillway::hwmodels
