#include "sim/study/perturb.hpp"

#include <fmt/format.h>

#include "sim/core/text.hpp"

namespace spillway {

std::optional<double> parse_perturbation(const std::string& text, std::vector<Problem>& problems) {
  constexpr double kMost = 0.5;
  const bool percent = text.ends_with('%');
  const std::optional<double> number = parse_number(percent ? text.substr(0, text.size() - 1) : text);
  const double fraction = number.value_or(0.0) / (percent ? 100.0 : 1.0);
  if (fraction > 0.0 && fraction <= kMost) return fraction;
  problems.push_back(
      {fmt::format("\"{}\" is not a fraction above 0 and at most 50%", text), "--perturb", "write it as 5% or 0.05"});
  return std::nullopt;
}

std::vector<OpScales> perturbed_scales(std::optional<double> fraction) {
  std::vector<OpScales> scales{OpScales{}};
  if (!fraction) return scales;
  for (const Perturbation& one : perturbations(*fraction)) scales.push_back(one.scales);
  return scales;
}

Robustness robustness_of(double fraction, const std::vector<ReplicationResults>& runs) {
  Robustness robustness{fraction, {}};
  std::size_t run = 0;
  for (Perturbation& one : perturbations(fraction)) {
    std::vector<PerturbedMetric> metrics = perturbed_metrics(runs.front().statistics, runs.at(++run).statistics);
    robustness.runs.push_back({std::move(one), std::move(metrics)});
  }
  return robustness;
}

}  // namespace spillway
