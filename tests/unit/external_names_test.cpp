#include "hwmodels/external_names.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <utility>
#include <vector>

#include "hwmodels/catalog.hpp"

namespace spillway::hwmodels {
namespace {

using testing::HasSubstr;

TEST(ExternalNames, DevicesAsTheDriverCallsThem) {
  EXPECT_EQ(gpu_of_device("NVIDIA GeForce RTX 4090"), "rtx4090-24gb");
  EXPECT_EQ(gpu_of_device("NVIDIA H100 80GB HBM3"), "h100-80gb-sxm");
  EXPECT_EQ(gpu_of_device("NVIDIA H200"), "h200-141gb");
  EXPECT_EQ(gpu_of_device("NVIDIA B200"), "b200-180gb");
  EXPECT_EQ(gpu_of_device("NVIDIA A100-SXM4-80GB"), "a100-80gb-sxm");
  EXPECT_EQ(gpu_of_device("NVIDIA A100 80GB PCIe"), "a100-80gb-pcie");
  EXPECT_EQ(gpu_of_device("NVIDIA GH200 480GB"), "gh200-96gb");
  EXPECT_EQ(gpu_of_device("NVIDIA GH200 120GB"), "gh200-120gb");
  EXPECT_EQ(gpu_of_device("NVIDIA A10"), "a10-24gb");
  EXPECT_EQ(gpu_of_device("NVIDIA A10G"), "a10g-24gb");
  EXPECT_EQ(gpu_of_device("Tesla T4"), "t4-16gb");
}

TEST(ExternalNames, OtherBoardsOfOneChip_AreOtherGpus) {
  for (const char* device : {"NVIDIA GeForce RTX 4090 D", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA H100 PCIe",
                             "NVIDIA H100 NVL", "NVIDIA H200 NVL", "NVIDIA A100-SXM4-40GB", "NVIDIA GH200 144G HBM3e",
                             "NVIDIA L40S", "NVIDIA A100-PCIE-40GB", ""}) {
    EXPECT_FALSE(gpu_of_device(device)) << device;
  }
}

TEST(ExternalNames, ModelsByRepositoryOrFolder) {
  EXPECT_EQ(llm_of_repository("meta-llama/Llama-3.1-8B"), "llama-3.1-8b");
  EXPECT_EQ(llm_of_repository("meta-llama/Meta-Llama-3.1-70B-Instruct"), "llama-3.1-70b");
  EXPECT_EQ(llm_of_repository("meta-llama/Llama-2-7b-chat-hf"), "llama-2-7b");
  EXPECT_EQ(llm_of_repository("/models/Qwen1.5-7B-Chat/"), "qwen1.5-7b");
  EXPECT_EQ(llm_of_repository("facebook/opt-30b"), "opt-30b");
  EXPECT_EQ(llm_of_repository("huggyllama/llama-13b"), "llama-13b");
  for (const char* other : {"meta-llama/Llama-3.1-8B-Instruct-FP8", "meta-llama/Llama-3.2-1B", "", "llama"}) {
    EXPECT_FALSE(llm_of_repository(other)) << other;
  }
}

struct Stored {
  const char* id;
  const char* llm;
  Quantization kernel;
  std::int64_t max_positions;
};
// NOLINTNEXTLINE(readability-identifier-naming): the name that GoogleTest calls
void PrintTo(const Stored& one, std::ostream* stream) { *stream << one.id; }
class HubIds : public testing::TestWithParam<Stored> {};

TEST_P(HubIds, LoadLlm_WhenTheIdHasASuffix_ThenWeightsAndLongestTextAreThoseOfTheId) {
  const Stored& expected = GetParam();
  const auto hub = llm_of_hub_id(expected.id);
  ASSERT_TRUE(hub);
  EXPECT_EQ(hub->llm, expected.llm);
  const LlmModel llm = load_llm(expected.id);
  EXPECT_EQ(llm.parameters(), load_llm(expected.llm).parameters());
  EXPECT_EQ(llm.quantized ? llm.quantized->kernel : Quantization::none, expected.kernel);
  EXPECT_EQ(llm.max_positions, expected.max_positions);
}

INSTANTIATE_TEST_SUITE_P(
    Models, HubIds,
    testing::Values(
        Stored{"Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b", Quantization::none, 40'960},
        Stored{"Qwen/Qwen3-30B-A3B-FP8", "qwen3-30b-a3b", Quantization::fp8_block, 40'960},
        Stored{"qwen/qwen3-30b-a3b-fp8", "qwen3-30b-a3b", Quantization::fp8_block, 40'960},
        Stored{"Qwen/Qwen3-30B-A3B-Base", "qwen3-30b-a3b", Quantization::none, 32'768},
        Stored{"Qwen/Qwen3-14B-Base", "qwen3-14b", Quantization::none, 32'768},
        Stored{"Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "qwen3-235b-a22b", Quantization::fp8_block, 262'144},
        Stored{"Qwen/Qwen3-32B-AWQ", "qwen3-32b", Quantization::int4, 40'960},
        Stored{"Qwen/Qwen3-30B-A3B-GPTQ-Int4", "qwen3-30b-a3b", Quantization::int4, 40'960},
        Stored{"openai/gpt-oss-20b", "gpt-oss-20b", Quantization::mxfp4, 131'072},
        Stored{"deepseek-ai/DeepSeek-V3-0324", "deepseek-v3", Quantization::fp8_block, 163'840},
        Stored{"nvidia/DeepSeek-R1-FP4", "deepseek-v3", Quantization::nvfp4, 163'840},
        Stored{"nvidia/Qwen3-30B-A3B-NVFP4", "qwen3-30b-a3b", Quantization::nvfp4, 40'960},
        Stored{"nvidia/Llama-3.1-8B-Instruct-FP8", "llama-3.1-8b", Quantization::fp8, 131'072},
        Stored{"RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic", "llama-3.1-8b", Quantization::fp8, 131'072},
        Stored{"RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "llama-3.1-8b", Quantization::int4, 131'072},
        Stored{"RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8", "llama-3.1-8b", Quantization::none, 131'072},
        Stored{"neuralmagic/Meta-Llama-3.1-8B-Instruct-FP8", "llama-3.1-8b", Quantization::fp8, 131'072},
        Stored{"hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", "llama-3.1-70b", Quantization::int4, 131'072},
        Stored{"TheBloke/Llama-2-13B-chat-GPTQ", "llama-2-13b", Quantization::int4, 4096},
        Stored{"huggyllama/llama-13b", "llama-13b", Quantization::none, 2048},
        Stored{"meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b", Quantization::none, 131'072}),
    [](const auto& tested) {
      std::string name = tested.param.id;
      std::replace_if(
          name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
      return name;
    });

// Llama-3.1-8B: 32 layers of 4096 * 6144 + 4096 * 4096 + 4096 * 28672 + 14336 * 4096 = 218,103,808 weights of a byte in
// four matrices (QKV, output, gate with up, down), each with a scale of 4 bytes. The rest in 16 bits: embedding and LM
// head 2 * 128256 * 4096, norms 65 * 4096.
TEST(HubIds, Weights_WhenQuantisedByNvidia_ThenOnlyLinearLayersShrink) {
  const std::int64_t rest = 2 * (2LL * 128'256 * 4096 + 65LL * 4096);
  EXPECT_EQ(load_llm("nvidia/Llama-3.1-8B-Instruct-FP8").weights_per_gpu(1), Bytes(32 * (218'103'808LL + 16) + rest));
  const LlmModel latent = load_llm("nvidia/DeepSeek-R1-FP4");
  EXPECT_FALSE(latent.quantized->attention) << "latent attention stays in 16 bits";
  EXPECT_TRUE(load_llm("nvidia/Qwen3-30B-A3B-FP4").quantized->attention);
}

TEST(HubIds, Name_WhenTheIdDiffersFromItsModel_ThenIsTheId) {
  EXPECT_EQ(load_llm("Qwen/Qwen3-30B-A3B").file.name, "qwen3-30b-a3b");
  const LlmModel llm = load_llm("Qwen/Qwen3-30B-A3B-FP8");
  EXPECT_EQ(llm.file.name, "Qwen/Qwen3-30B-A3B-FP8");
  EXPECT_EQ(llm.file.sha256, load_llm("qwen3-30b-a3b").file.sha256);
}

// A GPU may have kernels of the format, so that the file says nothing; a run does (quantization_warnings).
TEST(HubIds, Warning_WhenKernelsOfTheFormatCanBeMeasured_ThenThereIsNone) {
  EXPECT_THAT(load_llm("Qwen/Qwen3-30B-A3B-FP8").file.warnings, testing::IsEmpty());
  EXPECT_THAT(load_llm("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8").file.warnings,
              testing::Contains(HasSubstr("no kernel of this method is calibrated")));
}

TEST(HubIds, Refusal_WhenNoRuleApplies_ThenTheNearestIsNamed) {
  // Publishers whose formats are not known, other sizes, and what is no id.
  for (const char* other :
       {"someone/Qwen3-30B-A3B", "someone/Qwen3-30B-A3B-FP8", "Qwen/Qwen3-31B", "Qwen/Qwen3-30B-A3B-Int3",
        "openai/gpt-oss", "Qwen/", "/Qwen3-30B-A3B", "a/Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b", "Qwen/config.json",
        "LLaMA 13B, huggyllama/llama-13b"}) {
    EXPECT_FALSE(llm_of_hub_id(other)) << other;
  }
  EXPECT_THAT(advice_on_hub_id("someone/Qwen3-30B-A3B-FP8"), HasSubstr("the nearest one is Qwen/Qwen3-30B-A3B-FP8;"));
  EXPECT_THAT(advice_on_hub_id("openai/gpt-oss"), HasSubstr("the nearest one is openai/gpt-oss-20b;"));
  // The model counts more than the letters of its publisher and its format.
  const auto nearest = [](const char* id) {
    const std::string advice = advice_on_hub_id(id);
    const std::size_t at = advice.find("the nearest one is ") + 19;
    return advice.substr(at, advice.find(';') - at);
  };
  EXPECT_EQ(nearest("casperhansen/mixtral-8x7b-instruct-v0.1-awq"), "mistralai/Mixtral-8x7B-Instruct-v0.1");
  EXPECT_EQ(nearest("someone/Meta-Llama-3.1-70B-Instruct-AWQ-INT4"), "meta-llama/Llama-3.1-70B");
  EXPECT_EQ(nearest("unsloth/gpt-oss-20b-GGUF"), "openai/gpt-oss-20b");
  // Formats of the publisher that was asked for.
  EXPECT_EQ(nearest("nvidia/Qwen3-30B-A3B-FP5"), "nvidia/Qwen3-30B-A3B-FP8");
  EXPECT_EQ(advice_on_hub_id("./Qwen3"), "");
}

TEST(ExternalNames, Advice_WhenAGpuHasNoProfile_ThenSaysWhatToMeasure) {
  for (const auto& [name, board] : std::vector<std::pair<const char*, const char*>>{{"l40s", "NVIDIA L40S"},
                                                                                    {"NVIDIA-L40", "NVIDIA L40"},
                                                                                    {"rtx-pro-6000", "RTX PRO 6000"},
                                                                                    {"h20", "NVIDIA H20"},
                                                                                    {"l4-24gb", "NVIDIA L4"},
                                                                                    {"hgx-h20-8", "NVIDIA H20"},
                                                                                    {"RTXPRO6000", "RTX PRO 6000"}}) {
    EXPECT_THAT(advice_on_gpu(name), HasSubstr(std::string(board) + " is bundled")) << name;
    EXPECT_THAT(advice_on_gpu(name), HasSubstr("Measure with cuda_calibrate")) << name;
  }
  EXPECT_THAT(advice_on_gpu("mi300x"), HasSubstr("bundled. Take from a public table: its GEMMs"));
  for (const char* other : {"h200-141g", "h100", "a4000", "gpu", ""}) EXPECT_EQ(advice_on_gpu(other), "") << other;
}

}  // namespace
}  // namespace spillway::hwmodels
