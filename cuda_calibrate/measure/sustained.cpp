#include "cuda_calibrate/measure/sustained.hpp"

#include <cmath>
#include <future>
#include <optional>

namespace spillway::calibrate {
namespace {

double seconds_of(Case& one, std::int64_t calls) {
  const std::vector<double> seconds = one.sample(calls);
  if (seconds.empty() || !std::isfinite(seconds.front()) || seconds.front() <= 0.0) {
    throw Unsupported("the clock of a call cannot resolve the call");
  }
  return seconds.front();
}

}  // namespace

SustainedRun run_sustained(Case& one, Backend& backend, const Sustained& point, const Clock& clock,
                           const std::atomic<bool>& stop) {
  if (!backend.sensors()) {
    throw Unsupported("clock and power cannot be read: NVML (libnvidia-ml.so.1, a part of the driver) is not there");
  }
  (void)seconds_of(one, 1);  // the first call may load a kernel
  SamplingRule rule;
  rule.timing_seconds = point.interval;
  const std::int64_t calls = calls_per_timing(seconds_of(one, 1), one.most_calls(), rule);
  SustainedRun run;
  const double begin = clock();
  double now = 0.0;
  while (now < point.seconds) {
    run.interrupted = stop.load();
    if (run.interrupted) return run;
    std::future<std::optional<GpuSensors>> reading =
        std::async(std::launch::async, [&backend] { return backend.sensors(); });
    const double seconds = seconds_of(one, calls);
    now = clock() - begin;
    run.intervals.push_back({now, calls, seconds, reading.get().value_or(GpuSensors{})});
  }
  return run;
}

}  // namespace spillway::calibrate
