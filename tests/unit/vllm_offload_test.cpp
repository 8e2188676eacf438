// vLLM's two ways of offloading weights (policies/vllm-prefetch.cpp, vllm-uva.cpp), by hand: steady
// states and byte budgets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/unit/expert_bench.hpp"

namespace spillway {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kLayer = 1000;  // bytes of a layer

/// Layers of these tensors, on a GPU that holds all of them.
Deployment layers(std::int32_t count, const std::vector<LayerTensor>& tensors) {
  Deployment deployment;
  deployment.layers = count;
  deployment.tensors.assign(static_cast<std::size_t>(count), tensors);
  for (const LayerTensor& tensor : tensors) deployment.weights += tensor.bytes * count;
  deployment.weights += Bytes(100);
  deployment.memory = deployment.weights + Bytes(100'000);
  deployment.block_bytes = Bytes(10);
  deployment.gpu_kv = Bytes(1000);
  deployment.gpu_kv_given = true;
  deployment.experts.emplace();  // the bench's routers, which no policy here asks
  return deployment;
}

/// Layers of 1 us; a copy of a layer takes `copy` us.
ExpertModel model(std::int32_t count, double copy) {
  return {count, Duration(1000), static_cast<double>(kLayer) / (copy * 1e-6)};
}

Overrides group(std::int64_t size, std::int64_t in_group, std::int64_t step) {
  return {{"policy.group_size", size}, {"policy.num_in_group", in_group}, {"policy.prefetch_step", step}};
}

/// The command line that a layout with these settings stands for.
std::string flags(const std::string& policy, const Overrides& overrides, const Layout& layout) {
  const PolicyInfo& info = *PolicyRegistry::instance().find(policy);
  const EngineFlags flags = info.engine_flags(oracle::policy_settings(info, overrides), layout.chosen);
  return flags.engine + ": " + flags.flags;
}

/// Microseconds of an iteration in steady state: the tenth.
double steady(const Overrides& overrides, double copy) {
  const ExpertModel times = model(8, copy);
  ExpertBench bench("vllm-prefetch", times, layers(8, {{Bytes(kLayer)}}), overrides);
  for (int i = 0; i < 9; ++i) static_cast<void>(bench.iterate());
  return to_seconds(bench.iterate()) * 1e6;
}

// Test 9: eight layers of 1 in groups of 4, the last one offloaded (3 and 7). A copy of 5 starts at the end of 3; three
// layers pass, 2 are waited for, and layer 7 computes: 5 + 1 for each group. A copy of 2 hides: 3 + 1.
TEST(VllmPrefetch, AGroupTakesItsCopyOrItsLayers) {
  EXPECT_DOUBLE_EQ(steady(group(4, 1, 1), 5.0), 12.0);
  EXPECT_DOUBLE_EQ(steady(group(4, 1, 1), 2.0), 8.0);
}

// Two slots for two layers: each is copied again after its own forward. Two copies of 5 for 8 layers of 1: the link is
// busy for 10. Two of 3 hide.
TEST(VllmPrefetch, WithASlotForEachLayerTheLinkStillCarriesAll) {
  EXPECT_DOUBLE_EQ(steady(group(4, 1, 2), 5.0), 10.0);
  EXPECT_DOUBLE_EQ(steady(group(4, 1, 2), 3.0), 8.0);
  // Three ahead of two layers is the next one, whose copy is waited for although it has a slot of its own.
  EXPECT_DOUBLE_EQ(steady(group(4, 1, 3), 5.0), 12.0);
}

// Two of four layers (2, 3, 6, 7), one slot: the copy of 3 starts when 2 has ended, and is waited for in full. Four
// times 5 + 1. Two slots: the link carries four copies of 5.
TEST(VllmPrefetch, SeveralLayersOfAGroupWaitForEachOther) {
  EXPECT_DOUBLE_EQ(steady(group(4, 2, 1), 5.0), 24.0);
  EXPECT_DOUBLE_EQ(steady(group(4, 2, 2), 5.0), 20.0);
}

// The first iteration finds layer 3 in its slot: 4 layers, of which the copy of 7 starts at the end of the fourth; it
// takes 5, then layer 7: 10. The second one waits for the copy of 3 from the end of the first: 5 + 1, 5 + 1.
TEST(VllmPrefetch, StartsWithTheFirstLayersInTheirSlots) {
  const ExpertModel times = model(8, 5.0);
  ExpertBench bench("vllm-prefetch", times, layers(8, {{Bytes(kLayer)}}), group(4, 1, 1));
  EXPECT_EQ(bench.iterate(), Duration(10'000));
  EXPECT_EQ(bench.iterate(), Duration(12'000));
  EXPECT_EQ(bench.copied(Stream::h2d), Bytes(3 * kLayer)) << "the copy of layer 3 for the third iteration is under way";
}

// 8 layers of 1,000 bytes and 100 bytes beside. Group 4: 2 layers on the host, one slot: 6,100 + 1,000 bytes. Of
// 107,100, 1,000 are asked for KV: 100 blocks.
TEST(VllmPrefetch, MemoryHasASlotForEachStep) {
  const ExpertModel times = model(8, 1.0);
  const auto layout = [&](const Overrides& overrides, Deployment deployment) {
    return ExpertBench("vllm-prefetch", times, std::move(deployment), overrides).layout();
  };
  const Layout one = layout(group(4, 1, 1), layers(8, {{Bytes(kLayer)}}));
  EXPECT_EQ(one.host, Bytes(2 * kLayer));
  EXPECT_EQ(one.weights, Bytes(7100));
  EXPECT_EQ(one.blocks, Blocks(100));
  EXPECT_EQ(layout(group(4, 1, 2), layers(8, {{Bytes(kLayer)}})).weights, Bytes(8100));
  EXPECT_EQ(layout(group(4, 3, 1), layers(8, {{Bytes(kLayer)}})).host, Bytes(6 * kLayer));
  EXPECT_EQ(flags("vllm-prefetch", group(4, 1, 2), one),
            "vLLM: --offload-group-size 4 --offload-num-in-group 1 --offload-prefetch-step 2");
  // Of 9,000 bytes, KV takes 1,000, other weights 100 and a slot 1,000: six layers may stay, two leave. Groups of 3
  // leave two (2 and 5), as groups of 4 do; of 5,500 bytes, three may stay: groups of 3 leave four with two each (1, 2,
  // 4, 5, 7 are five).
  Deployment small = layers(8, {{Bytes(kLayer)}});
  small.memory = Bytes(9000);
  EXPECT_EQ(layout({}, small).host, Bytes(2 * kLayer));
  EXPECT_EQ(layout({}, small).chosen.get<std::int64_t>("policy.group_size"), 3);
  small.memory = Bytes(5500);
  EXPECT_EQ(layout({}, small).host, Bytes(5 * kLayer));
  EXPECT_EQ(layout({}, small).chosen.get<std::int64_t>("policy.group_size"), 3);
  EXPECT_EQ(layout({}, small).chosen.get<std::int64_t>("policy.num_in_group"), 2);
  EXPECT_EQ(layout({{"policy.num_in_group", std::int64_t{1}}}, small).host, Bytes(8 * kLayer)) << "groups of 2 leave 4";
  EXPECT_EQ(layout({}, layers(8, {{Bytes(kLayer)}})).host, Bytes(0)) << "all of it fits";
}

// Attention of 400 bytes and experts of 600: the experts alone are copied, all of them.
TEST(VllmPrefetch, CopiesAllExpertsWhereTheyAloneAreOffloaded) {
  const ExpertModel times = model(4, 10.0);
  Deployment deployment = layers(4, {{Bytes(400)}, {Bytes(600), true}});
  deployment.active_experts = [](std::int64_t) { return 0.1; };
  Overrides overrides = group(4, 1, 1);
  overrides.emplace_back("policy.offload_params", std::string("experts"));
  ExpertBench bench("vllm-prefetch", times, deployment, overrides);
  EXPECT_EQ(bench.layout().host, Bytes(600));
  static_cast<void>(bench.iterate());
  // The copy of 6 us starts at the end of layer 3; three layers pass: 6 + 1.
  EXPECT_EQ(bench.iterate(), Duration(7000));
  EXPECT_EQ(bench.copied(Stream::h2d), Bytes(600));
}

TEST(VllmPrefetch, RefusesWhatCannotBe) {
  const ExpertModel times = model(8, 1.0);
  const auto problem = [&](const Overrides& overrides, Deployment deployment) -> std::string {
    try {
      static_cast<void>(ExpertBench("vllm-prefetch", times, std::move(deployment), overrides));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_THAT(problem({{"policy.offload_params", std::string("experts")}}, layers(8, {{Bytes(kLayer)}})),
              HasSubstr("the model has no experts"));
  Deployment small = layers(8, {{Bytes(kLayer)}});
  small.memory = Bytes(3000);
  EXPECT_THAT(problem(group(4, 1, 1), small), HasSubstr("take"));
  const auto* info = PolicyRegistry::instance().find("vllm-prefetch");
  const auto problems = info->check(oracle::policy_settings(*info, group(2, 3, 1)));
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].what, "policy.num_in_group=3 is more than the 2 layers of a group");
  EXPECT_TRUE(info->check(oracle::policy_settings(*info, group(2, 2, 1))).empty());
  EXPECT_TRUE(info->check(oracle::policy_settings(*info, group(0, 2, 1))).empty());
}

// Test 11: layers of 1 GB in parts of two thirds and one third. 1.5 GB: layer 0 whole (1.0), layer 1's first part
// (1.667 >= 1.5). Layer 0 reads 1 GB at 0.8 of the link's bandwidth.
TEST(VllmUva, OffloadsWholeTensorsUpToItsBudget) {
  const ExpertModel times(4, Duration(1000), 1e9);
  const Deployment deployment = layers(4, {{Bytes(666'666'667)}, {Bytes(333'333'333)}});
  const auto offload = [&](std::int64_t bytes, bool uva, double efficiency) {
    Deployment roomy = deployment;
    roomy.memory += Bytes(1'000'000'000);
    return ExpertBench(
        "vllm-uva", times, roomy,
        {{"policy.cpu_offload", Bytes(bytes)}, {"policy.uva", uva}, {"policy.uva_efficiency", efficiency}});
  };
  ExpertBench bench = offload(1'500'000'000, true, 0.8);
  EXPECT_EQ(bench.layout().host, Bytes(1'666'666'667));
  EXPECT_EQ(bench.layout().weights, deployment.weights - Bytes(1'666'666'667));
  EXPECT_EQ(flags("vllm-uva", {}, bench.layout()), "vLLM: --cpu-offload-gb 1.40");  // 1.5e9 / 2^30
  EXPECT_EQ(
      flags("vllm-uva", {{"policy.uva", false}, {"policy.offload_params", std::string("experts")}}, bench.layout()),
      "SGLang: --cpu-offload-gb 1.40");
  EXPECT_EQ(bench.iterate(), Duration(4000 + 1'250'000'000 + 833'333'334));
  EXPECT_EQ(bench.copied(Stream::h2d), Bytes(1'666'666'667));
  EXPECT_EQ(offload(0, true, 0.8).iterate(), Duration(4000));
  // Copied instead, with a buffer for the largest layer's.
  ExpertBench copies = offload(1'500'000'000, false, 0.8);
  EXPECT_EQ(copies.layout().weights, deployment.weights - Bytes(666'666'667));
  EXPECT_EQ(copies.iterate(), Duration(4000 + 1'000'000'000 + 666'666'667));
}

// Test 8: Mixtral-8x7B in bf16, experts of 352,321,536 bytes, 8 of 32 layers each, none on the GPU, 25 GB/s. Copied:
// 90,194,313,216 bytes in 3.60777 s for any batch. In place, one token uses 2 of 8: 22,548,578,304 bytes in 0.901943 s.
TEST(VllmUva, ReadsTheExpertsInUse) {
  constexpr std::int64_t kExpert = 352'321'536;
  const ExpertModel times(32, Duration(0), 25e9);
  Deployment deployment =
      layers(32, {{Bytes(100)}, {Bytes(8 * kExpert / 3 * 2), true}, {Bytes(8 * kExpert / 3), true}});
  deployment.active_experts = [](std::int64_t tokens) { return std::min(1.0, static_cast<double>(tokens) / 4.0); };
  deployment.memory = Bytes(8'000'000'000);
  const auto bench = [&](bool uva) {
    return ExpertBench("vllm-uva", times, deployment,
                       {{"policy.cpu_offload", Bytes(1'000'000'000'000)},
                        {"policy.uva", uva},
                        {"policy.uva_efficiency", 1.0},
                        {"policy.offload_params", std::string("experts")}});
  };
  ExpertBench copied = bench(false);
  EXPECT_EQ(copied.layout().host, Bytes(90'194'313'216));
  EXPECT_NEAR(to_seconds(copied.iterate(1)), 3.60777, 1e-5);
  EXPECT_NEAR(to_seconds(copied.iterate(100)), 3.60777, 1e-5);
  ExpertBench in_place = bench(true);
  EXPECT_NEAR(to_seconds(in_place.iterate(1)), 0.901943, 1e-6);
  EXPECT_EQ(in_place.copied(Stream::h2d), Bytes(22'548'578'304));
  EXPECT_NEAR(to_seconds(in_place.iterate(4)), 3.60777, 1e-5);
}

// 100 + 4 * 1,000 bytes, KV of 1,000, 3,600 in all: 1,500 must leave, so 2 layers do. Copied, the largest layer needs a
// buffer of 1,000: then 2,500 must leave, 3 layers.
TEST(VllmUva, WithoutABudget_OffloadsTheLeastThatLeavesTheKv) {
  const ExpertModel times = model(4, 1.0);
  Deployment deployment = layers(4, {{Bytes(kLayer)}});
  deployment.memory = Bytes(3600);
  const auto host = [&](bool uva) {
    return ExpertBench("vllm-uva", times, deployment, {{"policy.uva", uva}}).layout().host;
  };
  EXPECT_EQ(host(true), Bytes(2 * kLayer));
  EXPECT_EQ(host(false), Bytes(3 * kLayer));
  deployment.memory = Bytes(100'000);
  EXPECT_EQ(host(true), Bytes(0));
}

}  // namespace
}  // namespace spillway
