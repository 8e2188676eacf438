// Measures a plan, section by section.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "cuda_calibrate/measure/backend.hpp"
#include "cuda_calibrate/measure/document.hpp"
#include "cuda_calibrate/measure/plan.hpp"
#include "cuda_calibrate/measure/sampler.hpp"
#include "sim/core/error.hpp"

namespace spillway::calibrate {

/// Where a run is.
struct RunProgress {
  const Section* section = nullptr;
  const SectionResult* result = nullptr;  // of the section so far
  std::int64_t point = 0;                 // of the section's, that comes next
  bool section_ended = false;
  double seconds_left = 0.0;  // by the estimates, scaled by how right they were so far
};

struct RunHooks {
  Clock clock;
  std::function<std::string()> utc;                  // "2026-01-31T12:00:00Z"
  std::function<void(const RunProgress&)> progress;  // before each point, and at the end of each section
  std::function<void(const Document&)> save;         // after each section, and at the end
  const std::atomic<bool>* stop = nullptr;           // true: no further timing
};

struct RunOutcome {
  /// ok; partial: a section failed; data: the GPU is lost; interrupted.
  ExitCode code = ExitCode::ok;
  std::string lost{};  // what the GPU's loss was reported as
};

/// Measures what `document`, of the same plan, has not done yet. A point that the machine cannot do, or has no memory
/// for, is skipped with its reason, and so are those that are left when a section's most_seconds are over. A section in
/// which the device fails keeps what was measured and the next one begins; when its context is lost, the run ends, and
/// so it does when `stop` becomes true, between two timings.
[[nodiscard]] RunOutcome run_plan(const Plan& plan, Backend& backend, std::int64_t gpu, Document& document,
                                  const RunHooks& hooks);

}  // namespace spillway::calibrate
