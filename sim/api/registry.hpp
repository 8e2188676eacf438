// Names -> policies. A policy is one .cpp that registers itself; nothing else lists it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "sim/api/layer_policy.hpp"
#include "sim/api/parameter.hpp"
#include "sim/api/scheduler.hpp"

namespace spillway {

/// What a policy is built from.
struct PolicyContext {
  const Settings& settings;  // every key of the run, `policy.*` included
  const View& view;          // valid for the whole run
  const Deployment& deployment;
};

/// Which part of a request an instance runs, where prefill and decode have instances of their own.
enum class Phases : std::uint8_t {
  both,
  prefill,  // a request ends with its first token
  decode    // a request arrives with the KV of its input but the last token, which it computes first
};

/// Requests that an engine pads: all are computed as if they were this long, and end when they have got there. Longer
/// ones are rejected on arrival. A policy sees padded lengths alone. Input and output of records, token gaps and
/// service are those of the request itself: padding is neither. Without preemption, prefix cache and phases.
struct Padding {
  Tokens input{};
  Tokens output{};
};

/// Others that use the links between GPU and host for some time, both directions alike.
struct LinkTraffic {
  double share = 0.0;  // of a link that they take when nothing else uses it, in [0, 1]
  SimTime from{};
  SimTime until = kNever;
};

/// A policy: a scheduler over an offload policy and, where layers are streamed, who does that.
struct Policy {
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<OffloadPolicy> space;
  std::unique_ptr<LayerPolicy> layers{};  // null: every layer's weights and KV are on the GPU
  Phases phases = Phases::both;
  std::optional<Padding> padding{};
  std::optional<LinkTraffic> traffic{};
};

/// What `list`, `explain`, `--help` and the JSON Schema say of a policy.
struct PolicyInfo {
  std::string name;                   // as in its paper, kebab-case
  std::string summary;                // one sentence
  std::string source;                 // paper (section), repository and version
  std::string limits;                 // what is not modelled
  std::vector<Parameter> parameters;  // its `policy.*` keys
  bool preempts = true;               // false: it promises that a request that runs is never taken out
  bool shares_prefixes = true;        // false: it cannot take a prompt's prefix from a cache
  /// The engine file (hwmodels/engines) whose host side it runs on unless `engine` says otherwise.
  std::function<std::string(const Settings&)> default_engine;
  /// Defaults of `engine.*` keys that differ by policy: key -> text form.
  std::function<std::map<std::string, std::string>(const Settings&)> engine_defaults;
  /// Combinations of settings that the engine refuses: every problem found. May be empty.
  std::function<std::vector<Problem>(const Settings&)> check;
  std::function<Policy(const PolicyContext&)> make;

  /// How the policy uses memory. Empty: weights and KV on the GPU. Throws ConfigError with what does not fit.
  std::function<Layout(const Deployment&, const Settings&)> layout;

  /// A policy that leaves it to another one who runs: that one's name, unless policy.scheduler says otherwise. It then
  /// has make_layers in place of make, which the registry composes, as it does parameters, defaults and check.
  std::string default_scheduler;
  std::function<std::unique_ptr<LayerPolicy>(const PolicyContext&)> make_layers;
  std::function<Phases(const Settings&)> phases;                       // only beside make_layers; empty: both
  std::function<std::optional<LinkTraffic>(const Settings&)> traffic;  // only beside make_layers; empty: none
};

class PolicyRegistry {
 public:
  static PolicyRegistry& instance();
  void add(PolicyInfo info);  // throws InvariantError on a second policy of the same name
  /// One that streams layers comes with its default scheduler.
  [[nodiscard]] const PolicyInfo* find(const std::string& name) const;
  /// The policy `name` over the scheduler of another; null when one of them is unknown, or the first has its own, or
  /// the second cannot serve as one.
  [[nodiscard]] const PolicyInfo* find(const std::string& name, const std::string& scheduler) const;
  /// In alphabetical order.
  [[nodiscard]] std::vector<const PolicyInfo*> all() const;

 private:
  std::map<std::string, PolicyInfo> policies_;
  mutable std::mutex mutex_;                            // of the one below
  mutable std::map<std::string, PolicyInfo> composed_;  // "pie over vllm-v0"
};

/// The key that chooses the scheduler of a policy that streams layers.
inline constexpr const char* kSchedulerKey = "policy.scheduler";

/// `const RegisterPolicy kRegistered{PolicyInfo{...}};` at namespace scope registers a policy before main.
struct RegisterPolicy {
  explicit RegisterPolicy(PolicyInfo info) { PolicyRegistry::instance().add(std::move(info)); }
};

}  // namespace spillway
