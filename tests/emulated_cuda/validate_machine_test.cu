// Schedules on emulated streams whose operations take exactly the profile's times. For every rule, the total must equal
// the simulator's prediction, up to the last copy and event.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cuda_calibrate/cuda/cases.hpp"
#include "cuda_calibrate/validate/machine.hpp"
#include "cuda_calibrate/validate/predict.hpp"
#include "cuda_calibrate/validate/validate.hpp"
#include "hwmodels/catalog.hpp"
#include "tests/emulated_cuda/emulated_cuda.hpp"

namespace spillway::calibrate {
namespace {

/// Launches of copies and the kernel that gathers blocks take no time, as on the emulated streams, so copies of many
/// blocks equal gathered copies. Directions share no bandwidth.
const Predictor& predictor() {
  static const Predictor kPredictor = [] {
    hwmodels::GpuProfile gpu = hwmodels::load_gpu("t4-16gb");
    gpu.fitted.copies.clear();
    gpu.h2d.launch_seconds = gpu.d2h.launch_seconds = 0.0;
    gpu.memory_bandwidth = {};
    gpu.h2d_bandwidth_duplex.reset();
    gpu.d2h_bandwidth_duplex.reset();
    return Predictor(gpu, hwmodels::load_host("g4dn.4xlarge-host"), 8);
  }();
  return kPredictor;
}

/// As the host's file says: 77 us for a call, and 0.8 of 47 GB/s.
double attention_seconds(const HostAttention& attention) {
  return 77e-6 + static_cast<double>(kv_bytes(attention)) / (0.8 * 47e9);
}

class EmulatedAttention final : public Case {
 public:
  explicit EmulatedAttention(const HostAttention& attention) : seconds_(attention_seconds(attention)) {}
  std::vector<double> sample(std::int64_t /*calls*/) override {
    emulated::host_works(seconds_);
    return {seconds_};
  }
  [[nodiscard]] std::int64_t most_calls() const override { return 1; }
  [[nodiscard]] std::string kernel() const override { return "emulated"; }

 private:
  double seconds_;
};

class EmulatedBackend final : public Backend {
 public:
  MachineFacts facts() override {
    MachineFacts facts;
    facts.gpus.resize(1);
    return facts;
  }
  std::unique_ptr<Case> prepare(const Point& point) override {
    return std::make_unique<EmulatedAttention>(std::get<HostAttention>(point));
  }
};

class EmulatedProduct final : public gpu::ProductOp {
 public:
  explicit EmulatedProduct(double seconds) : seconds_(seconds) {}
  void enqueue(cudaStream_t stream) override {
    if (until_failure > 0 && --until_failure == 0) throw DeviceError("the launch failed", false);
    emulated::enqueue_work(stream, seconds_);
  }
  void enqueue_with(const std::byte* /*weights*/, cudaStream_t stream) override { enqueue(stream); }
  [[nodiscard]] std::string kernel() const override { return "emulated"; }

  static inline std::int64_t until_failure = 0;  // products until one fails; 0: none does

 private:
  double seconds_;
};

}  // namespace

std::unique_ptr<Backend> make_backend(std::int64_t /*gpu*/, std::uint64_t /*seed*/) {
  return std::make_unique<EmulatedBackend>();
}
std::unique_ptr<gpu::ProductOp> gpu::make_product(Gpu& /*gpu*/, const Gemm& point) {
  return std::make_unique<EmulatedProduct>(predictor().scale().multiply_seconds({point.m, point.n, point.k, 1}));
}

namespace {

TEST(ValidateMachine, EverySetting_TakesOnStreamsWhatTheSimulatorPredicts) {
  const hwmodels::GpuProfile& gpu = predictor().gpu();
  emulated::set_copy_rates({1.0 / gpu.h2d.bandwidth.value(), 1.0 / gpu.d2h.bandwidth.value()});
  const std::unique_ptr<Machine> machine = make_machine(0, 1);
  for (const Setting& setting : held_out_settings(predictor().scale())) {
    const Simulated simulated = predictor().predict(setting.experiment);
    const std::unique_ptr<Execution> execution = machine->prepare(simulated.schedule);
    // The simulator rounds operations to nanoseconds; CUDA rounds times to float milliseconds.
    for (int repeat = 0; repeat < 2; ++repeat) {
      EXPECT_NEAR(execution->run() / to_seconds(simulated.length), 1.0, 1e-5)
          << setting.name << " " << text_of(setting.experiment);
    }
  }
}

// When the last launch fails, streams wait for attention that the CPU no longer computes. They must not wait for ever:
// without their release, this test does not end.
TEST(ValidateMachine, AfterAFailedLaunch_TheStreamsAreReleased) {
  const std::vector<Setting> settings = held_out_settings(predictor().scale());
  const Simulated simulated = predictor().predict(settings.back().experiment);
  ASSERT_TRUE(std::holds_alternative<CpuOverlap>(settings.back().experiment));
  const std::unique_ptr<Machine> machine = make_machine(0, 1);
  const std::unique_ptr<Execution> execution = machine->prepare(simulated.schedule);
  EmulatedProduct::until_failure = 0;
  for (const Operation& operation : simulated.schedule.operations) {
    if (const auto* work = std::get_if<ComputeWork>(&operation.work)) {
      EmulatedProduct::until_failure += work->multiply.calls;
    }
  }
  EXPECT_THROW(static_cast<void>(execution->run()), DeviceError);
  EXPECT_EQ(EmulatedProduct::until_failure, 0);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST(ValidateMachine, CopiesThatItDoesNotKnow_AreUnsupported) {
  const std::unique_ptr<Machine> machine = make_machine(0, 1);
  const PageOut page_out{.mechanism = CopyMechanism::kernel, .blocks = 3, .block_bytes = 4096, .calls = 1};
  const Schedule schedule = simulate(page_out, {.out = {Duration(0), Duration(100)}}).schedule;
  EXPECT_THROW(static_cast<void>(machine->prepare(schedule)), Unsupported);
}

}  // namespace
}  // namespace spillway::calibrate
