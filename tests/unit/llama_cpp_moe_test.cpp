// llama.cpp's static split of experts (policies/llama-cpp-moe.cpp), by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/exec/expert_sample.hpp"
#include "tests/unit/expert_bench.hpp"

namespace spillway {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kExpert = 2'654'208;  // Qwen3-30B-A3B, 3 x 2048 x 768 weights of 0.5625 bytes

/// Qwen3-30B-A3B: 48 layers of 128 experts, 8 per token. GPU 400 GB/s, host 80 GB/s and 1 TFLOP/s, dense weights 0.9
/// GB.
Deployment qwen() {
  ExpertDeployment experts;
  experts.count = 128;
  experts.top_k = 8;
  for (std::int32_t layer = 0; layer < 48; ++layer) experts.layers.push_back(layer);
  experts.bytes = Bytes(kExpert);
  experts.parameters = 3.0 * 2048 * 768;
  experts.hidden_bytes = 0;
  experts.gpu_bandwidth = 400e9;
  experts.gpu_flops = 1e15;
  experts.dram_peak = 80e9;
  experts.cpu_flops = RateByRows({{1, 1e12}});
  Deployment deployment;
  deployment.layers = 48;
  deployment.weights = Bytes(900'000'000) + experts.all_bytes();
  deployment.memory = Bytes(24'000'000'000);
  deployment.block_bytes = Bytes(1'572'864);  // 16 tokens of 4 KV heads of 128, 2 bytes, 48 layers
  deployment.gpu_kv = Bytes(5'000'000'000);
  deployment.experts = experts;
  return deployment;
}

/// Attention and the rest of 0.9 GB take 900e6 / 400e9 s = 2.25 ms, 46,875 ns a layer. The link moves 12 GB/s.
const ExpertModel& qwen_model() {
  static const ExpertModel kModel(48, Duration(46'875), 12e9);
  return kModel;
}

Overrides split(std::int64_t layers, std::int64_t sync_ns = 25'000) {
  return {{"policy.n_cpu_moe", layers},
          {"policy.cpu_efficiency", 1.0},
          {"policy.sync", Duration(sync_ns)},
          {"policy.cpu_start", Duration(0)},
          {"policy.mmap", false}};
}

// A layer's experts are 128 w = 339,738,624 bytes; 36 layers of them are on the host. A token
// reads 36 x 8 w = 764,411,904 bytes there at 80 GB/s, 9.5551 ms; 12 x 8 w = 254,803,968 bytes on the GPU at 400 GB/s;
// and 36 layers wait 2 x 25 us. 0.9 GB of the rest at 400 GB/s: 2.25 ms. Each of 36 calls takes 21,233,664 / 80e9 s =
// 265,420.8 ns, rounded to 265,421; each of 12 layers 21,233,664 / 400e9 s = 53,084.16 ns, rounded to 53,084:
//   48 x 46,875 + 36 x (50,000 + 265,421) + 12 x 53,084 = 2,250,000 + 11,355,156 + 637,008 = 14,242,164 ns.
TEST(LlamaCppMoe, ATokenOfASplitModelTakesTheSumOfItsParts) {
  ExpertBench bench("llama-cpp-moe", qwen_model(), qwen(), split(36));
  EXPECT_EQ(bench.layout().host, Bytes(12'230'590'464));
  bench.routers.used.assign(48, first_experts(8));
  const Duration token = bench.iterate();
  EXPECT_EQ(token.count(), 14'242'164);
  EXPECT_NEAR(1.0 / to_seconds(token), 70.214, 0.001);
  EXPECT_EQ(bench.copied(Stream::h2d), Bytes(0));
  EXPECT_EQ(bench.figures().at("cpu_expert_bytes"), 764'411'904.0);
  EXPECT_EQ(bench.figures().at("expert_cpu_fraction"), 0.75);
}

// A whole number of experts instead of the expected one. At T = 31 the CPU reads 111
// experts a layer, 294,617,088 bytes at 80 GB/s: 3,682,714 ns; its arithmetic, 2 x 4,718,592 x 248 / 1e12 s = 2.34 ms,
// is shorter. At T = 32 the link copies 112, 297,271,296 bytes at 12 GB/s: 24,772,608 ns, and the GPU then reads them
// at 400 GB/s: 743,178 ns. 12 layers on the GPU read their experts likewise.
TEST(LlamaCppMoe, FromThirtyTwoTokensOnTheExpertsInUseAreCopied) {
  ExpertBench bench("llama-cpp-moe", qwen_model(), qwen(), split(36, 0));
  bench.routers.used.assign(48, first_experts(111));
  const std::int64_t resident_111 = 736'543;  // 294,617,088 / 400e9 s = 736,542.72 ns
  EXPECT_EQ(bench.iterate(31).count(), 48 * 46'875LL + 36 * 3'682'714LL + 12 * resident_111);
  EXPECT_EQ(bench.copied(Stream::h2d), Bytes(0));
  bench.routers.used.assign(48, first_experts(112));
  EXPECT_EQ(bench.iterate(32).count(), 48 * 46'875LL + 36 * 24'772'608LL + 48 * 743'178LL);
  EXPECT_EQ(bench.copied(Stream::h2d), Bytes(297'271'296LL * 36));
  EXPECT_EQ(bench.figures().at("demanded_expert_bytes"), 297'271'296.0 * 36);
}

// The time of the experts on the host is linear in their number, so runs with the whole numbers around
// D(T) = 128 (1 - (1 - 8/128)^T) give that of D. T = 31: D = 110.6891, and 36 D w = 10.5765 GB at 80 GB/s take 132.21
// ms. The arithmetic alone, 36 x 2 x 4,718,592 x 248 / 1e12 s = 84.26 ms, shows where only 8 experts are read. T = 32:
// D = 111.7710, and 10.6799 GB at 12 GB/s take 889.99 ms.
TEST(LlamaCppMoe, TheExpectedNumberOfExpertsTakesTheTimeOfTheThreshold) {
  ExpertBench bench("llama-cpp-moe", qwen_model(), qwen(), split(36, 0));
  const auto on_host_ms = [&](std::int32_t distinct, std::int64_t tokens) {
    bench.routers.used.assign(48, first_experts(distinct));
    const auto resident = std::llround(static_cast<double>(distinct * kExpert) / 400e9 * 1e9);
    // From 32 tokens on, the GPU computes all 48 layers.
    const std::int64_t on_gpu = tokens < 32 ? 12 : 48;
    return static_cast<double>(bench.iterate(tokens).count() - 48 * 46'875LL - on_gpu * resident) / 1e6;
  };
  const auto expected_ms = [&](std::int64_t tokens) {
    const double d = distinct_experts(std::vector<double>(128, 8.0 / 128.0), tokens);
    const auto below = static_cast<std::int32_t>(d);
    return on_host_ms(below, tokens) * (below + 1 - d) + on_host_ms(below + 1, tokens) * (d - below);
  };
  EXPECT_NEAR(distinct_experts(std::vector<double>(128, 8.0 / 128.0), 31), 110.6891, 5e-5);
  EXPECT_NEAR(expected_ms(31), 132.21, 0.005);
  EXPECT_NEAR(on_host_ms(8, 31), 84.26, 0.005);
  EXPECT_NEAR(expected_ms(32), 889.99, 0.005);
}

// Runs of consecutive experts: D (E - D + 1) / E = 112 x 17 / 128 = 14.875, so 15 runs of three matrices are 45 copies
// of 1 us each. Page-locked memory is 1 / 0.55 times as fast: 24,772,608 / 0.55 = 45,041,105 ns. Ids take the way of 7
// us.
TEST(LlamaCppMoe, CopiesOfRunsFromPageableMemoryFollowTheIds) {
  const ExpertModel model(48, Duration(0), 12e9, Duration(1000));
  Overrides overrides = split(48, 7'000);
  overrides.back() = {"policy.mmap", true};
  ExpertBench bench("llama-cpp-moe", model, qwen(), overrides);
  bench.routers.used.assign(48, first_experts(112));
  EXPECT_EQ(bench.iterate(32).count(), 48 * (7'000LL + 45'000LL + 45'041'105LL + 743'178LL));
  // All experts of a layer are one run of three copies.
  bench.routers.used.assign(48, first_experts(128));
  const std::int64_t all = 128 * kExpert;
  EXPECT_EQ(bench.iterate(512).count(),
            48 * (7'000LL + 3'000LL + std::llround(static_cast<double>(all) / 12e9 / 0.55 * 1e9) +
                  std::llround(static_cast<double>(all) / 400e9 * 1e9)));
}

TEST(LlamaCppMoe, WithoutOpOffloadTheCpuComputesPromptsToo) {
  Overrides overrides = split(48, 0);
  overrides.emplace_back("policy.op_offload_min_batch", std::int64_t{0});
  ExpertBench bench("llama-cpp-moe", qwen_model(), qwen(), overrides);
  bench.routers.used.assign(48, first_experts(128));
  // 4,096 rows of 2 x 4,718,592 FLOP at 1 TFLOP/s: 38,654,706 ns, more than reading 128 w at 80 GB/s, 4.2 ms.
  EXPECT_EQ(bench.iterate(512).count(), 48 * (46'875LL + 38'654'706LL));
}

// The first layers by number count, with experts or not: of DeepSeek-V3's 61 layers 3 are dense, so N = 10 moves 7.
TEST(LlamaCppMoe, LeadingDenseLayersCount) {
  Deployment deployment = qwen();
  deployment.experts->layers.erase(deployment.experts->layers.begin(), deployment.experts->layers.begin() + 3);
  deployment.weights = Bytes(900'000'000) + deployment.experts->all_bytes();
  const ExpertBench bench("llama-cpp-moe", qwen_model(), deployment, split(10));
  EXPECT_EQ(bench.layout().host, Bytes(7LL * 128 * kExpert));
  EXPECT_THAT(bench.layout().terms, HasSubstr("experts of 7 of 45 layers on the host: --n-cpu-moe 10"));
}

// 24 GB less 0.9 GB of dense weights, 113,246,208 bytes of buffer (one matrix of 128 experts) and 32,768 tokens in
// 2,048 blocks, 3,221,225,472 bytes, leave 19,765,528,320 bytes: 58 layers of 339,738,624 bytes would fit, so with 48
// layers none goes. With 12 GB, 7,765,528,320 bytes hold 22 layers: 26 of 48 go.
TEST(LlamaCppMoe, ByDefaultTheFewestLayersGoThatLeaveRoomForTheContext) {
  Overrides overrides = split(0);
  overrides.erase(overrides.begin());
  EXPECT_EQ(ExpertBench("llama-cpp-moe", qwen_model(), qwen(), overrides).layout().host, Bytes(0));
  Deployment small = qwen();
  small.memory = Bytes(12'000'000'000);
  EXPECT_EQ(ExpertBench("llama-cpp-moe", qwen_model(), small, overrides).layout().host, Bytes(26LL * 128 * kExpert));
}

TEST(LlamaCppMoe, BadSplitsAreRefused) {
  const auto message = [](Deployment deployment, std::int64_t layers) {
    try {
      ExpertBench("llama-cpp-moe", qwen_model(), std::move(deployment), split(layers));
    } catch (const ConfigError& error) {
      return std::string(error.what()) + " / " + error.problems().front().fix;
    }
    return std::string();
  };
  EXPECT_THAT(message(qwen(), 49), HasSubstr("policy.n_cpu_moe=49, and the model has 48 layers"));
  Deployment small = qwen();
  small.memory = Bytes(12'000'000'000);
  EXPECT_THAT(message(small, 10), HasSubstr("raise policy.n_cpu_moe"));
  Deployment no_host = qwen();
  no_host.experts->dram_peak = 0.0;
  EXPECT_THAT(message(no_host, 10), HasSubstr("states none"));
  EXPECT_EQ(message(no_host, 0), "");
  Deployment no_gemm = qwen();
  no_gemm.experts->cpu_flops = {};
  EXPECT_THAT(message(no_gemm, 10), HasSubstr("the host's rate of matrix products"));
  Deployment little = qwen();
  little.host_memory = Bytes(1'000'000'000);
  EXPECT_THAT(message(little, 36), HasSubstr("the host has 1.00 GB for them"));
}

}  // namespace
}  // namespace spillway
