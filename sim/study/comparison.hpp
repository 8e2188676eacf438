// Several configurations on the same traffic, and their differences.
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

/// One of the compared configurations.
struct ComparedRun {
  std::string label;              // the keys that differ: "policy=vllm"
  std::string id{};               // ID of the result
  std::string engine{};           // its profile: "vllm-0.23"
  std::vector<Metric> metrics{};  // all metrics of the run
  std::string bottleneck{};       // one sentence
  std::string steadiness{};       // steady, saturated, unsteady; empty: not judged
  std::vector<std::string> warnings{};
  Trust trust{};
  std::optional<ExpertLocality> assumed{};       // if its policies place experts and assume the same
  std::string assumed_text{};                    // the same, also of instances that assume different ones
  std::optional<LocalityCheck> locality{};       // half and twice of it; empty: not asked for
  std::vector<std::vector<Metric>> perturbed{};  // as `metrics`, one entry per perturbation
};

/// A configuration that could not be run.
struct SkippedRun {
  std::string label;
  std::string reason;
};

/// The first perturbation of the model's times that changes the order by one metric.
struct MetricFlip {
  std::string metric;
  std::string perturbation;  // "GEMM +5%"
  std::string before;        // label of the run that ranks higher in the base run
  std::string behind;
};

struct Comparison {
  std::string setup;                 // settings that all runs share, one line
  std::vector<std::string> metrics;  // metrics to show
  std::size_t baseline = 0;          // position in runs
  std::int64_t replications = 1;
  bool random_traffic = true;  // false: all replications are equal
  std::vector<ComparedRun> runs;
  std::vector<SkippedRun> skipped;
  std::optional<double> perturbation{};      // fraction
  std::vector<std::string> perturbations{};  // labels

  /// The runs' engines take different CPU time, so differences are not of the policies alone.
  [[nodiscard]] bool engines_differ() const;
  /// The difference of one metric between a run and the baseline.
  [[nodiscard]] PairedDifference difference(std::size_t run, const std::string& metric) const;
  /// Positions of the runs ordered by the metric, the best first, runs without a value last. Empty when neither
  /// direction of the metric is better.
  [[nodiscard]] std::vector<std::size_t> ranking(const std::string& metric) const;
  /// One entry for each shown metric whose order changes under a perturbation. Pairs whose difference is noise have no
  /// order.
  [[nodiscard]] std::vector<MetricFlip> flips() const;
};

/// Every configuration under every perturbation; base runs come first, and they alone have other localities.
[[nodiscard]] std::vector<Point> compared_points(const PointGrid& grid, const std::vector<OpScales>& variants);
/// Builds the comparison from the outcomes of these points and consumes the outcomes. A configuration with a failed run
/// is skipped, with the reason. `baseline` is a position in the grid.
[[nodiscard]] Comparison comparison_of(const PointGrid& grid, std::vector<PointOutcome>& outcomes,
                                       std::optional<double> perturbation, std::int64_t baseline);

}  // namespace spillway
