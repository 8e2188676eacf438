// Fits of the exchanges of expert parallelism.
#pragma once

#include <span>
#include <vector>

#include "hwmodels/calibration/calibration_task.hpp"
#include "hwmodels/calibration/measurements.hpp"
#include "hwmodels/models/expert_exchange.hpp"

namespace spillway::hwmodels {

/// Rows of one backend, step and number of GPUs. Time per token is fitted only where rows have several sizes of a
/// token; else it cannot be told from the time per byte. At least one row.
[[nodiscard]] ExchangeModel fit_exchange(std::span<const ExchangeRow> rows);
/// Predicted / measured of each row.
[[nodiscard]] std::vector<double> exchange_ratios(const ExchangeModel& model, std::span<const ExchangeRow> rows);

/// Fits each backend, step and number of GPUs. Whole models (hidden size, top_k, experts) are held out, or token counts
/// where only one model was measured. Throws DataError when one of them has too few rows.
void calibrate_exchanges(const CalibrationTask& task, FittedKernels& out);

}  // namespace spillway::hwmodels
