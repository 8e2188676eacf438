// Environment variables SPILLWAY_* -> assignments.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "sim/api/key_owners.hpp"
#include "sim/config/config.hpp"
#include "sim/core/printable.hpp"

namespace spillway {
namespace {

constexpr std::string_view kPrefix = "SPILLWAY_";

/// Every key of the table and of all policies, by the name of its variable.
std::map<std::string, std::string> keys_by_variable(const std::vector<Parameter>& table) {
  std::map<std::string, std::string> keys;
  for (const Parameter& parameter : table) keys.emplace(environment_variable(parameter.name), parameter.name);
  for (const KeyOwner& owner : key_owners()) {
    for (const Parameter& parameter : *owner.parameters) {
      keys.emplace(environment_variable(parameter.name), parameter.name);
    }
  }
  return keys;
}

Problem unknown_variable(const std::string& name, const std::string& where,
                         const std::map<std::string, std::string>& keys, std::span<const std::string> others) {
  // Compared without the common prefix, which would make unlike names look near.
  std::vector<std::string> names;
  names.reserve(keys.size() + others.size());
  for (const auto& [variable, key] : keys) names.push_back(variable.substr(kPrefix.size()));
  for (const std::string& other : others) names.push_back(other.substr(kPrefix.size()));
  const std::string nearest = suggested_name(name.substr(kPrefix.size()), names);
  const std::string hint = nearest.empty() ? "" : fmt::format("did you mean \"{}{}\"?  ", kPrefix, nearest);
  return {fmt::format("unknown environment variable \"{}\"", brief(name)), where,
          hint + "unset it; spillway explain KEY names the variable of each key"};
}

}  // namespace

std::string environment_variable(const std::string& key) {
  std::string name(kPrefix);
  for (const char c : key) {
    name += c == '.' || c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

std::vector<std::string> spillway_environment() {
  std::vector<std::string> variables;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view variable = *at;
    if (variable.starts_with(kPrefix)) variables.emplace_back(variable);
  }
  std::sort(variables.begin(), variables.end());
  return variables;
}

std::vector<Assignment> parse_environment(std::span<const std::string> variables, const std::vector<Parameter>& table,
                                          std::span<const std::string> others, std::vector<Problem>& problems) {
  const std::map<std::string, std::string> keys = keys_by_variable(table);
  std::vector<Assignment> assignments;
  for (const std::string& variable : variables) {
    const std::string name = variable.substr(0, variable.find('='));
    const std::string where = "environment " + brief(variable);
    if (std::find(others.begin(), others.end(), name) != others.end()) continue;
    std::optional<std::string> text = variable.substr(std::min(variable.size(), name.size() + 1));
    if (text->empty()) continue;
    const auto key = keys.find(name);
    if (key == keys.end()) {
      problems.push_back(unknown_variable(name, where, keys, others));
      continue;
    }
    if (*text == "null") text.reset();
    assignments.push_back({key->second, std::move(text), Origin::environment, where});
  }
  return assignments;
}

}  // namespace spillway
