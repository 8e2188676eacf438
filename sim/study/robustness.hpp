// How robust an answer is to errors of the latency model: which runs to try, what they change, and whether the order of
// policies survives them.
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

/// A class of work whose time is changed.
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

/// One run with changed times.
struct Perturbation {
  std::string label;  // "GEMM +5%, attention -5%"
  OpScales scales;
};

/// Each class alone, up to 1 + fraction and down to 1 - fraction (in this order), then every pair of classes in
/// opposite directions: 10 + 20. A change of all by the same factor is no perturbation of this kind: it changes the
/// unit of time.
[[nodiscard]] std::vector<Perturbation> perturbations(double fraction);

/// The metrics that are compared.
inline constexpr std::array<std::string_view, 5> kComparedMetrics{
    {"mean_ttft_ms", "mean_tpot_ms", "p99_ttft_ms", "p99_itl_ms", "request_throughput_per_s"}};

struct PerturbedMetric {
  std::string name;
  std::optional<double> value{};
  std::optional<double> change{};  // value / base - 1; empty where either has no value, or a base of 0 changed
};
/// kComparedMetrics of a run, beside those of the base run.
[[nodiscard]] std::vector<PerturbedMetric> perturbed_metrics(const RunStatistics& base, const RunStatistics& run);

struct PerturbedRun {
  Perturbation perturbation;
  std::vector<PerturbedMetric> metrics;  // as kComparedMetrics
};

/// What perturbations(fraction) did to one configuration.
struct Robustness {
  double fraction = 0.0;
  std::vector<PerturbedRun> runs;  // in the order of perturbations(); empty: not run
};

/// Where the largest change is, by size; of equal ones the first.
struct LargestChange {
  std::size_t run = 0;
  std::size_t metric = 0;
  double change = 0.0;
};
/// Empty when no metric of any run has a change.
[[nodiscard]] std::optional<LargestChange> largest_change(const Robustness& robustness);

/// One metric of one policy. No value: the policy has no rank there.
struct PolicyFigures {
  std::optional<double> base{};
  std::vector<std::optional<double>> perturbed{};  // by perturbation
};

/// Two policies, by their place in the list, that change their order.
struct RankingFlip {
  std::size_t perturbation = 0;
  std::size_t better = 0;  // under the base
  std::size_t worse = 0;
  bool operator==(const RankingFlip&) const = default;
};
/// The first perturbation under which some pair of policies is strictly in the other order than under the base, where
/// it must be strictly ordered too: ties are no flips. Of several pairs the first in list order. Every policy must have
/// the same number of perturbed figures. Pairs for which `ranked` (of two places, the smaller first) is false have no
/// order that could flip; without it all pairs have. O(perturbations * policies^2).
[[nodiscard]] std::optional<RankingFlip> first_flip(std::span<const PolicyFigures> policies, Better better,
                                                    const std::function<bool(std::size_t, std::size_t)>& ranked = {});

}  // namespace spillway
