#include "sim/api/compose.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "sim/api/phases.hpp"
#include "sim/core/error.hpp"

namespace spillway {
namespace {

using Defaults = std::map<std::string, std::string>;
using DefaultsOf = std::function<Defaults(const Settings&)>;
using Check = std::function<std::vector<Problem>(const Settings&)>;

constexpr std::string_view kPolicyGroup = "policy.";
constexpr const char* kPreemptionKey = "engine.preemption";
/// Keys of Layout::chosen: what the weights take. The KV part has the rest.
constexpr const char* kTakenOnGpu = "weights.gpu";
constexpr const char* kTakenOnHost = "weights.host";

/// The defaults of `own` count where both set one.
DefaultsOf merged(const DefaultsOf& own, const DefaultsOf& other) {
  return [own, other](const Settings& settings) {
    Defaults defaults;
    if (own) defaults = own(settings);
    if (other) defaults.merge(other(settings));
    return defaults;
  };
}

/// The problems of the policy `part` under the scheduler of `host`. `where`: the key that chose the host.
Check merged_check(const PolicyInfo& host, const PolicyInfo& part, const std::string& where) {
  return [own = part.check, other = host.check, shrinks_without = part.shrinks_without, where, name = host.name,
          preempts = host.preempts, admits_parts = host.admits_parts, own_space = static_cast<bool>(part.make_space),
          scatters_with = part.keeps_conversations ? host.scatters_with : nullptr,
          part_name = part.name](const Settings& settings) {
    std::vector<Problem> problems;
    if (other) problems = other(settings);
    if (own_space) std::erase_if(problems, [](const Problem& problem) { return problem.where == kPreemptionKey; });
    if (own) {
      for (Problem& problem : own(settings)) {
        const auto same = [&](const Problem& told) { return told.what == problem.what && told.where == problem.where; };
        if (std::ranges::none_of(problems, same)) problems.push_back(std::move(problem));
      }
    }
    const std::string fixed = shrinks_without ? shrinks_without(settings) : "";
    if (!fixed.empty() && admits_parts) {
      problems.push_back(
          {"policy " + name +
               " admits prompts of which only a part fits the KV memory, but the KV memory changes during the run",
           where, "give " + fixed + ", or choose another scheduler"});
    } else if (!fixed.empty() && !preempts) {
      problems.push_back(
          {"policy " + name + " never preempts, but the KV memory may shrink below what running requests use", where,
           "give " + fixed + ", or choose a scheduler that preempts"});
    }
    const std::string scattered = scatters_with ? scatters_with(settings) : "";
    if (!scattered.empty()) {
      problems.push_back({"policy " + name + " gives each request one range of addresses, but policy " + part_name +
                              " keeps the KV of conversations between them",
                          where, "give " + scattered + ", or choose another scheduler"});
    }
    return problems;
  };
}

/// `check`, and no instance to which the KV of every prompt is handed over: policy `name` keeps what was computed here.
Check with_prompts(const Check& check, const std::string& name) {
  return [check, name](const Settings& settings) {
    std::vector<Problem> problems = check(settings);
    if (phases(settings) == Phases::decode) {
      problems.push_back({"policy " + name + " keeps KV that the instance has computed, but an instance that only " +
                              "decodes gets the KV of each prompt with its request",
                          kWeightsPhaseKey, "leave it out, or use another policy"});
    }
    return problems;
  };
}

/// The policy that `host` makes, with the layers of `layers` as its only ones.
std::function<Policy(const PolicyContext&)> make_over(const PolicyInfo& host, const PolicyInfo& layers) {
  return [make = host.make, make_layers = layers.make_layers](const PolicyContext& context) {
    Policy policy = make(context);
    policy.layers = make_layers(context);
    return policy;
  };
}

/// The policy that `part` makes, under the scheduler of `host`.
std::function<Policy(const PolicyContext&)> make_under(const PolicyInfo& host, const PolicyInfo& part) {
  return [make = host.make, make_scheduler = host.make_scheduler,
          make_space = part.make_space](const PolicyContext& context) {
    Policy policy;
    policy.scheduler = make_scheduler ? make_scheduler(context) : make(context).scheduler;
    policy.space = make_space(context);
    return policy;
  };
}

/// The scheduler of its own that a policy has, as one that others could be under.
PolicyInfo as_host(const PolicyInfo& policy) {
  PolicyInfo host;
  host.name = policy.name;
  host.parameters = policy.own_scheduler->parameters;
  host.default_engine = policy.own_scheduler->default_engine;
  host.engine_defaults = policy.own_scheduler->engine_defaults;
  host.make = [make = policy.own_scheduler->make](const PolicyContext& context) {
    return Policy{make(context), nullptr};
  };
  return host;
}

/// The keys of a policy, and what they are called beside another policy.
class WeightsKeys {
 public:
  explicit WeightsKeys(const std::vector<Parameter>& own) {
    for (const Parameter& parameter : own) own_.insert(parameter.name);
  }

  /// `text` with the names that the keys have outside.
  [[nodiscard]] std::string outside(const std::string& text) const {
    std::string renamed;
    std::size_t done = 0;
    for (std::size_t at = text.find(kPolicyGroup); at != std::string::npos; at = text.find(kPolicyGroup, at + 1)) {
      const std::size_t end = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_", at + kPolicyGroup.size());
      const std::string name = text.substr(at, end - at);
      if (!own_.contains(name)) continue;
      renamed += text.substr(done, at - done) + outside_name(name);
      done = at + name.size();
    }
    return renamed + text.substr(done);
  }
  /// The settings as the policy reads them.
  [[nodiscard]] Settings inside(const Settings& settings) const {
    Settings own = settings;
    for (const std::string& name : own_) {
      const auto value = settings.all().find(outside_name(name));
      if (value != settings.all().end()) own.set(name, value->second);
    }
    return own;
  }
  void rename(Problem& problem) const {
    for (std::string* text : {&problem.what, &problem.where, &problem.fix}) *text = outside(*text);
  }

 private:
  static std::string outside_name(const std::string& name) {
    return std::string(kWeightsKey) + "." + name.substr(kPolicyGroup.size());
  }

  std::set<std::string> own_;
};

/// `function`, a member of PolicyInfo that reads settings, for settings with the keys of outside.
template <class Result>
std::function<Result(const Settings&)> from_outside(const std::function<Result(const Settings&)>& function,
                                                    const WeightsKeys& keys) {
  if (!function) return {};
  return [function, keys](const Settings& settings) { return function(keys.inside(settings)); };
}

/// The deployment as the weights see it beside a part that holds the KV memory.
Deployment for_weights(const Deployment& whole) {
  Deployment deployment = whole;
  deployment.gpu_kv_held = true;
  return deployment;
}

/// The deployment that is left for KV when the weights take `gpu` and `host` bytes.
Deployment beside_weights(const Deployment& whole, Bytes gpu, Bytes host) {
  Deployment deployment = whole;
  deployment.weights = gpu;
  if (!whole.gpu_kv_given) deployment.gpu_kv = whole.memory - gpu;
  if (whole.host_memory) deployment.host_memory = std::max(Bytes(0), *whole.host_memory - host);
  return deployment;
}

/// Weights first, then KV in what they leave.
Layout lay_out(const PolicyInfo& base, const PolicyInfo& weights, const Deployment& deployment,
               const Settings& settings) {
  const Layout first = weights.layout(for_weights(deployment), settings);
  Layout layout = base.layout(beside_weights(deployment, first.weights, first.host), settings);
  layout.host += first.host;
  layout.terms = first.terms + "; " + layout.terms;
  for (const auto& [key, value] : first.chosen.all()) layout.chosen.set(key, value);
  layout.chosen.set(kTakenOnGpu, first.weights);
  layout.chosen.set(kTakenOnHost, first.host);
  return layout;
}

/// Whether a policy, or a part that streams weights, has a key that chooses the phases of the instance.
bool chooses_phases(const PolicyInfo& policy) {
  return std::ranges::any_of(policy.parameters, [](const Parameter& parameter) {
    return parameter.name == kPhaseKey || parameter.name == kWeightsPhaseKey;
  });
}

Policy make_beside(const PolicyInfo& base, const PolicyInfo& weights, const PolicyContext& context) {
  const Settings& chosen = context.deployment.chosen;
  const Deployment left =
      beside_weights(context.deployment, chosen.get<Bytes>(kTakenOnGpu), chosen.get<Bytes>(kTakenOnHost));
  Policy policy = base.make({context.settings, context.view, left, context.graph, context.on_bus});
  policy.weights = weights.make_layers(
      {context.settings, context.view, for_weights(context.deployment), context.graph, context.on_bus});
  return policy;
}

}  // namespace

PolicyInfo compose_scheduler(const PolicyInfo& part, const PolicyInfo& scheduled_by,
                             std::vector<std::string> schedulers) {
  const PolicyInfo host = scheduled_by.own_scheduler ? as_host(scheduled_by) : scheduled_by;
  PolicyInfo info = part;
  info.parameters.push_back({.name = kSchedulerKey,
                             .type = ParameterType::choice,
                             .unit = "-",
                             .default_value = part.default_scheduler,
                             .choices = std::move(schedulers),
                             .doc = "Policy that schedules requests, with its own keys and defaults",
                             .source = "Spillway: the default is the engine that the paper extends"});
  for (const Parameter& parameter : host.parameters) {
    const bool taken =
        std::ranges::any_of(part.parameters, [&](const Parameter& own) { return own.name == parameter.name; });
    if (!taken) info.parameters.push_back(parameter);
  }
  info.figures.insert(info.figures.end(), host.figures.begin(), host.figures.end());
  info.preempts = host.preempts;
  info.scheduled_by = host.name;
  info.suspends = host.suspends;
  info.frees_windows = host.frees_windows && !part.make_space && !part.streams.kv;
  info.takes_kv_over = part.takes_kv_over && host.takes_kv_over;
  info.shares_prefixes = part.shares_prefixes && host.shares_prefixes;
  if (!info.borrows && !part.make_space) info.borrows = host.borrows;
  if (!info.default_engine) info.default_engine = host.default_engine;
  info.engine_defaults = merged(part.engine_defaults, host.engine_defaults);
  info.check = merged_check(host, part, kSchedulerKey);
  info.make = part.make_space ? make_under(host, part) : make_over(host, part);
  return info;
}

bool streams_weights_alone(const PolicyInfo& policy) {
  return policy.streams.weights && !policy.streams.kv && !policy.default_scheduler.empty();
}

PolicyInfo as_weights(const PolicyInfo& policy) {
  const WeightsKeys keys(policy.parameters);
  PolicyInfo info = policy;
  for (Parameter& parameter : info.parameters) {
    for (std::string* text : {&parameter.name, &parameter.doc, &parameter.source}) *text = keys.outside(*text);
  }
  info.default_engine = from_outside(policy.default_engine, keys);
  info.engine_defaults = from_outside(policy.engine_defaults, keys);
  if (policy.check) {
    info.check = [check = policy.check, keys](const Settings& settings) {
      std::vector<Problem> problems = check(keys.inside(settings));
      for (Problem& problem : problems) keys.rename(problem);
      return problems;
    };
  }
  if (policy.shrinks_without) {
    info.shrinks_without = [shrinks_without = policy.shrinks_without, keys](const Settings& settings) {
      return keys.outside(shrinks_without(keys.inside(settings)));
    };
  }
  if (policy.engine_flags) {
    info.engine_flags = [engine_flags = policy.engine_flags, keys](const Settings& settings, const Settings& chosen) {
      return engine_flags(keys.inside(settings), chosen);
    };
  }
  info.make_layers = [make_layers = policy.make_layers, keys](const PolicyContext& context) {
    const Settings settings = keys.inside(context.settings);
    return make_layers({settings, context.view, context.deployment, context.graph, context.on_bus});
  };
  info.layout = [layout = policy.layout, keys](const Deployment& deployment, const Settings& settings) {
    try {
      return layout(deployment, keys.inside(settings));
    } catch (const ConfigError& error) {
      std::vector<Problem> problems = error.problems();
      for (Problem& problem : problems) keys.rename(problem);
      throw ConfigError(std::move(problems));
    }
  };
  return info;
}

std::string weights_conflict(const PolicyInfo& base, const PolicyInfo& weights) {
  if (base.streams.weights) return "policy " + base.name + " streams the weights itself";
  if (base.cpu_attention) return "policy " + base.name + " has sub-batches, which streamed weights are not planned for";
  if (chooses_phases(base) && chooses_phases(weights)) {
    return "policy " + base.name + " chooses the phases that the instance runs itself";
  }
  return "";
}

PolicyInfo compose_weights(const PolicyInfo& base, const PolicyInfo& weights) {
  const bool beside = static_cast<bool>(base.layout);
  PolicyInfo info = base;
  info.parameters.insert(info.parameters.end(), weights.parameters.begin(), weights.parameters.end());
  const std::vector<FigureDefinition> figures = beside ? weights_figures(weights) : weights.figures;
  info.figures.insert(info.figures.end(), figures.begin(), figures.end());
  info.shares_prefixes = base.shares_prefixes && weights.shares_prefixes;
  info.streams.weights = true;
  info.places_experts = weights.places_experts;
  info.expert_patterns = weights.expert_patterns;
  info.unequal_layers = weights.unequal_layers;
  info.caches_experts = weights.caches_experts;
  info.engine_flags = weights.engine_flags;
  if (weights.default_engine) info.default_engine = weights.default_engine;
  info.engine_defaults = merged(weights.engine_defaults, base.engine_defaults);
  if (!beside) {
    PolicyInfo host = base;
    if (!base.scheduled_by.empty()) host.name = base.scheduled_by;
    info.check = merged_check(host, weights, base.scheduled_by.empty() ? "policy" : kSchedulerKey);
    if (base.keeps_conversations) info.check = with_prompts(info.check, base.name);
    info.make = make_over(base, weights);
    info.layout = weights.layout;
    return info;
  }
  PolicyInfo constant = weights;  // it leaves the KV memory alone
  constant.shrinks_without = nullptr;
  info.check = merged_check(base, constant, kWeightsKey);
  info.make = [base, weights](const PolicyContext& context) { return make_beside(base, weights, context); };
  info.layout = [base, weights](const Deployment& deployment, const Settings& settings) {
    return lay_out(base, weights, deployment, settings);
  };
  return info;
}

std::vector<FigureDefinition> weights_figures(const PolicyInfo& weights) {
  std::vector<FigureDefinition> figures = weights.figures;
  for (FigureDefinition& figure : figures) {
    figure.definition = figure.name + " of policy.weights beside a policy that streams KV. " + figure.definition;
    figure.name = kWeightsPrefix + figure.name;
  }
  return figures;
}

}  // namespace spillway
