// What each GPU of a run gets of its server's host: one rule for DRAM and the CPU's bandwidth.
//
// A run has its server to itself, and its g = tensor_parallel GPUs share the host equally: each GPU gets 1 / g of what
// the host states, however many GPUs the server has. They keep it for the whole run: memory is allotted once, and the
// GPUs of a tensor-parallel group attend on the CPU at the same time. The server's links are not divided: copies share
// them while they run (sim/exec/copy_links.hpp).
//
// Each GPU has a process of its own, which reads the memory of one socket only: its threads on the other socket would
// read through the link between the two. So one process on a host of two sockets gets half of the bandwidth.
//
// Given     M, W, e, s  DRAM, bytes/s at which the host reads it, share of W that CPU attention reaches, sockets
// Computed, for one GPU
//   DRAM            = M / g, whole bytes
//   reading         = W / max(g, s)
//   CPU attention   = reading e
//   CPU copies      = reading / 3: a copy reads its source, and reads and writes its target (cache lines are fetched
//                     before they are written)
#pragma once

#include <cstdint>

#include "hwmodels/catalog.hpp"
#include "sim/core/units.hpp"

namespace spillway::hwmodels {

struct HostShare {
  Bytes dram{};
  double cpu_attention_bandwidth = 0.0;  // bytes/s of KV
  double copy_bandwidth = 0.0;           // bytes/s that the CPU copies within its memory
};
/// One GPU's share of the host, of which a run uses `gpus` GPUs.
[[nodiscard]] HostShare host_share(const HostProfile& host, std::int64_t gpus);

}  // namespace spillway::hwmodels
