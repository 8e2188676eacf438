// When the model reduces to a textbook queue, the mean waiting time must equal the textbook's.
#include <gtest/gtest.h>

#include "sim/core/random.hpp"
#include "tests/oracle/replay.hpp"

namespace spillway {
namespace {

/// A prompt of n tokens takes n microseconds. All answers have one token, so there is no decode.
class ServiceModel final : public ExecutionModel {
 public:
  [[nodiscard]] std::int32_t layers() const override { return 1; }
  [[nodiscard]] IterationTime iteration(const BatchShape& shape) const override {
    IterationTime time;
    for (const PrefillChunk& chunk : shape.chunks) time.layer += Duration(1000) * chunk.new_tokens.count();
    time.shares.compute = to_seconds(time.layer);
    return time;
  }
  [[nodiscard]] CopyTime copy(Stream, std::int64_t, Bytes, CopyMechanism) const override { return {}; }
};

/// Poisson arrivals at load `rho`, one server (one request per batch), mean service of 1000 us.
class QueueSource final : public RequestSource {
 public:
  QueueSource(double rho, bool exponential_service)
      : rho_(rho), exponential_(exponential_service), arrivals_(7, 0, "arrivals"), services_(7, 0, "services") {}
  [[nodiscard]] SimTime next_arrival() override {
    return count_ < 400'000 ? SimTime(round_seconds(now_).count()) : kNever;
  }
  bool next(RequestSpec& request) override {
    ++count_;
    request.arrival = SimTime(round_seconds(now_).count());
    now_ += arrivals_.exponential(1000e-6 / rho_);
    const double service = exponential_ ? services_.exponential(1000.0) : 1000.0;
    request.input = Tokens(1 + static_cast<std::int64_t>(service - 0.5));
    request.output = request.max_new_tokens = Tokens(1);
    return true;
  }

 private:
  double rho_;
  bool exponential_;
  RandomStream arrivals_;
  RandomStream services_;
  double now_ = 0.0;
  std::int64_t count_ = 0;
};

double mean_wait_us(double rho, bool exponential) {
  const PolicyInfo* policy = PolicyRegistry::instance().find("vllm");
  const Settings settings = oracle::policy_settings(
      *policy, {{"engine.max_num_seqs", std::int64_t{1}}, {"engine.max_num_batched_tokens", std::int64_t{1'000'000}}});
  const ServiceModel model;
  QueueSource source(rho, exponential);
  SimulationConfig config;
  InstanceConfig& instance = config.instances.emplace_back();
  instance.model = &model;
  instance.policy = policy;
  instance.settings = &settings;
  config.source = &source;
  instance.kv.gpu_blocks = Blocks(100'000);
  instance.max_model_len = Tokens(1'600'000);
  double wait = 0.0;
  std::int64_t n = 0;
  config.on_request = [&](const RequestRecord& record) {
    wait += to_seconds(record.first_scheduled - record.arrival) * 1e6;
    ++n;
  };
  (void)simulate(config);
  return wait / static_cast<double>(n);
}

// M/M/1: mean wait = rho / (1 - rho) * service. M/D/1: half of it. With 400,000 customers the standard error of the
// mean at rho = 0.7 is about 1% (autocorrelated queue), so 4% is a wide margin.
TEST(QueueingTheory, WhenOneServerAndExponentialService_ThenMM1) {
  EXPECT_NEAR(mean_wait_us(0.5, true), 1000.0, 40.0);
  EXPECT_NEAR(mean_wait_us(0.7, true), 2333.3, 93.0);
}

TEST(QueueingTheory, WhenOneServerAndConstantService_ThenMD1) {
  EXPECT_NEAR(mean_wait_us(0.5, false), 500.0, 20.0);
  EXPECT_NEAR(mean_wait_us(0.7, false), 1166.7, 47.0);
}

}  // namespace
}  // namespace spillway
