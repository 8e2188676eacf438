#include "hwmodels/models/moe.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "hwmodels/models/exact_math.hpp"
#include "hwmodels/numbers.hpp"

namespace spillway::hwmodels {
namespace {

constexpr double kTileColumns = 128.0;

/// Without its share of SM / P, which both multiplications have in common.
double grouped(double tiles, double rows, double outputs, double inputs, const MoeModel& model) {
  const double waves = std::max(1.0, std::ceil(tiles * std::ceil(outputs / kTileColumns) / real(model.sm_count)));
  return waves * 2.0 * (rows + model.edge_rows) * kTileColumns * (inputs + model.prologue);
}

}  // namespace

ResidualPoint moe_point(std::int64_t tokens, const RankLoad& load, const MoeShape& shape) {
  const double each = std::max(1.0, load.rows / std::max(1.0, load.active));
  return {{log2_line(real(tokens)), log2_line(each)},
          {log2_line(real(shape.hidden) * real(shape.width)), log2_line(real(shape.experts / shape.expert_parallel))}};
}

KernelTime modelled_moe(const MoeModel& model, const MoeShape& shape, std::int64_t tokens, const RankLoad& load) {
  const double hidden = real(shape.hidden);
  const double width = real(shape.width);
  const double inner = real(shape.matrices - 1) * width;
  const double weights =
      load.active * real(shape.matrices) * hidden * width * format_of(model.quantization).weight_bytes();
  double work = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < kRowTiles.size(); ++i) {
    const double rows = real(kRowTiles[i]);
    work = std::min(
        work, grouped(load.tiles[i], rows, inner, hidden, model) + grouped(load.tiles[i], rows, hidden, width, model));
  }
  const double compute = work * real(model.sm_count) / model.flops;
  const double memory = weights / model.bandwidth;
  const double pairs = real(tokens) * real(shape.top_k);
  const double other = pairs * (model.pair_seconds + model.pair_hidden_seconds * hidden) +
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
