// The rows of measurements.schema.json that a point gives.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "cuda_calibrate/measure/point.hpp"

namespace spillway::calibrate {

/// One object for each series of Case::sample, in its order, with `op` and the parameters, but without figures:
///   ContiguousCopy    GPU time; host-observed time
///   DuplexCopy        H2D; D2H
///   ScatteredCopy, AllGpusCopy with one direction, PeerCopy, Gemm, attention, Elementwise, HostAttention   one
///   AllGpusCopy with Traffic::both   H2D; D2H
///   Interference      compute alone; compute beside the copies; copies alone; copies beside the compute
///                     (Traffic::both: the copies' two rows are each H2D; D2H, six rows in all)
///   Launch            one
///   HostStream        one, or with copies two: the stream's; one copy's (Traffic::both: H2D; D2H)
[[nodiscard]] std::vector<nlohmann::ordered_json> rows_of(const Point& point);

}  // namespace spillway::calibrate
