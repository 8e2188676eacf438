// Experiments: runs, and the published claims to compare them with, in the form of
// experiments/<name>/expected.json.
//
//   {"schema_version": 1, "experiment": NAME, "about": TEXT, "source": TEXT,
//    "constants": {NAME: VALUE},             names for expressions
//    "open": {NAME: {"what": TEXT, "value": VALUE, "reason": TEXT, "others": [VALUE, VALUE]}},
//                                            constants that the source does not state
//    "set": {KEY: VALUE}, "seeds": N,        defaults of every simulation: settings and replications
//    "quick": {"set": {...}, "seeds": N},    what a quick run uses instead
//    "runs": {NAME: {"config": FILE, "set": {KEY: VALUE | [VALUE, ...]}, "zip": ["KEY,KEY"], "seeds": N,
//                    "quick": {"set": {...}, "seeds": N}}
//             NAME: {"probe": PROBE, "set": {PARAMETER | KEY: VALUE | [VALUE, ...]}, "zip": [...]},
//             NAME: {"validate": LOG_DIR, "fit": [TABLE, ...], "fit_base": GPU, "fit_model": MODEL, "set": {...}}},
//    "claims": [{"id", "system", "where", "kind", "claim": TEXT, "expected": VALUE, "accept": [LOW, HIGH] | TEXT,
//                "values": EXPRESSION | {NAME: EXPRESSION}, "rule": EXPRESSION | [EXPRESSION, ...],
//                "limits": [{"what": TEXT, "unit": TEXT, "needs": EXPRESSION, "has": EXPRESSION}],
//                "columns": [{"name": TEXT, "set": {NAME: VALUE}}], "fitted_on": TEXT | null, "cause": TEXT}]}
//
// A run set is all combinations of its settings' values. Texts may be ranges (sim/study/axes.hpp). A text that begins
// with = is an expression over constants and earlier run sets; nil leaves the key out. sim/study/claim_script.hpp
// describes expressions. If `expected` is a number or an object, a claim's values have the same shape, and so has
// `accept`. If `accept` is a text, `rule` states the criterion, with `value` for the values. A column is the claim with
// other constants; columns decide nothing. A claim that needs more than a limit has is infeasible; `expected` is the
// claim's own there.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spillway {

/// A constant that the source leaves open. Spillway chose the value.
struct OpenItem {
  std::string name;
  std::string what;
  nlohmann::ordered_json value;
  std::string reason;  // why this value
  std::array<nlohmann::ordered_json, 2> others;
};

/// One key of a run set and its values: numbers, booleans, null and texts; of `instances` one value, the list of its
/// elements. Texts "=..." are expressions, also those inside an element.
struct RunSetting {
  std::string key;
  std::vector<nlohmann::ordered_json> values;
  std::string pointer;  // location in the file
};

/// Simulations that run together, points of a probe (a function of the simulator that is not a simulation), or the
/// replay of an engine's log.
struct RunSet {
  enum class Source : std::uint8_t { simulation, probe, validation };

  std::string name;
  std::string pointer;
  Source source = Source::simulation;
  // For a simulation.
  std::string config;                       // file beside expected.json; empty: none
  std::vector<RunSetting> settings;         // settings of the experiment, then settings of the run set
  std::vector<RunSetting> quick_settings;   // replace `settings` in a quick run
  std::vector<std::string> zips;            // "model,tensor_parallel"
  std::int64_t seeds = 1;                   // replications
  std::optional<std::int64_t> quick_seeds;  // empty: as `seeds`
  // For a probe. Probes have settings and zips too.
  std::string probe;
  // For a validation.
  std::string log;
  std::vector<std::string> fit;  // tables to fit the profile from; empty: no fit
  std::string fit_base;
  std::string fit_model;

  [[nodiscard]] std::int64_t replications(bool quick) const { return quick ? quick_seeds.value_or(seeds) : seeds; }
};

/// What a claim needs of its machine at its best, and what the machine has, both from published figures. The claim is
/// infeasible when it needs more.
struct ClaimLimit {
  std::string what;  // "bytes that cross the link in a second"
  std::string unit;
  std::string needs;  // expressions; `expected` is the claim's own
  std::string has;
};

/// The claim with other constants.
struct ClaimColumn {
  std::string name;
  std::map<std::string, nlohmann::ordered_json> constants;
};

struct Claim {
  std::string id;
  std::string system;
  std::string where;  // location in the source
  std::string kind;   // one of claim_kinds()
  std::string claim;  // one sentence
  nlohmann::ordered_json expected;
  nlohmann::ordered_json accept;
  std::vector<std::pair<std::string, std::string>>
      values;                      // expressions by name; an expression without a name is the value itself
  std::vector<std::string> rules;  // every rule must hold
  std::vector<ClaimLimit> limits;
  std::vector<ClaimColumn> columns;
  std::optional<std::string> fitted_on;
  std::string cause;  // why the claim fails, found by a run
  std::string pointer;

  /// Whether the values have names.
  [[nodiscard]] bool has_parts() const { return values.size() != 1 || !values.front().first.empty(); }
};
[[nodiscard]] const std::vector<std::string>& claim_kinds();

struct Experiment {
  std::string file;  // name of the file in messages
  std::string name;
  std::string about;
  std::string source;
  std::map<std::string, nlohmann::ordered_json> constants;  // including open items
  std::vector<OpenItem> open;
  std::vector<RunSet> runs;
  std::vector<Claim> claims;

  /// "experiments/orca/expected.json (/claims/0/rule)"
  [[nodiscard]] std::string place(const std::string& pointer) const;
  /// The run sets that a claim needs, in execution order.
  [[nodiscard]] std::vector<const RunSet*> runs_of(const Claim& claim, bool quick) const;
  /// The open items that a claim depends on.
  [[nodiscard]] std::vector<const OpenItem*> open_of(const Claim& claim, bool quick) const;
};

/// Reads an experiment. `file` is the name of the file in messages. Throws DataError with all problems: unknown keys,
/// wrong types, invalid expressions, claims without a criterion, open items without two other values.
[[nodiscard]] Experiment parse_experiment(std::string_view text, const std::string& file);

/// The expression in a setting's text: everything after "=". Empty for other texts.
[[nodiscard]] std::optional<std::string> expression_of(const nlohmann::ordered_json& value);
/// The expressions of a setting's value, in the order in which they stand in it.
[[nodiscard]] std::vector<std::string> expressions_in(const nlohmann::ordered_json& value);

}  // namespace spillway
