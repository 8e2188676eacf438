// Lays the user's values over the defaults.
#include "sim/config/config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "sim/api/key_owners.hpp"
#include "sim/api/router.hpp"
#include "sim/config/names.hpp"
#include "sim/config/not_modelled.hpp"
#include "sim/core/printable.hpp"
#include "sim/core/text.hpp"

namespace spillway {
namespace {

/// Whether a text can only be a file: "trace.csv", "./h100". "llama-3.1-8b" and "g4dn.4xlarge" are names.
bool looks_like_file(const std::string& text) {
  const std::string extension = std::filesystem::path(text).extension().string();
  return text.find('/') != std::string::npos ||
         (extension.size() > 1 && std::isalpha(static_cast<unsigned char>(extension[1])) != 0);
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

/// Pipes are not opened, because opening waits for a writer. The reader of the file reports the fault.
bool readable_file(const std::string& path) {
  std::error_code ignored;
  const auto type = std::filesystem::status(path, ignored).type();
  const bool special = type == std::filesystem::file_type::fifo || type == std::filesystem::file_type::socket;
  return special || (!is_folder(path) && std::ifstream(path).good());
}

/// Whether the text is a list of the names that the parameter takes, such as "azure-conv,sharegpt".
bool lists_names(const Parameter& parameter, std::string_view text) {
  if (text.find(',') == std::string_view::npos) return false;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view name = trimmed(text.substr(0, comma));
    if (std::count(parameter.choices.begin(), parameter.choices.end(), name) == 0) return false;
    if (comma == std::string_view::npos) return true;
    text.remove_prefix(comma + 1);
  }
}

const Parameter* find_in(const std::vector<Parameter>& table, const std::string& key) {
  const auto it = std::find_if(table.begin(), table.end(), [&](const Parameter& p) { return p.name == key; });
  return it == table.end() ? nullptr : &*it;
}

/// The key that a file means: {"policy": {"name": "pie"}} stands for policy=pie.
std::string own_key(const std::vector<Parameter>& table, const std::string& key) {
  constexpr std::string_view kName = ".name";
  if (!key.ends_with(kName) || find_in(table, key) != nullptr) return key;
  const std::string group = key.substr(0, key.size() - kName.size());
  return find_in(table, group) != nullptr ? group : key;
}

class Resolver {
 public:
  Resolver(std::vector<Parameter> table, std::vector<Problem> problems)
      : table_(std::move(table)), problems_(std::move(problems)) {}

  ResolvedConfig resolve(const std::vector<Assignment>& assignments) {
    choose_policy(assignments);
    choose_router(assignments);
    for (const Assignment& assignment : assignments) {
      assignment.empty_object ? take_empty_object(assignment) : take(assignment);
    }
    for (const Parameter& parameter : table_) add_key(parameter);
    add_problems(std::move(conflicts_));
    const bool usable = problems_.empty();
    if (usable) apply_policy_defaults();
    for (const ResolvedKey& key : config_.keys) check_name(key);
    for (const ResolvedKey& key : config_.keys) config_.settings.set(key.parameter.name, key.value);
    if (usable && config_.policy->check) add_problems(config_.policy->check(config_.settings));
    if (!problems_.empty()) {
      problems_.insert(problems_.end(), unreadable_.begin(), unreadable_.end());
      throw ConfigError(std::move(problems_));
    }
    if (!unreadable_.empty()) throw DataError(std::move(unreadable_));
    return std::move(config_);
  }

 private:
  [[nodiscard]] const Parameter* find(const std::string& key) const { return find_in(table_, key); }

  /// Problems at keys.
  void add_problems(std::vector<Problem> problems) {
    for (Problem& problem : problems) {
      problem.where = config_.place(problem.where);
      problems_.push_back(std::move(problem));
    }
  }

  /// Adds the policy's own keys to the table, so that the other keys can be checked.
  void choose_policy(const std::vector<Assignment>& assignments) {
    const Parameter* policy = find("policy");
    SPILLWAY_CHECK(policy != nullptr && find(kWeightsKey) != nullptr, "the table has no policy");
    const std::string name = strongest_text(assignments, "policy", policy->default_value);
    config_.policy = PolicyRegistry::instance().find(name);
    policy_known_ = config_.policy != nullptr;
    choose_weights(assignments);
    if (!policy_known_) return;
    // The scheduler decides which keys there are. A faulty scheduler is reported with the other values.
    if (!config_.policy->default_scheduler.empty()) {
      const std::string scheduler = strongest_text(assignments, kSchedulerKey, config_.policy->default_scheduler);
      if (const PolicyInfo* composed = PolicyRegistry::instance().find(name, scheduler)) config_.policy = composed;
    }
    insert_after("policy", config_.policy->parameters);
    if (weights_ == nullptr) return;
    try {
      config_.policy = &PolicyRegistry::instance().with_weights(*config_.policy, weights_->name);
    } catch (const ConfigError& error) {
      conflicts_ = error.problems();
    }
  }

  /// The policy that streams the weights beside the policy, if any. Its keys are known whatever the policy is.
  void choose_weights(const std::vector<Assignment>& assignments) {
    const std::string name = strongest_text(assignments, kWeightsKey, kNoWeights);
    for (const PolicyInfo* info : PolicyRegistry::instance().weights()) {
      if (info->name == name) weights_ = info;
    }
    weights_known_ = weights_ != nullptr || name == kNoWeights;
    if (weights_ != nullptr) insert_after(kWeightsKey, weights_->parameters);
  }

  /// Adds the keys of the router to the table.
  void choose_router(const std::vector<Assignment>& assignments) {
    const Parameter* const router = find(kRouterKey);
    if (router == nullptr) return;
    const RouterInfo* const info =
        RouterRegistry::instance().find(strongest_text(assignments, kRouterKey, router->default_value));
    router_known_ = info != nullptr;
    if (router_known_) insert_after(kRouterKey, info->parameters);
  }

  void insert_after(const std::string& key, const std::vector<Parameter>& parameters) {
    const auto after = table_.begin() + (find(key) - table_.data()) + 1;
    table_.insert(after, parameters.begin(), parameters.end());
  }

  /// The text of the strongest assignment, even when it is faulty.
  [[nodiscard]] std::string strongest_text(const std::vector<Assignment>& assignments, const std::string& key,
                                           const std::string& default_value) const {
    std::string text = default_value;
    Origin strongest = Origin::standard;
    for (const Assignment& assignment : assignments) {
      if (own_key(table_, assignment.key) != key || assignment.origin < strongest || assignment.empty_object) continue;
      text = assignment.text.value_or(default_value);
      strongest = assignment.origin;
    }
    const Parameter* parameter = find(key);
    // The policy's own keys join the table later.
    if (parameter == nullptr && config_.policy != nullptr) parameter = find_in(config_.policy->parameters, key);
    return parameter == nullptr ? text : resolved_name(*parameter, text);
  }

  void take(const Assignment& assignment) {
    const std::string key = own_key(table_, assignment.key);
    if (find(key) == nullptr) {
      if (!may_belong_to_unknown(key)) report_unknown(key, assignment.where);
      return;
    }
    if (assignment.list) {
      problems_.push_back({key + " is a list; one value is needed", assignment.where, std::string(kSeveralValues)});
    }
    const auto [it, added] = given_.try_emplace(key, assignment);
    if (added) return;
    if (it->second.origin == assignment.origin) {
      problems_.push_back(
          {key + " is given twice", assignment.where, "keep one; the other value is at " + it->second.where});
    } else if (it->second.origin < assignment.origin) {
      it->second = assignment;
    }
  }

  /// The key may be one of the policy, the weights or the router that a misspelt name means.
  [[nodiscard]] bool may_belong_to_unknown(const std::string& key) const {
    const bool of_weights = key.starts_with(std::string(kWeightsKey) + ".");
    if (key.starts_with(std::string(kRouterKey) + ".")) return !router_known_;
    return of_weights ? !weights_known_ : !policy_known_ && key.starts_with("policy.");
  }

  /// {"memory": {}} sets nothing; {"memry": {}} and {"seed": {}} are mistakes.
  void take_empty_object(const Assignment& assignment) {
    const auto in_group = [&](const Parameter& parameter) { return parameter.name.starts_with(assignment.key + "."); };
    const auto& owners = key_owners();
    if (std::any_of(table_.begin(), table_.end(), in_group) ||
        std::any_of(owners.begin(), owners.end(), [&](const KeyOwner& owner) {
          return std::any_of(owner.parameters->begin(), owner.parameters->end(), in_group);
        })) {
      return;
    }
    if (find(own_key(table_, assignment.key)) == nullptr) return report_unknown(assignment.key, assignment.where);
    problems_.push_back({assignment.key + " is an object; one value is needed", assignment.where, "give a value"});
  }

  void report_unknown(const std::string& key, const std::string& where) {
    std::vector<std::string> names;
    std::vector<std::string> siblings;
    const std::string group = key.substr(0, key.find('.'));
    for (const Parameter& parameter : table_) {
      names.push_back(parameter.name);
      if (parameter.name.starts_with(group + ".")) siblings.push_back(parameter.name);
    }
    if (const std::string_view nearest = nearest_to_unmodelled(key); !nearest.empty()) {
      problems_.push_back(
          {fmt::format("{} is not modelled", brief(key)), where, fmt::format("nearest is {}", nearest)});
      return;
    }
    std::string fix = suggestion(key, names);
    for (const KeyOwner& owner : key_owners()) {
      for (const Parameter& parameter : *owner.parameters) {
        if (parameter.name == key) fix += fmt::format("it is a key of {}={}  ", owner.key, owner.name);
      }
    }
    fix += siblings.empty() ? "all keys: spillway config show" : fmt::format("allowed: {}", fmt::join(siblings, ", "));
    problems_.push_back({fmt::format("unknown key \"{}\"", brief(key)), where, fix});
  }

  /// Adds a key with the user's value, else with its default. A faulty value leaves the key unset and adds a Problem.
  void add_key(const Parameter& parameter) {
    ResolvedKey key{.parameter = parameter, .text = parameter.default_value};
    const auto given = given_.find(parameter.name);
    if (given != given_.end() && given->second.text) {
      key.text = resolved_name(parameter, *given->second.text);
      key.origin = given->second.origin;
      key.where = given->second.where;
    }
    if (key.origin != Origin::standard || !key.text.empty()) parse(key);
    config_.keys.push_back(std::move(key));
  }

  void parse(ResolvedKey& key) {
    const std::size_t before = problems_.size();
    auto parsed = parse_value(key.parameter, key.text, key.where, problems_);
    SPILLWAY_CHECK(key.origin > Origin::policy || problems_.size() == before,
                   "the default of " + key.parameter.name + " is not valid");
    if (parsed) {
      key.value = std::move(parsed->value);
      key.text = std::move(parsed->text);
    }
  }

  /// Lets the policy choose the engine.* and memory.* values that the user did not give. It sees the others.
  void apply_policy_defaults() {
    Settings known;
    for (const ResolvedKey& key : config_.keys) {
      const std::string& name = key.parameter.name;
      const bool open = name.starts_with("engine.") || name.starts_with("memory.");
      if (!open || key.origin != Origin::standard) known.set(name, key.value);
    }
    std::map<std::string, std::string> defaults;
    if (config_.policy->engine_defaults) defaults = config_.policy->engine_defaults(known);
    if (config_.policy->default_engine) defaults["engine"] = config_.policy->default_engine(known);
    for (const auto& [name, text] : defaults) {
      const auto key = std::find_if(config_.keys.begin(), config_.keys.end(),
                                    [&wanted = name](const ResolvedKey& k) { return k.parameter.name == wanted; });
      SPILLWAY_CHECK(key != config_.keys.end(), "policy " + config_.policy->name + " has a default for " + name);
      if (key->origin != Origin::standard) continue;
      key->text = text;
      key->origin = Origin::policy;
      if (text.empty()) {
        key->value = {};
      } else {
        parse(*key);
      }
    }
  }

  /// Checks a key that takes a file, or one of its known names or a file.
  void check_name(const ResolvedKey& key) {
    const Parameter& parameter = key.parameter;
    const std::string* name = std::get_if<std::string>(&key.value);
    const bool file = parameter.unit == kFileUnit;
    if (parameter.type != ParameterType::text || (parameter.choices.empty() && !file) || name == nullptr) return;
    if (std::count(parameter.choices.begin(), parameter.choices.end(), *name) > 0) return;
    if (parameter.takes_folder && is_folder(*name)) return;
    const bool as_file = file || looks_like_file(*name);
    if (as_file && readable_file(*name)) return;
    if (as_file && parameter.accepts != nullptr && parameter.accepts(*name)) return;
    const std::string advice = parameter.advice == nullptr ? std::string() : parameter.advice(*name);
    if (as_file) {
      unreadable_.push_back({fmt::format("{}: cannot read the file {}", parameter.name, brief(*name)), key.where,
                             "check its name and its permissions" + (advice.empty() ? "" : "; " + advice)});
      return;
    }
    if (lists_names(parameter, *name)) {
      problems_.push_back({fmt::format("{}: \"{}\" is more than one value", parameter.name, brief(*name)), key.where,
                           std::string(kSeveralValues)});
      return;
    }
    if (const std::string names = ambiguity(parameter, *name); !names.empty()) {
      problems_.push_back(
          {fmt::format("{}: \"{}\" {}", parameter.name, brief(*name), names), key.where, "write one of these names"});
      return;
    }
    problems_.push_back({fmt::format("unknown {} \"{}\"", parameter.name, brief(*name)), key.where,
                         (advice.empty() ? suggestion(*name, parameter.choices) : advice + ". ") +
                             fmt::format("known: {}; or give a file{}", fmt::join(parameter.choices, ", "),
                                         parameter.takes_folder ? " or its folder" : "")});
  }

  std::vector<Parameter> table_;
  std::vector<Problem> problems_;
  std::vector<Problem> unreadable_;
  std::map<std::string, Assignment> given_;
  ResolvedConfig config_;
  bool policy_known_ = false;
  const PolicyInfo* weights_ = nullptr;  // as PolicyRegistry::weights() lists it
  bool weights_known_ = false;
  bool router_known_ = true;
  std::vector<Problem> conflicts_;  // between policy and weights
};

}  // namespace

std::string_view origin_name(Origin origin) {
  constexpr std::array<std::string_view, 5> kNames{"default", "policy default", "file", "environment", "argument"};
  return kNames[static_cast<std::size_t>(origin)];
}

const Parameter* find_parameter(const std::vector<Parameter>& table, const std::string& key) {
  if (const Parameter* parameter = find_in(table, own_key(table, key))) return parameter;
  for (const KeyOwner& owner : key_owners()) {
    if (const Parameter* parameter = find_in(*owner.parameters, key)) return parameter;
  }
  return nullptr;
}

const ResolvedKey& ResolvedConfig::key(const std::string& name) const {
  const auto it =
      std::find_if(keys.begin(), keys.end(), [&](const ResolvedKey& k) { return k.parameter.name == name; });
  SPILLWAY_CHECK(it != keys.end(), "no key " + name);
  return *it;
}

std::string ResolvedConfig::place(const std::string& where) const {
  const auto it =
      std::find_if(keys.begin(), keys.end(), [&](const ResolvedKey& k) { return k.parameter.name == where; });
  if (it == keys.end()) return where;
  return it->where.empty() ? fmt::format("{} ({})", where, origin_name(it->origin)) : it->where;
}

ResolvedConfig resolve_config(const std::vector<Parameter>& table, const std::vector<Assignment>& assignments,
                              std::vector<Problem> problems) {
  return Resolver(table, std::move(problems)).resolve(assignments);
}

nlohmann::ordered_json canonical_value(const ResolvedKey& key) {
  if (const auto* flag = std::get_if<bool>(&key.value)) return *flag;
  if (const auto* integer = std::get_if<std::int64_t>(&key.value)) return *integer;
  if (const auto* real = std::get_if<double>(&key.value)) return *real;
  if (std::holds_alternative<std::monostate>(key.value)) return nullptr;
  if (key.parameter.unit == kListUnit) {
    auto list = nlohmann::ordered_json::parse(key.text, nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/true);
    if (list.is_array()) return list;
  }
  return key.text;
}

nlohmann::ordered_json canonical_config(const ResolvedConfig& config) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  const auto is_list = [](const ResolvedKey& key) { return key.parameter.name == kInstancesKey && !key.text.empty(); };
  const bool instances = std::ranges::any_of(config.keys, is_list);
  for (const ResolvedKey& key : config.keys) {
    if (instances && key.origin <= Origin::policy) continue;
    if (key.parameter.quiet_default && key.text == key.parameter.default_value) continue;
    json[key.parameter.name] = canonical_value(key);
  }
  return json;
}

}  // namespace spillway
