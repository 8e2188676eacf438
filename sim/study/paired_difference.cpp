#include "sim/study/paired_difference.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/core/error.hpp"

namespace spillway {
namespace {

/// Pairs of values, one for each replication in which both runs have a value; none where only one run has the metric.
struct Pairs {
  std::vector<double> differences;
  double base_sum = 0.0;
};

Pairs pairs_of(const Metric& base, const Metric& other) {
  Pairs pairs;
  const auto add = [&](const std::optional<double>& a, const std::optional<double>& b) {
    if (!a || !b) return;
    pairs.differences.push_back(*b - *a);
    pairs.base_sum += *a;
  };
  const auto missing = [](const Metric& metric) { return metric.replications.empty() && !metric.value; };
  if (missing(base) || missing(other)) return pairs;
  SPILLWAY_CHECK(base.replications.size() == other.replications.size(), "both were run as often");
  if (base.replications.empty()) add(base.value, other.value);
  for (std::size_t i = 0; i < base.replications.size(); ++i) add(base.replications[i], other.replications[i]);
  return pairs;
}

PairVerdict verdict_of(const PairedDifference& pair, const std::vector<double>& differences) {
  if (differences.empty()) return PairVerdict::no_value;
  if (std::all_of(differences.begin(), differences.end(), [](double d) { return d == 0.0; })) return PairVerdict::same;
  if (!pair.half_width || *pair.half_width == 0.0) return PairVerdict::no_interval;
  if (std::abs(*pair.difference) <= *pair.half_width) return PairVerdict::noise;
  const auto direction = better_direction(pair.metric);
  if (!direction) return PairVerdict::different;
  const bool smaller = *pair.difference < 0.0;
  return smaller == (*direction == Better::smaller) ? PairVerdict::better : PairVerdict::worse;
}

}  // namespace

std::string_view verdict_text(PairVerdict verdict) {
  constexpr std::array<std::string_view, 7> kTexts{"better", "worse",       "different", "noise",
                                                   "same",   "no interval", "no value"};
  return kTexts[static_cast<std::size_t>(verdict)];
}

PairedDifference paired_difference(const Metric& base, const Metric& other) {
  PairedDifference pair{.metric = base.name, .base = base.value, .value = other.value};
  const Pairs pairs = pairs_of(base, other);
  pair.n = std::ssize(pairs.differences);
  if (pair.n > 0) {
    double sum = 0.0;
    for (const double difference : pairs.differences) sum += difference;
    pair.difference = sum / static_cast<double>(pair.n);
    if (pairs.base_sum != 0.0) pair.relative = sum / pairs.base_sum;
  }
  pair.half_width = half_width_95(pairs.differences);
  pair.verdict = verdict_of(pair, pairs.differences);
  return pair;
}

}  // namespace spillway
