// Fits of the kernel models of hwmodels/models/ to measured rows.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "hwmodels/calibration/least_squares.hpp"
#include "hwmodels/calibration/measurements.hpp"
#include "hwmodels/models/attention.hpp"
#include "hwmodels/models/gemm.hpp"

namespace spillway::hwmodels {

/// SMs of the data-centre and consumer GPUs that serve models today, T4 to B200.
inline constexpr std::array<std::int64_t, 12> kKnownSmCounts{40, 58, 68, 72, 80, 84, 108, 114, 128, 132, 142, 148};

/// Start values of the fits, and the SM count, which is not fitted.
struct FitHints {
  std::int64_t sm_count = 132;
  double flops = 5e14;          // FLOP/s
  double bandwidth = 2e12;      // bytes/s
  double gemm_launch = 2.5e-6;  // seconds: of a quantised multiplication without the quantisation, not fitted
  double edge_loss = 0.1;       // of the same; the rows do not tell it from FLOP/s
};

/// A fit in two stages: parameters by robust least squares on at most 1,200 of the rows, then the residual surface on
/// all rows. At least one row is required.
[[nodiscard]] GemmModel fit_gemm(std::span<const GemmRow> rows, const FitHints& hints);
[[nodiscard]] DecodeAttentionModel fit_decode_attention(std::span<const AttentionRow> rows, const FitHints& hints);
[[nodiscard]] PrefillAttentionModel fit_prefill_attention(std::span<const AttentionRow> rows, const FitHints& hints);

/// Predicted / measured of each row.
[[nodiscard]] std::vector<double> gemm_ratios(const GemmModel& model, std::span<const GemmRow> rows);
[[nodiscard]] std::vector<double> decode_ratios(const DecodeAttentionModel& model, std::span<const AttentionRow> rows);
[[nodiscard]] std::vector<double> prefill_ratios(const PrefillAttentionModel& model,
                                                 std::span<const AttentionRow> rows);

}  // namespace spillway::hwmodels
