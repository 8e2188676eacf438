// The timing of one point: warm-up, calls per timing, and number of timings.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "cuda_calibrate/measure/backend.hpp"

namespace spillway::calibrate {

struct SamplingRule {
  std::int64_t warm_up = 4;     // uncounted calls; their times determine the calls per timing
  double least_seconds = 0.05;  // minimum of measured time, together with
  std::int64_t least_timings = 20;
  double timing_seconds = 200e-6;  // minimum duration of a timing, if Case::most_calls() allows it
  double most_seconds = 2.0;  // limit of the point's wall-clock time, including warm-up; kFewestTimings take precedence
};

/// The minimum number of timings of a point, however long they take.
inline constexpr std::int64_t kFewestTimings = 3;

struct Timings {
  std::vector<std::vector<double>> series;  // seconds per call, by row of the point and timing
  std::int64_t calls = 1;                   // per timing
  bool interrupted = false;                 // true: `series` is incomplete
};

/// A monotonic clock in seconds, with any origin.
using Clock = std::function<double()>;

/// Calls per timing for a point whose quickest series needs `seconds` per call. At least 1.
[[nodiscard]] std::int64_t calls_per_timing(double seconds, std::int64_t most_calls, const SamplingRule& rule);

/// Times a case with `rows` series. The measured time of a timing is that of its slowest series. Throws the exceptions
/// of the case. Throws Unsupported for a time that is not positive and finite, and for a different number of rows.
[[nodiscard]] Timings sample(Case& one, std::size_t rows, const SamplingRule& rule, const Clock& clock,
                             const std::atomic<bool>& stop);

}  // namespace spillway::calibrate
