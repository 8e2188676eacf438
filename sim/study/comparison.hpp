// The same traffic under several configurations, and what differs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/metrics/metrics.hpp"
#include "sim/study/paired_difference.hpp"
#include "sim/study/point_grid.hpp"
#include "sim/study/robustness.hpp"
#include "sim/study/trust.hpp"

namespace spillway {

/// One of the configurations that are compared.
struct ComparedRun {
  std::string label;              // "policy=vllm", by what differs
  std::string id{};               // of its result
  std::vector<Metric> metrics{};  // all of them
  std::string bottleneck{};       // one sentence
  std::vector<std::string> warnings{};
  Trust trust{};
  std::vector<std::vector<Metric>> perturbed{};  // as metrics, by perturbation
};

/// A configuration that could not be run.
struct SkippedRun {
  std::string label;
  std::string reason;
};

/// Where the order by one metric first changes when the model's times are changed.
struct MetricFlip {
  std::string metric;
  std::string perturbation;  // "GEMM +5%"
  std::string before;        // label of the one that ranks higher in the base run
  std::string behind;
};

struct Comparison {
  std::string setup;                 // what all have in common, one line
  std::vector<std::string> metrics;  // that are shown
  std::size_t baseline = 0;          // position in runs
  std::int64_t replications = 1;
  bool random_traffic = true;  // false: every replication is the same
  std::vector<ComparedRun> runs;
  std::vector<SkippedRun> skipped;
  std::optional<double> perturbation{};      // fraction
  std::vector<std::string> perturbations{};  // labels

  /// Of the same metric, against the baseline.
  [[nodiscard]] PairedDifference difference(std::size_t run, const std::string& metric) const;
  /// Positions of the runs by that metric, the best first; those without value last. Empty when it has no better side.
  [[nodiscard]] std::vector<std::size_t> ranking(const std::string& metric) const;
  /// For each shown metric whose order some perturbation changes. Pairs whose difference is noise have no order.
  [[nodiscard]] std::vector<MetricFlip> flips() const;
};

/// Every configuration under every perturbation, the base runs first.
[[nodiscard]] std::vector<Point> compared_points(const PointGrid& grid, const std::vector<OpScales>& variants);
/// From the outcomes of these points, which are used up. A configuration of which a run failed is skipped, with the
/// reason. `baseline`: its position in the grid.
[[nodiscard]] Comparison comparison_of(const PointGrid& grid, std::vector<PointOutcome>& outcomes,
                                       std::optional<double> perturbation, std::int64_t baseline);

}  // namespace spillway
