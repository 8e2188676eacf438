// An execution model of GPUs whose host's CPU attends for decoding sequences, too.
//
// Given     W, c        bytes/s of KV that one GPU's share of the host reads (server_share.hpp), cost of a call
//           T           threads of that share
//           F           CPU time in which the engine launches the kernels of one layer
//           k, q        kv_heads * head_dim and heads * head_dim on this GPU, b bytes of an element of KV
//           P           tokens of a block
// Computed, for one layer of S sequences that attend to N tokens together
//   KV         = 2 k b N bytes
//   attention  = ceil(ceil(N / P) / T) T P 2 k b / W: whole blocks are split evenly over the threads, each of which
//                reads W / T. The blocks of a sequence are not told apart, so N fills its blocks.
//   launch     = c + F: one thread launches the kernels of a stage and then starts the attention
//   queries    = (q + 2 k) b S bytes to the CPU, with the new keys and values
//   outputs    = 4 q S bytes back: the CPU sums in 32 bits
//
// Source: NEO (Jiang et al., MLSys 2025), section 4, and its public code (NEO-MLSys25/NEO, b55aaab, csrc and pacpu).
#pragma once

#include <cstdint>
#include <memory>

#include "hwmodels/catalog.hpp"
#include "sim/api/execution_model.hpp"
#include "sim/api/op_scales.hpp"
#include "sim/core/units.hpp"

namespace spillway::hwmodels {

struct CpuAttention {
  double bandwidth = 0.0;              // W
  double call_seconds = 0.0;           // c
  double kernel_launch_seconds = 0.0;  // F
  std::int64_t threads = 1;            // T
  std::int64_t query_width = 0;
  std::int64_t kv_width = 0;
  std::int64_t element_bytes = 2;
  Tokens block_tokens{16};
};

/// `model` with attention on the CPU, whose times are multiplied by scales.cpu, and those of the engine by scales.host.
/// Iterations and copies stay as they are.
[[nodiscard]] std::unique_ptr<ExecutionModel> make_attending_model(std::unique_ptr<ExecutionModel> model,
                                                                   const CpuAttention& attention,
                                                                   const OpScales& scales);

}  // namespace spillway::hwmodels
