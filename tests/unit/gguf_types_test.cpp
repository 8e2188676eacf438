// Bits of a weight in GGUF files, by hand from the layouts of their blocks.
#include "hwmodels/gguf_types.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "hwmodels/engine_quantization.hpp"
#include "sim/config/config.hpp"

namespace spillway::hwmodels {
namespace {

using testing::HasSubstr;

GgufLayers dense(std::int64_t layers, std::int64_t matrices = 3) {
  return {layers, std::vector<bool>(static_cast<std::size_t>(layers), false), matrices};
}
GgufLayers routed(std::int64_t layers, std::int64_t first) {
  GgufLayers all = dense(layers);
  for (std::int64_t layer = first; layer < layers; ++layer) all.routed[static_cast<std::size_t>(layer)] = true;
  return all;
}

// Bytes of a block by its parts: scales in 16 bits, then the packed weights. Q4_0: 2 + 32 x 4/8 = 18. Q5_0: 2 + 4 + 16
// =
// 22. Q8_0: 2 + 32 = 34. Q6_K: 2 + 16 + 256 x 6/8 = 210. IQ4_XS: 2 + 2 + 4 + 128 = 136. Bits: 8 x bytes / weights.
TEST(GgufTypes, FilesOfOneBlockType) {
  const std::vector<std::pair<const char*, double>> expected{
      {"q4_0", 4.5}, {"q5_0", 5.5}, {"q8_0", 8.5}, {"q6_k", 6.5625}, {"iq4_xs", 4.25}};
  for (const auto& [name, bits] : expected) {
    const auto found = gguf_bits(name, routed(8, 4));
    ASSERT_TRUE(found) << name;
    EXPECT_DOUBLE_EQ(found->attention, bits);
    EXPECT_DOUBLE_EQ(found->mlp, bits);
    EXPECT_DOUBLE_EQ(found->expert, bits);
    EXPECT_DOUBLE_EQ(found->head, std::string(name) == "q8_0" ? 8.5 : 6.5625) << name;
  }
  EXPECT_FALSE(gguf_bits("fp8", dense(8)));
}

// 32 layers: 0 to 3, 28 to 31, and of 4 to 27 those with (i - 4) mod 3 = 2: 8. So 16 of 32, half: down takes (4.5
// + 6.5625) / 2 = 5.53125, and gate, up and down (2 x 4.5 + 5.53125) / 3 = 4.84375. In q5_k_m (2 x 5.5 + 6.03125) / 3
// = 5.677083. Without a gate (4.5 + 5.53125) / 2.
TEST(GgufTypes, SomeLayersHaveABetterDownMatrix) {
  EXPECT_DOUBLE_EQ(gguf_bits("q4_k_m", dense(32))->mlp, 4.84375);
  EXPECT_DOUBLE_EQ(gguf_bits("q4_k_m", dense(32))->attention, 4.5);
  EXPECT_DOUBLE_EQ(gguf_bits("q4_k_m", routed(32, 0))->expert, 4.84375);
  EXPECT_NEAR(gguf_bits("q5_k_m", dense(32))->mlp, 5.677083, 1e-6);
  EXPECT_DOUBLE_EQ(gguf_bits("q4_k_m", dense(32, 2))->mlp, 5.015625);
  // q3_k_m: 2 of 32 layers with down in 5.5, else 4.5, mean 4.5625; (2 x 3.4375 + 4.5625) / 3.
  EXPECT_DOUBLE_EQ(gguf_bits("q3_k_m", dense(32))->mlp, 3.8125);
  // q2_k: (2 x 2.625 + 3.4375) / 3.
  EXPECT_NEAR(gguf_bits("q2_k", dense(32))->mlp, 2.895833, 1e-6);
  const GgufBits mxfp4 = *gguf_bits("mxfp4_moe", routed(32, 1));
  EXPECT_DOUBLE_EQ(mxfp4.expert, 4.25);
  EXPECT_DOUBLE_EQ(mxfp4.mlp, 8.5);
  EXPECT_DOUBLE_EQ(mxfp4.attention, 8.5);
}

// DeepSeek-V3, 61 layers, experts from layer 3 on: better are 3 to 6, 53 to 60, and of 7 to 52 those with (i - 7) mod 3
// = 2, 9 to 51: 4 + 8 + 15 = 27 of 58. Down 4.5 + 2.0625 x 27 / 58 = 5.460129; mean 4.820043. Its file has 404 GB for
// 671.03e9 weights, 4.8165 bits: the rule is 0.1% off.
TEST(GgufTypes, ExpertsOfDeepSeekV3AsItsFileHasThem) {
  const double bits = gguf_bits("q4_k_m", routed(61, 3))->expert;
  EXPECT_NEAR(bits, 4.820043, 1e-6);
  EXPECT_NEAR(bits, 404e9 * 8.0 / 671.03e9, 0.005);
}

// Qwen3-30B-A3B has 48 layers: 6 + 6 + 12 of 36, half. An expert has 3 x 2048 x 768 = 4,718,592 weights of 4.84375
// bits: 2 x 2048 x 768 for gate and up, 1,904,640 bytes, and 952,320 for down. The head has 2048 x 151,936 weights
// of 6.5625 bits.
TEST(GgufTypes, QuantiseAModelForAnyGpu) {
  LlmModel llm = load_llm("qwen3-30b-a3b");
  EXPECT_FALSE(apply_quantization("q4_k_m", load_gpu("t4-16gb"), llm));
  const auto expert = llm.mlp_projections(llm.experts->width);
  EXPECT_EQ(llm.linear_bytes(expert[0], LinearPart::expert), Bytes(1'904'640));
  EXPECT_EQ(llm.linear_bytes(expert[1], LinearPart::expert), Bytes(952'320));
  EXPECT_EQ(llm.linear_bytes({2048, 256}, LinearPart::attention), Bytes(2048LL * 256 * 18 / 32));
  EXPECT_EQ(llm.head_bytes({2048, 151'936}), Bytes(2048LL / 256 * 151'936 * 210));
  EXPECT_EQ(quantization_warnings(load_gpu("t4-16gb"), llm, 2).front(),
            "the linear layers are in GGUF q4_k_m: answers may be worse than in 16 bits, which a simulation does not "
            "show. t4-16gb has no measured kernels for them: they move fewer bytes, and are multiplied at the speed of "
            "16-bit weights");
}

// gpt-oss has rows of 2880 weights: 11.25 blocks of 256, 90 of 32. Its own file holds experts in mxfp4.
TEST(GgufTypes, RefusesRowsThatNoBlockDivides) {
  const GpuProfile gpu = load_gpu("h100-80gb-sxm");
  LlmModel llm = load_llm("gpt-oss-20b");
  llm.quantized.reset();
  const auto cut = apply_quantization("q4_k_m", gpu, llm);
  ASSERT_TRUE(cut);
  EXPECT_THAT(cut->what, HasSubstr("rows of 2880 weights, which blocks of q4_k_m cannot divide: a block has 256"));
  EXPECT_THAT(cut->fix, HasSubstr("q4_0"));
  EXPECT_FALSE(apply_quantization("q4_0", gpu, llm));
  LlmModel stored = load_llm("gpt-oss-20b");
  const auto twice = apply_quantization("q4_0", gpu, stored);
  ASSERT_TRUE(twice);
  EXPECT_THAT(twice->what, HasSubstr("holds weights in mxfp4, so they cannot be loaded as q4_0"));
}

}  // namespace
}  // namespace spillway::hwmodels
