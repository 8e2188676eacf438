// Time of a fused mixture-of-experts module on one GPU: routing, quantisation of its input, two grouped matrix
// multiplications, the activation between them, and the weighted sum of the experts' outputs.
//
// Given     T, k, G              tokens of the group, experts per token, experts on this GPU
//           h, w, f              hidden size, width of an expert on this GPU, its matrices            MoeShape
//           R, A, tiles(M)       rows, active experts, tiles of M rows on the most loaded GPU         RankLoad
//           b                    bytes of a weight with its scales                                    Quantization
//           t0, P, B             launches, FLOP/s of a full wave, bytes/s of memory                   MoeModel
//           c, u, g              loss of low tiles, prologue, loss of widths that are no multiple of 16   MoeModel
//           m                    columns that widths are padded to                                    MoeModel
//           s_*, p, SM           seconds of other work, exponent, streaming multiprocessors           MoeModel
// Computed, in seconds
//   w                : rounded up to a multiple of m where a kernel stores its experts padded
//   ragged           = w is no multiple of 16 ? 1 + g : 1
//   grouped(M, N, K) = max(1, ceil(tiles(M) ceil(N / 128) / SM)) 2 (M + c) 128 (K + u) SM / P
//   compute          = ragged min over M of (grouped(M, (f - 1) w, h) + grouped(M, h, w))
//   memory           = ragged A f h w b / B
//   other            = T k (s_pair + s_pair_hidden h + s_pair_width w) + R (s_row_hidden h + s_row_width w)
//                      + G s_expert + T h s_token_hidden
//   seconds          = (t0 + other + (compute^p + memory^p)^(1/p)) * residual(T, R / A; h w, G)
//
// Kernels that are given the routing of all tokens (vLLM's expert map) pass over the rows of other GPUs, too: hence
// terms in T k beside those in R. Engines choose tiles by tuned tables; the smallest modelled time stands for the
// choice. Triton loads strides that are no multiple of 16 element by element: hence g.
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
  double flops = 0.0;                 // FLOP/s that full waves of high tiles reach
  double bandwidth = 0.0;             // bytes/s at which weights are read
  double edge_rows = 0.0;             // c: a tile of M rows takes as long as one of M + c without this loss
  double prologue = 0.0;              // columns of K that starting a tile costs
  double ragged_loss = 0.0;           // g
  double pair_seconds = 0.0;          // per token-expert pair of the group: sorting
  double pair_hidden_seconds = 0.0;   // per pair and hidden element
  double pair_width_seconds = 0.0;    // per pair and element of the width
  double row_hidden_seconds = 0.0;    // per row of this GPU and hidden element
  double row_width_seconds = 0.0;     // per row of this GPU and element of the width
  double expert_seconds = 0.0;        // per expert of this GPU
  double token_hidden_seconds = 0.0;  // per token of the group and hidden element
  double norm_exponent = 2.0;         // p, one of kNormExponents
  std::int64_t width_multiple = 1;    // w is rounded up to it: the kernel stores experts padded
  ResidualSurface residual;
};

/// Where a call lies on the residual surface.
[[nodiscard]] ResidualPoint moe_point(std::int64_t tokens, const RankLoad& load, const MoeShape& shape);
/// Without the residual. Benchmarks call one layer again and again, so weights of up to `cache_bytes` come from the L2
/// cache; in a run other layers have passed through it, so `cache_bytes` is 0.
[[nodiscard]] KernelTime modelled_moe(const MoeModel& model, const MoeShape& shape, std::int64_t tokens,
                                      const RankLoad& load, double cache_bytes = 0.0);

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
