// What pools have of their own under a policy whose layout depends on the phase.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/study/assemble.hpp"
#include "sim/study/pools.hpp"

namespace spillway {
namespace {

TEST(PoolPlans, EachPoolHasItsPhase) {
  Settings settings;
  settings.set("policy.weights.phase", std::string("both"));
  settings.set("policy.weights.interval", std::int64_t{4});
  const std::vector<PoolPlan> pools = plan_pools(settings);
  ASSERT_EQ(pools.size(), 2U);
  EXPECT_EQ(pools[0].settings.get<std::string>("policy.weights.phase"), "prefill");
  EXPECT_EQ(pools[1].settings.get<std::string>("policy.weights.phase"), "decode");
  for (const PoolPlan& pool : pools) EXPECT_EQ(pool.settings.get<std::int64_t>("policy.weights.interval"), 4);
  settings = {};
  settings.set("policy.interval", std::int64_t{4});
  EXPECT_TRUE(plan_pools(settings).empty());
}

// A request needs room in both pools, and the host room for either.
TEST(PoolPlans, BothHoldTheFewestBlocks) {
  const PoolPlan prompts{
      .layout = {.blocks = Blocks(10), .most = Blocks(30), .host = Bytes(7), .host_kv = Bytes(1), .terms = "one"}};
  const PoolPlan answers{
      .layout = {.blocks = Blocks(12), .most = Blocks(20), .host = Bytes(5), .host_kv = Bytes(2), .terms = "other"}};
  for (const Layout& both : {layout_of_both(prompts, answers), layout_of_both(answers, prompts)}) {
    EXPECT_EQ(both.blocks, Blocks(10));
    EXPECT_EQ(both.most, Blocks(20));
    EXPECT_EQ(both.host, Bytes(7));
    EXPECT_EQ(both.host_kv, Bytes(2));
  }
  EXPECT_EQ(layout_of_both(prompts, answers).terms, "for prompts: one; for answers: other");
  EXPECT_EQ(layout_of_both(prompts, prompts).terms, "one");
}

// Two replicas to a server: one of prompts and one of answers on the first, one of answers on the second.
TEST(PoolPlans, EachReplicaAsksForTheRateOfItsPool) {
  InstancePlan plan;
  plan.replicas = 3;
  plan.per_server = 2;
  plan.pools = {.prefill = 1, .decode = 2};
  plan.routes.resize(2);
  plan.least_rate = BytesPerSecond(5.0);
  const auto rates = [&plan](std::int64_t server) {
    std::vector<double> all;
    for (const BusInstance& one : plan.on_bus(server)) all.push_back(one.least_rate.value());
    return all;
  };
  EXPECT_THAT(rates(0), testing::ElementsAre(5.0, 5.0));
  plan.by_pool.resize(2);
  plan.by_pool[0].layout.least_rate = BytesPerSecond(10.0);
  plan.by_pool[1].layout.least_rate = BytesPerSecond(20.0);
  EXPECT_THAT(rates(0), testing::ElementsAre(10.0, 20.0));
  EXPECT_THAT(rates(1), testing::ElementsAre(20.0));
  EXPECT_EQ(plan.on_bus(1).front().route, &plan.routes.front());
}

}  // namespace
}  // namespace spillway
