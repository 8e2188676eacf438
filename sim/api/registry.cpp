#include "sim/api/registry.hpp"

#include <algorithm>
#include <utility>

#include "sim/api/compose.hpp"

namespace spillway {

PolicyRegistry& PolicyRegistry::instance() {
  static PolicyRegistry registry;
  return registry;
}

void PolicyRegistry::add(PolicyInfo info) {
  const std::string name = info.name;
  for (const FigureDefinition& figure : info.figures) {
    for (const FigureDefinition& other : figures()) {
      SPILLWAY_CHECK(figure.name != other.name || figure == other,
                     "policy " + name + " defines the figure " + figure.name + " in another way than a policy before");
    }
  }
  if (streams_weights_alone(info)) weights_.emplace(name, as_weights(info));
  const bool added = policies_.emplace(name, std::move(info)).second;
  SPILLWAY_CHECK(added, "two policies are called " + name);
}

const PolicyInfo* PolicyRegistry::find(const std::string& name) const {
  const auto it = policies_.find(name);
  if (it == policies_.end()) return nullptr;
  return it->second.default_scheduler.empty() ? &it->second : find(name, it->second.default_scheduler);
}

const PolicyInfo* PolicyRegistry::find(const std::string& name, const std::string& scheduler) const {
  const auto part = policies_.find(name);
  const auto host = policies_.find(scheduler);
  if (part == policies_.end() || part->second.default_scheduler.empty()) return nullptr;
  const auto runs = [&name](const PolicyInfo& info) {
    const bool schedules = info.default_scheduler.empty() && !info.layout;
    return schedules || (info.own_scheduler && info.name == name);
  };
  if (host == policies_.end() || !runs(host->second)) return nullptr;
  std::vector<std::string> schedulers;
  for (const auto& [other, info] : policies_) {
    if (runs(info)) schedulers.push_back(other);
  }
  const std::lock_guard lock(mutex_);
  const std::string key = name + " over " + scheduler;
  auto it = composed_.find(key);
  if (it == composed_.end()) {
    it = composed_.emplace(key, compose_scheduler(part->second, host->second, std::move(schedulers))).first;
  }
  return &it->second;
}

std::vector<const PolicyInfo*> PolicyRegistry::weights() const {
  std::vector<const PolicyInfo*> infos;
  for (const auto& [name, info] : weights_) infos.push_back(&info);
  return infos;
}

const PolicyInfo& PolicyRegistry::with_weights(const PolicyInfo& base, const std::string& weights) const {
  const auto part = weights_.find(weights);
  SPILLWAY_CHECK(part != weights_.end(), "policy " + weights + " does not stream weights and nothing else");
  const std::string conflict = weights_conflict(base, part->second);
  if (!conflict.empty()) {
    std::string others;
    for (const PolicyInfo* other : all()) {
      if (weights_conflict(*other, part->second).empty()) others += (others.empty() ? "" : ", ") + other->name;
    }
    throw ConfigError(conflict + ", so policy.weights=" + weights + " cannot be used", kWeightsKey,
                      "leave out policy.weights, or use one of the policies " + others);
  }
  const std::lock_guard lock(mutex_);
  const auto [it, added] = with_weights_.try_emplace({&base, weights});
  if (added) it->second = compose_weights(base, part->second);
  return it->second;
}

std::vector<KeyOwner> PolicyRegistry::key_owners() const {
  std::vector<KeyOwner> owners;
  for (const PolicyInfo* info : all()) owners.push_back({"policy", info->name, &info->parameters});
  for (const PolicyInfo* info : weights()) owners.push_back({kWeightsKey, info->name, &info->parameters});
  return owners;
}

std::vector<FigureDefinition> PolicyRegistry::figures() const {
  std::vector<FigureDefinition> figures;
  const auto add = [&](const std::vector<FigureDefinition>& more) {
    for (const FigureDefinition& figure : more) {
      const auto same = [&](const FigureDefinition& other) { return other.name == figure.name; };
      if (std::none_of(figures.begin(), figures.end(), same)) figures.push_back(figure);
    }
  };
  for (const auto& [name, info] : policies_) add(info.figures);
  for (const auto& [name, info] : weights_) add(weights_figures(info));
  return figures;
}

std::vector<const PolicyInfo*> PolicyRegistry::all() const {
  std::vector<const PolicyInfo*> infos;
  for (const auto& [name, info] : policies_) infos.push_back(find(name));
  return infos;
}

}  // namespace spillway
