#include "sim/report/search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "sim/io/columns.hpp"
#include "sim/io/csv_text.hpp"
#include "sim/io/json_values.hpp"
#include "sim/io/lines.hpp"
#include "sim/report/metric_heads.hpp"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

/// A row for the configuration; without a value there are no figures.
void add_edge(const SearchReport& report, const FoundEdge& edge, Columns& table) {
  std::vector<std::string> cells{edge.label.empty() ? "this configuration" : shown(edge.label)};
  const TriedValue* best = edge.probe(edge.value);
  cells.push_back(best == nullptr ? "no value" : best->text);
  for (const std::string& metric : report.metrics) {
    const Metric* one = best == nullptr ? nullptr : find_metric(best->metrics, metric);
    cells.push_back(one == nullptr ? "-" : figure_with_interval(one->value, one->half_width));
  }
  table.row(std::move(cells));
}

/// What keeps the value from being better.
void add_limit(const SearchReport& report, const FoundEdge& edge, Lines& lines) {
  const std::string whose = edge.label.empty() ? "" : edge.label + ": ";
  if (edge.probe(edge.value) == nullptr) {
    const TriedValue* closest = edge.closest();
    const std::string why = closest != nullptr
                                ? fmt::format("{} at {}, the closest of {} values", shown(closest->reason),
                                              closest->text, edge.probes.size())
                                : (edge.probes.empty() ? "none was tried" : shown(edge.probes.back().reason));
    lines.add("No value", whose + why);
    if (report.key == "workload.rate") {
      lines.add("Would help", "spillway advise with the same --slo: it tries other settings, and more GPUs");
    }
    return;
  }
  const TriedValue* beyond = edge.probe(edge.beyond);
  lines.add("Misses at", whose + (beyond == nullptr ? fmt::format("no {}: the SLOs are met up to the limit", report.key)
                                                    : fmt::format("{}: {}", beyond->text, shown(beyond->reason))));
}

/// "0.4 (default): policy.slots 16; at 0.2: 18; at 0.8: no value".
void add_locality(const SearchReport& report, const FoundEdge& edge, Lines& lines) {
  if (!edge.locality) return;
  const TriedValue* const best = edge.probe(edge.value);
  std::string text = edge.label.empty() ? "" : edge.label + ": ";
  text += assumed_text(*edge.locality);
  if (!edge.other_localities.empty()) {
    text += fmt::format(": {} {}", report.key, best == nullptr ? "no value" : best->text);
    for (const OtherLocalityEdge& other : edge.other_localities) {
      text += fmt::format("; at {:g}: {}", other.locality, other.value ? other.text : "no value");
    }
  } else if (!edge.locality->no_effect.empty()) {
    text += "; not searched with this value halved and doubled: " + edge.locality->no_effect;
  }
  lines.add("Locality", text);
}

/// The configuration with the best value; null when there are none, or one alone.
const FoundEdge* winner_of(const SearchReport& report) {
  if (report.edges.size() < 2) return nullptr;
  const FoundEdge* best = nullptr;
  for (const FoundEdge& edge : report.edges) {
    if (!edge.value) continue;
    const bool better = best != nullptr && (report.largest ? *edge.value > *best->value : *edge.value < *best->value);
    if (best == nullptr || better) best = &edge;
  }
  return best;
}

void add_robustness(const SearchReport& report, Lines& lines) {
  if (!report.perturbation) return;
  for (const FoundEdge& edge : report.edges) {
    std::optional<double> low;
    std::optional<double> high;
    for (const auto& value : edge.perturbed) {
      if (!value) continue;
      low = std::min(low.value_or(*value), *value);
      high = std::max(high.value_or(*value), *value);
    }
    if (!low || !edge.value) continue;
    lines.add("Times", fmt::format("{}{} to {} ({} to {}) under {} changes of {:.6g}%",
                                   edge.label.empty() ? "" : edge.label + ": ", figure(*low), figure(*high),
                                   signed_percent(*low / *edge.value - 1.0), signed_percent(*high / *edge.value - 1.0),
                                   edge.perturbed.size(), 100.0 * *report.perturbation));
  }
  if (report.edges.size() < 2) return;
  if (const auto flip = report.flip()) {
    lines.add("Flips", fmt::format("{} falls behind {} at {}", report.edges[flip->better].label,
                                   report.edges[flip->worse].label, report.perturbations[flip->perturbation]));
  } else {
    lines.add("Robust", "no change reverses the order of two configurations that differ by more than the tolerance");
  }
}

}  // namespace

std::string to_search_table(const SearchReport& report) {
  Lines head;
  head.add("Search",
           fmt::format("the {} {} at which {} ({} replication{} a value, to {:.3g}%)",
                       report.largest ? "largest" : "smallest", report.key, fmt::join(report.conditions, " and "),
                       report.replications, report.replications == 1 ? "" : "s", 100.0 * report.tolerance));
  Columns table;
  table.add("", true);
  table.add(report.key);
  for (const std::string& metric : report.metrics) table.add(metric_head(metric));
  for (const FoundEdge& edge : report.edges) add_edge(report, edge, table);
  Lines tail;
  for (const FoundEdge& edge : report.edges) add_limit(report, edge, tail);
  for (const FoundEdge& edge : report.edges) {
    const std::string whose = edge.label.empty() ? "" : edge.label + ": ";
    if (!edge.noise.empty()) tail.add("Noise", whose + edge.noise);
  }
  if (report.most_requests > 0) {
    tail.add(
        "Runs",
        fmt::format(
            "grew to at most {} requests, to tell whether each value is steady and meets its limits{}",
            report.most_requests,
            report.limit_reached ? "; for some values it stayed unclear, and they count as missing the SLOs" : ""));
  }
  add_robustness(report, tail);
  for (const FoundEdge& edge : report.edges) add_locality(report, edge, tail);
  std::vector<const Trust*> trusts;
  for (const FoundEdge& edge : report.edges) {
    if (const TriedValue* best = edge.probe(edge.value)) trusts.push_back(&best->trust);
  }
  add_trust(trusts, tail);
  std::string text = fmt::format("{}\n{}", head.text(), table.text(kColumns));
  if (tail.size() > 0) text += fmt::format("\n{}", tail.text());
  return text;
}

std::string to_search_json(const SearchReport& report) {
  Json json{{"schema_version", 1},
            {"key", report.key},
            {"unit", report.unit},
            {"goal", report.largest ? "largest" : "smallest"},
            {"tolerance", report.tolerance},
            {"replications", report.replications},
            {"conditions", report.conditions}};
  json["searches"] = Json::array();
  for (const FoundEdge& edge : report.edges) {
    Json probes = Json::array();
    for (const TriedValue& probe : edge.probes) {
      Json metrics = Json::object();
      for (const Metric& metric : probe.metrics) {
        metrics[metric.name] = {{"value", nullable(metric.value)}, {"unit", metric.unit}, {"n", metric.n}};
        if (metric.half_width) metrics[metric.name]["half_width"] = *metric.half_width;
      }
      probes.push_back({{"value", probe.value},
                        {"text", probe.text},
                        {"id", probe.id},
                        {"requests", probe.requests},
                        {"holds", probe.holds},
                        {"reason", probe.reason},
                        {"trust", trust_json(probe.trust)},
                        {"metrics", metrics}});
    }
    json["searches"].push_back({{"label", edge.label},
                                {"value", nullable(edge.value)},
                                {"does_not_hold_at", nullable(edge.beyond)},
                                {"noise", edge.noise},
                                {"probes", probes}});
    if (report.perturbation) {
      for (const auto& value : edge.perturbed) json["searches"].back()["perturbed"].push_back(nullable(value));
    }
    if (edge.locality) json["searches"].back()["expert_locality"] = assumed_locality_json(*edge.locality);
    for (const OtherLocalityEdge& other : edge.other_localities) {
      json["searches"].back()["other_localities"].push_back(
          {{"value", other.locality}, {"found", nullable(other.value)}});
    }
  }
  if (report.perturbation) {
    json["perturbation"] = {{"fraction", *report.perturbation}, {"labels", report.perturbations}, {"flip", nullptr}};
    if (const auto flip = report.flip()) {
      json["perturbation"]["flip"] = {{"perturbation", report.perturbations[flip->perturbation]},
                                      {"before", report.edges[flip->better].label},
                                      {"behind", report.edges[flip->worse].label}};
    }
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string to_search_csv(const SearchReport& report) {
  const auto number = [](const std::optional<double>& value) { return value ? fmt::format("{}", *value) : ""; };
  std::vector<std::string> heads{"configuration"};
  for (const std::string& key : report.axes) heads.push_back(csv_text(key));
  for (const char* const head : {"requests", "holds", "found", "winner", "reason"}) heads.emplace_back(head);
  heads.insert(heads.begin() + 1 + std::ssize(report.axes), report.key);
  for (const std::string& metric : report.metrics) {
    heads.push_back(metric);
    heads.push_back("half_width_" + metric);
  }
  std::string csv = fmt::format("{}\n", fmt::join(heads, ","));
  const FoundEdge* const winner = winner_of(report);
  for (const FoundEdge& edge : report.edges) {
    const TriedValue* const best = edge.probe(edge.value);
    for (const TriedValue& probe : edge.probes) {
      std::vector<std::string> cells{csv_text(edge.label)};
      for (const std::string& value : edge.axis_values) cells.push_back(csv_text(value));
      const bool found = &probe == best;
      cells.push_back(probe.text);
      cells.push_back(fmt::format("{},{},{},{}", probe.requests, probe.holds, found, found && &edge == winner));
      cells.push_back(csv_text(probe.reason));
      for (const std::string& name : report.metrics) {
        const Metric& metric = metric_or_none(probe.metrics, name);
        cells.push_back(number(metric.value));
        cells.push_back(number(metric.half_width));
      }
      csv += fmt::format("{}\n", fmt::join(cells, ","));
    }
  }
  return csv;
}

}  // namespace spillway
