// Conditions on metrics: "ttft_ms<500,p99_itl_ms<=100".
#include <fmt/format.h>

#include <array>

#include "sim/core/text.hpp"
#include "sim/metrics/metric_table.hpp"

namespace spillway {
namespace {

constexpr std::array<std::string_view, 5> kStatistics{"mean", "median", "std", "min", "max"};
constexpr std::array<double, 4> kPercentiles{50.0, 90.0, 95.0, 99.0};

/// "p99.9" -> 99.9; empty when the text is no percentile.
std::optional<double> parse_percentile(std::string_view statistic) {
  if (!statistic.starts_with('p')) return std::nullopt;
  const auto percent = parse_number(statistic.substr(1));
  if (!percent || !(*percent >= 0.0 && *percent <= 100.0)) return std::nullopt;
  return percent;
}

/// Splits "p99_ttft_ms" at its first underscore. A name without one is all metric.
std::pair<std::string_view, std::string_view> split_statistic(std::string_view name) {
  const auto at = name.find('_');
  if (at == std::string_view::npos) return {{}, name};
  return {name.substr(0, at), name.substr(at + 1)};
}

const MetricDefinition* find_definition(std::string_view name, bool distribution) {
  for (const MetricDefinition& d : metric_definitions()) {
    if (!d.series && d.distribution == distribution && d.name == name) return &d;
  }
  return nullptr;
}

/// The name under which RunStatistics lists the metric; empty when there is none.
std::optional<std::string> run_metric(const std::string& name) {
  if (find_definition(name, false) != nullptr) return name;
  const auto [statistic, base] = split_statistic(name);
  if (find_definition(base, true) == nullptr) return std::nullopt;
  if (std::find(kStatistics.begin(), kStatistics.end(), statistic) != kStatistics.end()) return name;
  const auto percent = parse_percentile(statistic);
  if (!percent) return std::nullopt;
  return fmt::format("{}_{}", percentile_name(*percent), base);
}

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const MetricDefinition& d : metric_definitions()) {
    if (d.series) continue;
    names.push_back(d.name);
    if (!d.distribution) continue;
    for (const std::string_view statistic : kStatistics) names.push_back(fmt::format("{}_{}", statistic, d.name));
    for (const double percent : kPercentiles) names.push_back(fmt::format("{}_{}", percentile_name(percent), d.name));
  }
  return names;
}

/// Splits "name <= limit"; empty, with a Problem, when the text has another form.
std::optional<Condition> parse_form(const std::string& text, const std::string& where, std::vector<Problem>& problems) {
  Condition condition;
  condition.text = text;
  const auto at = text.find_first_of("<>");
  const std::string fix = "write a metric, one of < <= > >=, and a number, as in p99_ttft_ms<1000";
  if (at == std::string::npos) {
    problems.push_back({fmt::format("\"{}\" is not a condition", text), where, fix});
    return std::nullopt;
  }
  const bool equal = at + 1 < text.size() && text[at + 1] == '=';
  if (text[at] == '<') {
    condition.op = equal ? Condition::Op::less_equal : Condition::Op::less;
  } else {
    condition.op = equal ? Condition::Op::greater_equal : Condition::Op::greater;
  }
  condition.metric = trimmed(std::string_view(text).substr(0, at));
  const std::string limit(trimmed(std::string_view(text).substr(at + (equal ? 2 : 1))));
  const auto number = parse_number(limit);
  if (!number) {
    problems.push_back({fmt::format("the limit \"{}\" in \"{}\" is not a number", limit, text), where,
                        "give a plain number in the unit that ends the metric's name"});
    return std::nullopt;
  }
  condition.limit = *number;
  return condition;
}

/// Says why `name` names no figure of a run. `context` follows the name in the message.
Problem refuse_metric(const std::string& name, const std::string& context, const std::string& where) {
  if (find_definition(name, true) != nullptr) {
    const bool per_request = per_request_latency(name) != nullptr;
    return {fmt::format("\"{}\"{} has no statistic", name, context), where,
            fmt::format("say which one, as in p99_{}{}", name,
                        per_request ? "" : "; the gaps of single requests are not kept, tpot_ms is their mean")};
  }
  const auto series = [&](const MetricDefinition& d) { return d.series && d.name == name; };
  if (std::ranges::any_of(metric_definitions(), series)) {
    return {fmt::format("\"{}\"{} is a list over time, not a figure", name, context), where,
            "`spillway list metrics` names the figures"};
  }
  const auto [statistic, base] = split_statistic(name);
  if (find_definition(base, true) != nullptr) {
    return {fmt::format("unknown statistic \"{}\"{}", statistic, context.empty() ? " of " + name : context), where,
            "use mean, median, std, min, max or a percentile from p0 to p100"};
  }
  const std::string nearest = nearest_name(name, all_names());
  return {fmt::format("unknown metric \"{}\"{}", name, context), where,
          nearest.empty() ? "`spillway list metrics` names them all" : fmt::format("did you mean \"{}\"?", nearest)};
}

}  // namespace

bool Condition::holds(double value) const {
  switch (op) {
    case Op::less:
      return value < limit;
    case Op::less_equal:
      return value <= limit;
    case Op::greater:
      return value > limit;
    case Op::greater_equal:
      return value >= limit;
  }
  return false;
}

const MetricEntry* per_request_latency(const std::string& metric) {
  for (const MetricEntry& entry : latency_metrics()) {
    if (entry.of_request && entry.definition.name == metric) return &entry;
  }
  return nullptr;
}

std::vector<Condition> parse_conditions(const std::string& text, const std::string& where, bool per_request,
                                        std::vector<Problem>& problems) {
  std::vector<Condition> conditions;
  std::size_t from = 0;
  while (from <= text.size()) {
    const std::size_t to = std::min(text.find(',', from), text.size());
    auto condition = parse_form(std::string(trimmed(std::string_view(text).substr(from, to - from))), where, problems);
    from = to + 1;
    if (!condition) continue;
    const auto run_level = run_metric(condition->metric);
    if (run_level) condition->metric = *run_level;
    if (run_level || (per_request && per_request_latency(condition->metric))) {
      conditions.push_back(*std::move(condition));
    } else {
      problems.push_back(refuse_metric(condition->metric, fmt::format(" in \"{}\"", condition->text), where));
    }
  }
  return conditions;
}

std::optional<std::string> parse_metric(const std::string& text, const std::string& where,
                                        std::vector<Problem>& problems) {
  const std::string name(trimmed(text));
  if (auto metric = run_metric(name)) return metric;
  problems.push_back(refuse_metric(name, "", where));
  return std::nullopt;
}

std::vector<double> percentiles_of(const std::vector<Condition>& conditions) {
  std::vector<double> percentiles;
  for (const Condition& condition : conditions) {
    const auto [statistic, base] = split_statistic(condition.metric);
    const auto percent = parse_percentile(statistic);
    if (percent && find_definition(base, true) != nullptr) percentiles.push_back(*percent);
  }
  return percentiles;
}

}  // namespace spillway
