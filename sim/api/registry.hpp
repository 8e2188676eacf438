// Finds policies by name. A policy is one .cpp that registers itself. No other file lists it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "sim/api/figure.hpp"
#include "sim/api/layer_policy.hpp"
#include "sim/api/parameter.hpp"
#include "sim/api/scheduler.hpp"

namespace spillway {

/// The input from which a policy is built.
struct PolicyContext {
  const Settings& settings;  // every key of the run, `policy.*` included
  const View& view;          // valid for the whole run
  const Deployment& deployment;
};

/// Which part of a request an instance runs, if prefill and decode run on separate instances.
enum class Phases : std::uint8_t {
  both,
  prefill,  // a request ends with its first token, so it needs KV for its prompt only
  decode    // a request arrives with the KV of its input except the last token, which it computes first
};

/// Lengths to which an engine pads every request. A request is computed and ends as if it were this long. Longer
/// requests are rejected on arrival. A policy sees padded lengths only. Records, token gaps and service count the
/// request's own tokens, without padding. Excludes preemption, prefix cache and phases.
struct Padding {
  Tokens input{};
  Tokens output{};
};

/// A policy: a scheduler, an offload policy and, if it streams layers, a layer policy.
struct Policy {
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<OffloadPolicy> space;
  std::unique_ptr<LayerPolicy> layers{};  // null: every layer's weights and KV are on the GPU
  Phases phases = Phases::both;
  std::optional<Padding> padding{};
};

/// Description of a policy. `list`, `explain`, `--help`, the JSON Schema and the property suite use it.
struct PolicyInfo {
  std::string name;                   // as in its paper, kebab-case
  std::string summary;                // one sentence
  std::string source;                 // paper (section), repository and version
  std::string limits;                 // what is not modelled
  std::vector<Parameter> parameters;  // its `policy.*` keys
  /// Figures that its parts report, in the order in which results list them. Policies that report the same figure share
  /// its definition.
  std::vector<FigureDefinition> figures;
  bool preempts = true;         // false: it promises never to take a running request out of the batch
  bool shares_prefixes = true;  // false: it cannot use a prefix cache
  /// The engine file (hwmodels/engines) whose CPU times the policy uses unless `engine` names another.
  std::function<std::string(const Settings&)> default_engine;
  /// Defaults of `engine.*` keys that differ by policy: key -> text form.
  std::function<std::map<std::string, std::string>(const Settings&)> engine_defaults;
  /// Returns every problem of a combination of settings. May be empty: the policy accepts everything.
  std::function<std::vector<Problem>(const Settings&)> check;
  std::function<Policy(const PolicyContext&)> make;

  /// How the policy uses memory. Empty: weights and KV on the GPU. Throws ConfigError with what does not fit.
  std::function<Layout(const Deployment&, const Settings&)> layout;

  /// Default scheduler of a policy that lets another policy schedule requests; policy.scheduler overrides it. Such a
  /// policy sets make_layers, not make. The registry composes parameters, defaults, check and make of the two.
  std::string default_scheduler;
  std::function<std::unique_ptr<LayerPolicy>(const PolicyContext&)> make_layers;
  std::function<Phases(const Settings&)> phases;  // only beside make_layers; empty: both
};

class PolicyRegistry {
 public:
  static PolicyRegistry& instance();
  /// Throws InvariantError on a second policy of the same name, and on a second definition of a figure.
  void add(PolicyInfo info);
  /// The policy of that name, over its default scheduler if it has one; null when the name is unknown.
  [[nodiscard]] const PolicyInfo* find(const std::string& name) const;
  /// The policy `name` over the scheduler of the policy `scheduler`. Null when a name is unknown, when the first policy
  /// schedules requests itself, or when the second cannot schedule for another policy.
  [[nodiscard]] const PolicyInfo* find(const std::string& name, const std::string& scheduler) const;
  /// In alphabetical order.
  [[nodiscard]] std::vector<const PolicyInfo*> all() const;
  /// The figures of all policies, each once.
  [[nodiscard]] std::vector<FigureDefinition> figures() const;

 private:
  std::map<std::string, PolicyInfo> policies_;
  mutable std::mutex mutex_;                            // guards composed_
  mutable std::map<std::string, PolicyInfo> composed_;  // "pie over vllm-v0"
};

/// The key that chooses the scheduler of a policy that streams layers.
inline constexpr const char* kSchedulerKey = "policy.scheduler";

/// `const RegisterPolicy kRegistered{PolicyInfo{...}};` at namespace scope registers a policy before main.
struct RegisterPolicy {
  explicit RegisterPolicy(PolicyInfo info) { PolicyRegistry::instance().add(std::move(info)); }
};

}  // namespace spillway
