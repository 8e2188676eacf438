#include "tests/models/plain_policy.hpp"

#include <map>
#include <stdexcept>
#include <utility>

namespace spillway::oracle {
namespace {

std::map<std::string, PlainPolicy>& models() {
  static std::map<std::string, PlainPolicy> models;
  return models;
}

}  // namespace

const PlainPolicy* find_plain(const std::string& name) {
  const auto found = models().find(name);
  return found == models().end() ? nullptr : &found->second;
}

std::vector<std::string> plain_names() {
  std::vector<std::string> names;
  for (const auto& [name, model] : models()) names.push_back(name);
  return names;
}

RegisterPlain::RegisterPlain(PlainPolicy policy) {
  const std::string name = policy.name;
  if (!models().emplace(name, std::move(policy)).second) throw std::logic_error("two plain models of " + name);
}

}  // namespace spillway::oracle
