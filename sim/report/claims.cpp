#include "sim/report/claims.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "sim/core/printable.hpp"
#include "sim/io/lines.hpp"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

/// One value for people; "-" for a missing value.
std::string value_text(const Json& value) {
  if (value.is_null()) return "-";
  if (value.is_number()) return figure(value.get<double>());
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  std::vector<std::string> texts;
  for (const auto& [name, one] : value.items()) {
    texts.push_back(value.is_object() ? name + " " + value_text(one) : value_text(one));
  }
  const std::string joined = fmt::format("{}", fmt::join(texts, ", "));
  return value.is_object() ? joined : "[" + joined + "]";
}

std::string band_text(const Json& band) {
  if (!band.is_array() || band.size() != 2) return "-";
  return fmt::format("{} to {}", value_text(band[0]), value_text(band[1]));
}

/// The part `name` of a value; the value itself for an empty name; null when there is no such part.
Json part_of(const Json& value, const std::string& name) {
  if (name.empty()) return value.is_object() || value.is_string() ? Json() : value;
  return value.is_object() && value.contains(name) ? value[name] : Json();
}

std::string row(const std::string& first, const std::string& expected, const std::string& simulated,
                const std::string& interval, const std::string& accepted, std::string_view verdict) {
  std::string text =
      fmt::format("{:<28}{:>10} {:>10} {:>17} {:>18}  {}", first, expected, simulated, interval, accepted, verdict);
  text.erase(text.find_last_not_of(' ') + 1);
  return printable(text);
}

void add_rows(const ClaimResult& result, Lines& lines) {
  const Claim& claim = result.claim;
  const ClaimFigures& figures = result.figures;
  const std::string_view verdict = verdict_name(verdict_of(claim, figures));
  if (claim.has_parts()) lines.raw(row(claim.id, "", "", "", "", verdict));
  for (const auto& [name, expression] : claim.values) {
    lines.raw(row(name.empty() ? claim.id : "  " + name, value_text(part_of(claim.expected, name)),
                  value_text(part_of(figures.simulated, name)), band_text(part_of(figures.interval, name)),
                  band_text(part_of(claim.accept, name)), name.empty() ? verdict : ""));
  }
}

/// "1.83, accepted", "1.2, not accepted", "-, REASON"
std::string outcome_text(const ClaimFigures& figures) {
  if (figures.infeasible) return "infeasible: " + figures.reason;
  if (figures.simulated.is_null()) return figures.reason;
  std::string text = value_text(figures.simulated);
  if (figures.accepted) text += *figures.accepted ? ", accepted" : ", not accepted";
  return text;
}

/// "latency_limit_ms at 100: 1.30, accepted; at 500: 1.28, not accepted"
std::string others_text(const OpenOutcome& open) {
  std::vector<std::string> others;
  std::transform(open.others.begin(), open.others.end(), std::back_inserter(others), [](const OtherValue& other) {
    return fmt::format("at {}: {}", value_text(other.value), outcome_text(other.figures));
  });
  return fmt::format("{} {}", open.item.name, fmt::join(others, "; "));
}

/// Lists each open item once for all claims that depend on it.
void add_open_items(const ExperimentResult& result, Lines& lines) {
  const auto depends = [](const OpenItem& item) {
    return [&item](const ClaimResult& claim) {
      return std::any_of(claim.open.begin(), claim.open.end(),
                         [&](const OpenOutcome& open) { return open.item.name == item.name; });
    };
  };
  for (const OpenItem& item : result.experiment.open) {
    if (std::none_of(result.claims.begin(), result.claims.end(), depends(item))) continue;
    lines.add("Left open", fmt::format("{} = {}: {}. {}", item.name, value_text(item.value), item.what, item.reason));
  }
}

void add_details(const ClaimResult& result, Lines& lines) {
  const Claim& claim = result.claim;
  lines.add("  claim", fmt::format("{} ({}; {})", claim.claim, claim.where, claim.kind));
  if (claim.expected.is_string()) lines.add("  expected", claim.expected.get<std::string>());
  if (claim.accept.is_string()) lines.add("  accepted", claim.accept.get<std::string>());
  if (claim.fitted_on) lines.add("  fitted on", *claim.fitted_on);
  const ClaimVerdict verdict = verdict_of(claim, result.figures);
  if (!result.figures.reason.empty()) {
    const bool judged = verdict != ClaimVerdict::skipped && verdict != ClaimVerdict::infeasible;
    lines.add(judged ? "  not met" : fmt::format("  {}", verdict_name(verdict)), result.figures.reason);
  }
  if (verdict == ClaimVerdict::fail && !claim.cause.empty()) lines.add("  cause", claim.cause);
  for (const OpenOutcome& open : result.open) lines.add("  open", others_text(open));
  for (const ColumnOutcome& column : result.columns) {
    lines.add("  column", fmt::format("{}: {}", column.name, outcome_text(column.figures)));
  }
}

std::string summary(const ClaimCounts& counts) {
  std::string text = fmt::format("{} of {} counted claims pass; {} fitted, {} report, {} skipped", counts.passed,
                                 counts.passed + counts.failed, counts.fitted, counts.reported, counts.skipped);
  if (counts.infeasible > 0) text += fmt::format(", {} infeasible as printed", counts.infeasible);
  return text;
}

Json accepted_json(const ClaimFigures& figures) { return figures.accepted ? Json(*figures.accepted) : Json(nullptr); }
Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json claim_json(const std::string& experiment, const Claim& claim) {
  return {{"id", claim.id},     {"experiment", experiment}, {"system", claim.system},     {"where", claim.where},
          {"kind", claim.kind}, {"claim", claim.claim},     {"expected", claim.expected}, {"accept", claim.accept}};
}

Json fitted_json(const Claim& claim) { return claim.fitted_on ? Json(*claim.fitted_on) : Json(nullptr); }

Json open_json(const OpenOutcome& open) {
  Json others = Json::array();
  for (const OtherValue& other : open.others) {
    others.push_back({{"value", other.value},
                      {"simulated", other.figures.simulated},
                      {"accepted", accepted_json(other.figures)},
                      {"reason", text_or_null(other.figures.reason)}});
  }
  return {{"name", open.item.name},
          {"what", open.item.what},
          {"value", open.item.value},
          {"reason", open.item.reason},
          {"others", others}};
}

/// Why a claim failed or was skipped: the known cause, else the computed reason.
std::string cause_of(const ClaimResult& result, ClaimVerdict verdict) {
  if (verdict == ClaimVerdict::fail && !result.claim.cause.empty()) return result.claim.cause;
  const bool told =
      verdict == ClaimVerdict::fail || verdict == ClaimVerdict::skipped || verdict == ClaimVerdict::infeasible;
  return told ? result.figures.reason : "";
}

Json result_json(const std::string& experiment, const ClaimResult& result) {
  const ClaimVerdict verdict = verdict_of(result.claim, result.figures);
  Json json = claim_json(experiment, result.claim);
  json["simulated"] = result.figures.simulated;
  json["interval"] = result.figures.interval;
  json["verdict"] = verdict_name(verdict);
  json["accepted"] = accepted_json(result.figures);
  json["reason"] = text_or_null(result.figures.reason);
  json["cause"] = text_or_null(cause_of(result, verdict));
  json["fitted_on"] = fitted_json(result.claim);
  json["open"] = Json::array();
  for (const OpenOutcome& open : result.open) json["open"].push_back(open_json(open));
  json["columns"] = Json::array();
  for (const ColumnOutcome& column : result.columns) {
    json["columns"].push_back({{"name", column.name},
                               {"simulated", column.figures.simulated},
                               {"reason", text_or_null(column.figures.reason)}});
  }
  return json;
}

/// File names in reasons may be in any encoding.
std::string json_text(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace

std::string to_claims_table(const std::vector<ExperimentResult>& results, bool quick) {
  Lines lines;
  for (const ExperimentResult& one : results) {
    lines.add("Experiment", fmt::format("{}: {}", one.experiment.name, one.experiment.about));
    lines.add("Source", one.experiment.source);
    lines.blank();
    lines.raw(row("claim", "expected", "simulated", "95% interval", "accepted", "verdict"));
    for (const ClaimResult& result : one.claims) {
      add_rows(result, lines);
      add_details(result, lines);
    }
    add_open_items(one, lines);
    lines.blank();
  }
  if (quick) lines.add("Quick", "fewer seeds, requests or points than the claims ask for; the bands are the same");
  lines.raw(summary(count_claims(results)));
  return lines.text();
}

std::string to_claims_json(const std::vector<ExperimentResult>& results, bool quick) {
  Json claims = Json::array();
  for (const ExperimentResult& one : results) {
    for (const ClaimResult& result : one.claims) claims.push_back(result_json(one.experiment.name, result));
  }
  const ClaimCounts counts = count_claims(results);
  return json_text({{"claims", claims},
                    {"quick", quick},
                    {"summary",
                     {{"counted", counts.passed + counts.failed},
                      {"passed", counts.passed},
                      {"failed", counts.failed},
                      {"fitted", counts.fitted},
                      {"report", counts.reported},
                      {"infeasible", counts.infeasible},
                      {"skipped", counts.skipped}}}});
}

std::string to_claims_list(const std::vector<Experiment>& experiments) {
  Lines lines;
  for (const Experiment& experiment : experiments) {
    lines.add("Experiment", fmt::format("{}: {}", experiment.name, experiment.about));
    for (const Claim& claim : experiment.claims) {
      lines.raw(printable(fmt::format("  {:<14}{:<12}{:<10}{}", claim.id, claim.system, claim.kind, claim.where)));
      lines.add("", claim.claim);
    }
  }
  return lines.text();
}

std::string to_claims_list_json(const std::vector<Experiment>& experiments) {
  Json claims = Json::array();
  for (const Experiment& experiment : experiments) {
    for (const Claim& claim : experiment.claims) {
      claims.push_back(claim_json(experiment.name, claim));
      claims.back()["fitted_on"] = fitted_json(claim);
    }
  }
  return json_text({{"claims", claims}});
}

}  // namespace spillway
