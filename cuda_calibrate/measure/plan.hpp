// The plan of a run: sections of points with estimated times.
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

/// Limits in seconds, for a whole run of the level and for one section: 60 and 60, 300 and 300, 900 and 300.
struct Budget {
  double run_seconds = 0.0;
  double section_seconds = 0.0;
};
[[nodiscard]] Budget budget_of(Level level);
/// quick: 10 ms and 7 timings, 1 s per point; else 50 ms and 20 timings, 2 s per point.
[[nodiscard]] SamplingRule sampling_rule(Level level);

struct PlanOptions {
  Level level = Level::normal;
  std::vector<std::string> sections{};      // ids, or their prefixes before a dot ("copy"); empty: all
  std::vector<std::string> skip{};          // as `sections`
  std::vector<WeightShape> model_shapes{};  // measured in addition to the designed shapes
  std::int64_t gpu = 0;                     // index
};

struct Section {
  std::string id;       // "copy.contig"; never changes between versions
  std::string title;    // what the section measures
  std::string purpose;  // what the figures are for
  std::vector<Point> points{};
  std::string reason{};  // why there are no points; else empty
  double estimated_seconds = 0.0;
  double most_seconds = 0.0;  // the remaining points are skipped after this time
};

struct Plan {
  Level level = Level::normal;
  std::vector<Section> sections{};  // chosen sections, in the order of section_ids()
  [[nodiscard]] double estimated_seconds() const;
  [[nodiscard]] std::int64_t points() const;
};

[[nodiscard]] std::vector<std::string> section_ids();

/// The points of the level that the machine supports by memory and number formats. Number formats: bf16, or fp16 on a
/// GPU without bf16; in full runs also fp8 if the GPU computes in fp8. Memory: at most half of a GPU's memory, and a
/// quarter of the host's free memory, for one point. A section's most_seconds are its estimate plus an equal share of
/// the level's budget that the estimates leave, at most the section's limit. Estimates above the budget (from many
/// --model shapes) raise the budget. Throws ConfigError for an unknown section, and when the machine has GPUs but not
/// `gpu`.
[[nodiscard]] Plan make_plan(const PlanOptions& options, const MachineFacts& facts);

/// SHA-256 of a section's points and of their sampling rule.
[[nodiscard]] std::string plan_digest(const Section& section, Level level);

}  // namespace spillway::calibrate
