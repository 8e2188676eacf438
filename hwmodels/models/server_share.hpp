// What each GPU of a run gets of its server: one rule for DRAM, the CPU's bandwidth and the links.
//
// A run has its server to itself, and its g = tensor_parallel GPUs share the server equally: each GPU gets 1 / g of
// every total that the server or its host states, however many GPUs the server has. The GPUs of a tensor-parallel group
// copy at the same time, so no GPU gets more of a link while another is idle.
//
// Given     M, W, e     DRAM, bytes/s at which the host reads it, share of W that CPU attention reaches     HostProfile
//           A_i, T      bytes/s of all GPUs together: in direction i, and in both directions (no figure: no
//                       limit)                                                                            ServerProfile
//           B_i, D_i    bytes/s of one GPU in direction i alone, and while the other direction is busy       GpuProfile
// Computed, for one GPU
//   DRAM            = M / g, whole bytes
//   CPU attention   = W e / g
//   B_i'            = min(B_i, A_i / g, T / g)
//   D_i'            = min(D_i, B_i'), both scaled down to a sum of T / g where they exceed it
#pragma once

#include <cstdint>

#include "hwmodels/catalog.hpp"
#include "sim/core/units.hpp"

namespace spillway::hwmodels {

struct HostShare {
  Bytes dram{};
  double cpu_attention_bandwidth = 0.0;  // bytes/s of KV
};
/// One GPU's share of the host, of which a run uses `gpus` GPUs.
[[nodiscard]] HostShare host_share(const HostProfile& host, std::int64_t gpus);

/// One GPU of a server, of which a run uses `gpus` GPUs, with the bandwidths B_i' and D_i'. Fitted copies have the same
/// limits, except copies between GPUs: each copy takes longer by what its bytes lose.
[[nodiscard]] GpuProfile with_server_limits(GpuProfile gpu, const ServerProfile& server, std::int64_t gpus);

}  // namespace spillway::hwmodels
