// Finds policies by name. A policy is one .cpp that registers itself. No other file lists it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/api/figure.hpp"
#include "sim/api/host_bus.hpp"
#include "sim/api/layer_policy.hpp"
#include "sim/api/parameter.hpp"
#include "sim/api/scheduler.hpp"

namespace spillway {

/// The input from which a policy is built. The view is valid for the whole run, the rest during `make` only.
struct PolicyContext {
  const Settings& settings;  // every key of the run, `policy.*` included
  const View& view;
  const Deployment& deployment;
  const TierGraph& graph;  // valid for the whole run
  OnBus on_bus{};          // the link to the GPU that it shares with other instances; valid likewise
};

/// State of layers that a policy moves between host and GPU.
struct Streams {
  bool kv = false;
  bool weights = false;
};

/// The command line of an engine that would do what a policy does.
struct EngineFlags {
  std::string engine{};   // "llama.cpp"
  std::string version{};  // whose options these are
  std::string flags{};    // "-ngl 99 --n-cpu-moe 36 -ub 512"; of the placement of weights and of batches alone
};

/// A policy: a scheduler, an offload policy and, if it streams layers, a layer policy.
struct Policy {
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<OffloadPolicy> space;
  std::unique_ptr<LayerPolicy> layers{};  // null: every layer's weights and KV are on the GPU
  /// Streams the weights beside `layers`, which streams KV. Its figures are reported with kWeightsPrefix.
  std::unique_ptr<LayerPolicy> weights{};
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
  bool preempts = true;   // false: it promises never to take a running request out of the batch
  bool suspends = false;  // it takes requests out of the batch by plan, with their KV, whatever engine.preemption says
  bool rests_decodes = false;  // decodes may rest while nothing waits and memory is free
  /// While nothing waits and memory is free, a decision only stages every decode, and none of its parts remembers it.
  /// So the engine need not ask.
  bool steady_decodes = false;
  bool admits_parts = false;    // its requests join with memory for a part of their prompt: this memory must not change
  bool shares_prefixes = true;  // false: it cannot use a prefix cache
  bool frees_windows = false;   // its engine frees the KV beyond a layer's sliding window (KvLayout::window)
  bool takes_kv_over = true;    // false: its scheduler does not ask Decision::look_up before a request joins
  bool cpu_attention = false;   // its requests may attend on the CPU, so the latency model must have such attention
  /// It keeps the KV of conversations between their turns, on the GPU and on kHostTier, which then has
  /// memory.host_cache. So there is no prefix cache beside it.
  bool keeps_conversations = false;
  /// The key with which it places the KV of a request wherever blocks are free; without it, in one range of addresses.
  /// Then no policy can keep KV of others in between. Empty, or an empty text: wherever blocks are free.
  std::function<std::string(const Settings&)> scatters_with;
  /// What it knows of the future, which no real system does: then results are marked as those of an oracle. Empty, or
  /// an empty text: nothing.
  std::function<std::string(const Settings&)> knows_future;
  /// It decides where routed experts are and who computes them: the model must have some, and the execution model times
  /// none of them. Its layers may be of different sizes.
  bool places_experts = false;
  /// Of these: it has slots for experts of each layer, which hold those used last (experts.hit_curve).
  bool caches_experts = false;
  std::int32_t expert_patterns = 1;  // default of experts.patterns
  /// It plans each layer by itself (Deployment::tensors), so that they may be of different sizes.
  bool unequal_layers = false;
  Streams streams{};  // what its layer policy moves; two policies that move the same do not compose
  /// The engine file (hwmodels/engines) whose CPU times the policy uses unless `engine` names another.
  std::function<std::string(const Settings&)> default_engine;
  /// Defaults of `engine.*` and `memory.*` keys that differ by policy: key -> text form. An empty text leaves the key
  /// without a value; of keys that have a value otherwise, memory.host_kv can be so.
  std::function<std::map<std::string, std::string>(const Settings&)> engine_defaults;
  /// How it copies the layers that it streams; `kernel_copies`: the profile of the GPU prefers copies by SMs (it has
  /// their figures, and none that speaks against them). Empty: CopyMechanism::single. Copies slow each other and
  /// compute as this mechanism's figures say.
  std::function<CopyMechanism(const Settings&, bool kernel_copies)> layer_copies;
  /// It keeps KV in memory that other GPUs lend (memory.peer). Empty: it does not.
  std::function<bool(const Settings&)> borrows;
  /// How it copies blocks of the prefix cache from and to the memory below: many, a copy for K and V of each layer of a
  /// block, or gather. Empty: many, a copy for each block.
  std::function<CopyMechanism(const Settings&)> prefix_copies;
  /// Its engine has vLLM's offloading connector (engine.kv_connector).
  bool offloads_prefixes = false;
  /// Returns every problem of a combination of settings. May be empty: the policy accepts everything.
  std::function<std::vector<Problem>(const Settings&)> check;
  std::function<Policy(const PolicyContext&)> make;
  /// Its scheduler alone, over the memory of another policy. Empty: the one that `make` makes.
  std::function<std::unique_ptr<Scheduler>(const PolicyContext&)> make_scheduler{};

  /// What would configure its engine like this, from the settings and Layout::chosen. Empty: no released engine has
  /// such options.
  std::function<EngineFlags(const Settings&, const Settings& chosen)> engine_flags{};

  /// How the policy uses memory. Empty: weights and KV on the GPU. Throws ConfigError with what does not fit.
  std::function<Layout(const Deployment&, const Settings&)> layout;

  /// Default scheduler of a policy that lets another policy schedule requests; policy.scheduler overrides it. Such a
  /// policy sets make_layers or make_space, not make. The registry composes parameters, defaults, check and make of the
  /// two. If it streams weights and nothing else, it may do so beside any policy that does not (policy.weights).
  std::string default_scheduler;
  std::string scheduled_by{};  // the policy that schedules, in what the registry composes
  std::function<std::unique_ptr<LayerPolicy>(const PolicyContext&)> make_layers;
  /// Instead of make_layers: the policy decides where KV lives, and so how requests are preempted: engine.preemption is
  /// its key alone.
  std::function<std::unique_ptr<OffloadPolicy>(const PolicyContext&)> make_space;
  /// Only beside make_space: its own scheduler, which goes by its name. default_scheduler is this name then. It
  /// schedules for no other policy.
  struct OwnScheduler {
    std::vector<Parameter> parameters;
    std::function<std::string(const Settings&)> default_engine;
    std::function<std::map<std::string, std::string>(const Settings&)> engine_defaults;
    std::function<std::unique_ptr<Scheduler>(const PolicyContext&)> make;
  };
  std::optional<OwnScheduler> own_scheduler{};
  /// The key without which the KV memory that it leaves may shrink below what running requests use. Then the scheduler
  /// must preempt. Only beside make_layers; empty, or an empty text: the memory does not shrink.
  std::function<std::string(const Settings&)> shrinks_without;
};

/// A choice that brings keys with it: policy=pie, policy.weights=select-n, router=prefix.
struct KeyOwner {
  std::string key;
  std::string name;  // the value of the key
  const std::vector<Parameter>* parameters;
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

  /// The policies that may stream the weights of another, with their keys as they are then: "policy.weights.interval".
  /// In alphabetical order.
  [[nodiscard]] std::vector<const PolicyInfo*> weights() const;
  /// The policy `base`, a result of find() or all(), whose weights `weights` streams. Throws ConfigError, with the
  /// reason, when the two do not compose, and InvariantError when `weights` is the name of none of weights().
  [[nodiscard]] const PolicyInfo& with_weights(const PolicyInfo& base, const std::string& weights) const;

  /// Every choice that brings keys: all policies, then the policies of weights().
  [[nodiscard]] std::vector<KeyOwner> key_owners() const;
  /// The figures of all policies, each once, then those of weights() beside a policy that streams KV.
  [[nodiscard]] std::vector<FigureDefinition> figures() const;

 private:
  std::map<std::string, PolicyInfo> policies_;
  std::map<std::string, PolicyInfo> weights_;
  mutable std::mutex mutex_;                            // guards the two below
  mutable std::map<std::string, PolicyInfo> composed_;  // "pie over vllm-v0"
  mutable std::map<std::pair<const PolicyInfo*, std::string>, PolicyInfo> with_weights_;
};

/// The key that chooses the scheduler of a policy that streams layers.
inline constexpr const char* kSchedulerKey = "policy.scheduler";
/// Of policies with PolicyInfo::cpu_attention: threads that attend, for each GPU.
inline constexpr const char* kCpuThreadsKey = "policy.cpu_threads";
/// The key that chooses who streams the weights beside `policy`.
inline constexpr const char* kWeightsKey = "policy.weights";
inline constexpr const char* kNoWeights = "none";
/// Before the names of the figures of Policy::weights.
inline constexpr const char* kWeightsPrefix = "weights_";

/// `const RegisterPolicy kRegistered{PolicyInfo{...}};` at namespace scope registers a policy before main.
struct RegisterPolicy {
  explicit RegisterPolicy(PolicyInfo info) { PolicyRegistry::instance().add(std::move(info)); }
};

}  // namespace spillway
