#include "sim/report/advice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "sim/io/columns.hpp"
#include "sim/io/csv_text.hpp"
#include "sim/io/json_values.hpp"
#include "sim/io/lines.hpp"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

const char* standing_name(Standing standing) {
  switch (standing) {
    case Standing::ranked:
      return "ranked";
    case Standing::pruned:
      return "pruned";
    case Standing::misses:
      return "misses";
    case Standing::impossible:
      break;
  }
  return "impossible";
}

/// "policy=pie" and "hardware=a policy=pie" without the keys.
std::string values_of(const std::string& label) {
  std::string text;
  for (std::size_t from = 0; from < label.size();) {
    const std::size_t to = std::min(label.find(' ', from), label.size());
    const std::string word = label.substr(from, to - from);
    const std::size_t equals = word.find('=');
    text += (text.empty() ? "" : " ") + (equals == std::string::npos ? word : word.substr(equals + 1));
    from = to + 1;
  }
  return text.empty() ? "this configuration" : text;
}

/// A reason without the name of whom it concerns, so that equal reasons are equal texts.
std::string without(std::string reason, const std::string& name) {
  const std::string named = "policy " + name;
  for (std::size_t at = reason.find(named); at != std::string::npos; at = reason.find(named, at)) {
    reason.replace(at, named.size(), "the policy");
  }
  return reason;
}

std::string text_of(const Knob::Value& settings) {
  std::vector<std::string> texts;
  for (const auto& [key, text] : settings) {
    if (key != "tensor_parallel" || text != "1") texts.push_back(fmt::format("{}={}", key, text));
  }
  return fmt::format("{}", fmt::join(texts, " "));
}

std::string settings_of(const AdvisedConfiguration& one) { return text_of(one.settings); }

std::string figure_of(const AdvisedConfiguration& one, const char* name, double scale = 1.0) {
  const Metric* const metric = find_metric(one.metrics, name);
  return metric == nullptr || !metric->value ? "-" : figure(scale * *metric->value);
}

bool any_costs(const Advice& advice) {
  return std::ranges::any_of(advice.configurations, [](const AdvisedConfiguration& one) {
    return find_metric(one.metrics, "cost_per_million_output_tokens") != nullptr;
  });
}

void add_ranking(const Advice& advice, Columns& table) {
  const bool costs = any_costs(advice);
  table.add("");
  table.add("", true);
  table.add("GPUs");
  table.add("req/s");
  table.add("per GPU");
  table.add("p99 TTFT ms");
  table.add("TPOT ms");
  table.add("host GB");
  if (costs) table.add("cost/M out");
  if (advice.rate) table.add("replicas");
  table.add("limit", true);
  std::size_t rank = 0;
  for (const AdvisedConfiguration& one : advice.configurations) {
    if (one.standing != Standing::ranked) continue;
    std::vector<std::string> cells{fmt::format("{}", ++rank),      values_of(one.label),
                                   fmt::format("{}", one.gpus),    figure(*one.capacity),
                                   figure(one.per_gpu()),          figure_of(one, "p99_ttft_ms"),
                                   figure_of(one, "mean_tpot_ms"), figure(1e-9 * static_cast<double>(one.host_bytes))};
    if (costs) cells.push_back(figure_of(one, "cost_per_million_output_tokens"));
    if (advice.rate) {
      cells.push_back(!one.fleet ? "-" : fmt::format("{}{}", one.fleet->replicas, one.fleet->holds ? "" : "?"));
    }
    cells.push_back(one.resource);
    table.row(std::move(cells));
  }
}

void add_rest(const Advice& advice, Lines& lines) {
  std::vector<std::string> pruned;
  std::vector<std::pair<std::string, std::vector<std::string>>> impossible;  // whom a reason keeps from running
  for (const AdvisedConfiguration& one : advice.configurations) {
    if (one.standing == Standing::pruned) {
      pruned.push_back(fmt::format("{} {}", values_of(one.label), figure(one.ceiling_per_gpu())));
    } else if (one.standing == Standing::misses) {
      lines.add("Misses", fmt::format("{}: {}", values_of(one.label), shown(one.reason)));
    } else if (one.standing == Standing::impossible) {
      const std::string name = values_of(one.label);
      const std::string reason = without(one.reason, name);
      const auto same = std::ranges::find(impossible, reason, [](const auto& entry) { return entry.first; });
      if (same == impossible.end()) {
        impossible.push_back({reason, {name}});
      } else {
        same->second.push_back(name);
      }
    }
  }
  if (!pruned.empty()) {
    lines.add("Pruned", fmt::format("cannot win, so their capacities were not searched. Requests/s per GPU when all "
                                    "requests arrive at once: {}",
                                    fmt::join(pruned, ", ")));
  }
  for (const auto& [reason, names] : impossible) {
    lines.add("Cannot run", fmt::format("{}: {}", fmt::join(names, ", "), shown(reason)));
  }
}

void add_winner(const Advice& advice, const AdvisedConfiguration& winner, Lines& lines) {
  const std::string settings = settings_of(winner);
  lines.add("Winner", fmt::format("{}{}: {}", values_of(winner.label),
                                  settings.empty() ? ", settings as given" : " with " + settings, winner.bottleneck));
  if (winner.changes_answers)
    lines.add("Answers", "memory.kv_dtype=fp8 changes what the model answers: test its quality");
  std::vector<std::pair<std::string, std::vector<std::string>>> chosen;
  for (const AdvisedConfiguration& one : advice.configurations) {
    if (one.standing != Standing::ranked) break;
    const std::string own = settings_of(one);
    if (own.empty()) continue;
    const auto same = std::ranges::find(chosen, own, [](const auto& entry) { return entry.first; });
    if (same == chosen.end()) {
      chosen.push_back({own, {values_of(one.label)}});
    } else {
      same->second.push_back(values_of(one.label));
    }
  }
  for (const auto& [own, names] : chosen) {
    lines.add("Settings", fmt::format("{}: {}", own, fmt::join(names, ", ")));
  }
  lines.add("Flags", winner.flags.empty() ? "no release of an engine is known to have this policy" : winner.flags);
  if (winner.fleet && advice.rate) {
    const Fleet& fleet = *winner.fleet;
    const std::string who = fmt::format("{} replica{}, {} GPU{}", fleet.replicas, fleet.replicas == 1 ? "" : "s",
                                        fleet.gpus, fleet.gpus == 1 ? "" : "s");
    lines.add("Fleet", fleet.holds ? fmt::format("{} serve {} requests/s: a run of all together meets the SLOs", who,
                                                 figure(*advice.rate))
                                   : fmt::format("{} do not serve {} requests/s: {}", who, figure(*advice.rate),
                                                 shown(fleet.fault)));
  }
  for (const LeastMemory& one : advice.memory) {
    lines.add("Host memory", fmt::format("{}={} per GPU is enough for {} of the winner's capacity{}", one.key, one.text,
                                         percent(one.share),
                                         one.hit_fraction ? fmt::format("; {} of the prompt tokens come from there",
                                                                        percent(*one.hit_fraction))
                                                          : ""));
  }
}

void add_closest(const ClosestMiss& closest, Lines& lines) {
  lines.add("Closest", fmt::format("{} on {} GPU{}: {} at {} requests/s", values_of(closest.label), closest.gpus,
                                   closest.gpus == 1 ? "" : "s", shown(closest.reason), figure(closest.rate)));
  for (const ClosestMiss::Help& help : closest.help) {
    lines.add("Would help", fmt::format("{}{}: {}", text_of(help.settings),
                                        help.changes_answers ? ", which changes what the model answers" : "",
                                        help.reason.empty() ? "the SLOs are met at that rate" : shown(help.reason)));
  }
  lines.add(closest.help.empty() ? "Would help" : "Or",
            "a looser SLO, faster hardware, or a smaller or quantised model");
}

void add_dependence(const Advice& advice, Lines& lines) {
  for (const Crossover& one : advice.crossovers) {
    lines.add("Crossover", fmt::format("{}: {} leads below {} {}, {} above (now {}){}", one.quantity,
                                       values_of(one.below), figure(one.at), one.unit, values_of(one.above),
                                       figure(one.now), one.note.empty() ? "" : "; " + one.note));
  }
  for (const SteadyLead& one : advice.steady_leads) {
    lines.add("No crossover", fmt::format("{}: {} leads from {} to {} {} (now {})", one.quantity, values_of(one.leader),
                                          figure(one.low), figure(one.high), one.unit, figure(one.now)));
  }
  for (const RankCheck& check : advice.checks) {
    const std::string rival = values_of(check.rival);
    if (check.ties == check.perturbations) {
      lines.add("Tie", fmt::format("with {}: the two are within the tolerance under all {} changes of times", rival,
                                   check.perturbations));
    } else if (check.overtaken.empty()) {
      lines.add("Robust", fmt::format("{} does not overtake under any of {} changes of times by {}{}", rival,
                                      check.perturbations, percent(*advice.perturbation),
                                      check.ties > 0 ? fmt::format("; under {} the two are equal", check.ties) : ""));
    } else {
      lines.add("Flips", fmt::format("{} overtakes under {} of {} changes of times by {}, the first: {}", rival,
                                     check.overtaken.size(), check.perturbations, percent(*advice.perturbation),
                                     check.overtaken.front()));
    }
  }
}

/// What the runs assumed of experts.locality, and the figures with half and twice of it.
void add_localities(const Advice& advice, Lines& lines) {
  for (const AdvisedConfiguration& one : advice.configurations) {
    if (one.standing != Standing::ranked || !one.locality) continue;
    const LocalityRun base = locality_run(1.0, one.locality, one.metrics);
    lines.add("Locality", fmt::format("{}{}", one.label.empty() ? "" : values_of(one.label) + ": ",
                                      locality_text(assumed_text(*one.locality), base, one.other_localities)));
  }
}

}  // namespace

std::string to_advice_table(const Advice& advice) {
  Lines head;
  head.add("Advice",
           fmt::format("requests/s at which {}, to {:.3g}%{}", fmt::join(advice.conditions, " and "),
                       100.0 * advice.tolerance, advice.quick ? "; not checked for steady state (--quick)" : ""));
  Columns table;
  add_ranking(advice, table);
  Lines tail;
  const AdvisedConfiguration* const winner = advice.winner();
  if (winner != nullptr) {
    add_winner(advice, *winner, tail);
    add_dependence(advice, tail);
  }
  add_rest(advice, tail);
  if (advice.closest) add_closest(*advice.closest, tail);
  std::vector<std::string> noisy;
  for (const AdvisedConfiguration& one : advice.configurations) {
    if (!one.noise.empty()) noisy.push_back(values_of(one.label));
  }
  if (!noisy.empty()) {
    tail.add("Noise", fmt::format("a limit lies within the interval of its metric for {}: more replications or "
                                  "workload.requests narrow it",
                                  fmt::join(noisy, ", ")));
  }
  std::vector<const Trust*> trusts;
  for (const AdvisedConfiguration& one : advice.configurations) {
    if (one.standing == Standing::ranked) trusts.push_back(&one.trust);
  }
  add_localities(advice, tail);
  add_trust(trusts, tail);
  std::string text = head.text() + "\n";
  if (winner != nullptr) text += table.text() + "\n";
  return text + tail.text();
}

std::string to_advice_json(const Advice& advice) {
  Json json{{"schema_version", 1},           {"conditions", advice.conditions},     {"tolerance", advice.tolerance},
            {"steady_state", !advice.quick}, {"rate_per_s", nullable(advice.rate)}, {"runs", advice.runs}};
  json["configurations"] = Json::array();
  const auto metrics_json = [](const std::vector<Metric>& metrics) {
    Json all = Json::object();
    for (const Metric& metric : metrics) {
      all[metric.name] = {{"value", nullable(metric.value)}, {"unit", metric.unit}, {"n", metric.n}};
      if (metric.half_width) all[metric.name]["half_width"] = *metric.half_width;
    }
    return all;
  };
  for (const AdvisedConfiguration& one : advice.configurations) {
    Json settings = Json::object();
    for (const auto& [key, text] : one.settings) settings[key] = text;
    Json entry{{"configuration", one.label},
               {"standing", standing_name(one.standing)},
               {"settings", settings},
               {"changes_answers", one.changes_answers},
               {"gpus", one.gpus},
               {"ceiling_requests_per_s", nullable(one.ceiling)},
               {"capacity_requests_per_s", nullable(one.capacity)},
               {"reason", one.reason},
               {"host_bytes", one.host_bytes},
               {"resource", one.resource},
               {"bottleneck", one.bottleneck},
               {"engine_flags", one.flags},
               {"steadiness", one.steadiness},
               {"requests", one.requests},
               {"settings_tried", one.settings_tried},
               {"noise", one.noise},
               {"trust", trust_json(one.trust)},
               {"metrics", metrics_json(one.metrics)}};
    if (one.locality) entry["expert_locality"] = assumed_locality_json(*one.locality);
    if (one.other_localities) entry["other_localities"] = locality_check_json(*one.other_localities);
    if (one.fleet) {
      entry["fleet"] = {{"replicas", one.fleet->replicas},
                        {"gpus", one.fleet->gpus},
                        {"holds", one.fleet->holds},
                        {"fault", one.fleet->fault},
                        {"metrics", metrics_json(one.fleet->metrics)}};
    }
    json["configurations"].push_back(std::move(entry));
  }
  json["perturbation"] = nullable(advice.perturbation);
  json["rank_checks"] = Json::array();
  for (const RankCheck& check : advice.checks) {
    json["rank_checks"].push_back({{"rival", check.rival},
                                   {"perturbations", check.perturbations},
                                   {"ties", check.ties},
                                   {"overtaken_under", check.overtaken}});
  }
  json["crossovers"] = Json::array();
  for (const Crossover& one : advice.crossovers) {
    json["crossovers"].push_back({{"quantity", one.quantity},
                                  {"unit", one.unit},
                                  {"now", one.now},
                                  {"at", one.at},
                                  {"below", one.below},
                                  {"above", one.above},
                                  {"note", one.note}});
  }
  json["steady_leads"] = Json::array();
  for (const SteadyLead& one : advice.steady_leads) {
    json["steady_leads"].push_back({{"quantity", one.quantity},
                                    {"unit", one.unit},
                                    {"now", one.now},
                                    {"from", one.low},
                                    {"to", one.high},
                                    {"leader", one.leader}});
  }
  json["closest"] = nullptr;
  if (advice.closest) {
    const ClosestMiss& closest = *advice.closest;
    json["closest"] = {{"configuration", closest.label},
                       {"gpus", closest.gpus},
                       {"rate_per_s", closest.rate},
                       {"reason", closest.reason},
                       {"help", Json::array()}};
    for (const ClosestMiss::Help& help : closest.help) {
      json["closest"]["help"].push_back(
          {{"settings", text_of(help.settings)}, {"reason", help.reason}, {"changes_answers", help.changes_answers}});
    }
  }
  json["least_memory"] = Json::array();
  for (const LeastMemory& one : advice.memory) {
    json["least_memory"].push_back({{"key", one.key},
                                    {"value", one.text},
                                    {"share_of_capacity", one.share},
                                    {"hit_fraction", nullable(one.hit_fraction)}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string to_advice_csv(const Advice& advice) {
  std::string csv =
      "rank,configuration,standing,settings,gpus,capacity_requests_per_s,capacity_per_gpu,ceiling_requests_per_s,"
      "p99_ttft_ms,mean_tpot_ms,host_bytes,cost_per_million_output_tokens,replicas,fleet_gpus,fleet_holds,resource,"
      "reason\n";
  const auto cell = [](const std::optional<double>& value) { return value ? fmt::format("{}", *value) : ""; };
  const auto metric = [&](const AdvisedConfiguration& one, const char* name) {
    const Metric* const found = find_metric(one.metrics, name);
    return found == nullptr ? std::string() : cell(found->value);
  };
  std::size_t rank = 0;
  for (const AdvisedConfiguration& one : advice.configurations) {
    const bool ranked = one.standing == Standing::ranked;
    csv += fmt::format(
        "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", ranked ? fmt::format("{}", ++rank) : "",
        csv_text(one.label), standing_name(one.standing), csv_text(settings_of(one)), one.gpus, cell(one.capacity),
        ranked ? fmt::format("{}", one.per_gpu()) : "", cell(one.ceiling), metric(one, "p99_ttft_ms"),
        metric(one, "mean_tpot_ms"), one.host_bytes, metric(one, "cost_per_million_output_tokens"),
        one.fleet ? fmt::format("{}", one.fleet->replicas) : "", one.fleet ? fmt::format("{}", one.fleet->gpus) : "",
        one.fleet ? fmt::format("{}", one.fleet->holds) : "", one.resource, csv_text(one.reason));
  }
  return csv;
}

namespace {

/// Configurations with a fleet that meets the SLOs, those of the Pareto front first, each part by cost.
struct Planned {
  const AdvisedConfiguration* configuration;
  FleetFigures figures;
  bool front;
};
std::vector<Planned> planned(const Advice& advice) {
  std::vector<const AdvisedConfiguration*> all;
  std::vector<Fleet> fleets;
  for (const AdvisedConfiguration& one : advice.configurations) {
    if (!one.fleet || !one.fleet->holds) continue;
    all.push_back(&one);
    fleets.push_back(*one.fleet);
  }
  std::vector<Planned> plan;
  for (std::size_t i = 0; i < all.size(); ++i) plan.push_back({all[i], figures_of(fleets[i]), false});
  for (const std::size_t i : pareto_front(fleets)) plan[i].front = true;
  std::ranges::stable_sort(plan, {}, [](const Planned& one) {
    return std::tuple(!one.front, one.figures.cost_per_hour.value_or(0.0), one.figures.gpus,
                      one.figures.p99_ttft_ms.value_or(0.0));
  });
  return plan;
}

}  // namespace

std::string to_plan_table(const Advice& advice) {
  const std::vector<Planned> plan = planned(advice);
  const bool priced =
      std::ranges::any_of(plan, [](const Planned& one) { return one.figures.cost_per_hour.has_value(); });
  Lines head;
  head.add("Plan", fmt::format("replicas that serve {} requests/s so that {}{}", figure(advice.rate.value_or(0.0)),
                               fmt::join(advice.conditions, " and "),
                               advice.quick ? "; not checked for steady state (--quick)" : ""));
  Columns table;
  table.add("");
  table.add("", true);
  table.add("GPUs");
  table.add("replicas");
  table.add("req/s of one");
  if (priced) {
    table.add("cost/h");
    table.add("cost/M out");
  }
  table.add("p99 TTFT ms");
  table.add("TPOT ms");
  for (const Planned& one : plan) {
    const AdvisedConfiguration& configuration = *one.configuration;
    std::vector<std::string> cells{one.front ? "*" : "", values_of(configuration.label),
                                   fmt::format("{}", configuration.fleet->gpus),
                                   fmt::format("{}", configuration.fleet->replicas), figure(*configuration.capacity)};
    if (priced) {
      const Metric* const cost = find_metric(configuration.fleet->metrics, "cost_per_million_output_tokens");
      cells.push_back(shown_figure(one.figures.cost_per_hour));
      cells.push_back(cost == nullptr ? "-" : shown_figure(cost->value));
    }
    cells.push_back(shown_figure(one.figures.p99_ttft_ms));
    cells.push_back(shown_figure(one.figures.mean_tpot_ms));
    table.row(std::move(cells));
  }
  Lines tail;
  if (!plan.empty()) {
    tail.add("Front", fmt::format("* no other fleet is better in {}, p99 TTFT and TPOT at once",
                                  priced ? "cost" : "its number of GPUs"));
    if (!priced) {
      tail.add("Prices", "unknown: give hardware.price_per_hour for a front of cost against latency");
    }
  }
  for (const AdvisedConfiguration& one : advice.configurations) {
    if (one.standing == Standing::ranked && one.fleet && !one.fleet->holds) {
      tail.add("Misses",
               fmt::format("{}: {} replicas: {}", values_of(one.label), one.fleet->replicas, shown(one.fleet->fault)));
    }
  }
  add_rest(advice, tail);
  std::vector<const Trust*> trusts;
  trusts.reserve(plan.size());
  for (const Planned& one : plan) trusts.push_back(&one.configuration->trust);
  add_localities(advice, tail);
  add_trust(trusts, tail);
  std::string text = head.text() + "\n";
  if (!plan.empty()) text += table.text() + "\n";
  return text + tail.text();
}

std::string to_plan_json(const Advice& advice) {
  Json json = Json::parse(to_advice_json(advice));
  json["pareto_front"] = Json::array();
  for (const Planned& one : planned(advice)) {
    if (!one.front) continue;
    json["pareto_front"].push_back({{"configuration", one.configuration->label},
                                    {"replicas", one.configuration->fleet->replicas},
                                    {"gpus", one.configuration->fleet->gpus},
                                    {"cost_per_hour", nullable(one.figures.cost_per_hour)},
                                    {"p99_ttft_ms", nullable(one.figures.p99_ttft_ms)},
                                    {"mean_tpot_ms", nullable(one.figures.mean_tpot_ms)}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string to_plan_csv(const Advice& advice) {
  std::string csv =
      "configuration,front,gpus,replicas,capacity_requests_per_s,cost_per_hour,p99_ttft_ms,mean_tpot_ms\n";
  const auto cell = [](const std::optional<double>& value) { return value ? fmt::format("{}", *value) : ""; };
  for (const Planned& one : planned(advice)) {
    csv += fmt::format("{},{},{},{},{},{},{},{}\n", csv_text(one.configuration->label), one.front,
                       one.configuration->fleet->gpus, one.configuration->fleet->replicas,
                       cell(one.configuration->capacity), cell(one.figures.cost_per_hour),
                       cell(one.figures.p99_ttft_ms), cell(one.figures.mean_tpot_ms));
  }
  return csv;
}

}  // namespace spillway
