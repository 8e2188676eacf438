// Robustness of an answer against errors of the latency model: which runs to try, what they change, and whether the
// order of policies stays.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/api/op_scales.hpp"
#include "sim/metrics/metrics.hpp"

namespace spillway {

/// A class of work with a scaled time.
struct OpClass {
  std::string_view name;
  std::string_view key;  // in JSON
  double OpScales::*scale;
};
inline constexpr std::array<OpClass, 5> kOpClasses{{{"GEMM", "gemm", &OpScales::gemm},
                                                    {"attention", "attention", &OpScales::attention},
                                                    {"copies", "copies", &OpScales::copies},
                                                    {"host", "host", &OpScales::host},
                                                    {"CPU", "cpu", &OpScales::cpu}}};

/// One run with scaled times.
struct Perturbation {
  std::string label;  // "GEMM +5%, attention -5%"
  OpScales scales;
};

/// Each class alone, up to 1 + fraction, then down to 1 - fraction; then every pair of classes in opposite directions:
/// 10 + 20 runs. Scaling all classes by one factor is not included: it only changes the unit of time.
[[nodiscard]] std::vector<Perturbation> perturbations(double fraction);

/// The compared metrics.
inline constexpr std::array<std::string_view, 5> kComparedMetrics{
    {"mean_ttft_ms", "mean_tpot_ms", "p99_ttft_ms", "p99_itl_ms", "request_throughput_per_s"}};

struct PerturbedMetric {
  std::string name;
  std::optional<double> value{};
  std::optional<double>
      change{};  // value / base - 1; empty if a value is missing, or if the base is 0 and the value is not
};
/// kComparedMetrics of a run, compared with the base run.
[[nodiscard]] std::vector<PerturbedMetric> perturbed_metrics(const RunStatistics& base, const RunStatistics& run);

struct PerturbedRun {
  Perturbation perturbation;
  std::vector<PerturbedMetric> metrics;  // in the order of kComparedMetrics
};

/// The effect of perturbations(fraction) on one configuration.
struct Robustness {
  double fraction = 0.0;
  std::vector<PerturbedRun> runs;  // in the order of perturbations(); empty: not run
};

/// Position of the largest absolute change; the first of equal changes.
struct LargestChange {
  std::size_t run = 0;
  std::size_t metric = 0;
  double change = 0.0;
};
/// Empty when no metric of any run has a change.
[[nodiscard]] std::optional<LargestChange> largest_change(const Robustness& robustness);

/// One metric of one policy. A policy without a value has no rank.
struct PolicyFigures {
  std::optional<double> base{};
  std::vector<std::optional<double>> perturbed{};  // one value per perturbation
};

/// Two policies that swap their order, by position in the list.
struct RankingFlip {
  std::size_t perturbation = 0;
  std::size_t better = 0;  // the better policy in the base run
  std::size_t worse = 0;
  bool operator==(const RankingFlip&) const = default;
};
/// The first perturbation under which a pair of policies has strictly the opposite order of the base run. Ties, in
/// either run, are not flips. Among several pairs, the first in list order. Every policy must have the same number of
/// perturbed figures. `ranked` (of two positions, the smaller first) excludes pairs without a meaningful order; without
/// it, every pair counts. O(perturbations * policies^2).
[[nodiscard]] std::optional<RankingFlip> first_flip(std::span<const PolicyFigures> policies, Better better,
                                                    const std::function<bool(std::size_t, std::size_t)>& ranked = {});

}  // namespace spillway
