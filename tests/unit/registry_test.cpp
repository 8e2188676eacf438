// The registry's result for a policy over another policy's scheduler.
#include "sim/api/registry.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/api/phases.hpp"

namespace spillway {
namespace {

PolicyInfo scheduler(bool preempts, bool shares_prefixes) {
  PolicyInfo info;
  info.name = "scheduler";
  info.preempts = preempts;
  info.shares_prefixes = shares_prefixes;
  return info;
}

PolicyInfo layers(bool shares_prefixes) {
  PolicyInfo info;
  info.name = "layers";
  info.default_scheduler = "scheduler";
  info.shares_prefixes = shares_prefixes;
  info.layout = [](const Deployment&, const Settings&) { return Layout{}; };
  return info;
}

// Only the scheduler preempts. A prefix cache needs both: the scheduler must support prefixes, the layers must keep
// them.
TEST(Registry, ComposedPolicy_DeclaresWhatItsPartsDo) {
  for (const bool preempts : {false, true}) {
    for (const bool scheduler_shares : {false, true}) {
      for (const bool layers_share : {false, true}) {
        PolicyRegistry registry;
        registry.add(scheduler(preempts, scheduler_shares));
        registry.add(layers(layers_share));
        for (const PolicyInfo* policy : {registry.find("layers"), registry.find("layers", "scheduler")}) {
          ASSERT_NE(policy, nullptr);
          EXPECT_EQ(policy->preempts, preempts);
          EXPECT_EQ(policy->shares_prefixes, scheduler_shares && layers_share);
        }
      }
    }
  }
}

// Where both parts set a default, that of the layers counts.
TEST(Registry, ComposedPolicy_HasTheEngineDefaultsOfBothParts) {
  using Defaults = std::map<std::string, std::string>;
  PolicyInfo above = layers(false);
  above.engine_defaults = [](const Settings&) { return Defaults{{"engine.a", "layers"}, {"engine.b", "layers"}}; };
  PolicyInfo below = scheduler(true, false);
  below.engine_defaults = [](const Settings&) { return Defaults{{"engine.b", "host"}, {"engine.c", "host"}}; };
  PolicyRegistry registry;
  registry.add(std::move(above));
  registry.add(std::move(below));
  EXPECT_EQ(registry.find("layers")->engine_defaults({}),
            (Defaults{{"engine.a", "layers"}, {"engine.b", "layers"}, {"engine.c", "host"}}));
}

// A policy with a layout of its own is no scheduler for another: the two would lay out the same memory.
TEST(Registry, OnlyAPolicyWithoutALayout_SchedulesForAnother) {
  PolicyRegistry registry;
  PolicyInfo whole = layers(false);
  whole.name = "whole";
  whole.default_scheduler.clear();
  registry.add(std::move(whole));
  registry.add(scheduler(true, true));
  registry.add(layers(true));
  EXPECT_EQ(registry.find("layers", "whole"), nullptr);
  EXPECT_NE(registry.find("whole"), nullptr);
  const auto& parameters = registry.find("layers")->parameters;
  ASSERT_FALSE(parameters.empty());
  EXPECT_EQ(parameters.front().choices, std::vector<std::string>{"scheduler"});
}

// Both parts report figures. A figure that another policy reports as well is listed once, and cannot mean something
// else there.
TEST(Registry, Figures_AreThoseOfAllPoliciesEachOnce) {
  const FigureDefinition naps{"mean_naps_s", "s", "Naps."};
  const FigureDefinition turns{"turns", "turns", "Turns."};
  PolicyRegistry registry;
  PolicyInfo below = scheduler(true, false);
  below.figures = {naps};
  registry.add(std::move(below));
  PolicyInfo above = layers(false);
  above.figures = {turns};
  registry.add(std::move(above));
  EXPECT_EQ(registry.find("layers")->figures, (std::vector<FigureDefinition>{turns, naps}));
  PolicyInfo other = scheduler(true, false);
  other.name = "other";
  other.figures = {naps};
  registry.add(other);
  EXPECT_EQ(registry.figures(), (std::vector<FigureDefinition>{turns, naps}));
  other.name = "another";
  other.figures[0].unit = "ms";
  EXPECT_THROW(registry.add(other), InvariantError);
}

/// A policy that decides where KV lives, under `scheduler`.
PolicyInfo retention() {
  PolicyInfo info;
  info.name = "retention";
  info.default_scheduler = "scheduler";
  info.keeps_conversations = true;
  info.make_space = [](const PolicyContext&) { return nullptr; };
  return info;
}

// How requests are preempted is then not the scheduler's choice.
TEST(Registry, WhereKvLives_DecidesOnPreemption) {
  PolicyInfo swaps = scheduler(true, true);
  swaps.check = [](const Settings&) {
    return std::vector<Problem>{{"it swaps", "engine.preemption", ""}, {"it is tired", "engine.rest", ""}};
  };
  PolicyInfo keeps = retention();
  keeps.check = [](const Settings&) { return std::vector<Problem>{{"it suspends", "engine.preemption", ""}}; };
  PolicyRegistry registry;
  registry.add(swaps);
  registry.add(keeps);
  std::vector<std::string> what;
  for (const Problem& problem : registry.find("retention")->check({})) what.push_back(problem.what);
  EXPECT_EQ(what, (std::vector<std::string>{"it is tired", "it suspends"}));
}

// A request in one range of addresses leaves no KV of conversations in between. Layers that stream are elsewhere.
TEST(Registry, RangesOfAddresses_LeaveNoKvInBetween) {
  PolicyInfo ranges = scheduler(true, true);
  ranges.scatters_with = [](const Settings& settings) {
    return std::string(settings.has("policy.scattered") ? "" : "policy.scattered");
  };
  PolicyRegistry registry;
  registry.add(ranges);
  registry.add(retention());
  registry.add(layers(true));
  const std::vector<Problem> problems = registry.find("retention")->check({});
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].what,
            "policy scheduler gives each request one range of addresses, but policy retention keeps the KV of "
            "conversations between them");
  EXPECT_EQ(problems[0].where, kSchedulerKey);
  EXPECT_EQ(problems[0].fix, "give policy.scattered, or choose another scheduler");
  Settings scattered;
  scattered.set("policy.scattered", true);
  EXPECT_TRUE(registry.find("retention")->check(scattered).empty());
  EXPECT_TRUE(registry.find("layers")->check({}).empty());
}

/// Layers that stream weights, with a key `policy.step` of their own.
PolicyInfo weights(const std::string& name) {
  PolicyInfo info = layers(true);
  info.name = name;
  info.streams = {.weights = true};
  info.parameters = {{.name = "policy.step",
                      .unit = "-",
                      .default_value = "",
                      .doc = "Steps; see policy.step and policy.steps",
                      .source = "-"}};
  return info;
}

PolicyInfo kv() {
  PolicyInfo info = layers(true);
  info.name = "kv";
  info.streams = {.kv = true};
  return info;
}

std::string refusal(const PolicyRegistry& registry, const std::string& base, const std::string& part) {
  try {
    static_cast<void>(registry.with_weights(*registry.find(base), part));
  } catch (const ConfigError& error) {
    const Problem& problem = error.problems().front();
    return problem.where + ": " + problem.what + " -> " + problem.fix;
  }
  return "composed";
}

// A part is offered if it streams weights, nothing else, and schedules no requests.
TEST(Registry, Weights_AreThePartsThatStreamNothingElse) {
  PolicyRegistry registry;
  PolicyInfo whole = weights("whole");
  whole.default_scheduler.clear();
  PolicyInfo both = weights("both");
  both.streams.kv = true;
  for (PolicyInfo* info : {&whole, &both}) registry.add(*info);
  registry.add(scheduler(true, true));
  registry.add(kv());
  registry.add(weights("one"));
  registry.add(weights("another"));
  ASSERT_EQ(registry.weights().size(), 2U);
  EXPECT_EQ(registry.weights()[0]->name, "another");
  EXPECT_EQ(registry.weights()[1]->name, "one");
  EXPECT_THROW(static_cast<void>(registry.with_weights(*registry.find("kv"), "both")), InvariantError);
}

// Two parts that stream the same state do not compose, nor do two that both choose the phases.
TEST(Registry, Weights_ComposeWithWhatLeavesThemOnTheGpu) {
  PolicyRegistry registry;
  PolicyInfo part = weights("part");
  part.parameters.push_back({.name = kPhaseKey, .unit = "-", .default_value = "", .doc = "-", .source = "-"});
  registry.add(part);
  PolicyInfo phases = kv();
  phases.name = "phases";
  phases.parameters = {part.parameters.back()};
  registry.add(phases);
  registry.add(scheduler(true, true));
  registry.add(kv());
  EXPECT_EQ(refusal(registry, "scheduler", "part"), "composed");
  EXPECT_EQ(refusal(registry, "kv", "part"), "composed");
  EXPECT_EQ(
      refusal(registry, "part", "part"),
      "policy.weights: policy part streams the weights itself, so policy.weights=part cannot be used -> leave out "
      "policy.weights, or use one of the policies kv, scheduler");
  EXPECT_THAT(refusal(registry, "phases", "part"), testing::HasSubstr("chooses the phases"));
  const PolicyInfo& composed = registry.with_weights(*registry.find("kv"), "part");
  EXPECT_TRUE(composed.streams.kv && composed.streams.weights);
  EXPECT_EQ(composed.name, "kv");
  EXPECT_EQ(&composed, &registry.with_weights(*registry.find("kv"), "part"));
}

// The keys of the weights are policy.weights.X beside another policy, in their texts and problems too.
TEST(Registry, Weights_HaveTheirOwnKeys) {
  PolicyInfo part = weights("part");
  part.check = [](const Settings& settings) {
    return std::vector<Problem>{{"policy.step is " + settings.get<std::string>("policy.step") + ", not policy.steps",
                                 "policy.step", "change policy.step"}};
  };
  part.layout = [](const Deployment&, const Settings&) -> Layout {
    throw ConfigError("too many", "policy.step", "lower policy.step");
  };
  PolicyRegistry registry;
  registry.add(part);
  PolicyInfo below = scheduler(true, true);
  below.parameters = {
      {.name = "policy.step", .unit = "-", .default_value = "", .doc = "Steps of the scheduler", .source = "-"}};
  registry.add(below);
  const PolicyInfo& composed = registry.with_weights(*registry.find("scheduler"), "part");
  ASSERT_EQ(composed.parameters.size(), 2U);
  EXPECT_EQ(composed.parameters[1].name, "policy.weights.step");
  EXPECT_EQ(composed.parameters[1].doc, "Steps; see policy.weights.step and policy.steps");
  Settings settings;
  settings.set("policy.step", std::string("theirs"));
  settings.set("policy.weights.step", std::string("ours"));
  const std::vector<Problem> problems = composed.check(settings);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].what, "policy.weights.step is ours, not policy.steps");
  EXPECT_EQ(problems[0].where, "policy.weights.step");
  EXPECT_EQ(problems[0].fix, "change policy.weights.step");
  try {
    static_cast<void>(composed.layout({}, settings));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.problems().front().where, "policy.weights.step");
    EXPECT_EQ(error.problems().front().fix, "lower policy.weights.step");
  }
  const std::vector<KeyOwner> owners = registry.key_owners();
  ASSERT_EQ(owners.size(), 3U);
  EXPECT_EQ(owners[2].key, "policy.weights");
  EXPECT_EQ(owners[2].parameters->front().name, "policy.weights.step");
}

// KV memory that follows the weights needs a scheduler that preempts, unless a part beside them holds it.
TEST(Registry, Weights_ThatShrinkTheKvMemoryNeedPreemption) {
  PolicyInfo part = weights("part");
  part.shrinks_without = [](const Settings&) { return std::string("policy.step"); };
  PolicyRegistry registry;
  registry.add(part);
  registry.add(kv());
  registry.add(scheduler(false, true));
  const std::vector<Problem> problems = registry.with_weights(*registry.find("scheduler"), "part").check({});
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_THAT(problems[0].what, testing::HasSubstr("policy scheduler never preempts"));
  EXPECT_EQ(problems[0].where, "policy");
  EXPECT_EQ(problems[0].fix, "give policy.weights.step, or choose a scheduler that preempts");
  EXPECT_TRUE(registry.with_weights(*registry.find("kv"), "part").check({}).empty());
  const std::vector<Problem> over = registry.find("part")->check({});
  ASSERT_EQ(over.size(), 1U);
  EXPECT_EQ(over[0].where, kSchedulerKey);
}

// Of 1,000 bytes the weights leave 700, and 60 of the host's 100: KV is laid out in those.
TEST(Registry, Weights_AreLaidOutFirst) {
  PolicyInfo part = weights("part");
  std::vector<bool> held;
  part.layout = [&held](const Deployment& deployment, const Settings&) {
    held.push_back(deployment.gpu_kv_held);
    return Layout{.blocks = Blocks(1), .most = Blocks(1), .host = Bytes(40), .weights = Bytes(300), .terms = "first"};
  };
  std::vector<Deployment> seen;
  PolicyInfo above = kv();
  above.layout = [&seen](const Deployment& deployment, const Settings&) {
    seen.push_back(deployment);
    return Layout{.blocks = Blocks(7), .most = Blocks(9), .host = Bytes(5), .host_kv = Bytes(5), .terms = "then"};
  };
  std::vector<Deployment> made;
  above.make_layers = [&made](const PolicyContext& context) {
    made.push_back(context.deployment);
    return std::unique_ptr<LayerPolicy>();
  };
  part.make_layers = [&held](const PolicyContext& context) {
    held.push_back(context.deployment.gpu_kv_held);
    return std::unique_ptr<LayerPolicy>();
  };
  PolicyInfo below = scheduler(true, true);
  below.make = [](const PolicyContext&) { return Policy{}; };
  PolicyRegistry registry;
  registry.add(part);
  registry.add(above);
  registry.add(below);
  const PolicyInfo& composed = registry.with_weights(*registry.find("kv"), "part");
  Deployment deployment;
  deployment.memory = Bytes(1000);
  deployment.weights = Bytes(800);
  deployment.gpu_kv = Bytes(200);
  deployment.host_memory = Bytes(100);
  const Layout layout = composed.layout(deployment, {});
  EXPECT_EQ(layout.blocks, Blocks(7));
  EXPECT_EQ(layout.most, Blocks(9));
  EXPECT_EQ(layout.host, Bytes(45));
  EXPECT_EQ(layout.host_kv, Bytes(5));
  EXPECT_EQ(layout.terms, "first; then");
  // What `make` gets is what was laid out. A given size stays.
  deployment.chosen = layout.chosen;
  struct Nothing final : View {
    [[nodiscard]] RequestView request(RequestId) const override { return {}; }
    [[nodiscard]] bool alive(RequestId) const override { return false; }
    [[nodiscard]] RequestId last_joined() const override { return kNoRequest; }
    [[nodiscard]] Blocks decode_growth(std::int64_t) const override { return {}; }
    [[nodiscard]] RequestId last_decoding() const override { return kNoRequest; }
    [[nodiscard]] bool grows_next(RequestId) const override { return false; }
    [[nodiscard]] SimTime waiting_since() const override { return now(); }
    [[nodiscard]] CachedPrefix cached_prefix(RequestId) const override { return {}; }
    [[nodiscard]] std::span<const KvRun> runs(const Holder&) const override { return {}; }
    [[nodiscard]] Tokens kept(std::int64_t) const override { return {}; }
  };
  static_cast<void>(composed.make({{}, Nothing(), deployment, {}}));
  deployment.gpu_kv = Bytes(150);
  deployment.gpu_kv_given = true;
  deployment.host_memory = Bytes(30);
  static_cast<void>(composed.layout(deployment, {}));
  ASSERT_EQ(seen.size(), 2U);
  ASSERT_EQ(made.size(), 1U);
  for (const Deployment& one : {seen[0], made[0]}) {
    EXPECT_EQ(one.weights, Bytes(300));
    EXPECT_EQ(one.gpu_kv, Bytes(700));
    EXPECT_EQ(one.host_memory, Bytes(60));
    EXPECT_FALSE(one.gpu_kv_held);
  }
  EXPECT_EQ(seen[1].gpu_kv, Bytes(150));
  EXPECT_EQ(seen[1].host_memory, Bytes(0));
  EXPECT_EQ(held, std::vector<bool>(3, true));
}

// The figures of KV keep their names. Alone, those of the weights do too.
TEST(Registry, Weights_HaveFiguresOfTheirOwnBesideKv) {
  const FigureDefinition peak{"peak_bytes", "bytes", "Most bytes."};
  PolicyInfo part = weights("part");
  PolicyInfo above = kv();
  part.figures = above.figures = {peak};
  PolicyRegistry registry;
  registry.add(part);
  registry.add(above);
  registry.add(scheduler(true, true));
  const std::vector<FigureDefinition>& beside = registry.with_weights(*registry.find("kv"), "part").figures;
  ASSERT_EQ(beside.size(), 2U);
  EXPECT_EQ(beside[0], peak);
  EXPECT_EQ(beside[1].name, "weights_peak_bytes");
  EXPECT_EQ(beside[1].unit, "bytes");
  EXPECT_EQ(registry.figures(), beside);
  EXPECT_EQ(registry.with_weights(*registry.find("scheduler"), "part").figures, std::vector<FigureDefinition>{peak});
}

TEST(Registry, SecondPolicyOfAName_IsRefused) {
  PolicyRegistry registry;
  registry.add(scheduler(true, true));
  EXPECT_THROW(registry.add(scheduler(true, true)), InvariantError);
}

}  // namespace
}  // namespace spillway
