#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "sim/cli/about/explain.hpp"
#include "sim/study/assemble.hpp"
#include "sim/study/parameter_table.hpp"

namespace spillway::cli {
namespace {

using Choice = std::pair<std::string, std::string>;      // key and value
using TextsByName = std::map<std::string, std::string>;  // values by key

/// Resolves configurations of one policy, to find changed defaults and refusals.
class PolicyProbe {
 public:
  explicit PolicyProbe(const PolicyInfo& info) : info_(info), table_(parameter_table()) {
    for (const Parameter& parameter : info.parameters) add_choices(parameter, own_);
    for (const Parameter& parameter : table_) {
      const std::string& name = parameter.name;
      if (name == kWeightsKey) add_choices(parameter, own_);
      if (name.starts_with("engine.") || name.starts_with("memory.")) add_choices(parameter, shared_);
    }
  }

  /// The policy's own flags and choices except their defaults, and all flags and choices of engine.* and memory.*: the
  /// policy itself decides which of these are defaults.
  [[nodiscard]] const std::vector<Choice>& own() const { return own_; }
  [[nodiscard]] const std::vector<Choice>& shared() const { return shared_; }

  /// All defaults after the user gives `choices`; empty when the policy refuses the choices.
  [[nodiscard]] TextsByName defaults(const std::vector<Choice>& choices) const {
    TextsByName texts;
    try {
      for (const ResolvedKey& key : resolve(choices).keys) {
        if (key.origin <= Origin::policy) texts[key.parameter.name] = key.text;
      }
    } catch (const UserError&) {
      return {};
    }
    return texts;
  }
  /// The defaults of the table, before the policy changes any.
  [[nodiscard]] TextsByName table_defaults() const {
    TextsByName texts;
    for (const Parameter& parameter : table_) texts[parameter.name] = parameter.default_value;
    return texts;
  }

  /// Why the policy refuses `choices`; empty when the policy accepts them.
  [[nodiscard]] std::string refusal(const std::vector<Choice>& choices) const {
    try {
      static_cast<void>(resolve(choices));
    } catch (const UserError& error) {
      return error.problems().front().what;
    }
    return {};
  }

 private:
  static void add_choices(const Parameter& parameter, std::vector<Choice>& choices) {
    const bool own = parameter.name.starts_with("policy.");
    const auto add = [&](const std::string& value) {
      if (!own || value != parameter.default_value) choices.emplace_back(parameter.name, value);
    };
    if (parameter.type == ParameterType::choice) std::for_each(parameter.choices.begin(), parameter.choices.end(), add);
    if (parameter.type != ParameterType::boolean) return;
    add("true");
    add("false");
  }

  [[nodiscard]] ResolvedConfig resolve(const std::vector<Choice>& choices) const {
    std::vector<Assignment> assignments{{"policy", info_.name, Origin::argument, "policy"}};
    for (const auto& [key, value] : choices) assignments.push_back({key, value, Origin::argument, key});
    return resolve_config(table_, assignments, {});
  }

  const PolicyInfo& info_;
  std::vector<Parameter> table_;
  std::vector<Choice> own_;
  std::vector<Choice> shared_;
};

/// "key=value" for each value of `now` that differs from `before`.
std::string differences(const TextsByName& before, const TextsByName& now) {
  std::string text;
  for (const auto& [key, value] : now) {
    const auto old = before.find(key);
    if (old != before.end() && old->second != value) text += (text.empty() ? "" : ", ") + key + "=" + value;
  }
  return text;
}

/// The engine, the defaults that the policy changes, and the effect of single choices on these defaults.
std::string explain_defaults(const PolicyProbe& probe) {
  TextsByName standard = probe.defaults({});
  TextsByName table = probe.table_defaults();
  table["engine"] = standard["engine"];  // shown on its own line
  const std::string changed = differences(table, standard);
  std::string text = explain_field("engine", standard["engine"].empty() ? "none of its own" : standard["engine"]) +
                     explain_field("defaults", changed.empty() ? "unchanged" : changed);
  const auto add_choice = [&](const Choice& choice) {
    const std::string other = differences(standard, probe.defaults({choice}));
    if (!other.empty()) text += explain_field("", fmt::format("with {}={}: {}", choice.first, choice.second, other));
  };
  std::for_each(probe.own().begin(), probe.own().end(), add_choice);
  std::for_each(probe.shared().begin(), probe.shared().end(), add_choice);
  return text;
}

/// Refused single choices, then refused pairs. A pair includes a choice of the policy, and both choices are accepted
/// alone.
std::string explain_refusals(const PolicyProbe& probe) {
  std::string text;
  const auto add = [&](const std::string& setting, const std::string& why) {
    if (!why.empty()) text += explain_field("refuses", setting + ": " + why);
    return why.empty();
  };
  std::vector<Choice> own;
  for (const Choice& choice : probe.own()) {
    if (add(choice.first + "=" + choice.second, probe.refusal({choice}))) own.push_back(choice);
  }
  for (const Choice& choice : probe.shared()) {
    const std::string setting = choice.first + "=" + choice.second;
    if (!add(setting, probe.refusal({choice}))) continue;
    for (const Choice& mine : own) {
      add(fmt::format("{} with {}={}", setting, mine.first, mine.second), probe.refusal({mine, choice}));
    }
  }
  return text;
}

}  // namespace

std::string explain_policy(const PolicyInfo& info) {
  const PolicyProbe probe(info);
  std::string text = fmt::format("{} (policy)\n", info.name) + explain_field("what", info.summary) +
                     explain_field("source", info.source) + explain_field("limits", info.limits) +
                     explain_defaults(probe) + explain_refusals(probe);
  for (const Parameter& parameter : info.parameters) text += explain_key(parameter, " of policy " + info.name);
  return text;
}

}  // namespace spillway::cli
