// Time of a fused mixture-of-experts module on one GPU: routing, quantisation of its input, two grouped matrix
// multiplications, the activation between them, and the weighted sum of the experts' outputs.
//
// Given     T, k, G              tokens, experts per token, experts on this GPU
//           h, w, f              hidden size, width of an expert on this GPU, its matrices          MoeShape
//           R, A, tiles(M)       rows, active experts, tiles of M rows on the most loaded GPU       RankLoad
//           b                    bytes of a weight with its scales                                  Quantization
//           t0, P, B             launches, FLOP/s of a full wave, bytes/s of memory                 MoeModel
//           c, u, s_*, p         loss of low tiles, prologue, seconds of other work, exponent       MoeModel
//           SM                   streaming multiprocessors                                          MoeModel
// Computed, in seconds
//   grouped(M, N, K) = max(1, ceil(tiles(M) N / 128 / SM)) 2 M 128 (K + u) (1 + c / M) SM / P
//   compute          = min over M of grouped(M, (f - 1) w, h) + grouped(M, h, w)
//   memory           = A f h w b / B
//   other            = T k (s_pair + s_pair_hidden h) + R (s_row_hidden h + s_row_width w) + s_expert G + s_token h T
//   seconds          = (t0 + other + (compute^p + memory^p)^(1/p)) * residual(T, R / A; h w, G)
//
// Tokens are those of the whole expert-parallel group, because routing and the sum run over all of them where a kernel
// drops other GPUs' experts itself (vLLM's expert map); s_pair says how much it does.
#pragma once

#include <cstdint>

#include "hwmodels/models/expert_load.hpp"
#include "hwmodels/models/gemm.hpp"
#include "hwmodels/models/residual_surface.hpp"
#include "hwmodels/quantization.hpp"

namespace spillway::hwmodels {

struct MoeShape {
  std::int64_t hidden = 0;
  std::int64_t width = 0;            // of one expert on this GPU: intermediate size / tensor parallelism
  std::int64_t top_k = 0;            // experts per token
  std::int64_t experts = 0;          // of the layer, all GPUs together
  std::int64_t expert_parallel = 1;  // the GPU holds experts / expert_parallel of them
  std::int64_t matrices = 3;         // of an expert: 3 with a gate, 2 without (Nemotron-H's squared ReLU)

  bool operator==(const MoeShape&) const = default;
};

/// Parameters of one fused MoE kernel in one number format on one GPU.
struct MoeModel {
  Quantization quantization = Quantization::none;  // of the weights
  std::int64_t sm_count = 0;
  double launch_seconds = 0.0;
  double flops = 0.0;      // FLOP/s that full waves of high tiles reach
  double bandwidth = 0.0;  // bytes/s at which weights are read
  double edge_rows = 0.0;  // c: a tile of M rows takes as long as one of M + c without this loss
  double prologue = 0.0;   // columns of K that starting a tile costs
  double pair_seconds = 0.0;
  double pair_hidden_seconds = 0.0;
  double row_hidden_seconds = 0.0;
  double row_width_seconds = 0.0;
  double expert_seconds = 0.0;
  double token_hidden_seconds = 0.0;
  double norm_exponent = 2.0;  // p, one of kNormExponents
  ResidualSurface residual;
};

/// Where a call lies on the residual surface.
[[nodiscard]] ResidualPoint moe_point(std::int64_t tokens, const RankLoad& load, const MoeShape& shape);
/// Without the residual: what the fit of the parameters calls for every row.
[[nodiscard]] KernelTime modelled_moe(const MoeModel& model, const MoeShape& shape, std::int64_t tokens,
                                      const RankLoad& load);

/// The time of one MoE module by tokens, on the most loaded GPU of its group.
class MoeTime {
 public:
  MoeTime() = default;
  /// `shape` as ExpertLoad takes it; its expert_parallel divides its experts.
  MoeTime(const MoeModel& model, const MoeShape& shape, const ExpertLoad& load);

  /// `tokens` >= 1, of the whole expert-parallel group. Up to a microsecond with a balanced load, up to 0.2 ms with
  /// another: callers cache the result.
  [[nodiscard]] KernelTime at(std::int64_t tokens) const;

 private:
  MoeModel model_;  // without its residual
  MoeShape shape_;
  MostLoadedRank load_;
  ResidualSlice residual_;
};

}  // namespace spillway::hwmodels
