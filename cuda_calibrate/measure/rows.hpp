// The rows of measurements.schema.json for a point.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "cuda_calibrate/measure/point.hpp"

namespace spillway::calibrate {

/// One object for each series of Case::sample, in its order, with `op` and the parameters, but without figures:
///   ContiguousCopy    GPU time; host-observed time
///   DuplexCopy        H2D; D2H
///   RelayCopy, ScatteredCopy, AllGpusCopy with one direction, PeerCopy, Gemm, attention, Elementwise, HostAttention,
///   HostGemm          one
///   AllGpusCopy with Traffic::both   H2D; D2H
///   Interference      compute alone; compute beside the copies; copies alone; copies beside the compute
///                     (Traffic::both: the copies' two rows are each H2D; D2H, six rows in all)
///   Sustained         one, which the document repeats for each interval
///   Launch            one
///   HostStream        one pass; with copies then one copy's (Traffic::both: H2D; D2H)
/// Bytes of Elementwise, per token of width w: rms_norm 4 w (read, written), silu_mul 6 w (gate and up read, product
/// written), rope 4 w, copy 4 w. Weights and tables of sines do not count, because the L2 stores them. KV bytes of
/// HostAttention: 2 batch context kv size and the bytes of a number. The document adds `unit`, `samples`, `kernel` and
/// `section`.
[[nodiscard]] std::vector<nlohmann::ordered_json> rows_of(const Point& point);

}  // namespace spillway::calibrate
