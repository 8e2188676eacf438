#include "sim/study/locality.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "hwmodels/catalog.hpp"
#include "sim/config/expert_defaults.hpp"
#include "sim/io/json_values.hpp"
#include "sim/io/lines.hpp"
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

std::optional<ExpertLocality> assumed_locality(const ResolvedConfig& config) {
  // With instances of several kinds, each has a policy of its own.
  if (!config.key(kInstancesKey).text.empty() || !config.policy->places_experts) return std::nullopt;
  const hwmodels::LlmModel llm = hwmodels::load_llm(config.settings.get<std::string>("model"));
  if (!llm.experts) return std::nullopt;
  return assumed_locality(config.settings, llm.experts->count, llm.experts->top_k);
}

std::array<double, 2> half_and_twice(double locality) { return {0.5 * locality, std::min(1.0, 2.0 * locality)}; }

LocalityRun locality_run(double locality, const std::vector<Metric>& metrics) {
  return {locality, metric_or_none(metrics, kTokensPerSecond).value, metric_or_none(metrics, kTpot).value};
}

std::string shown_figure(const std::optional<double>& value) { return value ? figure(*value) : "-"; }

std::string locality_text(const ExpertLocality& assumed, const LocalityRun& base,
                          const std::optional<LocalityCheck>& check) {
  std::string text = fmt::format("{:g} ({})", assumed.value, assumed.given ? "given" : "default");
  if (!check) return text;
  if (!check->not_run.empty()) return text + "; not run with this value halved and doubled: " + check->not_run;
  text += fmt::format(": {} output tokens/s, p50 TPOT {} ms", shown_figure(base.output_tokens_per_s),
                      shown_figure(base.p50_tpot_ms));
  for (const LocalityRun& run : check->runs) {
    text += fmt::format("; at {:g}: {} and {}", run.locality, shown_figure(run.output_tokens_per_s),
                        shown_figure(run.p50_tpot_ms));
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

nlohmann::ordered_json locality_check_json(const LocalityCheck& check) {
  if (!check.not_run.empty()) return {{"not_run", check.not_run}};
  nlohmann::ordered_json runs = nlohmann::ordered_json::array();
  for (const LocalityRun& run : check.runs) {
    runs.push_back({{"value", run.locality},
                    {kTokensPerSecond, nullable(run.output_tokens_per_s)},
                    {kTpot, nullable(run.p50_tpot_ms)}});
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
    check.runs.push_back({run.at("value"), number(run.at(kTokensPerSecond)), number(run.at(kTpot))});
  }
  return check;
}

}  // namespace spillway
