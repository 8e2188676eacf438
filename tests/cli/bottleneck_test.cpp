// Each bottleneck is provoked by a configuration in which it cannot be missed, and must be named.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/cli/assemble.hpp"
#include "sim/cli/replications.hpp"
#include "sim/metrics.hpp"

namespace spillway::cli {
namespace {

Bottleneck bottleneck_of(std::vector<std::string> arguments) {
  arguments.emplace_back("workload.requests=300");
  Assembly assembly = assemble(resolve_arguments(arguments, {}, {}));
  return find_bottleneck(run_replications(assembly, 1, 1, {}, {}).statistics);
}

void expect(const Bottleneck& bottleneck, Resource resource, const std::string& word) {
  EXPECT_EQ(bottleneck.resource, resource) << bottleneck.sentence;
  EXPECT_NE(bottleneck.sentence.find(word), std::string::npos) << bottleneck.sentence;
  EXPECT_GT(bottleneck.share, 0.3);
  EXPECT_LE(bottleneck.share, 1.0);
  EXPECT_FALSE(bottleneck.advice.empty());
}

// One request of a few hundred milliseconds every ten seconds: the GPU idles.
TEST(Bottleneck, WhenTheLoadIsLight_ThenLoad) {
  expect(bottleneck_of({"workload.rate=0.1", "workload.input_tokens=100", "workload.output_tokens=20"}), Resource::load,
         "load");
}

// Prompts of 8,000 tokens with one-token answers are all arithmetic.
TEST(Bottleneck, WhenPromptsAreLong_ThenCompute) {
  expect(bottleneck_of({"workload.rate=100", "workload.input_tokens=8000", "workload.output_tokens=1"}),
         Resource::compute, "arithmetic");
}

// One sequence at a time reads all the weights for each token.
TEST(Bottleneck, WhenTheBatchIsOne_ThenMemoryBandwidth) {
  expect(bottleneck_of(
             {"workload.rate=100", "workload.input_tokens=16", "workload.output_tokens=300", "engine.max_num_seqs=1"}),
         Resource::memory, "HBM");
}

// Room for 7,600 tokens of KV, and requests of 1,000.
TEST(Bottleneck, WhenKvMemoryIsShort_ThenKvCapacity) {
  expect(bottleneck_of(
             {"workload.rate=100", "workload.input_tokens=500", "workload.output_tokens=500", "memory.gpu_kv=1GB"}),
         Resource::kv_capacity, "KV");
}

// An eager Python engine of 2023 needs more time to launch a small model's kernels than an H100 to run them.
TEST(Bottleneck, WhenTheEngineIsEager_ThenHost) {
  expect(bottleneck_of({"policy=vllm-v0", "policy.version=0.2.0", "workload.rate=100", "workload.input_tokens=16",
                        "workload.output_tokens=200", "engine.max_num_seqs=4"}),
         Resource::host, "CPU");
}

// Eight GPUs share a small model: two all-reduces per layer cost more than an eighth of the weights.
TEST(Bottleneck, WhenManyGpusShareASmallModel_ThenNetwork) {
  expect(bottleneck_of({"tensor_parallel=8", "workload.rate=100", "workload.input_tokens=16",
                        "workload.output_tokens=200", "engine.max_num_seqs=4"}),
         Resource::network, "between GPUs");
}

// Swapping moves each 16-token block in 2 copies per layer, so that every swapped request costs milliseconds of link.
// Requests that need nearly all the memory take turns on it.
TEST(Bottleneck, WhenRequestsSwapAllTheTime_ThenALink) {
  const Bottleneck bottleneck =
      bottleneck_of({"policy=vllm-v0", "engine.preemption=swap", "engine=none", "workload.rate=100",
                     "workload.input_tokens=lognormal(60,0.5)", "workload.output_tokens=lognormal(60,0.5)",
                     "memory.gpu_kv=60MB", "memory.host_kv=1GB"});
  EXPECT_TRUE(bottleneck.resource == Resource::h2d || bottleneck.resource == Resource::d2h) << bottleneck.sentence;
}

}  // namespace
}  // namespace spillway::cli
