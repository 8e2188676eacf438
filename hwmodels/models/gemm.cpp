#include "hwmodels/models/gemm.hpp"

#include <algorithm>
#include <limits>

#include "hwmodels/models/exact_math.hpp"
#include "hwmodels/numbers.hpp"

namespace spillway::hwmodels {
namespace {

struct Tile {
  std::int32_t rows;
  std::int32_t columns;
};
constexpr std::array<Tile, 7> kTiles{{{64, 64}, {64, 128}, {128, 64}, {128, 128}, {64, 256}, {128, 256}, {256, 128}}};
constexpr std::array<std::int64_t, 6> kDepthSplits{1, 2, 4, 8, 16, 32};
constexpr double kPartialSumBytes = 4.0;  // fp32

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

ResidualPoint gemm_point(std::int64_t m, std::int64_t n, std::int64_t k) {
  return {{log2_line(real(m)), 0.0}, {log2_line(real(n)), log2_line(real(k))}};
}

GemmTime::GemmTime(const GemmModel& model, std::int64_t n, std::int64_t k, double weight_bytes, double input_bytes,
                   double output_bytes, bool quantises)
    : launch_(model.launch_seconds),
      sm_count_(model.sm_count),
      fixed_memory_(weight_bytes / model.bandwidth),
      memory_per_token_((output_bytes * real(n) + input_bytes * real(k)) / model.bandwidth),
      norm_exponent_(model.norm_exponent),
      residual_(model.residual, gemm_point(1, n, k).shape) {
  if (quantises && model.quantise) {
    launch_ += model.quantise->launch_seconds + real(k) * model.quantise->column_seconds;
    quantise_per_token_ = real(k) * model.quantise->element_seconds;
  }
  static_assert(kTiles.size() * kDepthSplits.size() == kCandidates);
  const double sm_flops = model.flops / real(model.sm_count);
  std::size_t next = 0;
  for (const Tile& tile : kTiles) {
    const double edges = 1.0 + 64.0 * model.edge_loss * (1.0 / tile.rows + 1.0 / tile.columns);
    for (const std::int64_t split : kDepthSplits) {
      const double depth = real(ceil_div(k, split)) + model.prologue;
      candidates_[next++] = {
          tile.rows, ceil_div(n, tile.columns) * split, 2.0 * tile.rows * tile.columns * depth * edges / sm_flops,
          split == 1 ? 0.0 : model.split_cost * kPartialSumBytes * real(n * split) / model.bandwidth};
    }
  }
}

KernelTime GemmTime::modelled(std::int64_t m) const {
  double compute = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : candidates_) {
    const std::int64_t waves = ceil_div(ceil_div(m, candidate.rows) * candidate.columns, sm_count_);
    compute = std::min(compute, real(waves) * candidate.wave_seconds + candidate.split_seconds * real(m));
  }
  const double memory = fixed_memory_ + memory_per_token_ * real(m);
  const double launch = launch_ + quantise_per_token_ * real(m);
  return {launch + p_norm(compute, memory, norm_exponent_), compute > memory};
}

KernelTime GemmTime::at(std::int64_t m) const {
  KernelTime time = modelled(m);
  time.seconds *= residual_.ratio({log2_line(real(m)), 0.0});
  return time;
}

}  // namespace spillway::hwmodels
