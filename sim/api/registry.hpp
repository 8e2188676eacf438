// Names -> policies. A policy is one .cpp that registers itself; nothing else lists it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/api/parameter.hpp"
#include "sim/api/scheduler.hpp"

namespace spillway {

/// What a policy is built from.
struct PolicyContext {
  const Settings& settings;  // every key of the run, `policy.*` included
  const View& view;          // valid for the whole run
};

/// A policy: a scheduler over an offload policy.
struct Policy {
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<OffloadPolicy> space;
};

/// What `list`, `explain`, `--help` and the JSON Schema say of a policy.
struct PolicyInfo {
  std::string name;                   // as in its paper, kebab-case
  std::string summary;                // one sentence
  std::string source;                 // paper (section), repository and version
  std::string limits;                 // what is not modelled
  std::vector<Parameter> parameters;  // its `policy.*` keys
  bool preempts = true;               // false: it promises that a request that runs is never taken out
  /// The engine file (hwmodels/engines) whose host side it runs on unless `engine` says otherwise.
  std::function<std::string(const Settings&)> default_engine;
  /// Defaults of `engine.*` keys that differ by policy: key -> text form.
  std::function<std::map<std::string, std::string>(const Settings&)> engine_defaults;
  /// Combinations of settings that the engine refuses: every problem found. May be empty.
  std::function<std::vector<Problem>(const Settings&)> check;
  std::function<Policy(const PolicyContext&)> make;
};

class PolicyRegistry {
 public:
  static PolicyRegistry& instance();
  void add(PolicyInfo info);  // throws InvariantError on a second policy of the same name
  [[nodiscard]] const PolicyInfo* find(const std::string& name) const;
  /// In alphabetical order.
  [[nodiscard]] std::vector<const PolicyInfo*> all() const;

 private:
  std::map<std::string, PolicyInfo> policies_;
};

/// `const RegisterPolicy kRegistered{PolicyInfo{...}};` at namespace scope registers a policy before main.
struct RegisterPolicy {
  explicit RegisterPolicy(PolicyInfo info) { PolicyRegistry::instance().add(std::move(info)); }
};

}  // namespace spillway
