// The table of metrics: one entry says everything about a metric.
//
// To add a metric, add one entry to its section in metric_table.cpp: name, unit, definition, better side, and how its
// value follows from RunFigures. Results, conditions, `explain`, `list` and the merge of replications follow from it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/metrics/metrics.hpp"

namespace spillway {

/// All that the figures of a finished run are computed from.
struct RunFigures {
  const RunStatistics& run;  // counts, span, engine totals and clients; its list of metrics is not complete
  const FairnessTotals& fairness;
  Tokens input{};   // of finished measured requests
  Tokens output{};  // of finished measured requests
  Served served{};
  double front_end = 0.0;              // seconds of the mean TTFT, as MetricsConfig's
  std::optional<std::int64_t> good{};  // finished measured requests that met every SLO; empty without SLOs
  [[nodiscard]] double generated() const {
    return static_cast<double>(served.first_tokens) + static_cast<double>(served.later_tokens);
  }
  [[nodiscard]] double span() const { return to_seconds(run.span); }
  /// RunStatistics::replica_time.
  [[nodiscard]] double replica_time() const { return run.replica_time(); }
};

/// A latency of a finished request in nanoseconds. Not every request has one.
struct RequestLatency {
  std::optional<double> (*of_one)(const FinishedRequest&) = nullptr;
  /// The values of the requests that have one, in their order. A call for each request would cost more than the value.
  std::vector<double> (*of_all)(std::span<const FinishedRequest>) = nullptr;
};

/// A metric is a distribution over requests, one figure per run, or a series.
struct MetricEntry {
  MetricDefinition definition;

  // A figure:
  std::optional<double> (*of_run)(const RunFigures&) = nullptr;
  std::int64_t (*samples)(const RunFigures&) = nullptr;  // the n of the figure
  bool (*applies)(const RunFigures&) = nullptr;          // does the run list it? null: every run does

  // A distribution:
  std::optional<RequestLatency> of_request{};  // none: gaps between tokens
  Duration RequestSlo::*own_limit = nullptr;   // the limit that a request may bring for it; null: none
};

[[nodiscard]] const std::vector<MetricEntry>& metric_table();
/// The distributions, which stand first in the table.
[[nodiscard]] std::span<const MetricEntry> latency_metrics();

}  // namespace spillway
