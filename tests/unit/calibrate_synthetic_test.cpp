// A device with known parameters is measured like a real device: plan, timings, document, reader, fit. The result must
// equal the known parameters.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "cuda_calibrate/measure/document.hpp"
#include "cuda_calibrate/measure/plan.hpp"
#include "cuda_calibrate/measure/runner.hpp"
#include "hwmodels/calibration/calibration.hpp"
#include "hwmodels/calibration/measurements.hpp"
#include "tests/unit/calibrate_fakes.hpp"

namespace spillway::calibrate {
namespace {

struct Link {
  double launch = 0.0;     // seconds
  double bandwidth = 0.0;  // bytes/s
  [[nodiscard]] double seconds(double bytes) const { return launch + bytes / bandwidth; }
};

// By direction (H2D, D2H), and for scattered blocks by mechanism (many,
// batched, gather, kernel), of one block.
constexpr std::array<Link, 2> kSingle{{{7.5e-6, 52e9}, {6.5e-6, 54e9}}};
constexpr Link kRelay{30e-6, 17e9};
constexpr std::array<std::array<Link, 4>, 2> kScattered{
    {{{{3.5e-6, 51e9}, {1.2e-6, 50e9}, {0.4e-6, 48e9}, {0.3e-6, 40e9}}},
     {{{3.6e-6, 53e9}, {1.3e-6, 49e9}, {0.5e-6, 47e9}, {0.2e-6, 45e9}}}}};
constexpr double kDuplexShare = 0.8;
constexpr Link kElementwise{2.5e-6, 2.6e12};
constexpr hwmodels::CpuAttentionModel kCpu{20e-6, 6e9, 150e9};

hwmodels::GemmModel gemm_model() {
  hwmodels::GemmModel model;
  model.sm_count = 132;
  model.launch_seconds = 3.2e-6;
  model.flops = 6.8e14;
  model.bandwidth = 2.7e12;
  model.edge_loss = 0.08;
  model.prologue = 150.0;
  model.split_cost = 1.5;
  model.norm_exponent = 4.0;
  return model;
}

hwmodels::DecodeAttentionModel decode_model() {
  hwmodels::DecodeAttentionModel model;
  model.sm_count = 132;
  model.launch_seconds = 6e-6;
  model.head_seconds = 2e-9;
  model.bandwidth = 2.9e12;
  model.block_seconds = 1.5e-6;
  model.token_seconds = 8e-9;
  model.group_growth = 0.05;
  model.split_seconds = 0.5e-6;
  model.norm_exponent = 4.0;
  return model;
}

hwmodels::PrefillAttentionModel prefill_model() {
  hwmodels::PrefillAttentionModel model;
  model.sm_count = 132;
  model.launch_seconds = 9e-6;
  model.bandwidth = 2.2e12;
  model.tile_seconds = 1.1e-6;
  model.block_seconds = 3e-6;
  model.longest_weight = 1.0;
  model.norm_exponent = 4.0;
  return model;
}

hwmodels::AttentionShape shape_of(const Heads& heads) { return {heads.query, heads.kv, heads.size, 2.0, 2.0}; }

double decode_seconds(const hwmodels::DecodeAttentionModel& model, const DecodeAttention& point) {
  const double each = real(point.context + 1);
  return hwmodels::DecodeAttentionTime(model, shape_of(point.heads))
      .at(real(point.batch), real(point.batch) * each, each)
      .seconds;
}

double prefill_seconds(const hwmodels::PrefillAttentionModel& model, const PrefillAttention& point) {
  return hwmodels::PrefillAttentionTime(model, shape_of(point.heads))
      .equal(real(point.batch), {Tokens(point.new_tokens), Tokens(point.context)})
      .seconds;
}

double gemm_seconds(const hwmodels::GemmModel& model, const Gemm& point) {
  const double bytes = point.number == Number::fp8 ? 1.0 : 2.0;
  return hwmodels::GemmTime(model, point.n, point.k, bytes * real(point.n) * real(point.k), bytes).at(point.m).seconds;
}

/// The true time of each row of a point.
struct Device {
  std::vector<double> operator()(const ContiguousCopy& point) const {
    const double slower = point.memory == HostMemory::pageable ? 3.0 : 1.0;
    const double alone = slower * kSingle.at(static_cast<std::size_t>(point.direction)).seconds(real(point.bytes));
    return {alone, alone + 9e-6};
  }
  std::vector<double> operator()(const RelayCopy& point) const { return {kRelay.seconds(real(point.bytes))}; }
  std::vector<double> operator()(const DuplexCopy& point) const {
    return {real(point.h2d_bytes) / (kDuplexShare * kSingle[0].bandwidth),
            real(point.d2h_bytes) / (kDuplexShare * kSingle[1].bandwidth)};
  }
  std::vector<double> operator()(const ScatteredCopy& point) const {
    const Link& link =
        kScattered.at(static_cast<std::size_t>(point.direction)).at(static_cast<std::size_t>(point.mechanism));
    return {real(point.blocks) * link.seconds(real(point.block_bytes))};
  }
  std::vector<double> operator()(const Gemm& point) const { return {gemm_seconds(gemm_model(), point)}; }
  std::vector<double> operator()(const DecodeAttention& point) const { return {decode_seconds(decode_model(), point)}; }
  std::vector<double> operator()(const PrefillAttention& point) const {
    return {prefill_seconds(prefill_model(), point)};
  }
  std::vector<double> operator()(const Elementwise& point) const {
    const double bytes = (point.kind == ElementwiseKind::silu_mul ? 6.0 : 4.0) * real(point.tokens * point.width);
    return {kElementwise.seconds(bytes)};
  }
  std::vector<double> operator()(const HostAttention& point) const {
    const double number = point.number == Number::fp32 ? 4.0 : 2.0;
    const double bytes = 2.0 * number * real(point.batch * point.context * point.heads.kv * point.heads.size);
    return {kCpu.seconds(point.threads, bytes)};
  }
  /// No fit uses these rows.
  template <class Other>
  std::vector<double> operator()(const Other& point) const {
    return millisecond_each(point);
  }
};

hwmodels::Measurements measured(Level level) {
  FakeBackend backend(fake_machine(1), [](const Point& point) { return std::visit(Device{}, point); });
  backend.kernel = "cudnn";
  backend.jitter = 0.005;
  PlanOptions options;
  options.level = level;
  Plan plan = make_plan(options, backend.facts());
  Document document = new_document(plan, backend.facts(), {"test", "2026-01-31T12:00:00Z", 1, 0}, false);
  FakeOutside outside(backend);
  EXPECT_EQ(run_plan(plan, backend, 0, document, outside.hooks).code, ExitCode::ok);
  // Tests run in parallel, each in its own process.
  const std::string path =
      (std::filesystem::path(testing::TempDir()) / fmt::format("calibrate_synthetic_{}.json", getpid())).string();
  write_document(path, document);
  const std::vector<hwmodels::MeasurementInput> inputs{{path, {}}};
  hwmodels::Measurements rows = hwmodels::read_measurements(inputs);
  std::filesystem::remove(path);
  return rows;
}

class CalibrateSynthetic : public testing::TestWithParam<Level> {
 protected:
  static const hwmodels::FittedKernels& fitted() {
    static std::map<Level, hwmodels::FittedKernels> all;
    const auto it = all.find(GetParam());
    if (it != all.end()) return it->second;
    return all.emplace(GetParam(), hwmodels::calibrate(measured(GetParam()), {}, {})).first->second;
  }
};

/// Within 2%.
void expect_near(double found, double truth, const std::string& what) {
  EXPECT_NEAR(found / truth, 1.0, 0.02) << what << ": " << found << " for " << truth;
}

TEST_P(CalibrateSynthetic, CopiesAreRecovered) {
  EXPECT_EQ(fitted().copies.size(),
            11U);  // contiguous and four mechanisms, in two directions, and relays to the GPU
  for (const auto& [model, record] : fitted().copies) {
    const std::size_t direction = model.to_device ? 0 : 1;
    Link truth = kSingle.at(direction);
    switch (model.mechanism) {
      case CopyMechanism::single:
        break;
      case CopyMechanism::many:
        truth = kScattered.at(direction)[0];
        break;
      case CopyMechanism::batched:
        truth = kScattered.at(direction)[1];
        break;
      case CopyMechanism::gather:
        truth = kScattered.at(direction)[2];
        break;
      case CopyMechanism::kernel:
        truth = kScattered.at(direction)[3];
        break;
      case CopyMechanism::relay:
        truth = kRelay;
        break;
      case CopyMechanism::peer:
        FAIL() << "one GPU has no peer";
    }
    const std::string what = fmt::format("{} {}", model.to_device, hwmodels::mechanism_name(model.mechanism));
    expect_near(model.launch_seconds, truth.launch, what + " launch");
    expect_near(model.bandwidth, truth.bandwidth, what + " bandwidth");
    for (const double bytes : {3e5, 2e6, 3e7}) {
      expect_near(model.seconds(bytes), truth.seconds(bytes), fmt::format("{} of {} bytes", what, bytes));
    }
  }
}

TEST_P(CalibrateSynthetic, LinesAreRecovered) {
  ASSERT_TRUE(fitted().elementwise && fitted().cpu_attention);
  expect_near(fitted().elementwise->model.launch_seconds, kElementwise.launch, "elementwise launch");
  expect_near(fitted().elementwise->model.bandwidth, kElementwise.bandwidth, "elementwise bandwidth");
  const hwmodels::CpuAttentionModel& cpu = fitted().cpu_attention->model;
  expect_near(cpu.launch_seconds, kCpu.launch_seconds, "CPU attention launch");
  expect_near(cpu.bandwidth_per_thread, kCpu.bandwidth_per_thread, "CPU attention of a thread");
  expect_near(cpu.bandwidth, kCpu.bandwidth, "CPU attention of all threads");
}

TEST_P(CalibrateSynthetic, MatricesAreRecovered) {
  // A full run measures fp8 as well.
  const auto& formats = fitted().gemm;
  ASSERT_EQ(formats.size(), GetParam() == Level::full ? 2U : 1U);
  ASSERT_EQ(formats.back().dtype_bytes, 2);
  const hwmodels::GemmModel& model = formats.back().model;
  const hwmodels::GemmModel truth = gemm_model();
  expect_near(model.launch_seconds, truth.launch_seconds, "launch");
  expect_near(model.flops, truth.flops, "FLOP/s");
  expect_near(model.bandwidth, truth.bandwidth, "bandwidth");
  EXPECT_EQ(model.norm_exponent, truth.norm_exponent);
  // Layers of Llama 3.1 8B and 70B, Llama 2 13B and Qwen 1.5 7B, none of them
  // measured.
  for (const Gemm& point :
       {Gemm{1, 22016, 4096}, Gemm{16, 15360, 5120}, Gemm{24, 6144, 4096}, Gemm{64, 10240, 8192},
        Gemm{200, 28672, 4096}, Gemm{1000, 4096, 14336}, Gemm{3000, 13824, 5120}, Gemm{4096, 8192, 28672}}) {
    expect_near(gemm_seconds(model, point), gemm_seconds(truth, point),
                fmt::format("m {} n {} k {}", point.m, point.n, point.k));
  }
}

TEST_P(CalibrateSynthetic, AttentionIsRecovered) {
  ASSERT_TRUE(fitted().decode_attention && fitted().prefill_attention);
  const hwmodels::DecodeAttentionModel& decode = fitted().decode_attention->model;
  expect_near(decode.launch_seconds, decode_model().launch_seconds, "decode launch");
  expect_near(decode.bandwidth, decode_model().bandwidth, "decode bandwidth");
  for (const Heads& heads : {Heads{32, 8, 128}, Heads{40, 8, 128}, Heads{16, 2, 128}, Heads{28, 4, 128}}) {
    for (const auto& [batch, context] : {std::pair(4, 500), {16, 3000}, {32, 2000}, {100, 700}, {200, 1500}}) {
      const DecodeAttention point{heads, batch, context};
      expect_near(decode_seconds(decode, point), decode_seconds(decode_model(), point),
                  fmt::format("{}/{} heads, {} x {}", heads.query, heads.kv, batch, context));
    }
  }
  const hwmodels::PrefillAttentionModel& prefill = fitted().prefill_attention->model;
  expect_near(prefill.launch_seconds, prefill_model().launch_seconds, "prefill launch");
  expect_near(prefill.tile_seconds, prefill_model().tile_seconds, "prefill tile");
  for (const Heads& heads : {Heads{32, 8, 128}, Heads{40, 8, 128}, Heads{16, 2, 128}, Heads{28, 4, 128}}) {
    for (const auto& [chunk, context] : {std::pair(200, 0), {300, 5000}, {700, 1000}, {1500, 0}, {4000, 9000}}) {
      const PrefillAttention point{heads, 1, chunk, context};
      expect_near(prefill_seconds(prefill, point), prefill_seconds(prefill_model(), point),
                  fmt::format("{}/{} heads, {} behind {}", heads.query, heads.kv, chunk, context));
    }
  }
}

/// The error that the fit states, of rows that it was not fitted to, is small
/// as well, and there is one for each op.
TEST_P(CalibrateSynthetic, StatedErrorsAreSmall) {
  for (const hwmodels::FitLine& line : hwmodels::fit_lines(fitted())) {
    EXPECT_GT(line.record->held_out.n, 0) << line.op;
    EXPECT_LT(line.record->held_out.median, 0.02) << line.op;
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, CalibrateSynthetic, testing::Values(Level::quick, Level::normal, Level::full),
                         [](const auto& one) { return std::string(name_of(one.param)); });

}  // namespace
}  // namespace spillway::calibrate
