// expected.json -> Experiment, with all problems of the file.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>

#include "sim/config/config.hpp"
#include "sim/core/error.hpp"
#include "sim/study/claim_script.hpp"
#include "sim/study/experiment.hpp"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;
using Pointer = Json::json_pointer;

constexpr std::int64_t kSchemaVersion = 1;
constexpr std::int64_t kMostSeeds = 1000;

/// The problems of one file, each with its location.
class Complaints {
 public:
  explicit Complaints(std::string file) : file_(std::move(file)) {}
  void add(const Pointer& at, std::string what, std::string fix = {}) {
    const std::string pointer = at.to_string();
    problems_.push_back(
        {std::move(what), pointer.empty() ? file_ : fmt::format("{} ({})", file_, pointer), std::move(fix)});
  }
  void throw_if_any() {
    if (!problems_.empty()) throw DataError(std::move(problems_));
  }

 private:
  std::string file_;
  std::vector<Problem> problems_;
};

/// One value of the file and its location.
struct Node {
  const Json& value;
  Pointer at;
  Complaints& complaints;

  void complain(const std::string& what, const std::string& fix = {}) const { complaints.add(at, what, fix); }
  /// The member `name`; a null Node when there is no such member.
  [[nodiscard]] Node member(const std::string& name) const {
    static const Json kNull;
    const auto found = value.is_object() ? value.find(name) : value.end();
    return {found == value.end() ? kNull : *found, at / name, complaints};
  }
  [[nodiscard]] Node element(std::size_t index) const { return {value[index], at / index, complaints}; }
  [[nodiscard]] bool has(const std::string& name) const { return value.is_object() && value.contains(name); }
};

bool is_scalar(const Json& value) { return value.is_string() || value.is_number() || value.is_boolean(); }

bool is_band(const Json& value) {
  return value.is_array() && value.size() == 2 && value[0].is_number() && value[1].is_number() && value[0] <= value[1];
}

/// Checks that an object has these members and no others.
bool check_object(const Node& node, const std::vector<std::string>& known) {
  if (!node.value.is_object()) {
    node.complain("must be an object");
    return false;
  }
  for (const auto& [name, value] : node.value.items()) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    node.complaints.add(node.at / name, fmt::format("unknown key \"{}\"", name),
                        suggestion(name, known) + fmt::format("keys: {}", fmt::join(known, ", ")));
  }
  return true;
}

std::string text_of(const Node& node, bool required) {
  if (node.value.is_string() && (!required || !node.value.get_ref<const std::string&>().empty())) return node.value;
  if (!node.value.is_null() || required) node.complain(required ? "must be a text" : "must be a text, or left out");
  return {};
}

std::int64_t count_of(const Node& node, std::int64_t fallback) {
  if (node.value.is_null()) return fallback;
  if (node.value.is_number_integer() && node.value >= 1 && node.value <= kMostSeeds) return node.value;
  node.complain(fmt::format("must be a whole number from 1 to {}", kMostSeeds));
  return fallback;
}

/// A single text, or a list of texts.
std::vector<std::string> texts_of(const Node& node) {
  if (node.value.is_null()) return {};
  if (node.value.is_string()) return {node.value.get<std::string>()};
  std::vector<std::string> texts;
  if (!node.value.is_array()) {
    node.complain("must be a text or a list of texts");
    return texts;
  }
  for (std::size_t i = 0; i < node.value.size(); ++i) texts.push_back(text_of(node.element(i), true));
  return texts;
}

std::string checked_expression(const Node& node) {
  std::string text = text_of(node, true);
  if (text.empty()) return text;
  if (const auto error = ClaimScript::syntax_error(text)) node.complain(*error, "write a Lua expression");
  return text;
}

/// Reads the parts of an experiment in dependency order.
class ExperimentReader {
 public:
  ExperimentReader(const Node& root, Experiment& experiment) : root_(root), experiment_(experiment) {}

  void read() {
    if (!check_object(root_, {"schema_version", "experiment", "about", "source", "constants", "open", "set", "seeds",
                              "quick", "runs", "claims"})) {
      return;
    }
    if (root_.member("schema_version").value != kSchemaVersion) {
      root_.member("schema_version").complain(fmt::format("must be {}", kSchemaVersion));
    }
    experiment_.name = text_of(root_.member("experiment"), true);
    experiment_.about = text_of(root_.member("about"), true);
    experiment_.source = text_of(root_.member("source"), true);
    read_constants();
    read_open();
    common_.settings = settings_of(root_.member("set"));
    common_.seeds = count_of(root_.member("seeds"), 1);
    read_quick(root_.member("quick"), common_);
    for_members(root_.member("runs"), [this](const Node& node, const std::string& name) { read_run(node, name); });
    read_claims();
    check_open();
  }

 private:
  template <class Read>
  static void for_members(const Node& node, Read read) {
    if (node.value.is_null()) return;
    if (!node.value.is_object()) return node.complain("must be an object");
    for (const auto& [name, value] : node.value.items()) read(node.member(name), name);
  }

  /// Reserves a name for expressions: unique, and neither a Lua keyword nor a library function.
  void claim_name(const Node& node, const std::string& name) {
    if (!may_be_named(name) || name == "value" || name == "folder") {
      node.complain(
          fmt::format("\"{}\" cannot be a name in expressions", name),
          "use letters, digits and _, but no Lua keyword, no function of sim/study/claim_library.lua, and neither "
          "\"value\" nor \"folder\"");
    } else if (!names_.insert(name).second) {
      node.complain(fmt::format("the name \"{}\" is already in use", name));
    }
  }

  void read_constants() {
    for_members(root_.member("constants"), [this](const Node& node, const std::string& name) {
      claim_name(node, name);
      if (!is_scalar(node.value) && !node.value.is_null()) node.complain("must be a number, text, true, false or null");
      experiment_.constants[name] = node.value;
    });
  }

  void read_open() {
    for_members(root_.member("open"), [this](const Node& node, const std::string& name) {
      claim_name(node, name);
      if (!check_object(node, {"what", "value", "reason", "others"})) return;
      OpenItem item{name,
                    text_of(node.member("what"), true),
                    node.member("value").value,
                    text_of(node.member("reason"), true),
                    {}};
      if (!node.has("value")) node.complain("has no value");
      const Json& others = node.member("others").value;
      if (!others.is_array() || others.size() != 2 || others[0] == others[1] || others[0] == item.value ||
          others[1] == item.value) {
        node.member("others").complain("must be two values other than the one chosen",
                                       "they show how much the choice matters");
      } else {
        item.others = {others[0], others[1]};
      }
      experiment_.constants[name] = item.value;
      experiment_.open.push_back(std::move(item));
    });
  }

  std::vector<RunSetting> settings_of(const Node& node) {
    std::vector<RunSetting> settings;
    for_members(node, [&](const Node& one, const std::string& key) {
      RunSetting setting{key, {}, one.at.to_string()};
      if (key == kInstancesKey) {
        if (!one.value.is_array()) one.complain("must be a list of objects");
        setting.values.push_back(one.value);
      } else if (one.value.is_array()) {
        setting.values.assign(one.value.begin(), one.value.end());
        if (setting.values.empty()) one.complain("has no values");
      } else {
        setting.values.push_back(one.value);
      }
      for (const Json& value : setting.values) {
        if (key != kInstancesKey && !is_scalar(value) && !value.is_null()) {
          one.complain("must be a number, text, true, false or null");
        }
        for (const std::string& expression : expressions_in(value)) check_expression(one, expression);
      }
      settings.push_back(std::move(setting));
    });
    return settings;
  }

  /// Expressions can use only the run sets that were read before.
  void check_expression(const Node& node, const std::string& expression) {
    if (const auto error = ClaimScript::syntax_error(expression)) node.complain(*error, "write a Lua expression");
    const Json& runs = root_.member("runs").value;
    for (const std::string& name : names_in(expression)) {
      if (!runs.is_object() || !runs.contains(name) || names_.contains(name)) continue;
      node.complain(fmt::format("run set {} is not run before this", name), "move it before the run sets that use it");
    }
  }

  void read_run(const Node& node, const std::string& name) {
    RunSet run;
    run.name = name;
    run.pointer = node.at.to_string();
    if (node.has("validate")) {
      read_validation(node, run);
    } else if (node.has("probe")) {
      read_probe(node, run);
    } else {
      read_simulation(node, run);
    }
    claim_name(node, name);  // expressions may use the name from here on
    experiment_.runs.push_back(std::move(run));
  }

  void read_validation(const Node& node, RunSet& run) {
    run.source = RunSet::Source::validation;
    check_object(node, {"validate", "fit", "fit_base", "fit_model", "set"});
    run.log = text_of(node.member("validate"), true);
    run.fit = texts_of(node.member("fit"));
    run.fit_base = text_of(node.member("fit_base"), false);
    run.fit_model = text_of(node.member("fit_model"), false);
    run.settings = settings_of(node.member("set"));
    for (const RunSetting& setting : run.settings) {
      if (setting.values.size() > 1)
        node.member("set").member(setting.key).complain("must have one value: a log is one run");
    }
  }

  /// The common settings of simulations do not apply to probes.
  void read_probe(const Node& node, RunSet& run) {
    run.source = RunSet::Source::probe;
    check_object(node, {"probe", "set", "zip"});
    run.probe = text_of(node.member("probe"), true);
    run.settings = settings_of(node.member("set"));
    run.zips = texts_of(node.member("zip"));
  }

  void read_simulation(const Node& node, RunSet& run) {
    if (!check_object(node, {"config", "set", "zip", "seeds", "quick"})) return;
    run.config = text_of(node.member("config"), false);
    run.zips = texts_of(node.member("zip"));
    run.seeds = count_of(node.member("seeds"), common_.seeds);
    run.settings = overlay(common_.settings, settings_of(node.member("set")));
    run.quick_settings = common_.quick_settings;
    run.quick_seeds = common_.quick_seeds;
    read_quick(node.member("quick"), run);
    if (run.quick_seeds) run.quick_seeds = std::min(*run.quick_seeds, run.seeds);
  }

  void read_quick(const Node& node, RunSet& run) {
    if (node.value.is_null() || !check_object(node, {"set", "seeds"})) return;
    run.quick_settings = overlay(run.quick_settings, settings_of(node.member("set")));
    if (node.has("seeds")) run.quick_seeds = count_of(node.member("seeds"), run.seeds);
  }

  static std::vector<RunSetting> overlay(std::vector<RunSetting> settings, const std::vector<RunSetting>& over) {
    for (const RunSetting& one : over) {
      const auto same = std::find_if(settings.begin(), settings.end(), [&](const auto& s) { return s.key == one.key; });
      if (same == settings.end()) {
        settings.push_back(one);
      } else {
        *same = one;
      }
    }
    return settings;
  }

  void read_claims() {
    const Node claims = root_.member("claims");
    if (!claims.value.is_array() || claims.value.empty()) return claims.complain("must be a list of claims");
    for (std::size_t i = 0; i < claims.value.size(); ++i) {
      if (check_object(claims.element(i),
                       {"id",       "system",   "where",  "kind",     "claim",     "hardware", "model",
                        "workload", "baseline", "metric", "expected", "accept",    "setup",    "note",
                        "values",   "rule",     "limits", "columns",  "fitted_on", "cause"})) {
        read_claim(claims.element(i));
      }
    }
  }

  void read_claim(const Node& node) {
    Claim claim;
    claim.pointer = node.at.to_string();
    claim.id = text_of(node.member("id"), true);
    if (!ids_.insert(claim.id).second) node.member("id").complain(fmt::format("{} is used twice", claim.id));
    claim.system = text_of(node.member("system"), true);
    claim.where = text_of(node.member("where"), true);
    claim.kind = text_of(node.member("kind"), true);
    if (const auto& kinds = claim_kinds(); std::find(kinds.begin(), kinds.end(), claim.kind) == kinds.end()) {
      node.member("kind").complain(fmt::format("must be one of {}", fmt::join(kinds, ", ")));
    }
    claim.claim = text_of(node.member("claim"), true);
    // Facts from the source, in words. Nothing is computed from them.
    for (const char* words : {"hardware", "model", "workload", "baseline", "metric", "setup", "note"}) {
      (void)text_of(node.member(words), false);
    }
    claim.cause = text_of(node.member("cause"), false);
    if (node.has("fitted_on") && !node.member("fitted_on").value.is_null()) {
      claim.fitted_on = text_of(node.member("fitted_on"), true);
    }
    read_values(node, claim);
    read_acceptance(node, claim);
    read_limits(node, claim);
    read_columns(node, claim);
    check_seeds(node, claim);
    experiment_.claims.push_back(std::move(claim));
  }

  void read_values(const Node& node, Claim& claim) {
    const Node values = node.member("values");
    if (values.value.is_object() && !values.value.empty()) {
      for_members(values, [&](const Node& one, const std::string& name) {
        claim.values.emplace_back(name, checked_expression(one));
      });
    } else {
      claim.values.emplace_back("", checked_expression(values));
    }
    for (const std::string& text : texts_of(node.member("rule"))) {
      if (const auto error = ClaimScript::syntax_error(text)) {
        node.member("rule").complain(*error, "write a Lua expression");
      }
      claim.rules.push_back(text);
    }
  }

  void read_acceptance(const Node& node, Claim& claim) {
    const Node expected = node.member("expected");
    claim.expected = expected.value;
    if (!expected.value.is_number() && !expected.value.is_string() && !expected.value.is_object()) {
      expected.complain("must be a number, a text, or an object");
    }
    if (expected.value.is_number() && claim.has_parts()) expected.complain("is one number, but the values have names");
    if (expected.value.is_object()) check_parts(expected, claim);
    const Node accept = node.member("accept");
    claim.accept = accept.value;
    if (accept.value.is_object()) {
      check_parts(accept, claim);
      for_members(accept, [](const Node& one, const std::string&) {
        if (!is_band(one.value)) one.complain("must be a band: [low, high]");
      });
    } else if (accept.value.is_array()) {
      if (!is_band(accept.value)) accept.complain("must be a band: [low, high]");
      if (claim.has_parts()) accept.complain("is one band, but the values have names");
    } else if (!accept.value.is_string()) {
      accept.complain("must be a band [low, high], an object of bands, or a text");
    } else if (claim.rules.empty() && claim.kind != "report") {
      node.complain("has neither a band nor a rule, so nothing decides the claim",
                    "give accept: [low, high], or the sentence as rule: a Lua expression over value");
    }
  }

  /// Checks that an object has the names of the values.
  static void check_parts(const Node& node, const Claim& claim) {
    std::set<std::string> names;
    for (const auto& [name, expression] : claim.values) names.insert(name);
    std::set<std::string> own;
    for (const auto& [name, value] : node.value.items()) own.insert(name);
    if (own != names) node.complain("must have the names of the values and no others");
  }

  static void read_limits(const Node& node, Claim& claim) {
    const Node limits = node.member("limits");
    if (limits.value.is_null()) return;
    if (!limits.value.is_array()) return limits.complain("must be a list");
    for (std::size_t i = 0; i < limits.value.size(); ++i) {
      const Node one = limits.element(i);
      if (!check_object(one, {"what", "unit", "needs", "has"})) continue;
      claim.limits.push_back({text_of(one.member("what"), true), text_of(one.member("unit"), true),
                              checked_expression(one.member("needs")), checked_expression(one.member("has"))});
    }
  }

  void read_columns(const Node& node, Claim& claim) {
    const Node columns = node.member("columns");
    if (columns.value.is_null()) return;
    if (!columns.value.is_array()) return columns.complain("must be a list");
    for (std::size_t i = 0; i < columns.value.size(); ++i) {
      const Node one = columns.element(i);
      if (!check_object(one, {"name", "set"})) continue;
      ClaimColumn column{text_of(one.member("name"), true), {}};
      for_members(one.member("set"), [&](const Node& constant, const std::string& name) {
        if (!experiment_.constants.contains(name)) constant.complain("is not one of the constants");
        column.constants[name] = constant.value;
      });
      if (column.constants.empty()) one.complain("sets no constant", "a column is the claim with other constants");
      claim.columns.push_back(std::move(column));
    }
  }

  /// Replications are paired: all run sets of a claim need the same number of seeds, or one seed.
  void check_seeds(const Node& node, const Claim& claim) {
    for (const bool quick : {false, true}) {
      std::set<std::int64_t> seeds;
      for (const RunSet* run : experiment_.runs_of(claim, quick)) seeds.insert(run->replications(quick));
      seeds.erase(1);
      if (seeds.size() <= 1) continue;
      node.complain(fmt::format("compares run sets of {} seeds{}, which cannot be paired", fmt::join(seeds, " and "),
                                quick ? " in a quick run" : ""));
      return;
    }
  }

  void check_open() {
    for (const OpenItem& item : experiment_.open) {
      const auto depends = [&](const Claim& claim) {
        const std::vector<const OpenItem*> items = experiment_.open_of(claim, false);
        return std::find(items.begin(), items.end(), &item) != items.end();
      };
      if (std::any_of(experiment_.claims.begin(), experiment_.claims.end(), depends)) continue;
      root_.member("open").member(item.name).complain("no claim depends on it");
    }
  }

  const Node root_;
  Experiment& experiment_;
  RunSet common_;  // common to every simulation
  std::set<std::string> names_;
  std::set<std::string> ids_;
};

}  // namespace

Experiment parse_experiment(std::string_view text, const std::string& file) {
  Complaints complaints(file);
  Json document;
  try {
    document = Json::parse(text);
  } catch (const Json::exception& error) {
    const std::string_view what = error.what();  // "[json.exception...] parse error at line 2, column 5: ..."
    const std::size_t at = what.find("] ");
    throw DataError(fmt::format("not a JSON document: {}", at == what.npos ? what : what.substr(at + 2)), file);
  }
  Experiment experiment;
  experiment.file = file;
  ExperimentReader({document, Pointer(), complaints}, experiment).read();
  complaints.throw_if_any();
  return experiment;
}

}  // namespace spillway
