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

/// Progress of a run.
struct RunProgress {
  const Section* section = nullptr;
  const SectionResult* result = nullptr;  // result of the section so far
  std::int64_t point = 0;                 // index of the section's next point
  bool section_ended = false;
  double seconds_left = 0.0;  // estimate, scaled by the accuracy of earlier estimates
};

struct RunHooks {
  Clock clock;
  std::function<std::string()> utc;                  // "2026-01-31T12:00:00Z"
  std::function<void(const RunProgress&)> progress;  // called before each point, and after each section
  std::function<void(const Document&)> save;         // called after each section, and at the end
  const std::atomic<bool>* stop = nullptr;           // true: start no further timing
};

struct RunOutcome {
  /// ok; partial: a section failed; data: the GPU is lost; interrupted.
  ExitCode code = ExitCode::ok;
  std::string lost{};  // the error that reported the loss of the GPU
};

/// Measures the unfinished sections of `document`, which must have the same plan. A point that the machine cannot run,
/// or has too little memory for, is skipped with its reason. Points that remain after a section's most_seconds are
/// skipped too. When the device fails in a section, the section keeps its measurements and the next section begins.
/// When the context is lost, the run ends. When `stop` becomes true, the run ends between two timings.
[[nodiscard]] RunOutcome run_plan(const Plan& plan, Backend& backend, std::int64_t gpu, Document& document,
                                  const RunHooks& hooks);

}  // namespace spillway::calibrate
