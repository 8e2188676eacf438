#include "sim/api/registry.hpp"

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

/// The policy `layers` over the scheduler and the space of `host`.
PolicyInfo compose(const PolicyInfo& layers, const PolicyInfo& host, std::vector<std::string> schedulers) {
  PolicyInfo info = layers;
  info.parameters.push_back({.name = kSchedulerKey,
                             .type = ParameterType::choice,
                             .unit = "-",
                             .default_value = layers.default_scheduler,
                             .choices = std::move(schedulers),
                             .doc = "Policy that schedules requests, with its own keys and defaults",
                             .source = "Spillway: the default is the engine that the paper extends"});
  info.parameters.insert(info.parameters.end(), host.parameters.begin(), host.parameters.end());
  info.figures.insert(info.figures.end(), host.figures.begin(), host.figures.end());
  info.preempts = host.preempts;
  info.shares_prefixes = layers.shares_prefixes && host.shares_prefixes;
  if (!info.default_engine) info.default_engine = host.default_engine;
  info.engine_defaults = [own = layers.engine_defaults, other = host.engine_defaults](const Settings& settings) {
    std::map<std::string, std::string> defaults;
    if (own) defaults = own(settings);
    if (other) defaults.merge(other(settings));
    return defaults;
  };
  info.check = [own = layers.check, other = host.check](const Settings& settings) {
    std::vector<Problem> problems;
    if (other) problems = other(settings);
    if (own) {
      for (Problem& problem : own(settings)) problems.push_back(std::move(problem));
    }
    return problems;
  };
  info.make = [make = host.make, make_layers = layers.make_layers,
               phases = layers.phases](const PolicyContext& context) {
    Policy policy = make(context);
    policy.layers = make_layers(context);
    if (phases) policy.phases = phases(context.settings);
    return policy;
  };
  return info;
}

}  // namespace

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
  const bool added = policies_.emplace(name, std::move(info)).second;
  SPILLWAY_CHECK(added, "two policies are called " + name);
}

const PolicyInfo* PolicyRegistry::find(const std::string& name) const {
  const auto it = policies_.find(name);
  if (it == policies_.end()) return nullptr;
  return it->second.default_scheduler.empty() ? &it->second : find(name, it->second.default_scheduler);
}

const PolicyInfo* PolicyRegistry::find(const std::string& name, const std::string& scheduler) const {
  const auto layers = policies_.find(name);
  const auto host = policies_.find(scheduler);
  const auto runs = [](const PolicyInfo& info) { return info.default_scheduler.empty() && !info.layout; };
  if (layers == policies_.end() || layers->second.default_scheduler.empty()) return nullptr;
  if (host == policies_.end() || !runs(host->second)) return nullptr;
  std::vector<std::string> schedulers;
  for (const auto& [other, info] : policies_) {
    if (runs(info)) schedulers.push_back(other);
  }
  const std::lock_guard lock(mutex_);
  const std::string key = name + " over " + scheduler;
  auto it = composed_.find(key);
  if (it == composed_.end()) {
    it = composed_.emplace(key, compose(layers->second, host->second, std::move(schedulers))).first;
  }
  return &it->second;
}

std::vector<FigureDefinition> PolicyRegistry::figures() const {
  std::vector<FigureDefinition> figures;
  for (const auto& [name, info] : policies_) {
    for (const FigureDefinition& figure : info.figures) {
      const auto same = [&](const FigureDefinition& other) { return other.name == figure.name; };
      if (std::none_of(figures.begin(), figures.end(), same)) figures.push_back(figure);
    }
  }
  return figures;
}

std::vector<const PolicyInfo*> PolicyRegistry::all() const {
  std::vector<const PolicyInfo*> infos;
  for (const auto& [name, info] : policies_) infos.push_back(find(name));
  return infos;
}

}  // namespace spillway
