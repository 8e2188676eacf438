#include "hwmodels/models/moe.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "hwmodels/models/exact_math.hpp"
#include "hwmodels/numbers.hpp"

namespace spillway::hwmodels {
namespace {

constexpr double kTileColumns = 128.0;
constexpr std::int64_t kAlignedWidth = 16;
// Bandwidth of the L2 cache as a multiple of the memory's; kernels that read from it are bound by their launch.
constexpr double kCacheSpeed = 4.0;

/// Without its share of SM / P, which both multiplications have in common.
double grouped(double tiles, double rows, double outputs, double inputs, const MoeModel& model) {
  const double waves = std::max(1.0, std::ceil(tiles * std::ceil(outputs / kTileColumns) / real(model.sm_count)));
  return waves * 2.0 * (rows + model.edge_rows) * kTileColumns * (inputs + model.prologue);
}

/// Time of reading weights that were read before, relative to reading them from memory. Weights that exceed the cache
/// replace each other before they are used again, so the step is steep.
double share_read(double weights, double cache_bytes) {
  if (cache_bytes <= 0.0) return 1.0;
  double power = cache_bytes / weights;
  for (int i = 0; i < 4; ++i) power *= power;
  if (power > 1e12) return 1.0 / kCacheSpeed;  // and infinity
  return (1.0 + power / kCacheSpeed) / (1.0 + power);
}

}  // namespace

ResidualPoint moe_point(std::int64_t tokens, const RankLoad& load, const MoeShape& shape) {
  const double each = std::max(1.0, load.rows / std::max(1.0, load.active));
  return {{log2_line(real(tokens)), log2_line(each)},
          {log2_line(real(shape.hidden) * real(shape.width)), log2_line(real(shape.experts / shape.expert_parallel))}};
}

KernelTime modelled_moe(const MoeModel& model, const MoeShape& shape, std::int64_t tokens, const RankLoad& load,
                        double cache_bytes) {
  const double hidden = real(shape.hidden);
  const std::int64_t multiple = model.width_multiple;
  const double width = real((shape.width + multiple - 1) / multiple * multiple);
  const double inner = real(shape.matrices - 1) * width;
  const double weights =
      load.active * real(shape.matrices) * hidden * width * format_of(model.quantization).weight_bytes();
  double work = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < kRowTiles.size(); ++i) {
    const double rows = real(kRowTiles[i]);
    work = std::min(
        work, grouped(load.tiles[i], rows, inner, hidden, model) + grouped(load.tiles[i], rows, hidden, width, model));
  }
  const double ragged = shape.width % kAlignedWidth == 0 ? 1.0 : 1.0 + model.ragged_loss;
  const double compute = ragged * work * real(model.sm_count) / model.flops;
  const double memory = ragged * weights * share_read(weights, cache_bytes) / model.bandwidth;
  const double pairs = real(tokens) * real(shape.top_k);
  const double other =
      pairs * (model.pair_seconds + model.pair_hidden_seconds * hidden + model.pair_width_seconds * width) +
      load.rows * (model.row_hidden_seconds * hidden + model.row_width_seconds * width) +
      model.expert_seconds * real(shape.experts / shape.expert_parallel) +
      model.token_hidden_seconds * hidden * real(tokens);
  return {model.launch_seconds + other + p_norm(compute, memory, model.norm_exponent), compute > memory};
}

MoeTime::MoeTime(const MoeModel& model, const MoeShape& shape, const ExpertLoad& load)
    : model_(model), shape_(shape), load_(load, shape.top_k, shape.experts, shape.expert_parallel) {
  residual_ = ResidualSlice(model.residual, moe_point(1, {}, shape).shape);
  model_.residual = {};
}

KernelTime MoeTime::at(std::int64_t tokens) const {
  const RankLoad load = load_.at(tokens);
  KernelTime time = modelled_moe(model_, shape_, tokens, load);
  time.seconds *= residual_.ratio(moe_point(tokens, load, shape_).work);
  return time;
}

}  // namespace spillway::hwmodels
