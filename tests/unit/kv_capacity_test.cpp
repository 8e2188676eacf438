#include "hwmodels/kv_capacity.hpp"

#include <gtest/gtest.h>

namespace spillway::hwmodels {
namespace {

GpuProfile gpu_of(std::int64_t bytes) {
  GpuProfile gpu = load_gpu("h100-80gb-sxm");
  gpu.file.name = "test-gpu";
  gpu.memory = Bytes(bytes);
  return gpu;
}

ConfigError refusal(const GpuProfile& gpu, const LlmModel& llm, const KvSettings& settings) {
  try {
    static_cast<void>(fitting_kv_capacity(gpu, llm, load_engine("vllm-0.19"), settings));
  } catch (const ConfigError& error) {
    return error;
  }
  return ConfigError("not refused", "");
}

// A real run: vLLM 0.19.0, Llama-3.1-8B, RTX 4090, utilisation 0.9, 2,048 batched tokens, 256 sequences: 2,588 blocks
// (casys-kaist/LLMServingSim engine log). The rule by hand:
//   budget       floor(0.9 * 25,250,627,584)                                           = 22,725,564,825
//   weights      2 * 8,030,261,248 + rotary table 131,072 * 128 * 2                    = 16,094,076,928
//   activations  max(2048 * 2 (2 * 4096 + 3 * 14336) = 209,715,200,
//                    2048 * 2 * 4096 + 256 * 128,256 * 38 = 1,264,451,584)             =  1,264,451,584
//   non-torch                                                                          =    100,000,000
//   available 5,267,036,313 / (16 * 131,072) = 2511.5
TEST(KvCapacity, Blocks_WhenComparedWithARealEngine_ThenAreWithinFivePercent) {
  const KvCapacity kv = kv_capacity(gpu_of(25'250'627'584), load_llm("llama-3.1-8b"), load_engine("vllm-0.19"), {});
  EXPECT_EQ(kv.budget, Bytes(22'725'564'825));
  EXPECT_EQ(kv.weights, Bytes(16'094'076'928));
  EXPECT_EQ(kv.activations, Bytes(1'264'451'584));
  EXPECT_EQ(kv.non_torch, Bytes(100'000'000));
  EXPECT_EQ(kv.available, Bytes(5'267'036'313));
  EXPECT_EQ(kv.block_bytes, Bytes(2'097'152));
  EXPECT_EQ(kv.blocks, Blocks(2'511));
  EXPECT_NEAR(static_cast<double>(kv.blocks.count()) / 2588.0, 1.0, 0.05);
}

TEST(KvCapacity, DtypeBytes_AreThoseOfTheKeyElseOfTheModel) {
  LlmModel llm = load_llm("llama-3.1-8b");
  EXPECT_EQ(kv_dtype_bytes("fp8", llm), 1);
  EXPECT_EQ(kv_dtype_bytes("bf16", llm), 2);
  EXPECT_EQ(kv_dtype_bytes("auto", llm), 2);
  llm.kv_cache_bytes = 1;
  EXPECT_EQ(kv_dtype_bytes("auto", llm), 1);
  EXPECT_EQ(kv_dtype_bytes("bf16", llm), 2);
}

// A long profiling run: 16,384 tokens * 2 B * (2 * 4096 + 3 * 14,336) = 1,677,721,600 B exceed the sampler's
// 16,384 * 2 * 4096 + 256 * 128,256 * 38 = 1,381,892,096 B. Non-gated OPT-13B: 16,384 * 2 * (2 * 5120 + 2 * 20,480).
TEST(KvCapacity, Activations_WhenManyTokensAreBatched_ThenTheForwardPassDecides) {
  const KvSettings settings{.max_num_batched_tokens = Tokens(16'384)};
  const EngineProfile engine = load_engine("vllm-0.19");
  const GpuProfile gpu = load_gpu("h100-80gb-sxm");
  EXPECT_EQ(kv_capacity(gpu, load_llm("llama-3.1-8b"), engine, settings).activations, Bytes(1'677'721'600));
  EXPECT_EQ(kv_capacity(gpu, load_llm("opt-13b"), engine, settings).activations, Bytes(1'677'721'600));
}

TEST(KvCapacity, Activations_WhenFewerTokensThanSequences_ThenOnlyTheTokensAreSampled) {
  const KvSettings settings{.max_num_batched_tokens = Tokens(10)};  // 10 * 2 * 4096 + 10 * 128,256 * 38
  EXPECT_EQ(
      kv_capacity(load_gpu("h100-80gb-sxm"), load_llm("llama-3.1-8b"), load_engine("vllm-0.19"), settings).activations,
      Bytes(48'819'200));
}

TEST(KvCapacity, Weights_WhenPositionsAreLearned_ThenThereIsNoRotaryTable) {
  EXPECT_EQ(kv_capacity(load_gpu("h100-80gb-sxm"), load_llm("opt-13b"), load_engine("vllm-0.19"), {}).weights,
            Bytes(2 * 12'853'473'280));
}

TEST(KvCapacity, Blocks_WhenTheModelIsSplit_ThenNetworkBuffersAndHalfTheBlockSizeCount) {
  const GpuProfile gpu = load_gpu("h100-80gb-sxm");
  const EngineProfile engine = load_engine("vllm-0.19");
  const KvCapacity one = kv_capacity(gpu, load_llm("llama-3.1-8b"), engine, {});
  const KvCapacity two = kv_capacity(gpu, load_llm("llama-3.1-8b"), engine, {.parallelism = 2});
  EXPECT_EQ(two.block_bytes * 2, one.block_bytes);
  EXPECT_EQ(two.non_torch, one.non_torch + Bytes(1'000'000'000));
  EXPECT_GT(two.blocks, one.blocks);
  EXPECT_THROW(static_cast<void>(kv_capacity(gpu, load_llm("llama-3.1-8b"), engine, {.parallelism = 3})), ConfigError);
}

TEST(KvCapacity, Blocks_WhenMemoryOrUtilisationGrows_ThenNeverShrink) {
  const LlmModel llm = load_llm("llama-3.1-8b");
  const EngineProfile engine = load_engine("vllm-0.19");
  Blocks last{};
  for (std::int64_t gigabytes = 1; gigabytes <= 200; ++gigabytes) {
    const Blocks blocks = kv_capacity(gpu_of(gigabytes * 1'000'000'000), llm, engine, {}).blocks;
    EXPECT_GE(blocks, last);
    last = blocks;
  }
  EXPECT_GT(last, Blocks(0));
  EXPECT_GT(kv_capacity(gpu_of(80'000'000'000), llm, engine, {.gpu_memory_utilization = 0.95}).blocks,
            kv_capacity(gpu_of(80'000'000'000), llm, engine, {.gpu_memory_utilization = 0.85}).blocks);
}

TEST(KvCapacity, Settings_WhenOutOfRange_ThenAllAreReported) {
  const KvSettings settings{.gpu_memory_utilization = 1.1,
                            .max_num_batched_tokens = Tokens(0),
                            .max_num_seqs = 2'000'000'000,
                            .block_tokens = Tokens(-1),
                            .kv_dtype_bytes = 0};
  EXPECT_EQ(refusal(load_gpu("a10-24gb"), load_llm("opt-30b"), settings).problems().size(), 5U);
}

// OPT-30B on an A10, 2,048 batched tokens: 0.9 * 23,835,181,056 = 21,451,662,950 B less weights 59,949,080,576,
// activations 2048 * 2 * 7168 + 256 * 50,272 * 38 = 518,406,144 and 100,000,000: 39,115,823,770 B short.
// Two GPUs hold 30.0 GB of weights each, four 15.0 GB.
TEST(KvCapacity, Refusal_WhenTheModelDoesNotFit_ThenNamesTheShortageAndTheSmallestDegree) {
  const ConfigError error = refusal(load_gpu("a10-24gb"), load_llm("opt-30b"), {});
  EXPECT_EQ(error.problems()[0].what.find("opt-30b does not fit a10-24gb with tensor_parallel=1: 39.12 GB short"), 0U);
  EXPECT_EQ(error.problems()[0].where, "hardware");
  EXPECT_EQ(error.problems()[0].fix, "tensor_parallel=4 fits, but a10-24gb has no all-reduce figures for it");
  EXPECT_EQ(refusal(load_gpu("h100-80gb-sxm"), load_llm("llama-3.1-70b"), {}).problems()[0].fix,
            "tensor_parallel=2 fits");
}

TEST(KvCapacity, Refusal_WhenNoDegreeHelps_ThenSaysSo) {
  EXPECT_EQ(refusal(gpu_of(4'000'000'000), load_llm("llama-3.1-70b"), {}).problems()[0].fix,
            "no tensor_parallel of 2, 4, 8 or 16 above 1 fits");
  // 40 heads: 16 does not divide them; 8 GPUs of 2 GB hold 3.2 GB of weights each.
  EXPECT_EQ(refusal(gpu_of(2'000'000'000), load_llm("opt-13b"), {.parallelism = 8}).problems()[0].fix,
            "no tensor_parallel of 2, 4, 8 or 16 above 8 fits");
}

// Without what one block needs: weights 16,094,076,928 + activations 1,264,451,584 + 100,000,000 = 17,458,528,512 B,
// and 1,000,000 B more at utilisation 1.
TEST(KvCapacity, Refusal_WhenLessThanOneBlockIsLeft_ThenNamesBoth) {
  const ConfigError error = refusal(gpu_of(17'459'528'512), load_llm("llama-3.1-8b"), {.gpu_memory_utilization = 1.0});
  EXPECT_NE(error.problems()[0].what.find("leaves 1.00 MB, less than one KV block of 2.10 MB"), std::string::npos);
  EXPECT_EQ(error.problems()[0].fix, "tensor_parallel=2 fits");
  const KvCapacity kv = fitting_kv_capacity(gpu_of(17'458'528'512 + 2'097'152), load_llm("llama-3.1-8b"),
                                            load_engine("vllm-0.19"), {.gpu_memory_utilization = 1.0});
  EXPECT_EQ(kv.blocks, Blocks(1));
}

TEST(KvCapacity, Warning_WhenBlocksAreComputed_ThenSaysTheyAreAnEstimate) {
  const EngineProfile engine = load_engine("vllm-0.19");
  const KvCapacity kv = kv_capacity(load_gpu("h100-80gb-sxm"), load_llm("llama-3.1-8b"), engine, {});
  const std::string warning = kv_estimate_warning(kv, engine);
  EXPECT_EQ(warning.find(std::to_string(kv.blocks.count()) + " KV blocks per GPU are an estimate for vllm-0.19"), 0U);
  EXPECT_NE(kv_terms(kv).find("budget 76.52 GB of 85.02 GB - weights 16.09 GB"), std::string::npos);
}

}  // namespace
}  // namespace spillway::hwmodels
