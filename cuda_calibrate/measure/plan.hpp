// What a run will measure: sections of points, with how long they will about take.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cuda_calibrate/measure/backend.hpp"
#include "cuda_calibrate/measure/gemm_shapes.hpp"
#include "cuda_calibrate/measure/sampler.hpp"

namespace spillway::calibrate {

enum class Level : std::uint8_t { quick, normal, full };
/// "quick", "default", "full".
[[nodiscard]] std::string_view name_of(Level level);

/// Seconds that a whole run of the level may take, and one section of it: 60 and 60, 300 and 300, 900 and 300.
struct Budget {
  double run_seconds = 0.0;
  double section_seconds = 0.0;
};
[[nodiscard]] Budget budget_of(Level level);
/// quick: 10 ms and 7 timings, 1 s a point; else 50 ms and 20 timings, 2 s a point.
[[nodiscard]] SamplingRule sampling_rule(Level level);

struct PlanOptions {
  Level level = Level::normal;
  std::vector<std::string> sections{};      // ids, or what they begin with up to a dot: "copy"; empty: all
  std::vector<std::string> skip{};          // likewise
  std::vector<WeightShape> model_shapes{};  // measured beside the designed ones
  std::int64_t gpu = 0;                     // index
};

struct Section {
  std::string id;       // "copy.contig", never another in later versions
  std::string title;    // what is measured
  std::string purpose;  // what for
  std::vector<Point> points{};
  std::string reason{};  // why there is no point; else empty
  double estimated_seconds = 0.0;
  double most_seconds = 0.0;  // after which its other points are left out
};

struct Plan {
  Level level = Level::normal;
  std::vector<Section> sections{};  // those that were chosen, in the order of section_ids()
  [[nodiscard]] double estimated_seconds() const;
  [[nodiscard]] std::int64_t points() const;
};

[[nodiscard]] std::vector<std::string> section_ids();

/// The points of the level that the machine has memory and number formats for: bf16, or fp16 where a GPU has no bf16;
/// fp8 in full runs where it computes in it; at most half of a GPU's memory and a quarter of the host's free memory for
/// one point. A section's most_seconds are its estimate and an equal share of what all estimates leave of the level's
/// budget, at most the section's; estimates above the budget (by many --model shapes) raise it. Throws ConfigError for
/// an unknown section, and when the machine has GPUs but not `gpu`.
[[nodiscard]] Plan make_plan(const PlanOptions& options, const MachineFacts& facts);

/// SHA-256 of a section's points and of how they are sampled.
[[nodiscard]] std::string plan_digest(const Section& section, Level level);

}  // namespace spillway::calibrate
