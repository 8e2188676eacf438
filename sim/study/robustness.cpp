#include "sim/study/robustness.hpp"

#include <fmt/format.h>

#include <cmath>

#include "sim/core/error.hpp"

namespace spillway {
namespace {

/// A class of work and the factor on its time.
struct Change {
  const OpClass* op;
  double by;
};

Perturbation perturbation(std::span<const Change> changes) {
  Perturbation one;
  for (const Change& change : changes) {
    one.label += fmt::format("{}{} {:+.6g}%", one.label.empty() ? "" : ", ", change.op->name, 100.0 * change.by);
    one.scales.*(change.op->scale) = 1.0 + change.by;
  }
  return one;
}

std::optional<double> value_of(const RunStatistics& run, std::string_view name) {
  const Metric* metric = run.find(std::string(name));
  return metric != nullptr ? metric->value : std::nullopt;
}

std::optional<double> change_of(const std::optional<double>& base, const std::optional<double>& value) {
  if (!base || !value) return std::nullopt;
  if (*base == *value) return 0.0;
  if (*base == 0.0) return std::nullopt;
  return *value / *base - 1.0;
}

/// 1 when a ranks before b, -1 when b ranks before a; 0 for a tie or a missing value.
int order(const std::optional<double>& a, const std::optional<double>& b, Better better) {
  if (!a || !b || *a == *b) return 0;
  return (*a < *b) == (better == Better::smaller) ? 1 : -1;
}

}  // namespace

std::vector<Perturbation> perturbations(double fraction) {
  std::vector<Perturbation> all;
  for (const OpClass& op : kOpClasses) {
    all.push_back(perturbation(std::array{Change{&op, fraction}}));
    all.push_back(perturbation(std::array{Change{&op, -fraction}}));
  }
  for (std::size_t i = 0; i < kOpClasses.size(); ++i) {
    for (std::size_t j = i + 1; j < kOpClasses.size(); ++j) {
      const OpClass* first = &kOpClasses[i];
      const OpClass* second = &kOpClasses[j];
      all.push_back(perturbation(std::array{Change{first, fraction}, Change{second, -fraction}}));
      all.push_back(perturbation(std::array{Change{first, -fraction}, Change{second, fraction}}));
    }
  }
  return all;
}

std::vector<PerturbedMetric> perturbed_metrics(const RunStatistics& base, const RunStatistics& run) {
  std::vector<PerturbedMetric> metrics;
  for (const std::string_view name : kComparedMetrics) {
    const std::optional<double> value = value_of(run, name);
    metrics.push_back({std::string(name), value, change_of(value_of(base, name), value)});
  }
  return metrics;
}

std::optional<LargestChange> largest_change(const Robustness& robustness) {
  std::optional<LargestChange> largest;
  for (std::size_t r = 0; r < robustness.runs.size(); ++r) {
    const std::vector<PerturbedMetric>& metrics = robustness.runs[r].metrics;
    for (std::size_t m = 0; m < metrics.size(); ++m) {
      const std::optional<double>& change = metrics[m].change;
      if (!change || (largest && std::abs(*change) <= std::abs(largest->change))) continue;
      largest = LargestChange{r, m, *change};
    }
  }
  return largest;
}

std::optional<RankingFlip> first_flip(std::span<const PolicyFigures> policies, Better better,
                                      const std::function<bool(std::size_t, std::size_t)>& ranked) {
  const std::size_t count = policies.empty() ? 0 : policies.front().perturbed.size();
  for (const PolicyFigures& policy : policies) {
    SPILLWAY_CHECK(policy.perturbed.size() == count, "every policy is run under the same perturbations");
  }
  for (std::size_t p = 0; p < count; ++p) {
    for (std::size_t i = 0; i < policies.size(); ++i) {
      for (std::size_t j = i + 1; j < policies.size(); ++j) {
        if (ranked && !ranked(i, j)) continue;
        const int before = order(policies[i].base, policies[j].base, better);
        const int after = order(policies[i].perturbed[p], policies[j].perturbed[p], better);
        if (before * after >= 0) continue;
        return before > 0 ? RankingFlip{p, i, j} : RankingFlip{p, j, i};
      }
    }
  }
  return std::nullopt;
}

}  // namespace spillway
