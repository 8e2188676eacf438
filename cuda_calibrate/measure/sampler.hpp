// How one point is timed: warm-up, calls per timing, and how many timings.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "cuda_calibrate/measure/backend.hpp"

namespace spillway::calibrate {

struct SamplingRule {
  std::int64_t warm_up = 4;     // calls that are not counted; their times choose the calls per timing
  double least_seconds = 0.05;  // of measured time, and
  std::int64_t least_timings = 20;
  double timing_seconds = 200e-6;  // that each timing lasts at least, where Case::most_calls() allows it
  double most_seconds = 2.0;       // of the point by the clock, warm-up included; at least kFewestTimings all the same
};

/// Timings that a point gets however long they take.
inline constexpr std::int64_t kFewestTimings = 3;

struct Timings {
  std::vector<std::vector<double>> series;  // seconds per call, by row of the point and timing
  std::int64_t calls = 1;                   // of each timing
  bool interrupted = false;                 // `series` is then not complete
};

/// Seconds from any start, never falling.
using Clock = std::function<double()>;

/// Calls per timing for a point whose quickest series took `seconds` per call. At least 1.
[[nodiscard]] std::int64_t calls_per_timing(double seconds, std::int64_t most_calls, const SamplingRule& rule);

/// Times a case with `rows` series. The measured time of a timing is that of its slowest series. Throws what the case
/// throws, and Unsupported when a time is not above 0 or not finite, or when there are not `rows` of them.
[[nodiscard]] Timings sample(Case& one, std::size_t rows, const SamplingRule& rule, const Clock& clock,
                             const std::atomic<bool>& stop);

}  // namespace spillway::calibrate
