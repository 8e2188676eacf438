#include "hwmodels/calibration/measured_gpu.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace spillway::hwmodels {
namespace {

using testing::HasSubstr;

TEST(MeasuredGpu, Model_WhenATextNamesAGpu_ThenIsItsSeries) {
  EXPECT_EQ(gpu_model("NVIDIA GeForce RTX 4090"), "rtx4090");
  EXPECT_EQ(gpu_model("rtx4090-24gb"), "rtx4090");
  EXPECT_EQ(gpu_model("NVIDIA H100 80GB HBM3"), "h100");
  EXPECT_EQ(gpu_model("NVIDIA GH200 480GB"), "gh200");
  EXPECT_EQ(gpu_model("NVIDIA A100-SXM4-80GB"), "a100");
  EXPECT_EQ(gpu_model("NVIDIA A10G"), "a10g");
  EXPECT_EQ(gpu_model("Tesla T4"), "t4");
  EXPECT_EQ(gpu_model("NVIDIA L40S; vLLM 0.19"), "l40s");
  EXPECT_EQ(gpu_model("AMD Instinct MI300X"), "mi300x");
}

TEST(MeasuredGpu, Model_WhenATextNamesNone_ThenIsEmpty) {
  for (const char* text : {"", "Example GPU", "my-engine", "vLLM 0.19, 24 GB", "40 MB of L2, HBM2e", "SXM5 80GB"}) {
    EXPECT_EQ(gpu_model(text), "") << text;
  }
}

// Of every bundled GPU, the name means itself and no other series.
TEST(MeasuredGpu, Another_WhenTheNameIsThatOfABundledGpu_ThenOnlyItsOwnProfileIsTheSame) {
  for (const std::string& base : gpu_names()) {
    const GpuProfile gpu = load_gpu(base);
    for (const std::string& other : gpu_names()) {
      const bool same = gpu_model(base) == gpu_model(other);
      EXPECT_EQ(why_another_gpu(gpu, {}, {.name = other}).empty(), same) << base << " " << other;
      EXPECT_EQ(why_another_gpu(gpu, MeasuredDevice{other, {}, {}, {}}, {}).empty(), same) << base << " " << other;
    }
  }
}

TEST(MeasuredGpu, Another_WhenSeveralSourcesNameOne_ThenTheFlagComesFirstThenTheFiles) {
  const GpuProfile base = load_gpu("rtx4090-24gb");
  MeasuredDevice device;
  EXPECT_EQ(why_another_gpu(base, device, {}), "");
  EXPECT_EQ(why_another_gpu(base, device, {.stands_for = "NVIDIA L40S; vLLM"}), "--stands-for names l40s");
  EXPECT_EQ(why_another_gpu(base, device, {.profile = "l40s-48gb"}), "--name names l40s");
  EXPECT_EQ(why_another_gpu(base, device, {.stands_for = "our engine", .profile = "my-profile"}), "");
  device.name = "NVIDIA GeForce RTX 4090";
  EXPECT_EQ(why_another_gpu(base, device, {.stands_for = "NVIDIA L40S; vLLM"}), "");
  EXPECT_EQ(why_another_gpu(base, device, {.name = "NVIDIA L40S"}), "--gpu names NVIDIA L40S");
  device.name = "Example GPU";
  EXPECT_EQ(why_another_gpu(base, device, {}), "the files were measured on Example GPU");
  GpuProfile made = base;
  made.file.stands_for = "Example GPU; fitted to the files below";
  EXPECT_EQ(why_another_gpu(made, device, {}), "");
}

// The H100: 132 SMs, 3350 GB/s, 85.02 GB as CUDA reports it; 94% of that is 79.92 GB. 5% of memory and 2% of bandwidth
// are the same GPU.
TEST(MeasuredGpu, Another_WhenAFigureDiffers_ThenSaysWhich) {
  const GpuProfile base = load_gpu("h100-80gb-sxm");
  const auto bytes = [&](double share) {
    return Bytes(static_cast<std::int64_t>(share * static_cast<double>(base.memory.count())));
  };
  MeasuredDevice device{"NVIDIA H100 80GB HBM3", base.memory.count(), 132, {}};
  EXPECT_EQ(why_another_gpu(base, device, {}), "");
  device.sm_count = 114;
  EXPECT_EQ(why_another_gpu(base, device, {}), "the measured GPU has 114 SMs, not 132");
  device.sm_count.reset();
  device.memory_bytes = bytes(0.94).count();
  EXPECT_THAT(why_another_gpu(base, device, {}), HasSubstr("the measured GPU has 79.92 GB, not 85.02 GB"));
  device.memory_bytes.reset();
  EXPECT_EQ(why_another_gpu(base, device, {.memory = bytes(1.04)}), "");
  EXPECT_THAT(why_another_gpu(base, device, {.memory = bytes(1.06)}), HasSubstr("--memory is 90."));
  EXPECT_EQ(why_another_gpu(base, device, {.bandwidth = BytesPerSecond(3.4e12)}), "");
  EXPECT_EQ(why_another_gpu(base, device, {.bandwidth = BytesPerSecond(2e12)}),
            "--bandwidth is 2000 GB/s, not 3350 GB/s");
  GpuProfile open = base;
  open.unknown = {"memory", "memory_bandwidth", "sm_count"};
  EXPECT_EQ(why_another_gpu(open, {{}, 1, 1, {}}, {.memory = Bytes(1), .bandwidth = BytesPerSecond(1.0)}), "");
}

}  // namespace
}  // namespace spillway::hwmodels
