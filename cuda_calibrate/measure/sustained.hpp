// One kind of work for many seconds, with the readings of the GPU's sensors.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "cuda_calibrate/measure/backend.hpp"
#include "cuda_calibrate/measure/sampler.hpp"

namespace spillway::calibrate {

/// A part of the run: timed calls, and a reading while they ran.
struct SustainedInterval {
  double end_seconds = 0.0;  // since the run began
  std::int64_t calls = 0;
  double call_seconds = 0.0;  // mean of its calls
  GpuSensors sensors{};
};

struct SustainedRun {
  std::vector<SustainedInterval> intervals;
  bool interrupted = false;
};

/// Runs `one` for point.seconds: two calls to find their time, then timings of about point.interval seconds, one behind
/// the other. A thread reads the sensors while each of them runs. Throws Unsupported when the backend has no sensors,
/// and the backend's exceptions.
[[nodiscard]] SustainedRun run_sustained(Case& one, Backend& backend, const Sustained& point, const Clock& clock,
                                         const std::atomic<bool>& stop);

}  // namespace spillway::calibrate
