#include "cuda_calibrate/measure/plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cuda_calibrate/measure/cost.hpp"
#include "cuda_calibrate/measure/rows.hpp"
#include "cuda_calibrate/measure/section_points.hpp"
#include "sim/core/error.hpp"
#include "sim/core/text.hpp"

namespace spillway::calibrate {
namespace {

/// Whether `word` selects the section: both "copy" and "copy.contig" select "copy.contig".
bool names(std::string_view word, std::string_view id) {
  return id == word || (id.starts_with(word) && id.substr(word.size()).starts_with('.'));
}

void check_names(const std::vector<std::string>& words, const char* where) {
  std::vector<std::string> allowed = section_ids();
  std::vector<Problem> problems;
  for (const std::string& word : words) {
    if (std::any_of(allowed.begin(), allowed.end(), [&](const std::string& id) { return names(word, id); })) continue;
    const std::string near = nearest_name(word, allowed);
    problems.push_back({fmt::format("unknown section \"{}\"", word), where,
                        fmt::format("{}sections: {}", near.empty() ? "" : fmt::format("did you mean \"{}\"? ", near),
                                    fmt::join(allowed, ", "))});
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

const GpuFacts* gpu_of(const MachineFacts& facts, std::int64_t index) {
  if (facts.gpus.empty()) return nullptr;
  const auto it =
      std::find_if(facts.gpus.begin(), facts.gpus.end(), [&](const GpuFacts& gpu) { return gpu.index == index; });
  if (it != facts.gpus.end()) return &*it;
  throw ConfigError(fmt::format("there is no GPU {}: the machine has {}", index, facts.gpus.size()), "--gpu",
                    "nvidia-smi -L lists them");
}

std::string reason_for(const SectionDefinition& definition, const MachineFacts& facts, const GpuFacts* gpu,
                       const std::vector<Point>& points, Level level) {
  if (definition.needs_gpu && gpu == nullptr) return facts.gpu_reason.empty() ? "no GPU was found" : facts.gpu_reason;
  if (static_cast<std::int64_t>(facts.gpus.size()) < definition.gpus) {
    return fmt::format("the section needs {} GPUs, but the machine has {}", definition.gpus, facts.gpus.size());
  }
  if (!points.empty()) return {};
  const bool by_level =
      (level == Level::quick && (definition.id == "copy.multi" || definition.id == "attention.mixed")) ||
      (level != Level::full && definition.id == "copy.pool");
  if (by_level) return fmt::format("not part of a {} run", name_of(level));
  return "the memory does not suffice for any of its points";
}

/// Divides the rest of the run's budget, after the estimates, among the sections.
void limit_sections(Plan& plan) {
  const Budget budget = budget_of(plan.level);
  const auto running = std::count_if(plan.sections.begin(), plan.sections.end(),
                                     [](const Section& section) { return !section.points.empty(); });
  if (running == 0) return;
  const double left = std::max(budget.run_seconds - plan.estimated_seconds(), 0.0);
  for (Section& section : plan.sections) {
    if (section.points.empty()) continue;
    const double share = section.estimated_seconds + left / static_cast<double>(running);
    section.most_seconds = std::min(share, std::max(budget.section_seconds, section.estimated_seconds));
  }
}

}  // namespace

std::string_view name_of(Level level) {
  switch (level) {
    case Level::quick:
      return "quick";
    case Level::normal:
      return "default";
    case Level::full:
      return "full";
  }
  throw InvariantError("a level without a name");
}

Budget budget_of(Level level) {
  switch (level) {
    case Level::quick:
      return {60.0, 60.0};
    case Level::normal:
      return {300.0, 300.0};
    case Level::full:
      return {900.0, 300.0};
  }
  throw InvariantError("a level without a budget");
}

SamplingRule sampling_rule(Level level) {
  if (level == Level::quick) return {4, 0.01, 7, 200e-6, 1.0};
  return {};
}

double Plan::estimated_seconds() const {
  return std::accumulate(sections.begin(), sections.end(), 0.0,
                         [](double sum, const Section& section) { return sum + section.estimated_seconds; });
}

std::int64_t Plan::points() const {
  return std::accumulate(
      sections.begin(), sections.end(), std::int64_t{0},
      [](std::int64_t sum, const Section& section) { return sum + static_cast<std::int64_t>(section.points.size()); });
}

std::vector<std::string> section_ids() {
  std::vector<std::string> ids;
  ids.reserve(section_definitions().size());
  for (const SectionDefinition& definition : section_definitions()) ids.emplace_back(definition.id);
  return ids;
}

Plan make_plan(const PlanOptions& options, const MachineFacts& facts) {
  check_names(options.sections, "--sections");
  check_names(options.skip, "--skip");
  const GpuFacts* gpu = gpu_of(facts, options.gpu);
  const Speeds speeds = speeds_of(facts.host, gpu);
  const SamplingRule rule = sampling_rule(options.level);
  Plan plan{options.level, {}};
  for (const SectionDefinition& definition : section_definitions()) {
    const auto named = [&](const std::string& word) { return names(word, definition.id); };
    const bool chosen =
        options.sections.empty() || std::any_of(options.sections.begin(), options.sections.end(), named);
    if (!chosen || std::any_of(options.skip.begin(), options.skip.end(), named)) continue;
    Section section{std::string(definition.id), std::string(definition.title), std::string(definition.purpose)};
    const bool possible =
        (gpu != nullptr || !definition.needs_gpu) && static_cast<std::int64_t>(facts.gpus.size()) >= definition.gpus;
    if (possible) section.points = definition.points(options, facts, gpu);
    section.reason = reason_for(definition, facts, gpu, section.points, options.level);
    for (const Point& point : section.points) {
      section.estimated_seconds += estimated_seconds(cost_of(point, speeds), rule);
    }
    plan.sections.push_back(std::move(section));
  }
  limit_sections(plan);
  return plan;
}

std::string plan_digest(const Section& section, Level level) {
  const SamplingRule rule = sampling_rule(level);
  nlohmann::ordered_json all{section.id,         rule.warm_up,        rule.least_seconds,
                             rule.least_timings, rule.timing_seconds, rule.most_seconds};
  for (const Point& point : section.points) all.push_back(rows_of(point));
  return sha256_hex(all.dump());
}

}  // namespace spillway::calibrate
