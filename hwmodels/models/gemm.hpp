// Time of a matrix multiplication y[m][n] = x[m][k] w[n][k].
//
// Given     m, n, k                tokens, outputs, inputs
//           W, E_x, E_y            bytes of the weights, bytes per element of x and y                     GemmTime
//           t0, P, B               launch, FLOP/s of a full wave, bytes/s of memory                        GemmModel
//           a, u, r, p             loss at tile edges, prologue, cost of a split, exponent                 GemmModel
//           t_q, c, e              of quantising x: launch, seconds per column and per element            QuantiseModel
//           SM                     streaming multiprocessors                                              GemmModel
//           T                      tiles of M x N outputs: 64x64 64x128 128x64 128x128 64x256 128x256 256x128
//           S                      splits of k: 1, 2, 4, 8, 16, 32
// Computed, in seconds
//   waves(T, s)   = ceil(ceil(m / M) ceil(n / N) s / SM)
//   tile(T, s)    = 2 M N (ceil(k / s) + u) (1 + 64 a (1 / M + 1 / N)) SM / P
//   compute       = min over T, s of waves tile + [s > 1] r 4 m n s / B       (partial sums are written and read)
//   memory        = (W + m (E_x k + E_y n)) / B
//   quantise      = t_q + k (c + m e)      of a quantised format, unless the kernel before writes the quantised x
//   seconds       = (quantise + t0 + (compute^p + memory^p)^(1/p)) * residual(m; n, k)
//
// cuBLAS chooses tile and split by its own heuristics; the smallest modelled time stands for its choice. The jumps at
// multiples of a tile or a wave are kept, because a smooth model misses them: fitted to 192 points, it had p95 errors
// of 42% (A100), 45% (H100) and 51% (H200) on other shapes, this form 30%, 43% and 29% (bf16 tables of
// ai-dynamo/aiconfigurator 095f58a).
// A kernel that quantises x reads a row for its largest value before it writes it. Rows run in parallel, so few rows
// take the time of one (c), many that of memory (e). Engines compile it into the norm or the activation before the
// multiplication; then its part of the time is gone. Rows that hold both determine only the sum of t0 and t_q: t0 is
// that of 16-bit numbers.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "hwmodels/models/residual_surface.hpp"

namespace spillway::hwmodels {

/// Seconds of one kernel, and what bounds it.
struct KernelTime {
  double seconds = 0.0;
  bool compute_bound = false;
};

/// The kernel that quantises x of a quantised multiplication.
struct QuantiseModel {
  double launch_seconds = 0.0;
  double column_seconds = 0.0;   // per input, whatever the number of tokens
  double element_seconds = 0.0;  // per input and token
};

/// Parameters of all matrix multiplications in one number format on one GPU and kernel library.
struct GemmModel {
  std::int64_t sm_count = 0;
  double launch_seconds = 0.0;
  double flops = 0.0;      // FLOP/s that full waves reach
  double bandwidth = 0.0;  // bytes/s that large matrices reach
  double edge_loss = 0.0;  // a 64 x 64 tile takes 1 + twice this fraction of the time without edges
  double prologue = 0.0;   // columns of k that starting a tile costs
  double split_cost = 0.0;
  double norm_exponent = 4.0;  // p, one of kNormExponents
  ResidualSurface residual;
  std::optional<QuantiseModel> quantise{};
};

/// Where a multiplication lies on the residual surface.
[[nodiscard]] ResidualPoint gemm_point(std::int64_t m, std::int64_t n, std::int64_t k);

/// The time of a GEMM with one weight matrix, by tokens.
class GemmTime {
 public:
  GemmTime() = default;
  /// `input_bytes` and `output_bytes` are per element of x and y. With `quantises` the time includes the model's
  /// quantisation of x.
  GemmTime(const GemmModel& model, std::int64_t n, std::int64_t k, double weight_bytes, double input_bytes,
           double output_bytes, bool quantises = true);
  GemmTime(const GemmModel& model, std::int64_t n, std::int64_t k, double weight_bytes, double element_bytes)
      : GemmTime(model, n, k, weight_bytes, element_bytes, element_bytes) {}

  /// m >= 1. Takes nearly a microsecond, so callers cache the result.
  [[nodiscard]] KernelTime at(std::int64_t m) const;
  /// Without the residual.
  [[nodiscard]] KernelTime modelled(std::int64_t m) const;

 private:
  struct Candidate {
    std::int32_t rows = 0;     // M
    std::int64_t columns = 0;  // ceil(n / N) s
    double wave_seconds = 0.0;
    double split_seconds = 0.0;  // per token
  };
  static constexpr std::size_t kCandidates = 42;

  double launch_ = 0.0;  // and what of the quantisation does not depend on m
  double quantise_per_token_ = 0.0;
  std::int64_t sm_count_ = 1;
  double fixed_memory_ = 0.0;
  double memory_per_token_ = 0.0;
  double norm_exponent_ = 1.0;
  std::array<Candidate, kCandidates> candidates_{};
  ResidualSlice residual_;
};

}  // namespace spillway::hwmodels
