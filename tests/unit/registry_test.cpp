// The registry's result for a policy over another policy's scheduler.
#include "sim/api/registry.hpp"

#include <gtest/gtest.h>

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

TEST(Registry, SecondPolicyOfAName_IsRefused) {
  PolicyRegistry registry;
  registry.add(scheduler(true, true));
  EXPECT_THROW(registry.add(scheduler(true, true)), InvariantError);
}

}  // namespace
}  // namespace spillway
