// The registry's result for a policy over another policy's scheduler.
#include "sim/api/registry.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

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

TEST(Registry, SecondPolicyOfAName_IsRefused) {
  PolicyRegistry registry;
  registry.add(scheduler(true, true));
  EXPECT_THROW(registry.add(scheduler(true, true)), InvariantError);
}

}  // namespace
}  // namespace spillway
