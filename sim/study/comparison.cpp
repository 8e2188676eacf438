#include "sim/study/comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

namespace spillway {
namespace {

std::string setup_of(const PointOutcome& outcome) {
  const auto json = nlohmann::json::parse(outcome.json);
  const auto& config = json.at("config");
  if (json.contains("instances")) {
    const auto& setup = json.at("setup");
    return fmt::format("{} instances on {}, {}, {} requests", setup.at("replicas").get<std::int64_t>(),
                       setup.at("hardware").get<std::string>(), setup.at("workload").get<std::string>(),
                       setup.at("requests").get<std::int64_t>());
  }
  const auto replicas = json.at("setup").at("replicas").get<std::int64_t>();
  return fmt::format("{}{} on {} x {}, {}, {} requests", replicas > 1 ? fmt::format("{} replicas of ", replicas) : "",
                     config.at("model").get<std::string>(), config.at("tensor_parallel").get<std::int64_t>(),
                     config.at("hardware").get<std::string>(), json.at("setup").at("workload").get<std::string>(),
                     json.at("setup").at("requests").get<std::int64_t>());
}

/// Whether some metric differs between replications.
bool differs_between_replications(const std::vector<ComparedRun>& runs) {
  return std::any_of(runs.begin(), runs.end(), [](const ComparedRun& run) {
    return std::any_of(run.metrics.begin(), run.metrics.end(), [](const Metric& metric) {
      const auto& values = metric.replications;
      return std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) != values.end();
    });
  });
}

}  // namespace

bool Comparison::engines_differ() const {
  return std::ranges::adjacent_find(runs, std::ranges::not_equal_to{}, &ComparedRun::engine) != runs.end();
}

PairedDifference Comparison::difference(std::size_t run, const std::string& metric) const {
  return paired_difference(metric_or_none(runs[baseline].metrics, metric), metric_or_none(runs[run].metrics, metric));
}

std::vector<std::size_t> Comparison::ranking(const std::string& metric) const {
  const auto direction = better_direction(metric);
  if (!direction) return {};
  const auto value = [&](std::size_t run) { return metric_or_none(runs[run].metrics, metric).value; };
  std::vector<std::size_t> order;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    if (value(run)) order.push_back(run);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return direction == Better::smaller ? *value(a) < *value(b) : *value(a) > *value(b);
  });
  return order;
}

std::vector<MetricFlip> Comparison::flips() const {
  std::vector<MetricFlip> all;
  for (const std::string& metric : metrics) {
    const auto direction = better_direction(metric);
    if (!direction) continue;
    std::vector<PolicyFigures> figures;
    for (const ComparedRun& run : runs) {
      PolicyFigures& one = figures.emplace_back(PolicyFigures{metric_or_none(run.metrics, metric).value, {}});
      for (const std::vector<Metric>& metrics_of : run.perturbed)
        one.perturbed.push_back(metric_or_none(metrics_of, metric).value);
    }
    const auto ranked = [&](std::size_t a, std::size_t b) {
      const auto pair =
          paired_difference(metric_or_none(runs[a].metrics, metric), metric_or_none(runs[b].metrics, metric));
      return pair.verdict != PairVerdict::noise && pair.verdict != PairVerdict::no_value;
    };
    if (const auto flip = first_flip(figures, *direction, ranked)) {
      all.push_back({metric, perturbations[flip->perturbation], runs[flip->better].label, runs[flip->worse].label});
    }
  }
  return all;
}

/// Every configuration under every perturbation; base runs come first.
std::vector<Point> compared_points(const PointGrid& grid, const std::vector<OpScales>& variants) {
  std::vector<Point> points;
  for (const OpScales& scales : variants) {
    for (std::int64_t i = 0; i < grid.grid.size(); ++i) {
      points.push_back(grid.point(i));
      points.back().scales = scales;
      points.back().other_localities = points.back().other_localities && scales == OpScales{};
    }
  }
  return points;
}

Comparison comparison_of(const PointGrid& grid, std::vector<PointOutcome>& outcomes, std::optional<double> perturbation,
                         std::int64_t baseline) {
  const auto count = static_cast<std::size_t>(grid.grid.size());
  Comparison comparison;
  comparison.perturbation = perturbation;
  if (perturbation) {
    for (const Perturbation& one : perturbations(*perturbation)) comparison.perturbations.push_back(one.label);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const std::string label = grid.grid.label(static_cast<std::int64_t>(i));
    const auto failed = [&] {
      for (std::size_t at = i; at < outcomes.size(); at += count) {
        if (outcomes[at].failed()) return &outcomes[at];
      }
      return static_cast<PointOutcome*>(nullptr);
    }();
    if (failed != nullptr) {
      comparison.skipped.push_back({label, failed->error()});
      continue;
    }
    PointOutcome& base = outcomes[i];
    if (comparison.runs.empty()) comparison.setup = setup_of(base);
    if (static_cast<std::int64_t>(i) == baseline) comparison.baseline = comparison.runs.size();
    ComparedRun run{label,           base.id,           base.engine,           std::move(base.metrics),
                    base.bottleneck, base.steadiness,   base.warnings,         base.trust,
                    base.locality,   base.assumed_text, base.other_localities, {}};
    for (std::size_t at = i + count; at < outcomes.size(); at += count) {
      run.perturbed.push_back(std::move(outcomes[at].metrics));
    }
    comparison.runs.push_back(std::move(run));
  }
  if (!comparison.runs.empty()) {
    const std::size_t replications = comparison.runs.front().metrics.front().replications.size();
    comparison.replications = static_cast<std::int64_t>(std::max<std::size_t>(1, replications));
    comparison.random_traffic = differs_between_replications(comparison.runs);
  }
  return comparison;
}

}  // namespace spillway
