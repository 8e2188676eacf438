#include "sim/study/search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/io/lines.hpp"

namespace spillway {
namespace {

std::int64_t lost(const OutcomeCounts& counts) { return counts.rejected + counts.timed_out + counts.lost; }

/// A quotient of counts is the double nearest to it, as is a share that the user wrote: 55 of 100 are not below 0.55.
double answered_share(const OutcomeCounts& counts) {
  if (counts.submitted == 0) return 1.0;
  return static_cast<double>(counts.submitted - lost(counts)) / static_cast<double>(counts.submitted);
}

std::int64_t iterations_of(const PointOutcome& outcome) {
  return static_cast<std::int64_t>(outcome.value("iterations").value_or(0.0));
}

}  // namespace

const TriedValue* FoundEdge::probe(const std::optional<double>& at) const {
  if (!at) return nullptr;
  const auto it = std::find_if(probes.begin(), probes.end(), [&](const TriedValue& one) { return one.value == *at; });
  return it == probes.end() ? nullptr : &*it;
}

const TriedValue* FoundEdge::closest() const {
  const TriedValue* closest = nullptr;
  for (const TriedValue& one : probes) {
    if (one.miss && (closest == nullptr || *one.miss < *closest->miss)) closest = &one;
  }
  return closest;
}

std::optional<RankingFlip> SearchReport::flip() const {
  std::vector<PolicyFigures> figures;
  for (const FoundEdge& edge : edges) figures.push_back({edge.value, edge.perturbed});
  return first_flip(figures, largest ? Better::larger : Better::smaller, [&](std::size_t a, std::size_t b) {
    if (!edges[a].value || !edges[b].value) return false;
    return std::abs(*edges[a].value - *edges[b].value) > tolerance * std::max(*edges[a].value, *edges[b].value);
  });
}

std::vector<std::string> Criterion::texts() const {
  std::vector<std::string> all;
  for (const Condition& condition : conditions) all.push_back(condition.text);
  all.push_back(fmt::format("at least {:.6g}% of the requests {}", 100.0 * attainment,
                            single_requests ? "meet the SLOs on single requests" : "are answered"));
  return all;
}

std::string Criterion::fault(const PointOutcome& outcome) const {
  if (outcome.failed()) return outcome.error();
  if (outcome.steadiness == "saturated") return "saturated: " + outcome.steadiness_reason;
  if (answered_share(outcome.measured) < attainment) {
    return fmt::format("{} of {} requests were rejected, timed out or lost", lost(outcome.measured),
                       outcome.measured.submitted);
  }
  for (const Condition& condition : conditions) {
    const Metric* metric = outcome.find(condition.metric);
    if (metric == nullptr || !metric->value) return fmt::format("{} has no value", condition.metric);
    if (!condition.holds(*metric->value))
      return fmt::format("{} is {}", condition.metric, figure_with_interval(metric->value, metric->half_width));
  }
  if (steady && outcome.steadiness == "unsteady") return "unsteady: " + outcome.steadiness_reason;
  const Metric* met = outcome.find("slo_met_fraction");
  if (single_requests && (met == nullptr || met->value.value_or(0.0) < attainment)) {
    return fmt::format("{} of the requests meet the SLOs", percent(met != nullptr ? met->value.value_or(0.0) : 0.0));
  }
  return {};
}

bool Criterion::undecided(const PointOutcome& outcome) const {
  if (outcome.failed() || outcome.steadiness.empty() || outcome.steadiness == "saturated") return false;
  return steady && (outcome.steadiness == "unsteady" || !noise(outcome.metrics).empty());
}

std::optional<double> Criterion::miss(const PointOutcome& outcome) const {
  if (outcome.failed()) return std::nullopt;
  double worst = 0.0;
  for (const Condition& condition : conditions) {
    const auto value = outcome.value(condition.metric);
    if (value && condition.holds(*value)) continue;
    const bool comparable = value && condition.limit != 0.0;
    worst = std::max(worst, comparable ? std::abs(*value / condition.limit - 1.0) : 1.0);
  }
  worst = std::max(worst, 1.0 - answered_share(outcome.measured) / attainment);
  if (single_requests) worst = std::max(worst, 1.0 - outcome.value("slo_met_fraction").value_or(0.0) / attainment);
  return worst;
}

std::string Criterion::noise(const std::vector<Metric>& metrics) const {
  std::vector<std::string> near;
  for (const Condition& condition : conditions) {
    const Metric* metric = find_metric(metrics, condition.metric);
    if (metric == nullptr || !metric->half_width) continue;
    if (std::abs(condition.limit - *metric->value) < *metric->half_width) near.push_back(condition.metric);
  }
  if (near.empty()) return {};
  return fmt::format(
      "the interval of {} includes its limit: raise workload.requests or replications to narrow the interval",
      fmt::join(near, " and "));
}

std::vector<SearchedConfiguration> configurations_of(const PointGrid& grid) {
  std::vector<SearchedConfiguration> all;
  for (std::int64_t i = 0; i < grid.grid.size(); ++i)
    all.push_back({.label = grid.grid.label(i), .axis_values = grid.grid.values(i), .point = grid.point(i)});
  return all;
}

Search::Search(std::vector<SearchedConfiguration> configurations, Parameter key, Criterion criterion,
               SearchReport report, EdgeSearch::Settings settings, PointRunner& runner, SearchProgress progress)
    : configurations_(std::move(configurations)),
      key_(std::move(key)),
      criterion_(std::move(criterion)),
      report_(std::move(report)),
      settings_(settings),
      runner_(runner),
      progress_(std::move(progress)) {}

bool Search::run() {
  std::vector<Running> searches;
  for (std::size_t i = 0; i < configurations_.size(); ++i) {
    EdgeSearch::Settings settings = settings_;
    settings.start = configurations_[i].start.value_or(settings.start);
    settings.low = configurations_[i].low.value_or(settings.low);
    report_.edges.push_back({.label = configurations_[i].label, .axis_values = configurations_[i].axis_values});
    searches.push_back({i, EdgeSearch(settings)});
  }
  if (!finish(searches)) return false;
  for (const Running& one : searches) {
    FoundEdge& edge = report_.edges[one.configuration];
    edge.value = one.search.holds_at();
    edge.beyond = one.search.fails_at();
    if (const TriedValue* best = edge.probe(edge.value)) edge.noise = criterion_.noise(best->metrics);
  }
  return (!report_.perturbation || perturbed()) && (!report_.other_localities || with_other_localities());
}

bool Search::perturbed() {
  const std::vector<Perturbation> all = perturbations(*report_.perturbation);
  for (const Perturbation& one : all) {
    report_.perturbations.push_back(one.label);
    scales_.push_back(one.scales);
  }
  std::vector<Running> searches;
  for (std::size_t i = 0; i < report_.edges.size(); ++i) {
    FoundEdge& edge = report_.edges[i];
    edge.perturbed.resize(all.size());
    if (!edge.value) continue;
    EdgeSearch::Settings settings = settings_;
    settings.start = *edge.value;
    settings.factor = 1.0 + *report_.perturbation;
    for (std::size_t p = 0; p < all.size(); ++p) searches.push_back({i, EdgeSearch(settings), p});
  }
  if (!finish(searches)) return false;
  for (const Running& one : searches) {
    report_.edges[one.configuration].perturbed[*one.perturbation] = one.search.holds_at();
  }
  return true;
}

bool Search::with_other_localities() {
  constexpr double kFactor = 1.25;  // of a step: the answers are near each other
  if (key_.name == kLocalityKey || std::ranges::find(report_.axes, kLocalityKey) != report_.axes.end()) return true;
  std::vector<Running> searches;
  for (std::size_t i = 0; i < report_.edges.size(); ++i) {
    const FoundEdge& edge = report_.edges[i];
    if (!edge.locality || !edge.locality->no_effect.empty()) continue;
    // Each of several instances has a locality of its own, which no key beside them changes.
    const std::vector<Assignment>& given = configurations_[i].point.assignments;
    if (std::ranges::find(given, kInstancesKey, &Assignment::key) != given.end()) continue;
    EdgeSearch::Settings settings = settings_;
    settings.start = edge.value.value_or(configurations_[i].start.value_or(settings.start));
    settings.low = configurations_[i].low.value_or(settings.low);
    settings.factor = edge.value.value_or(0.0) > 0.0 ? kFactor : settings.factor;
    for (const double locality : half_and_twice(edge.locality->value)) {
      searches.push_back({i, EdgeSearch(settings), std::nullopt, locality});
    }
  }
  if (!finish(searches)) return false;
  for (const Running& one : searches) {
    const std::optional<double> value = one.search.holds_at();
    report_.edges[one.configuration].other_localities.push_back(
        {*one.locality, value, value ? numeric_text(key_, *value) : std::string()});
  }
  return true;
}

bool Search::finish(std::vector<Running>& searches) {
  while (true) {
    std::vector<Point> points;
    std::vector<Running*> asked;
    for (Running& one : searches) {
      if (!one.search.next()) continue;
      points.push_back(point(one));
      asked.push_back(&one);
    }
    if (points.empty()) return true;
    if (progress_) progress_(step(asked, searches.size()));
    std::vector<PointOutcome> outcomes = runner_.run(points);
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      if (outcomes[i].code == ExitCode::interrupted) return false;
      take(*asked[i], std::move(outcomes[i]));
    }
  }
}

Point Search::point(const Running& one) const {
  Point point = configurations_[one.configuration].point;
  point.assignments.push_back(
      {key_.name, numeric_text(key_, *one.search.next()), Origin::argument, "--max " + key_.name, {}});
  if (one.requests > 0) {
    std::erase_if(point.assignments, [](const Assignment& given) { return given.key == "workload.requests"; });
    point.assignments.push_back(
        {"workload.requests", fmt::format("{}", one.requests), Origin::argument, "--max " + key_.name, {}});
  }
  if (one.perturbation) point.scales = scales_[*one.perturbation];
  if (one.locality) {
    std::erase_if(point.assignments, [](const Assignment& given) { return given.key == kLocalityKey; });
    point.assignments.push_back({kLocalityKey, fmt::format("{}", *one.locality), Origin::argument, kLocalityKey, {}});
  }
  return point;
}

std::string Search::step(const std::vector<Running*>& open, std::size_t all) const {
  const Running& first = *open.front();
  std::string text = fmt::format("{}={}", key_.name, numeric_text(key_, *first.search.next()));
  if (open.size() > 1) text += fmt::format(" and {} more", open.size() - 1);
  if (first.locality) text = fmt::format("with {}={:g}: {}", kLocalityKey, *first.locality, text);
  if (first.perturbation) text = "with perturbed times: " + text;
  const Running& longest = **std::ranges::max_element(open, {}, [](const Running* one) { return one->requests; });
  if (longest.requests > 0) text += fmt::format(", {}{} requests", open.size() > 1 ? "up to " : "", longest.requests);
  if (all > 1) return text + fmt::format("; {} of {} searches have ended", all - open.size(), all);
  const auto holds = first.search.holds_at();
  const auto fails = first.search.fails_at();
  if (holds) text += fmt::format("; {} meets the SLOs", numeric_text(key_, *holds));
  if (fails)
    text += fmt::format("{} {} misses {}", holds ? "," : ";", numeric_text(key_, *fails), holds ? "them" : "the SLOs");
  return text;
}

bool Search::lengthen(Running& one, const PointOutcome& outcome) {
  const bool longer = one.before == 0 || outcome.requests > one.before;  // a file has no more rows
  const bool may = criterion_.undecided(outcome) && longer && key_.name != "workload.requests";
  if (one.first == 0) one.first = outcome.requests;
  std::int64_t iterations = iterations_of(outcome);
  if (may && 2 * outcome.requests <= kLongestSearchRun && 2 * iterations <= kMostSearchIterations) {
    one.before = outcome.requests;
    one.requests = 2 * outcome.requests;
    report_.most_requests = std::max(report_.most_requests, one.requests);
    return true;
  }
  report_.limit_reached = report_.limit_reached || (may && outcome.steadiness == "unsteady");
  one.before = 0;
  // The next value may take more iterations for as many requests: at a lower rate, batches are smaller.
  for (; iterations > kMostSearchIterations && one.requests > one.first; iterations /= 2) one.requests /= 2;
  return false;
}

void Search::take(Running& one, PointOutcome outcome) {
  if (lengthen(one, outcome)) return;
  const double value = *one.search.next();
  std::string fault = criterion_.fault(outcome);
  if (outcome.failed() && !failure_) failure_ = outcome;
  // Where this value cannot run, but earlier values ran and missed the SLOs, values beyond it cannot run either.
  if (outcome.failed() && one.ran) {
    one.search.tell_impossible();
  } else {
    one.search.tell(fault.empty());
  }
  one.ran = one.ran || !outcome.failed();
  if (one.perturbation || one.locality) return;
  if (outcome.locality) report_.edges[one.configuration].locality = outcome.locality;
  const std::optional<double> miss = criterion_.miss(outcome);
  const bool holds = fault.empty();
  report_.edges[one.configuration].probes.push_back({value, numeric_text(key_, value), outcome.id, outcome.requests,
                                                     holds, std::move(fault), miss, std::move(outcome.metrics),
                                                     std::move(outcome.trust)});
}

}  // namespace spillway
