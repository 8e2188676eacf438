#include "sim/study/claim_result.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "sim/core/error.hpp"
#include "sim/io/lines.hpp"
#include "sim/metrics/metrics.hpp"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

/// Evaluates the expressions of one claim. Errors name the location of the expression.
class ClaimReader {
 public:
  ClaimReader(const Experiment& experiment, const Claim& claim, ClaimScript& script)
      : experiment_(experiment), claim_(claim), script_(script) {}

  /// The values; null for missing values, which `reasons` then explains.
  Json values() {
    if (!claim_.has_parts()) return value("", claim_.values.front().second, claim_.expected.is_number());
    Json parts = Json::object();
    for (const auto& [name, expression] : claim_.values) parts[name] = value(name, expression, has_band(name));
    return parts;
  }

  void check_bands(const Json& values) {
    if (claim_.accept.is_array()) check_band("the value", values, claim_.accept);
    if (!claim_.accept.is_object()) return;
    for (const auto& [name, band] : claim_.accept.items()) check_band(name, values[name], band);
  }

  void check_rules(const Json& values) {
    script_.set("value", values);
    for (const std::string& rule : claim_.rules) {
      try {
        const Json holds = script_.evaluate(rule);
        if (!holds.is_boolean()) throw ScriptError("does not give true or false");
        if (!holds.get<bool>()) reasons_.push_back("the rule is false: " + rule);
      } catch (const NoValue& none) {
        reasons_.emplace_back(none.what());
      } catch (const ScriptError& error) {
        refuse(error.what(), "/rule", rule);
      }
    }
  }

  /// The limits that the claim exceeds, with their arithmetic; empty: it could be.
  [[nodiscard]] std::string beyond_limits() {
    script_.set("expected", claim_.expected);
    std::vector<std::string> beyond;
    for (std::size_t i = 0; i < claim_.limits.size(); ++i) {
      const ClaimLimit& limit = claim_.limits[i];
      const auto needs = side(limit.needs, fmt::format("/limits/{}/needs", i));
      const auto has = side(limit.has, fmt::format("/limits/{}/has", i));
      if (!needs || !has || *needs <= *has) continue;
      beyond.push_back(fmt::format("{}: needs {} {}, has {}", limit.what, figure(*needs), limit.unit, figure(*has)));
    }
    return fmt::format("{}", fmt::join(beyond, "; "));
  }

  [[nodiscard]] std::string reason() const { return fmt::format("{}", fmt::join(reasons_, "; ")); }

 private:
  [[nodiscard]] bool has_band(const std::string& name) const {
    return (claim_.accept.is_object() && claim_.accept.contains(name)) ||
           (claim_.expected.is_object() && claim_.expected[name].is_number());
  }

  /// One side of a limit; empty when it has no value, which the reasons then say.
  std::optional<double> side(const std::string& expression, const std::string& pointer) {
    try {
      const Json value = script_.evaluate(expression);
      if (!value.is_number()) throw ScriptError("gives " + value.dump() + " where a number is needed");
      return value.get<double>();
    } catch (const NoValue& none) {
      reasons_.push_back(fmt::format("a limit has no value: {}", none.what()));
    } catch (const ScriptError& error) {
      refuse(error.what(), pointer, expression);
    }
    return std::nullopt;
  }

  Json value(const std::string& name, const std::string& expression, bool number) {
    try {
      Json value = script_.evaluate(expression);
      if (value.is_null()) throw NoValue("it is nil");
      if (number && !value.is_number()) throw ScriptError("gives " + value.dump() + " where a number is needed");
      return value;
    } catch (const NoValue& none) {
      reasons_.push_back(fmt::format("{}no value: {}", name.empty() ? "" : name + " has ", none.what()));
    } catch (const ScriptError& error) {
      refuse(error.what(), name.empty() ? "/values" : "/values/" + name, expression);
    }
    return nullptr;
  }

  void check_band(const std::string& what, const Json& value, const Json& band) {
    if (value.is_null()) return;  // already in the reasons
    const auto number = value.get<double>();
    const auto low = band[0].get<double>();
    const auto high = band[1].get<double>();
    if (number >= low && number <= high) return;
    reasons_.push_back(fmt::format("{} is {}, not within {} to {}", what, figure(number), figure(low), figure(high)));
  }

  [[noreturn]] void refuse(const std::string& what, const std::string& pointer, const std::string& expression) const {
    throw DataError(fmt::format("{}: {}", claim_.id, what), experiment_.place(claim_.pointer + pointer), expression);
  }

  const Experiment& experiment_;
  const Claim& claim_;
  ClaimScript& script_;
  std::vector<std::string> reasons_;
};

bool has_null(const Json& values) {
  return values.is_null() || (values.is_object() &&
                              std::any_of(values.begin(), values.end(), [](const Json& one) { return one.is_null(); }));
}

}  // namespace

std::string_view verdict_name(ClaimVerdict verdict) {
  switch (verdict) {
    case ClaimVerdict::pass:
      return "pass";
    case ClaimVerdict::fail:
      return "fail";
    case ClaimVerdict::fitted:
      return "fitted";
    case ClaimVerdict::report:
      return "report";
    case ClaimVerdict::infeasible:
      return "infeasible";
    case ClaimVerdict::skipped:
      break;
  }
  return "skipped";
}

ClaimVerdict verdict_of(const Claim& claim, const ClaimFigures& figures) {
  if (figures.infeasible) return ClaimVerdict::infeasible;
  const bool computed = figures.accepted || !figures.simulated.is_null();
  if (!computed) return ClaimVerdict::skipped;
  if (claim.fitted_on) return ClaimVerdict::fitted;
  if (claim.kind == "report") return ClaimVerdict::report;
  return figures.accepted.value_or(false) ? ClaimVerdict::pass : ClaimVerdict::fail;
}

ClaimCounts count_claims(const std::vector<ExperimentResult>& results) {
  ClaimCounts counts;
  for (const ExperimentResult& experiment : results) {
    for (const ClaimResult& result : experiment.claims) {
      switch (verdict_of(result.claim, result.figures)) {
        case ClaimVerdict::pass:
          ++counts.passed;
          break;
        case ClaimVerdict::fail:
          ++counts.failed;
          break;
        case ClaimVerdict::fitted:
          ++counts.fitted;
          break;
        case ClaimVerdict::report:
          ++counts.reported;
          break;
        case ClaimVerdict::infeasible:
          ++counts.infeasible;
          break;
        case ClaimVerdict::skipped:
          ++counts.skipped;
          break;
      }
    }
  }
  return counts;
}

ClaimFigures judge_claim(const Experiment& experiment, const Claim& claim, ClaimScript& script) {
  ClaimReader reader(experiment, claim, script);
  ClaimFigures figures;
  figures.simulated = reader.values();
  reader.check_bands(figures.simulated);
  if (!has_null(figures.simulated)) reader.check_rules(figures.simulated);
  const std::string beyond = reader.beyond_limits();
  figures.infeasible = !beyond.empty();
  figures.reason = figures.infeasible ? beyond : reader.reason();
  if (figures.infeasible) return figures;
  const bool decided = !claim.accept.is_string() || !claim.rules.empty() || !figures.reason.empty();
  if (decided) figures.accepted = figures.reason.empty();
  return figures;
}

Json claim_values(const Experiment& experiment, const Claim& claim, ClaimScript& script) {
  return ClaimReader(experiment, claim, script).values();
}

Json interval_of(const std::vector<Json>& by_seed) {
  if (by_seed.empty()) return nullptr;
  if (by_seed.front().is_object()) {
    Json parts = Json::object();
    for (const auto& [name, first] : by_seed.front().items()) {
      std::vector<Json> part;
      std::transform(by_seed.begin(), by_seed.end(), std::back_inserter(part),
                     [&name = name](const Json& one) { return one[name]; });
      parts[name] = interval_of(part);
    }
    return parts;
  }
  if (!std::all_of(by_seed.begin(), by_seed.end(), [](const Json& one) { return one.is_number(); })) return nullptr;
  std::vector<double> values;
  std::transform(by_seed.begin(), by_seed.end(), std::back_inserter(values),
                 [](const Json& one) { return one.get<double>(); });
  const auto half = half_width_95(values);
  if (!half) return nullptr;
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  return {mean - *half, mean + *half};
}

}  // namespace spillway
