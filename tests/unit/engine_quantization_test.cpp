// engine.quantization: what it makes of a model, and where it is refused.
#include "hwmodels/engine_quantization.hpp"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "sim/config/config.hpp"

namespace spillway::hwmodels {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

LlmModel stored_as(Quantization kernel, std::int64_t bits) {
  LlmModel llm = load_llm("llama-3.1-8b");
  llm.file.name = "my-model";
  llm.quantized = QuantizedLinear{.method = "gptq", .kernel = kernel, .bits = bits};
  return llm;
}

TEST(EngineQuantization, TheKeyHasEveryFormat) {
  std::vector<std::string> names{"auto"};
  for (const QuantizationFormat& format : kQuantizationFormats) names.emplace_back(format.name);
  for (const std::string_view type : gguf_type_names()) names.emplace_back(type);
  const std::vector<Parameter> table = config_parameters({{"m"}, {"h"}, {"e"}}, {});
  const Parameter* key = find_parameter(table, "engine.quantization");
  ASSERT_NE(key, nullptr);
  EXPECT_EQ(key->choices, names);
  for (const QuantizationFormat& format : kQuantizationFormats) {
    EXPECT_EQ(quantization_named(format.name), format.quantization);
    EXPECT_EQ(format_of(format.quantization).name, format.name);
  }
  EXPECT_FALSE(quantization_named("fp7"));
}

// Bits and the share of a scale: 8; 8 + 32 / 128^2; 4 + 8 / 16; 4 + 8 / 32; 4 + 20 / 128.
TEST(EngineQuantization, AWeightTakesItsBitsAndItsShareOfAScale) {
  const auto bits = [](Quantization quantization) { return 8.0 * format_of(quantization).weight_bytes(); };
  EXPECT_DOUBLE_EQ(bits(Quantization::fp8), 8.0);
  EXPECT_DOUBLE_EQ(bits(Quantization::fp8_block), 8.001953125);
  EXPECT_DOUBLE_EQ(bits(Quantization::nvfp4), 4.5);
  EXPECT_DOUBLE_EQ(bits(Quantization::mxfp4), 4.25);
  EXPECT_DOUBLE_EQ(bits(Quantization::int4), 4.15625);
}

// Llama-3.1-8B: the matrices of a layer have 6144 x 4096 + 4096^2 + 2 x 14336 x 4096 + 4096 x 14336 = 218,103,808
// weights; embedding and head, 128,256 x 4096 each, and (2 x 32 + 1) x 4096 norms stay in 2 bytes. fp8 adds a scale of
// 4 bytes to each of the 4 matrices of 32 layers.
TEST(EngineQuantization, AModelIn16BitsIsQuantisedButForItsHead) {
  LlmModel llm = load_llm("llama-3.1-8b");
  EXPECT_FALSE(apply_quantization("fp8", load_gpu("h100-80gb-sxm"), llm));
  constexpr std::int64_t kLinear = 32LL * 218'103'808;
  constexpr std::int64_t kOthers = 2LL * (2LL * 128'256 * 4096 + 65LL * 4096);
  EXPECT_EQ(llm.weights_per_gpu(1), Bytes(kLinear + 32LL * 4 * 4 + kOthers));
  EXPECT_EQ(llm.quantized->kernel, Quantization::fp8);
  LlmModel blocks = load_llm("llama-3.1-8b");
  EXPECT_FALSE(apply_quantization("fp8_block", load_gpu("h200-141gb"), blocks));
  EXPECT_EQ(blocks.weights_per_gpu(1), Bytes(kLinear + kLinear / (128LL * 128) * 4 + kOthers));
}

TEST(EngineQuantization, AutoAndNoneLeaveAModelAsItIs) {
  for (const char* wanted : {"auto", "none"}) {
    LlmModel llm = load_llm("llama-3.1-8b");
    EXPECT_FALSE(apply_quantization(wanted, load_gpu("a10-24gb"), llm));
    EXPECT_FALSE(llm.quantized);
  }
  LlmModel quantised = stored_as(Quantization::int4, 4);
  EXPECT_FALSE(apply_quantization("auto", load_gpu("a10-24gb"), quantised));
  EXPECT_EQ(quantised.quantized->kernel, Quantization::int4);
}

TEST(EngineQuantization, AFileThatSaysOtherwiseIsRefused) {
  LlmModel llm = stored_as(Quantization::int4, 4);
  const auto fp8 = apply_quantization("fp8", load_gpu("h100-80gb-sxm"), llm);
  ASSERT_TRUE(fp8);
  EXPECT_EQ(fp8->what, "my-model holds weights in int4, so they cannot be loaded as fp8");
  EXPECT_EQ(fp8->where, "engine.quantization");
  const auto none = apply_quantization("none", load_gpu("h100-80gb-sxm"), llm);
  ASSERT_TRUE(none);
  EXPECT_EQ(none->what, "my-model holds weights in int4, so they cannot be loaded as 16 bits");
  LlmModel other = stored_as(Quantization::none, 3);
  EXPECT_THAT(apply_quantization("int4", load_gpu("h100-80gb-sxm"), other)->what, HasSubstr("in gptq of 3 bits"));
  LlmModel same = stored_as(Quantization::fp8, 8);
  EXPECT_FALSE(apply_quantization("fp8", load_gpu("h100-80gb-sxm"), same)) << "the file says the same";
}

TEST(EngineQuantization, AGpuWithoutSuchKernelsIsRefusedAndTheNearestNamed) {
  LlmModel llm = load_llm("llama-3.1-8b");
  const auto problem = apply_quantization("fp8", load_gpu("a100-80gb-sxm"), llm);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->what, "a100-80gb-sxm has no measured fp8 kernels");
  EXPECT_THAT(
      problem->fix,
      testing::StartsWith("it has 16 bits; h100-80gb-sxm has them, the most similar of these GPUs: h100-80gb-sxm, "));
  EXPECT_THAT(problem->fix, HasSubstr("h200-141gb"));
  EXPECT_FALSE(llm.quantized) << "nothing has changed";
  EXPECT_THAT(apply_quantization("mxfp4", load_gpu("h100-80gb-sxm"), llm)->fix, HasSubstr("no bundled GPU has them"));
}

TEST(EngineQuantization, PartsOfAModelThatAreNotInAllModelsHaveTheirErrorInTheResult) {
  GpuProfile gpu = load_gpu("h100-80gb-sxm");
  EXPECT_EQ(validity_of_parts(gpu, load_llm("llama-3.1-8b"), 1, ""), "");
  const LlmModel llm = load_llm("qwen3-30b-a3b");
  for (FittedMoe& moe : gpu.fitted.moe) moe.record.held_out = {.n = 7, .median = 0.012, .p95 = 0.345};
  EXPECT_THAT(validity_of_parts(gpu, llm, 1, ""), testing::StartsWith("MoE kernels 1.2% / 34.5% (n = 7); "));
  for (FittedMoe& moe : gpu.fitted.moe) moe.record.source_kind = "borrowed";
  EXPECT_THAT(validity_of_parts(gpu, llm, 1, ""), HasSubstr("(n = 7, of the lender)"));
  for (FittedMoe& moe : gpu.fitted.moe) moe.record.held_out = {};
  EXPECT_THAT(validity_of_parts(gpu, llm, 1, ""), testing::StartsWith("MoE kernels: no row was held out; "));
  EXPECT_THAT(validity_of_parts(gpu, load_llm("deepseek-v3"), {8, 1, 8}, ""),
              HasSubstr("latent attention: not measured; "));
}

TEST(EngineQuantization, AGpuThatAloneHasTheKernelsIsNamedOnce) {
  LlmModel llm = load_llm("qwen3-30b-a3b");
  const auto problem = apply_quantization("nvfp4", load_gpu("h100-80gb-sxm"), llm);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->fix, "it has 16 bits, fp8, fp8_block, mxfp4, int4; b200-180gb has them");
}

TEST(EngineQuantization, WorseAnswersAndMissingKernelsAreSaid) {
  const GpuProfile h100 = load_gpu("h100-80gb-sxm");
  LlmModel llm = load_llm("llama-3.1-8b");
  EXPECT_THAT(quantization_warnings(h100, llm, 2), IsEmpty());
  EXPECT_THAT(
      quantization_warnings(h100, llm, 1),
      ElementsAre("the KV cache is in 8 bits: answers may be worse than in 16, which a simulation does not show"));
  EXPECT_THAT(quantization_warnings(load_gpu("h200-141gb"), llm, 1),
              ElementsAre(HasSubstr("h200-141gb has no measured attention kernels for it")));
  EXPECT_FALSE(apply_quantization("fp8", h100, llm));
  EXPECT_THAT(quantization_warnings(h100, llm, 2),
              ElementsAre("the linear layers are in fp8: answers may be worse than in 16 bits, which a simulation does "
                          "not show"));
  EXPECT_THAT(quantization_warnings(h100, stored_as(Quantization::int4, 4), 2),
              ElementsAre(HasSubstr("h100-80gb-sxm has no measured kernels for them")));
}

}  // namespace
}  // namespace spillway::hwmodels
