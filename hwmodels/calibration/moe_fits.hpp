// Fits of the kernel model of fused mixture-of-experts modules.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hwmodels/calibration/kernel_fits.hpp"
#include "hwmodels/calibration/measurements.hpp"
#include "hwmodels/fitted.hpp"
#include "hwmodels/models/moe.hpp"

namespace spillway::hwmodels {

/// A measured call with the load of its GPU.
struct MoeCase {
  MoeShape shape;
  std::int64_t tokens = 0;
  RankLoad load;
  double seconds = 0.0;
  RowPlace place{};
};

/// The rows as cases. O(rows experts) for power laws, once for each number of tokens.
[[nodiscard]] std::vector<MoeCase> moe_cases(std::span<const MoeRow> rows, const MoeBenchmark& benchmark);

/// Facts of the benchmark that explain the rows best: each is tried while the others stay. A fact that no row depends
/// on keeps its default. Caches tried are those of known GPUs, and none: not every kernel finds its weights in the
/// cache.
[[nodiscard]] MoeBenchmark guess_moe_benchmark(std::span<const MoeRow> rows, const FitHints& hints);

/// FLOP/s of 16-bit numbers, bytes/s and SMs, guessed from the fastest rows, for a GPU of which nothing else is known.
[[nodiscard]] FitHints guess_moe_hints(std::span<const MoeRow> rows);

/// Start values for fits of single kernels: one fit to rows of all kernels and formats, with FLOP/s in 16 bits.
[[nodiscard]] MoeModel fit_moe_start(std::span<const MoeRow> rows, const MoeBenchmark& benchmark,
                                     const FitHints& hints);

/// Two stages, as fit_gemm. `start` gives the values that few rows do not move, its FLOP/s being those of 16 bits. At
/// least one case.
[[nodiscard]] MoeModel fit_moe(std::span<const MoeCase> cases, Quantization quantization, const MoeModel& start,
                               double cache_bytes);

/// Predicted / measured of each case.
[[nodiscard]] std::vector<double> moe_ratios(const MoeModel& model, std::span<const MoeCase> cases, double cache_bytes);

}  // namespace spillway::hwmodels
