// Facts about GPUs without CUDA, and the self-test's command.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "cuda_calibrate/cuda/gpu_facts.hpp"
#include "cuda_calibrate/cuda/self_test_command.hpp"
#include "tests/support/paths.hpp"

namespace spillway::calibrate {
namespace {

using testing::HasSubstr;

TEST(CudaFacts, ThrottleReasons_HaveNamesInTheOrderOfTheirBits) {
  EXPECT_EQ(gpu::throttle_text(0), "none");
  EXPECT_EQ(gpu::throttle_text(0x1), "gpu_idle");
  EXPECT_EQ(gpu::throttle_text(0x4 | 0x20), "sw_power_cap, sw_thermal_slowdown");
  EXPECT_EQ(gpu::throttle_text(0x100 | 0x400), "display_clock_setting, bit 10");
}

TEST(CudaFacts, NumaNode_IsThatOfThePciDevice) {
  const std::filesystem::path sys = std::filesystem::path(testing::TempDir()) / "calibrate_cuda_facts_sys";
  std::filesystem::remove_all(sys);
  const auto add = [&](const std::string& device, const std::string& node) {
    std::filesystem::create_directories(sys / "bus/pci/devices" / device);
    std::ofstream(sys / "bus/pci/devices" / device / "numa_node") << node << '\n';
  };
  add("0000:3b:00.0", "1");
  add("0000:5e:00.0", "-1");
  const SystemRoots roots{"/proc", sys.string(), {}};
  // CUDA writes bus numbers in capitals, Linux does not.
  EXPECT_EQ(gpu::numa_node_of("0000:3B:00.0", roots), 1);
  EXPECT_EQ(gpu::numa_node_of("0000:5e:00.0", roots), std::nullopt);  // the system does not state the node
  EXPECT_EQ(gpu::numa_node_of("0000:af:00.0", roots), std::nullopt);
  std::filesystem::remove_all(sys);
}

TEST(CudaFacts, UnknownDevice_LeavesEveryFactNull) {
  GpuFacts facts;
  gpu::add_nvml_facts(facts, "ffff:ff:ff.f");
  EXPECT_EQ(facts.sm_clock_mhz, std::nullopt);
  EXPECT_EQ(facts.power_limit_w, std::nullopt);
  EXPECT_EQ(facts.throttle_reasons, std::nullopt);
  EXPECT_EQ(facts.ecc, std::nullopt);
  EXPECT_EQ(facts.uuid, std::nullopt);
}

// What this NVML does not know stays null.
TEST(CudaFacts, AKnownDevice_HasItsUuidAndClocks) {
  GpuFacts facts;
  gpu::add_nvml_facts(facts, "0000:01:00.0", fake_nvml().c_str());
  EXPECT_EQ(facts.uuid, "GPU-5e11e0a7-0000-0000-0000-000000000001");
  EXPECT_EQ(facts.sm_clock_mhz, 1410);
  EXPECT_EQ(facts.memory_clock_mhz, 9000);
  EXPECT_EQ(facts.throttle_reasons, "sw_power_cap");
  EXPECT_EQ(facts.power_limit_w, std::nullopt);
}

// The GPU at bus 1 states its power now, 700.5 W; the one at bus 2 only the average, 250 W. Bit 2 is the power cap.
TEST(CudaFacts, Sensors_ReadClockPowerTemperatureAndThrottling) {
  const std::string library = fake_nvml();
  const gpu::NvmlSensors now("0000:01:00.0", library.c_str());
  const std::optional<GpuSensors> reading = now.read();
  ASSERT_TRUE(reading);
  EXPECT_EQ(reading->sm_clock_mhz, 1410);
  EXPECT_EQ(reading->power_w, 700.5);
  EXPECT_EQ(reading->temperature_c, 65);
  EXPECT_EQ(reading->throttle_reasons, "sw_power_cap");
  EXPECT_EQ(gpu::NvmlSensors("0000:02:00.0", library.c_str()).read()->power_w, 250.0);
}

TEST(CudaFacts, Sensors_OfAnUnknownGpuOrWithoutNvml_AreEmpty) {
  EXPECT_FALSE(gpu::NvmlSensors("0000:03:00.0", fake_nvml().c_str()).read());
  EXPECT_FALSE(gpu::NvmlSensors("0000:01:00.0", "libno-such-nvml.so.1").read());
}

class TestedBackend : public Backend {
 public:
  explicit TestedBackend(std::function<void()> test) : test_(std::move(test)) {}
  MachineFacts facts() override {
    MachineFacts facts;
    facts.gpu_reason = "built without CUDA";
    return facts;
  }
  std::unique_ptr<Case> prepare(const Point& /*point*/) override { throw Unsupported("not here"); }
  std::vector<std::string> self_test() override {
    if (!test_) return Backend::self_test();
    test_();
    return {"decode attention in bf16 is measured with the kernel \"spillway\""};
  }

 private:
  std::function<void()> test_;
};

struct Said {
  int code = -1;
  std::string out;
  std::string err;
};
Said call_self_test(const std::vector<std::string>& arguments, const std::function<void()>& test) {
  std::vector<const char*> argv{"cuda_calibrate", "self-test"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  const auto make_backend = [&](std::int64_t gpu, std::uint64_t /*seed*/) -> std::unique_ptr<Backend> {
    if (gpu > 1) throw DeviceError("there is no GPU 7", false);
    return std::make_unique<TestedBackend>(test);
  };
  Said said;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  said.code =
      tool_main(static_cast<int>(argv.size()), argv.data(), Environment{}, {self_test_subcommand(make_backend)});
  said.err = testing::internal::GetCapturedStderr();
  said.out = testing::internal::GetCapturedStdout();
  return said;
}

TEST(CudaSelfTest, RightKernels_AreSaidToBeSo) {
  int calls = 0;
  const Said said = call_self_test({"--gpu", "1"}, [&] { ++calls; });
  EXPECT_EQ(said.code, 0);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(said.out,
            "GPU 1: every kernel gives the right results\n"
            "decode attention in bf16 is measured with the kernel \"spillway\"\n");
}

TEST(CudaSelfTest, WrongNumber_IsAGateThatWasNotMet) {
  const Said said = call_self_test({}, [] { throw DeviceError("self-test: decode: number 3 is 0", false); });
  EXPECT_EQ(said.code, 5);
  EXPECT_THAT(said.err, HasSubstr("decode: number 3 is 0"));
}

TEST(CudaSelfTest, WithoutAGpu_ItSaysWhy) {
  const Said said = call_self_test({}, nullptr);
  EXPECT_EQ(said.code, 2);
  EXPECT_THAT(said.err, HasSubstr("built without CUDA"));
  const Said other = call_self_test({"--gpu", "7"}, nullptr);
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("there is no GPU 7"));
}

}  // namespace
}  // namespace spillway::calibrate
