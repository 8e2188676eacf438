#include "sim/study/locality.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "hwmodels/catalog.hpp"
#include "sim/config/expert_defaults.hpp"
#include "sim/io/json_values.hpp"
#include "sim/io/lines.hpp"
#include "sim/study/instances.hpp"
#include "sim/study/parameter_table.hpp"
#include "sim/study/result.hpp"

namespace spillway {

ExpertLocality assumed_locality(const Settings& settings, std::int64_t experts, std::int64_t top_k) {
  ExpertLocality assumed;
  if (settings.has(kLocalityKey)) {
    assumed.value = settings.get<double>(kLocalityKey);
    assumed.given = true;
  } else {
    const ExpertDefault& standard = experts <= kFewExperts ? kLocalityOfFew : kLocalityOfMany;
    assumed.value = standard.value;
    assumed.source = standard.source;
  }
  if (assumed.value == 0.0) {
    assumed.no_effect = "half and twice of 0 are 0";
  } else if (top_k == experts) {
    assumed.no_effect = fmt::format("a token uses all {} experts of a layer", experts);
  }
  return assumed;
}

std::vector<ExpertLocality> assumed_localities(const ResolvedConfig& config) {
  std::vector<ExpertLocality> assumed;
  if (config.key(kInstancesKey).text.empty()) {
    if (!config.policy->places_experts) return assumed;
    const hwmodels::LlmModel llm = hwmodels::load_llm(config.settings.get<std::string>("model"));
    if (llm.experts) assumed.push_back(assumed_locality(config.settings, llm.experts->count, llm.experts->top_k));
    return assumed;
  }
  std::vector<Problem> problems;
  for (const InstanceEntry& entry : read_instances(config, problems)) {
    if (entry.lends) continue;
    try {
      const auto own = assumed_localities(resolve_config(parameter_table(), entry.assignments, {}));
      assumed.insert(assumed.end(), own.begin(), own.end());
    } catch (const UserError&) {
      continue;  // assembling it says why
    }
  }
  return assumed;
}

bool may_matter(const std::vector<ExpertLocality>& assumed) {
  return std::ranges::any_of(assumed, [](const ExpertLocality& one) { return one.no_effect.empty(); });
}

std::array<double, 2> half_and_twice(double locality) {
  return {locality_times(kLocalityTimes[0], locality), locality_times(kLocalityTimes[1], locality)};
}

LocalityRun locality_run(double times, const std::optional<ExpertLocality>& assumed,
                         const std::vector<Metric>& metrics) {
  LocalityRun run{.times = times,
                  .output_tokens_per_s = metric_or_none(metrics, kTokensPerSecond).value,
                  .p50_tpot_ms = metric_or_none(metrics, kTpot).value};
  if (assumed) run.locality = locality_times(times, assumed->value);
  return run;
}

std::string shown_figure(const std::optional<double>& value) { return value ? figure(*value) : "-"; }

std::string assumed_text(const ExpertLocality& assumed) {
  return fmt::format("{:g} ({})", assumed.value, assumed.given ? "given" : "default");
}

std::string locality_text(const std::string& assumed, const LocalityRun& base,
                          const std::optional<LocalityCheck>& check) {
  std::string text = assumed;
  if (!check) return text;
  if (!check->not_run.empty()) {
    return text + fmt::format("; not run with {} halved and doubled: {}", base.locality ? "this value" : "these values",
                              check->not_run);
  }
  text += fmt::format(": {} output tokens/s, p50 TPOT {} ms", shown_figure(base.output_tokens_per_s),
                      shown_figure(base.p50_tpot_ms));
  for (const LocalityRun& run : check->runs) {
    const std::string at = run.locality      ? fmt::format("{:g}", *run.locality)
                           : run.times < 1.0 ? "half of each"
                                             : "twice of each";
    text += fmt::format("; at {}: {} and {}", at, shown_figure(run.output_tokens_per_s), shown_figure(run.p50_tpot_ms));
  }
  return text;
}

nlohmann::ordered_json assumed_locality_json(const ExpertLocality& assumed) {
  nlohmann::ordered_json json{{"value", assumed.value}, {"origin", assumed.given ? "given" : "default"}};
  if (!assumed.source.empty()) json["source"] = assumed.source;
  if (!assumed.no_effect.empty()) json["no_effect"] = assumed.no_effect;
  return json;
}

std::optional<ExpertLocality> read_assumed_locality(const nlohmann::ordered_json& setup) {
  if (!setup.contains("expert_locality")) return std::nullopt;
  const nlohmann::ordered_json& json = setup.at("expert_locality");
  return ExpertLocality{.value = json.at("value"),
                        .given = json.at("origin") == "given",
                        .source = json.value("source", std::string()),
                        .no_effect = json.value("no_effect", std::string())};
}

std::string read_assumed_text(const nlohmann::ordered_json& result) {
  if (const auto common = read_assumed_locality(result.at("setup"))) return assumed_text(*common);
  std::vector<std::string> assumed;
  for (const nlohmann::ordered_json& one : result.value("instances", nlohmann::ordered_json::array())) {
    const auto own = read_assumed_locality(one.at("setup"));
    if (own) assumed.push_back(fmt::format("{} {}", one.at("name").get<std::string>(), assumed_text(*own)));
  }
  return fmt::format("{}", fmt::join(assumed, ", "));
}

nlohmann::ordered_json locality_check_json(const LocalityCheck& check) {
  if (!check.not_run.empty()) return {{"not_run", check.not_run}};
  nlohmann::ordered_json runs = nlohmann::ordered_json::array();
  for (const LocalityRun& run : check.runs) {
    nlohmann::ordered_json json{{"times", run.times}};
    if (run.locality) json["value"] = *run.locality;
    json[kTokensPerSecond] = nullable(run.output_tokens_per_s);
    json[kTpot] = nullable(run.p50_tpot_ms);
    runs.push_back(std::move(json));
  }
  return {{"runs", runs}};
}

std::optional<LocalityCheck> read_locality_check(const nlohmann::ordered_json& result) {
  if (!result.contains("other_localities")) return std::nullopt;
  const nlohmann::ordered_json& json = result.at("other_localities");
  if (json.contains("not_run")) return LocalityCheck{.not_run = json.at("not_run")};
  const auto number = [](const nlohmann::ordered_json& value) {
    return value.is_null() ? std::nullopt : std::optional(value.get<double>());
  };
  LocalityCheck check;
  for (const nlohmann::ordered_json& run : json.at("runs")) {
    const double standard = kLocalityTimes[check.runs.empty() ? 0 : 1];  // older results do not say it
    check.runs.push_back({run.value("times", standard), number(run.value("value", nlohmann::ordered_json())),
                          number(run.at(kTokensPerSecond)), number(run.at(kTpot))});
  }
  return check;
}

}  // namespace spillway
