#include "hwmodels/external_names.hpp"

#include <gtest/gtest.h>

namespace spillway::hwmodels {
namespace {

TEST(ExternalNames, DevicesAsTheDriverCallsThem) {
  EXPECT_EQ(gpu_of_device("NVIDIA GeForce RTX 4090"), "rtx4090-24gb");
  EXPECT_EQ(gpu_of_device("NVIDIA H100 80GB HBM3"), "h100-80gb-sxm");
  EXPECT_EQ(gpu_of_device("NVIDIA H200"), "h200-141gb");
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

}  // namespace
}  // namespace spillway::hwmodels
