// Clusters to place, drawn from the sample values of AQUA's published placer.
#pragma once

#include <cstdint>

#include "sim/study/placer/placement.hpp"

namespace spillway::placer {

/// A model for each of `servers` x 8 GPUs of 80 GB: a producer or a consumer by a fair coin, of the producers half
/// language models. The balances are those of the published placer (aquaml/aqua, aqua_placer/allocate.py). `spread`:
/// each is multiplied by a factor of its own, uniform in [1 - spread, 1 + spread), and rounded to whole MB: a profiler
/// finds no two models alike.
[[nodiscard]] PlacementProblem sample_cluster(std::int64_t servers, std::int64_t seed, double spread = 0.0);

}  // namespace spillway::placer
