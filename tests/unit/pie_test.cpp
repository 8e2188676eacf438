// Pie as a policy: its memory layout, its schedulers, and the adaptation of its expansion.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/engine/simulation.hpp"
#include "tests/oracle/list_source.hpp"
#include "tests/oracle/random_case.hpp"

namespace spillway {
namespace {

using oracle::policy_settings;
using testing::HasSubstr;

/// Layers and swaps of constant length, for any batch and any bytes.
class SteadyModel final : public ExecutionModel {
 public:
  SteadyModel(std::int32_t layers, std::int64_t layer, std::int64_t swap) : SteadyModel(layers, layer, swap, swap) {}
  /// With another length of swaps by SMs.
  SteadyModel(std::int32_t layers, std::int64_t layer, std::int64_t swap, std::int64_t by_kernel)
      : layers_(layers), layer_(layer), swap_(swap), by_kernel_(by_kernel) {}
  [[nodiscard]] std::int32_t layers() const override { return layers_; }
  [[nodiscard]] IterationTime iteration(const BatchShape&) const override {
    return {Duration(0), Duration(layer_), Duration(0), {.compute = to_seconds(Duration(layer_ * layers_))}};
  }
  [[nodiscard]] CopyTime copy(Stream, std::int64_t, Bytes, CopyMechanism mechanism) const override {
    return {Duration(0), Duration(mechanism == CopyMechanism::kernel ? by_kernel_ : swap_)};
  }

 private:
  std::int32_t layers_;
  std::int64_t layer_;
  std::int64_t swap_;
  std::int64_t by_kernel_;
};

struct Ran {
  std::vector<RequestRecord> records;  // in order of ending
  RunStatistics statistics;
  [[nodiscard]] double figure(const std::string& name) const { return statistics.find(name)->value.value_or(-1.0); }
};

using Overrides = std::vector<std::pair<std::string, Value>>;

/// `blocks` of 16 tokens and 1,000 bytes fit the GPU without expansion.
Ran run(const PolicyInfo& policy, const Overrides& overrides, const ExecutionModel& model, std::int64_t blocks,
        const std::vector<RequestSpec>& requests, Blocks host = Blocks(0)) {
  const Settings settings = policy_settings(policy, overrides);
  Ran ran;
  oracle::ListSource source(requests);
  SimulationConfig config;
  InstanceConfig& instance = config.instances.emplace_back();
  instance.model = &model;
  instance.policy = &policy;
  instance.settings = &settings;
  read_surroundings(settings, instance);
  config.source = &source;
  instance.deployment = oracle::snug_deployment(model, Blocks(blocks), Bytes(1000), Tokens(16), Bytes(1000));
  if (policy.layer_copies) instance.deployment.layer_copies = policy.layer_copies(settings, false);
  const Layout layout = policy.layout(instance.deployment, settings);
  instance.kv = KvLayout{.gpu_blocks = layout.blocks, .block_tokens = Tokens(16), .block_bytes = Bytes(1000)};
  instance.kv.most_gpu_blocks = layout.most;
  instance.kv.host_blocks = host;
  instance.max_model_len = Tokens(16 * layout.most.count());
  config.on_request = [&](const RequestRecord& record) { ran.records.push_back(record); };
  ran.statistics = simulate(config).statistics;
  return ran;
}

const PolicyInfo& pie() { return *PolicyRegistry::instance().find("pie"); }

/// More requests than fit at any time.
std::vector<RequestSpec> queue(std::int64_t count, std::int64_t input, std::int64_t output) {
  std::vector<RequestSpec> requests(static_cast<std::size_t>(count));
  for (RequestSpec& request : requests) {
    request.input = Tokens(input);
    request.output = request.max_new_tokens = Tokens(output);
  }
  return requests;
}

/// The refusal of a layout or a run.
template <class Attempt>
std::string refusal(Attempt attempt) {
  try {
    attempt();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Pie, SlotsAndBlocksOfOpt30bAreThoseOfTheArithmetic) {
  // OPT-30B: 48 layers, 2 * 48 * 7168 * 2 = 1,376,256 bytes a token, 22,020,096 a block of 16. 7 GB in 48 - 25 = 23
  // slots are 304,347,826 bytes each; 48 of them are 14,608,695,648 bytes, which is 663.4 blocks. The host has 27
  // slots: 8,217,391,302 bytes. Without expansion 7e9 / 48 = 145,833,333 bytes a slot and 317.9 blocks.
  const SteadyModel model(48, 1, 1);
  Deployment deployment = oracle::snug_deployment(model, Blocks(1), Bytes(22'020'096), Tokens(16), Bytes(1));
  deployment.gpu_kv = Bytes(7'000'000'000);
  deployment.memory = deployment.weights + deployment.gpu_kv;
  deployment.host_memory.reset();
  const auto layout = [&](const Overrides& overrides) {
    return pie().layout(deployment, policy_settings(pie(), overrides));
  };
  // 48 / 23 = 2.08696 is the most that 2.09 allows.
  const Layout wide = layout({{"policy.expansion", 2.09}});
  EXPECT_EQ(wide.blocks, Blocks(663));
  EXPECT_EQ(wide.most, Blocks(663));
  EXPECT_EQ(wide.host, Bytes(8'217'391'302));
  EXPECT_EQ(layout({{"policy.expansion", 1.0}}).blocks, Blocks(317));
  EXPECT_EQ(layout({{"policy.expansion", 1.0}}).host, Bytes(0));
  // Adaptive: from nothing on the host to all but three layers. 7e9 / 3 = 2,333,333,333 a slot, 5,086.3 blocks.
  EXPECT_EQ(layout({}).blocks, Blocks(317));
  EXPECT_EQ(layout({}).most, Blocks(5086));
  // 10 GB on the host: m + 2 slots of 7e9 / (48 - m). m = 27: 29 * 333,333,333 = 9.67e9; m = 28: 30 * 350e6 = 10.5e9.
  EXPECT_EQ(layout({{"memory.host_kv", Bytes(10'000'000'000)}}).host, Bytes(29 * 333'333'333LL));
}

TEST(Pie, WhatDoesNotFitIsRefusedWithItsArithmetic) {
  const SteadyModel model(48, 1, 1);
  Deployment deployment = oracle::snug_deployment(model, Blocks(1), Bytes(22'020'096), Tokens(16), Bytes(1));
  deployment.gpu_kv = Bytes(7'000'000'000);
  deployment.memory = deployment.weights + deployment.gpu_kv;
  deployment.host_memory.reset();
  const auto refused = [&](const Overrides& overrides) {
    return refusal([&] { static_cast<void>(pie().layout(deployment, policy_settings(pie(), overrides))); });
  };
  EXPECT_THAT(refused({{"policy.expansion", 16.5}}), HasSubstr("48 / 3 = 16"));
  EXPECT_EQ(refused({{"policy.expansion", 16.0}}), "accepted");
  const std::string host = refused({{"policy.expansion", 2.0}, {"memory.host_kv", Bytes(5'000'000'000)}});
  EXPECT_THAT(host, HasSubstr("24 layers on the host, which takes 26 slots of 0.292 GB = 7.58 GB"));
  EXPECT_THAT(host, HasSubstr("the host has 5.00 GB"));
  deployment.memory = deployment.memory - Bytes(1'000'000'000);
  EXPECT_THAT(refused({}), HasSubstr("do not fit"));
  const SteadyModel shallow(3, 1, 1);
  deployment = oracle::snug_deployment(shallow, Blocks(10), Bytes(1000), Tokens(16), Bytes(1));
  EXPECT_THAT(refused({}), HasSubstr("needs 4 to 256 layers"));
}

// Swaps, a prefix cache and its host tier may share the links and the memory that changes.
TEST(Pie, Check_RefusesOnlyWhatMakesNoSense) {
  const auto problems = [](const Overrides& overrides) {
    std::vector<std::string> keys;
    for (const Problem& problem : pie().check(policy_settings(pie(), overrides))) keys.push_back(problem.where);
    return keys;
  };
  EXPECT_THAT(problems({}), testing::IsEmpty());
  EXPECT_THAT(problems({{"engine.preemption", std::string("swap")}}), testing::IsEmpty());
  EXPECT_THAT(problems({{"memory.host_cache", Bytes(1)}, {"engine.prefix_caching", std::string("true")}}),
              testing::IsEmpty());
  EXPECT_THAT(problems({{"policy.link_traffic", 0.5},
                        {"policy.link_traffic_from", Duration(5)},
                        {"policy.link_traffic_until", Duration(5)}}),
              testing::ElementsAre("policy.link_traffic_until"));
}

// 9 layers of 100 ns, two of them on the host, swaps of a layer of 100 ns: no stalls. Two requests need 16 blocks each
// at the end, and there are 18: one is swapped out and comes back. All layers wait for its copies, and for nothing
// else.
TEST(Pie, SwapsOfRequestsShareTheLinksWithItsLayers) {
  const SteadyModel model(9, 100, 100);
  const Overrides swaps{{"policy.expansion", 9.0 / 7.0}, {"engine.preemption", std::string("swap")}};
  const Ran ran = run(pie(), swaps, model, 14, queue(2, 130, 126), Blocks(100));
  ASSERT_EQ(ran.statistics.all.finished, 2);
  EXPECT_GE(ran.statistics.engine.preempted_swap, 1);
  EXPECT_EQ(ran.statistics.engine.preempted_recompute, 0);
  const Ran recomputes = run(pie(), {swaps[0]}, model, 14, queue(2, 130, 126));
  EXPECT_GE(recomputes.statistics.engine.preempted_recompute, 1);
  EXPECT_GT(ran.figure("d2h_time_fraction") + ran.figure("h2d_time_fraction"), 0.0) << "layers wait for the blocks";
  EXPECT_EQ(ran.figure("layer_stall_fraction"), 0.0) << "and for no layer";
}

// Every other policy's scheduler uses the larger space. A scheduler that never preempts, or that admits prompts with
// memory for a part of them, does so only if the space stays.
TEST(Pie, RunsUnderEveryScheduler) {
  const SteadyModel model(9, 100, 200);
  int schedulers = 0;
  for (const PolicyInfo* host : PolicyRegistry::instance().all()) {
    if (host->layout || host->make_space) continue;
    SCOPED_TRACE(host->name);
    const PolicyInfo* policy = PolicyRegistry::instance().find("pie", host->name);
    ASSERT_NE(policy, nullptr);
    ++schedulers;
    Overrides overrides{{kSchedulerKey, host->name}, {"policy.expansion", 1.3}};
    const bool cuts = !host->check || host->check(policy_settings(*host, {})).empty();
    if (!cuts) overrides.emplace_back("engine.chunked_prefill", false);
    if (!oracle::accepts_preemption(*host, "recompute")) {
      overrides.emplace_back("engine.preemption", std::string("swap"));
    }
    EXPECT_TRUE(policy->check(policy_settings(*policy, overrides)).empty());
    const Ran ran = run(*policy, overrides, model, 70, queue(30, 40, 20), Blocks(200));
    EXPECT_EQ(ran.statistics.all.finished, 30);
    // n = 9: 9 / 7 = 1.2857 is the most below 1.3. 70 blocks become floor(70,000 / 7) * 9 / 1,000 = 90.
    EXPECT_EQ(ran.statistics.engine.layers->peak_capacity, Blocks(90));
    overrides.erase(overrides.begin() + 1);
    const auto problems = policy->check(policy_settings(*policy, overrides));
    EXPECT_EQ(problems.empty(), host->preempts && !host->admits_parts);
  }
  EXPECT_GE(schedulers, 7);
}

TEST(Pie, IsNoSchedulerForAnother) {
  EXPECT_EQ(PolicyRegistry::instance().find("pie", "pie"), nullptr);
  EXPECT_EQ(PolicyRegistry::instance().find("vllm", "vllm-v0"), nullptr);
  EXPECT_EQ(PolicyRegistry::instance().find("pie", "none"), nullptr);
}

// Fig. 4 in the engine: n = 9, swaps of two layers' time. Up to m = 2 no iteration is longer than its layers, at m = 3
// it is: 11.25 layer times on average instead of 9.
TEST(Pie, IterationsStallOnlyBeyondWhatTheLinkCarries) {
  const SteadyModel model(9, 100, 200);
  const auto itl = [&](double expansion) {
    const Ran ran = run(pie(), {{"policy.expansion", expansion}}, model, 70, queue(1, 16, 401));
    return ran.figure("mean_itl_ms") * 1e6;
  };
  EXPECT_EQ(itl(1.0), 900.0);
  EXPECT_EQ(itl(9.0 / 8.0), 900.0);
  EXPECT_EQ(itl(9.0 / 7.0), 900.0);
  EXPECT_NEAR(itl(9.0 / 6.0), 1125.0, 3.0);
}

// The same, when SMs take a layer's time and copy engines two: at m = 3 a layer of the former is away for (3 + 1) * 1 +
// 1 = 5 of 8 layer times, and nothing waits.
TEST(Pie, IterationsDependOnWhatCopiesTheSlots) {
  const SteadyModel model(9, 100, 200, 100);
  const auto itl = [&](const char* copy) {
    const Ran ran =
        run(pie(), {{"policy.expansion", 9.0 / 6.0}, {"policy.copy", std::string(copy)}}, model, 70, queue(1, 16, 401));
    return ran.figure("mean_itl_ms") * 1e6;
  };
  EXPECT_EQ(itl("kernel"), 900.0);
  EXPECT_NEAR(itl("engine"), 1125.0, 3.0);
}

TEST(Pie, CopiesBySmsIfTheProfileHasTheirFigures) {
  const auto by = [](const Overrides& overrides, bool figures) {
    return pie().layer_copies(policy_settings(pie(), overrides), figures);
  };
  EXPECT_EQ(by({}, true), CopyMechanism::kernel);
  EXPECT_EQ(by({}, false), CopyMechanism::single);
  for (const bool figures : {false, true}) {
    EXPECT_EQ(by({{"policy.copy", std::string("kernel")}}, figures), CopyMechanism::kernel);
    EXPECT_EQ(by({{"policy.copy", std::string("engine")}}, figures), CopyMechanism::single);
  }
}

// n = 40 and swaps of two layers' time, whatever their size. A layer is away for (m + 1) * 2 + 2 layer times, and may
// be away for 39: 17 layers are the most without waits. The 18th is away for 40. It costs 1 of 41 layer times and
// brings 1 / 22 of the capacity. The 19th is away for 42, costs 3 of 43 and brings 1 / 21. So the expansion ends at 40
// / 22.
TEST(Pie, ExpandsUntilALayerCostsMoreThanItBrings) {
  const SteadyModel model(40, 1000, 2000);
  const Ran ran = run(pie(), {}, model, 100, queue(600, 100, 100));
  EXPECT_EQ(ran.statistics.all.finished, 600);
  EXPECT_NEAR(ran.figure("peak_expansion_ratio"), 40.0 / 22.0, 0.01);
  EXPECT_NEAR(ran.figure("layer_stall_fraction"), 1.0 / 41.0, 0.01);
  // Up by 17 layers at once, then by one.
  const auto blocks = [](std::int64_t m) { return Blocks(100'000 / (40 - m) * 40 / 1000); };
  const auto& changes = ran.statistics.engine.layers->changes;
  ASSERT_GE(changes.size(), 3U);
  EXPECT_EQ(changes[0].capacity, Blocks(100));
  EXPECT_EQ(changes[1].capacity, blocks(17));
  EXPECT_EQ(changes[2].capacity, blocks(18));
  // 40 swaps take 40 * 2 layer times, two iterations. Here they are in step with the layers, so the layers whose turn
  // it never was follow in as many iterations again and some more: less than 8. The 18th waits for a window before.
  EXPECT_LT(changes[2].at - changes[1].at, Duration(std::int64_t{8 + 8} * 41'000));
}

// Forty requests need 8 blocks each, three times the memory. The last request takes at most 71 of the 100 blocks: some
// 512 iterations after it is alone, all layers come back, one a window and a round of swaps. Alone, it moves none.
TEST(Pie, ComesDownAfterABurst) {
  const SteadyModel model(40, 1000, 2000);
  std::vector<RequestSpec> requests = queue(41, 100, 28);
  requests.back().output = requests.back().max_new_tokens = Tokens(1030);
  const Ran ran = run(pie(), {}, model, 100, requests);
  EXPECT_EQ(ran.statistics.all.finished, 41);
  EXPECT_GT(ran.figure("peak_expansion_ratio"), 1.2);
  EXPECT_EQ(ran.statistics.engine.layers->last_capacity, Blocks(100));
  const Ran alone = run(pie(), {}, model, 100, {requests.back()});
  EXPECT_EQ(alone.figure("peak_expansion_ratio"), 1.0);
}

TEST(Pie, StaysSmallWhenNothingWaits) {
  const SteadyModel model(40, 1000, 2000);
  const Ran ran = run(pie(), {}, model, 100, queue(2, 100, 300));
  EXPECT_EQ(ran.figure("peak_expansion_ratio"), 1.0);
  EXPECT_EQ(ran.figure("peak_host_layer_bytes"), 0.0);
  EXPECT_EQ(ran.figure("h2d_link_fraction"), 0.0);
}

// With half of the link, swaps take four layers' time: 39 / 4 - 2 = 7 layers. The plan does not know of the traffic, so
// the first raise is by 17 layers. They wait 76 - 39 of 77 layer times: half of the raise goes, which leaves 9 layers.
// They wait 5 of 45, 11.1%, which is more than three layers bring (1 - 31 / 34 = 8.8%), and not more than four (11.4%).
// With 6 layers nothing waits. The 8th layer waits 1 of 41 and brings 1 / 33, the 9th has failed. When the traffic
// comes at 60 ms, the expansion falls from 17 layers' to about that, too, and rises again after it has gone.
TEST(Pie, GivesWayToOtherTraffic) {
  const SteadyModel model(40, 1000, 2000);
  const auto last = [&](const Overrides& overrides) { return run(pie(), overrides, model, 100, queue(900, 100, 100)); };
  const Ran always = last({{"policy.link_traffic", 1.0}});
  std::vector<Blocks> blocks;
  for (const auto& change : always.statistics.engine.layers->changes) blocks.push_back(change.capacity);
  ASSERT_GE(blocks.size(), 5U);
  blocks.resize(5);
  // 100 * 40 / (40 - m) blocks, in slots of whole bytes.
  EXPECT_EQ(blocks, (std::vector<Blocks>{Blocks(100), Blocks(173), Blocks(129), Blocks(117), Blocks(125)}));
  const Ran burst = last({{"policy.link_traffic", 1.0},
                          {"policy.link_traffic_from", Duration(60'000'000)},
                          {"policy.link_traffic_until", Duration(120'000'000)}});
  EXPECT_EQ(burst.statistics.all.finished, 900);
  Blocks before;
  Blocks least(1'000'000);
  for (const auto& change : burst.statistics.engine.layers->changes) {
    if (change.at < SimTime(60'000'000)) before = change.capacity;
    if (change.at > SimTime(60'000'000) && change.at < SimTime(120'000'000)) least = std::min(least, change.capacity);
  }
  EXPECT_GE(before, Blocks(165));  // 16 layers: 100 * 40 / 24 = 166.7
  EXPECT_LE(least, Blocks(125));   // 8 layers: 100 * 40 / 32
  EXPECT_GT(burst.statistics.engine.preempted_recompute, 0);
}

// The slots take some iterations to get to the size of a lower. Stalls on the way say nothing about that size. n = 40,
// swaps of two layers' time (17 layers without stalls), and of four from 60 ms on: the expansion is lowered by one
// layer after another, each time for the stalls of a window of 8 iterations of at least 40 us. If the traffic ends 60
// us after the first lower, the other iterations of the resize and the window after it are without stalls: the first
// lower remains the only one in the 64 iterations after which a raise may come.
TEST(Pie, StallsWhileSlotsAreResized_DoNotLowerAgain) {
  const SteadyModel model(40, 1000, 2000);
  const auto lowers = [&](const Overrides& more) {
    Overrides overrides{{"policy.link_traffic", 1.0}, {"policy.link_traffic_from", Duration(60'000'000)}};
    overrides.insert(overrides.end(), more.begin(), more.end());
    const Ran ran = run(pie(), overrides, model, 100, queue(900, 100, 100));
    std::vector<SimTime> times;
    const auto& changes = ran.statistics.engine.layers->changes;
    for (std::size_t i = 1; i < changes.size(); ++i) {
      if (changes[i].capacity < changes[i - 1].capacity) times.push_back(changes[i].at);
    }
    return times;
  };
  const std::vector<SimTime> always = lowers({});
  ASSERT_GE(always.size(), 2U);
  ASSERT_GE(always[0], SimTime(60'000'000));
  const SimTime quiet = always[0] + Duration(std::int64_t{64} * 40'000);
  EXPECT_LT(always[1], quiet) << "with the traffic the next lower comes soon";
  const Duration until = always[0] - SimTime{} + Duration(60'000);
  const std::vector<SimTime> brief = lowers({{"policy.link_traffic_until", until}});
  ASSERT_GE(brief.size(), 1U);
  EXPECT_EQ(brief[0], always[0]);
  if (brief.size() > 1) {
    EXPECT_GT(brief[1], quiet);
  }
}

// 100 blocks hold 1,600 tokens; the second request needs 2,000 and is the only one left: the GPU's KV is recut for it.
TEST(Pie, ExpandsForARequestThatNeedsIt) {
  const SteadyModel model(40, 1000, 50'000);
  std::vector<RequestSpec> requests = queue(2, 100, 50);
  requests[1].input = Tokens(1900);
  requests[1].output = requests[1].max_new_tokens = Tokens(100);
  const Ran ran = run(pie(), {{"engine.max_num_batched_tokens", std::int64_t{4096}}}, model, 100, requests);
  ASSERT_EQ(ran.statistics.all.finished, 2);
  // Its prompt takes 119 blocks, beside a watermark of 1: 100 * 40 / (40 - m) >= 120 from m = 7 on (121 blocks). It
  // fills them with its 1,936th token, is computed again, and then needs 122: m = 8 gives 125, which is all it needs.
  EXPECT_EQ(ran.statistics.engine.preempted_recompute, 1);
  EXPECT_EQ(ran.statistics.engine.layers->peak_capacity, Blocks(125));
  EXPECT_EQ(ran.statistics.engine.layers->last_capacity, Blocks(125)) << "a request that needs the room keeps it";
}

}  // namespace
}  // namespace spillway
