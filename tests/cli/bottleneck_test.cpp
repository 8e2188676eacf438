// For each bottleneck, a configuration that clearly has it: the run must name the bottleneck.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "sim/cli/arguments.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/study/assemble.hpp"
#include "sim/study/replicated_run.hpp"
#include "tests/support/paths.hpp"

namespace spillway::cli {
namespace {

Bottleneck bottleneck_of(std::vector<std::string> arguments) {
  arguments.emplace_back("workload.requests=300");
  Assembly assembly = assemble(resolve_arguments(arguments, {}, {}));
  const auto limit = assembly.config.settings.get<std::int64_t>("engine.max_num_seqs");
  return find_bottleneck(run_replications(assembly, 1, 1, {}, {}).statistics, limit);
}

/// Writes the H100's profile with some values replaced and without the fits that would override them. Returns the
/// argument `hardware=PATH`.
std::string changed_h100(const std::string& name, const std::vector<std::pair<std::string, double>>& values) {
  std::ifstream original(source_dir() + "/hwmodels/profiles/h100-80gb-sxm.json");
  nlohmann::json profile = nlohmann::json::parse(original);
  for (const auto& [key, value] : values) profile.at("values").at(key).at("value") = value;
  profile.at("fitted").erase("copies");
  profile.at("fitted").erase("all_reduce");
  profile.at("fitted").erase("all_reduce_custom");
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / (name + ".json");
  std::ofstream(path) << profile;
  return "hardware=" + path.string();
}

void expect(const Bottleneck& bottleneck, Resource resource, const std::string& word) {
  EXPECT_EQ(bottleneck.resource, resource) << bottleneck.sentence;
  EXPECT_NE(bottleneck.sentence.find(word), std::string::npos) << bottleneck.sentence;
  EXPECT_GT(bottleneck.share, 0.3);
  EXPECT_LE(bottleneck.share, 1.0 + 1e-6);  // durations are rounded, shares are not
  EXPECT_FALSE(bottleneck.advice.empty());
}

// A request of a few hundred milliseconds arrives every ten seconds, so the GPU idles.
TEST(Bottleneck, WhenTheLoadIsLight_ThenLoad) {
  expect(bottleneck_of({"workload.rate=0.1", "workload.input_tokens=100", "workload.output_tokens=20"}), Resource::load,
         "load");
}

// Prompts of 8,000 tokens with one-token answers need mostly arithmetic.
TEST(Bottleneck, WhenPromptsAreLong_ThenCompute) {
  expect(bottleneck_of({"workload.rate=100", "workload.input_tokens=8000", "workload.output_tokens=1"}),
         Resource::compute, "arithmetic");
}

// A batch of one sequence reads all the weights for each token.
TEST(Bottleneck, WhenTheBatchIsOne_ThenMemoryBandwidth) {
  expect(bottleneck_of(
             {"workload.rate=100", "workload.input_tokens=16", "workload.output_tokens=300", "engine.max_num_seqs=1"}),
         Resource::memory, "HBM");
}

// KV memory for 7,600 tokens, with requests of 1,000 tokens.
TEST(Bottleneck, WhenKvMemoryIsShort_ThenKvCapacity) {
  expect(bottleneck_of(
             {"workload.rate=100", "workload.input_tokens=500", "workload.output_tokens=500", "memory.gpu_kv=1GB"}),
         Resource::kv_capacity, "KV");
}

// An eager Python engine of 2023 needs more time to launch a small model's kernels than an H100 needs to run them.
TEST(Bottleneck, WhenTheEngineIsEager_ThenHost) {
  expect(bottleneck_of({"policy=vllm-v0", "policy.version=0.2.0", "workload.rate=100", "workload.input_tokens=16",
                        "workload.output_tokens=200", "engine.max_num_seqs=4"}),
         Resource::host, "CPU");
}

// FlexGen with all KV in host memory: the CPU attends to 16 requests of up to 1,040 tokens.
TEST(Bottleneck, WhenTheCpuAttends_ThenCpuAttention) {
  const Bottleneck bottleneck = bottleneck_of(
      {"policy=flexgen", "hardware=g4dn.4xlarge", "model=opt-6.7b", "policy.gpu_batch=8", "policy.batches=2",
       "policy.weights_host=0", "policy.cache_host=1", "policy.hidden_host=1", "policy.pad_input=1024",
       "policy.pad_output=16", "workload.input_tokens=1000", "workload.output_tokens=16", "workload.rate=100"});
  expect(bottleneck, Resource::cpu_attention, "Attention on the CPU");
  EXPECT_NE(bottleneck.advice.find("policy.cpu_attention=false"), std::string::npos) << bottleneck.advice;
  EXPECT_EQ(bottleneck.advice.find("engine=none"), std::string::npos) << "an engine's own work is no part of it";
}

// Eight GPUs communicate over PCIe through the host, not over NVLink: two all-reduces of 0.3 ms per layer.
TEST(Bottleneck, WhenGpusTalkSlowly_ThenNetwork) {
  const std::string hardware =
      changed_h100("no-nvlink", {{"all_reduce_latency", 3e-4}, {"all_reduce_bandwidth", 20e9}});
  expect(bottleneck_of({hardware, "tensor_parallel=8", "workload.rate=100", "workload.input_tokens=16",
                        "workload.output_tokens=200"}),
         Resource::network, "between GPUs");
}

// Requests swap all the time (28 blocks of memory, up to 16 requests of 120 tokens) over a link with one slow
// direction.
TEST(Bottleneck, WhenSwappingOverASlowLink_ThenThatLink) {
  const std::vector<std::string> swapping{"policy=vllm-v0",
                                          "engine.preemption=swap",
                                          "engine=none",
                                          "workload.rate=100",
                                          "workload.input_tokens=lognormal(60,0.5)",
                                          "workload.output_tokens=lognormal(60,0.5)",
                                          "memory.gpu_kv=60MB",
                                          "memory.host_kv=1GB"};
  for (const bool out : {true, false}) {
    std::vector<std::string> arguments = swapping;
    arguments.push_back(changed_h100(out ? "slow-d2h" : "slow-h2d", {{out ? "d2h_launch" : "h2d_launch", 5e-3}}));
    const Bottleneck bottleneck = bottleneck_of(arguments);
    expect(bottleneck, out ? Resource::d2h : Resource::h2d, out ? "GPU-to-host link" : "host-to-GPU link");
    EXPECT_NE(bottleneck.advice.find("memory.gpu_kv"), std::string::npos) << bottleneck.advice;
  }
}

// Weights of 30 GB, read over a link of about 50 GB/s in every iteration: more KV memory would not help.
TEST(Bottleneck, WhenWeightsCrossTheLink_ThenThePolicyIsAskedToOffloadLess) {
  const Bottleneck bottleneck = bottleneck_of({"policy=vllm-uva", "policy.cpu_offload=30GB", "hardware=hgx-h100-8",
                                               "model=llama-3.1-70b", "tensor_parallel=2", "workload.rate=100",
                                               "workload.input_tokens=16", "workload.output_tokens=50"});
  expect(bottleneck, Resource::h2d, "host-to-GPU link");
  EXPECT_NE(bottleneck.advice.find("offload less"), std::string::npos) << bottleneck.advice;
  EXPECT_EQ(bottleneck.advice.find("memory.gpu_kv"), std::string::npos) << bottleneck.advice;
}

}  // namespace
}  // namespace spillway::cli
