// Compares a real engine's run with its simulation: latencies, single requests, and load over time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/study/result.hpp"

namespace spillway {

/// The latencies of one request, as defined by `explain ttft_ms` and so on.
struct RequestLatencies {
  double ttft_ms = 0.0;
  std::optional<double> tpot_ms{};  // empty for an answer of one token
  double e2e_ms = 0.0;
};

/// One request, measured and simulated.
struct RequestPair {
  std::string id;  // as in the log
  RequestLatencies measured;
  RequestLatencies simulated;
};

/// The load at one instant, in seconds since the first request was queued.
struct LoadPoint {
  double seconds = 0.0;
  double running = 0.0;
  double waiting = 0.0;
  std::optional<double> kv_fraction{};  // share of the GPU's KV blocks in use
  bool operator==(const LoadPoint&) const = default;
};

/// simulated / measured - 1; empty if measured is 0 and simulated is not.
[[nodiscard]] std::optional<double> relative_error(double measured, double simulated);

struct ComparedFigure {
  std::string name;  // "p90_ttft_ms", "mean_running_requests"
  std::string unit;
  double measured = 0.0;
  double simulated = 0.0;
  std::optional<double> error{};
};

/// The compared statistics of each latency.
inline constexpr std::array<std::string_view, 5> kComparedStatistics{"mean", "p50", "p90", "p95", "p99"};

/// The figure `name`; null when there is no such figure.
[[nodiscard]] const ComparedFigure* find_figure(const std::vector<ComparedFigure>& figures, std::string_view name);

/// Errors of single requests: statistics of |simulated / measured - 1| over the requests that have the metric.
struct ErrorDistribution {
  std::string metric;  // ttft_ms, tpot_ms, e2e_ms
  std::int64_t n = 0;
  double median = 0.0;
  double p90 = 0.0;
  double p95 = 0.0;
  double largest = 0.0;
  double bias = 0.0;  // mean of simulated / measured - 1
  std::string worst;  // the request with the largest error
};

/// The replayed log.
struct ValidatedLog {
  std::string path;     // path of the folder, as the user named it
  std::string engine;   // "vLLM 0.19.0"
  std::string model;    // as in the log
  std::string device;   // "NVIDIA GeForce RTX 4090"; may be empty
  std::string stamps;   // whose clock stamped the requests: "engine" or "client"
  std::string load_of;  // source of the measured load over time: "timeseries.csv" or "stamps"
};

struct Validation {
  ValidatedLog log;
  std::vector<RequestPair> requests;  // in order of queueing
  std::vector<LoadPoint> measured_load;
  std::vector<LoadPoint> simulated_load;
  std::vector<ComparedFigure> latencies;  // mean, p50, p90, p95, p99 of TTFT, TPOT, E2E, in that order
  std::vector<ErrorDistribution> per_request;
  std::vector<ComparedFigure> load;  // mean and peak of running and waiting requests; KV if both sides have it
  Result run;                        // the simulation: set-up, inputs, validity, warnings
};

/// Fills `latencies`, `per_request` and `load` from the pairs and the two series. Percentiles interpolate linearly at
/// (n - 1) q, as numpy does. Load is averaged over time; each value is valid until the next. Requests without a TPOT on
/// either side do not count for TPOT.
void compare(Validation& validation);

/// Counts waiting requests (queued, not yet scheduled) and running requests (scheduled, not yet ended) at every whole
/// second until all have ended. Longer steps keep the series within 100,000 points. Both sides can provide these counts
/// without the engine's own samples. Preempted requests count as running.
struct RequestSpan {
  double queued = 0.0;  // seconds since the first request was queued, as for all fields
  double scheduled = 0.0;
  double ended = 0.0;
};
[[nodiscard]] std::vector<LoadPoint> load_from_spans(std::span<const RequestSpan> spans);

}  // namespace spillway
