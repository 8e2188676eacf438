// The sections of a run and the points that each one measures.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "cuda_calibrate/measure/backend.hpp"
#include "cuda_calibrate/measure/plan.hpp"

namespace spillway::calibrate {

struct SectionDefinition {
  std::string_view id;       // "copy.contig"; never changes between versions
  std::string_view title;    // what the section measures
  std::string_view purpose;  // what the figures are for
  bool needs_gpu;
  std::int64_t gpus;  // number of GPUs needed
  /// The points of the level that fit the memory of the machine. `gpu` is null only where no GPU is needed.
  std::vector<Point> (*points)(const PlanOptions& options, const MachineFacts& facts, const GpuFacts* gpu);
};

/// All sections, in the order in which they run.
[[nodiscard]] const std::array<SectionDefinition, 17>& section_definitions();

}  // namespace spillway::calibrate
