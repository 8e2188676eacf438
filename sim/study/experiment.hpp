// Experiments: runs and the published claims that they are held against, as experiments/<name>/expected.json writes
// them.
//
//   {"schema_version": 1, "experiment": NAME, "about": TEXT, "source": TEXT,
//    "constants": {NAME: VALUE},             names for expressions
//    "open": {NAME: {"what": TEXT, "value": VALUE, "reason": TEXT, "others": [VALUE, VALUE]}},
//                                            constants that the source does not tell
//    "set": {KEY: VALUE}, "seeds": N,        settings and replications of every simulation that has no others
//    "quick": {"set": {...}, "seeds": N},    and what a quick run has in their place
//    "runs": {NAME: {"config": FILE, "set": {KEY: VALUE | [VALUE, ...]}, "zip": ["KEY,KEY"], "seeds": N,
//                    "quick": {"set": {...}, "seeds": N}}
//             NAME: {"probe": PROBE, "set": {PARAMETER | KEY: VALUE | [VALUE, ...]}, "zip": [...]},
//             NAME: {"validate": LOG_DIR, "fit": [TABLE, ...], "fit_base": GPU, "fit_model": MODEL, "set": {...}}},
//    "claims": [{"id", "system", "where", "kind", "claim": TEXT, "expected": VALUE, "accept": [LOW, HIGH] | TEXT,
//                "values": EXPRESSION | {NAME: EXPRESSION}, "rule": EXPRESSION | [EXPRESSION, ...],
//                "columns": [{"name": TEXT, "set": {NAME: VALUE}}], "fitted_on": TEXT | null, "cause": TEXT}]}
//
// A run set is all combinations of its settings' values; texts may be ranges (sim/study/axes.hpp). A text that begins
// with = is an expression over constants and the run sets before it; nil leaves the key out. Expressions are those of
// sim/study/claim_script.hpp. A claim's values have the shape of `expected` where that is a number or an object, and so
// has `accept`, unless it is a text: then `rule` says the same, with `value` for the values. A column is the claim with
// other constants; it decides nothing.
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

/// What the source leaves open: a constant whose value was chosen here.
struct OpenItem {
  std::string name;
  std::string what;
  nlohmann::ordered_json value;
  std::string reason;  // why this value
  std::array<nlohmann::ordered_json, 2> others;
};

/// One key of a run set and its values: numbers, booleans, null and texts, of which "=..." are expressions.
struct RunSetting {
  std::string key;
  std::vector<nlohmann::ordered_json> values;
  std::string pointer;  // where it stands
};

/// Simulations that are run together, points of a probe (a function of the simulator that is no simulation), or the
/// replay of an engine's log.
struct RunSet {
  enum class Source : std::uint8_t { simulation, probe, validation };

  std::string name;
  std::string pointer;
  Source source = Source::simulation;
  // Of a simulation.
  std::string config;                       // file beside expected.json; empty: none
  std::vector<RunSetting> settings;         // those of the experiment, then its own
  std::vector<RunSetting> quick_settings;   // over these in a quick run
  std::vector<std::string> zips;            // "model,tensor_parallel"
  std::int64_t seeds = 1;                   // replications
  std::optional<std::int64_t> quick_seeds;  // as `seeds` when empty
  // Of a probe, which has settings and zips too.
  std::string probe;
  // Of a validation.
  std::string log;
  std::vector<std::string> fit;  // tables that its profile is fitted from; empty: none is
  std::string fit_base;
  std::string fit_model;

  [[nodiscard]] std::int64_t replications(bool quick) const { return quick ? quick_seeds.value_or(seeds) : seeds; }
};

/// The claim with other constants.
struct ClaimColumn {
  std::string name;
  std::map<std::string, nlohmann::ordered_json> constants;
};

struct Claim {
  std::string id;
  std::string system;
  std::string where;  // in the source
  std::string kind;   // one of claim_kinds()
  std::string claim;  // one sentence
  nlohmann::ordered_json expected;
  nlohmann::ordered_json accept;
  std::vector<std::pair<std::string, std::string>>
      values;                      // expressions by name; one without a name is the value itself
  std::vector<std::string> rules;  // all must hold
  std::vector<ClaimColumn> columns;
  std::optional<std::string> fitted_on;
  std::string cause;  // of a failure, as found by a run
  std::string pointer;

  /// The values have names.
  [[nodiscard]] bool has_parts() const { return values.size() != 1 || !values.front().first.empty(); }
};
[[nodiscard]] const std::vector<std::string>& claim_kinds();

struct Experiment {
  std::string file;  // what messages call it
  std::string name;
  std::string about;
  std::string source;
  std::map<std::string, nlohmann::ordered_json> constants;  // the open ones included
  std::vector<OpenItem> open;
  std::vector<RunSet> runs;
  std::vector<Claim> claims;

  /// "experiments/orca/expected.json (/claims/0/rule)"
  [[nodiscard]] std::string place(const std::string& pointer) const;
  /// The run sets that a claim is computed from, in the order in which they run.
  [[nodiscard]] std::vector<const RunSet*> runs_of(const Claim& claim, bool quick) const;
  /// The open items that it depends on.
  [[nodiscard]] std::vector<const OpenItem*> open_of(const Claim& claim, bool quick) const;
};

/// Reads an experiment. `file` is what messages call it. Throws DataError with everything that is wrong: unknown keys,
/// types, expressions that are none, claims that nothing decides, open items without two other values.
[[nodiscard]] Experiment parse_experiment(std::string_view text, const std::string& file);

/// What a text of a setting stands for: the expression behind "=", else empty.
[[nodiscard]] std::optional<std::string> expression_of(const nlohmann::ordered_json& value);

}  // namespace spillway
