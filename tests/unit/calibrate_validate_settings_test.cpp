// Settings that no calibration has measured, and the simulator's predictions for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "cuda_calibrate/measure/known_gpus.hpp"
#include "cuda_calibrate/measure/plan.hpp"
#include "cuda_calibrate/validate/predict.hpp"
#include "cuda_calibrate/validate/settings.hpp"
#include "hwmodels/catalog.hpp"
#include "hwmodels/models/engine_side.hpp"
#include "hwmodels/models/gemm.hpp"
#include "sim/core/error.hpp"
#include "tests/unit/calibrate_schedule_interpreter.hpp"

namespace spillway::calibrate {
namespace {

using hwmodels::GpuProfile;
using hwmodels::HostProfile;
using hwmodels::load_gpu;
using hwmodels::load_host;
using testing::HasSubstr;

constexpr std::int64_t kThreads = 16;

struct Machines {
  const char* gpu;
  const char* host;
};

class ValidateSettings : public testing::TestWithParam<Machines> {
 protected:
  [[nodiscard]] Predictor predictor() const { return {load_gpu(GetParam().gpu), load_host(GetParam().host), kThreads}; }
};

std::vector<Multiply> multiplies_of(const Experiment& experiment) {
  if (const auto* s = std::get_if<LayerSwapping>(&experiment)) return {s->compute};
  if (const auto* s = std::get_if<WeightPrefetch>(&experiment)) return {s->compute};
  if (const auto* s = std::get_if<SwapIn>(&experiment)) return {s->compute};
  if (const auto* s = std::get_if<CpuOverlap>(&experiment)) return {s->first, s->second};
  return {};
}

TEST_P(ValidateSettings, AtLeastSixtyOfFiveExperiments) {
  std::map<std::string, int> by_letter;
  std::set<std::string> names;
  for (const Setting& setting : held_out_settings(predictor().scale())) {
    ++by_letter[letter_of(setting.experiment)];
    EXPECT_TRUE(names.insert(setting.name).second) << setting.name;
    EXPECT_EQ(setting.name.substr(0, 1), letter_of(setting.experiment));
  }
  EXPECT_GE(names.size(), 60U);
  EXPECT_EQ(by_letter, (std::map<std::string, int>{{"a", 24}, {"b", 12}, {"c", 10}, {"d", 8}, {"e", 10}}));
}

TEST_P(ValidateSettings, FitTheMachineAndLastFrom5MsTo1S) {
  const Predictor predicts = predictor();
  for (const Setting& setting : held_out_settings(predicts.scale())) {
    const Footprint footprint = footprint_of(setting.experiment);
    EXPECT_LE(footprint.gpu_bytes, predicts.gpu().memory.count() / 2) << setting.name;
    EXPECT_LE(footprint.host_bytes, std::int64_t{12} << 30) << setting.name;
    const double seconds = to_seconds(predicts.predict(setting.experiment).length);
    EXPECT_GE(seconds, 5e-3) << setting.name << " " << text_of(setting.experiment);
    EXPECT_LE(seconds, 1.0) << setting.name << " " << text_of(setting.experiment);
  }
}

TEST_P(ValidateSettings, CoverWhatIsBoundByCopiesByComputeAndByBoth) {
  // Busy time of the busiest other stream over busy time of the compute stream.
  const Predictor predicts = predictor();
  const CopySharing sharing = hwmodels::EngineSide(predicts.gpu(), hwmodels::load_engine("none"), 1).copy_sharing();
  int compute_bound = 0;
  int balanced = 0;
  int copy_bound = 0;
  for (const Setting& setting : held_out_settings(predicts.scale())) {
    if (std::holds_alternative<PageOut>(setting.experiment)) continue;
    const Simulated simulated = predicts.predict(setting.experiment);
    const std::vector<OperationSpan> spans = interpret(simulated, sharing);
    std::map<Stream, double> work;
    for (std::size_t i = 0; i < spans.size(); ++i) {
      work[simulated.schedule.operations[i].stream] += spans[i].end - spans[i].start;
    }
    const double load = std::max({work[Stream::h2d], work[Stream::d2h], work[Stream::cpu]}) / work[Stream::compute];
    ++(load < 0.7 ? compute_bound : load < 1.4 ? balanced : copy_bound);
  }
  EXPECT_GE(compute_bound, 10);
  EXPECT_GE(balanced, 10);
  EXPECT_GE(copy_bound, 10);
}

/// The measured values of a full calibration of this GPU.
struct Grids {
  std::set<std::int64_t> tokens;
  std::set<std::pair<std::int64_t, std::int64_t>> weights;
  std::set<std::int64_t> copy_bytes;
  std::set<std::int64_t> block_bytes;
  std::set<std::int64_t> blocks;
  std::set<std::int64_t> contexts;
  std::set<std::int64_t> kv_bytes;
};

Grids grids_of(const char* gpu) {
  HostFacts host;
  host.memory_bytes = host.available_bytes = std::int64_t{512} << 30;
  host.physical_cores = host.threads = kThreads;
  Grids grids;
  for (const Level level : {Level::quick, Level::normal, Level::full}) {
    for (const Section& section : make_plan({.level = level}, assumed_facts(gpu, host)).sections) {
      for (const Point& point : section.points) {
        if (const auto* gemm = std::get_if<Gemm>(&point)) {
          grids.tokens.insert(gemm->m);
          grids.weights.emplace(gemm->n, gemm->k);
        } else if (const auto* copy = std::get_if<ContiguousCopy>(&point)) {
          grids.copy_bytes.insert(copy->bytes);
        } else if (const auto* scattered = std::get_if<ScatteredCopy>(&point)) {
          grids.block_bytes.insert(scattered->block_bytes);
          grids.blocks.insert(scattered->blocks);
        } else if (const auto* attention = std::get_if<HostAttention>(&point)) {
          grids.contexts.insert(attention->context);
          grids.kv_bytes.insert(kv_bytes(*attention));
        }
      }
    }
  }
  return grids;
}

/// Calibrations copy powers of two. An odd number of pages above one is none.
bool has_odd_pages(std::int64_t bytes) { return bytes % 4096 == 0 && bytes / 4096 % 2 == 1 && bytes > 4096; }

TEST_P(ValidateSettings, NoneLiesOnTheCalibrationsGrids) {
  const Grids grids = grids_of(GetParam().gpu);
  ASSERT_FALSE(grids.tokens.empty());
  ASSERT_FALSE(grids.copy_bytes.empty());
  ASSERT_FALSE(grids.blocks.empty());
  ASSERT_FALSE(grids.contexts.empty());
  for (const Setting& setting : held_out_settings(predictor().scale())) {
    for (const Multiply& multiply : multiplies_of(setting.experiment)) {
      EXPECT_FALSE(grids.tokens.contains(multiply.m)) << setting.name << ": m = " << multiply.m;
      EXPECT_FALSE(grids.weights.contains({multiply.n, multiply.k})) << setting.name;
    }
    if (const auto* s = std::get_if<LayerSwapping>(&setting.experiment)) {
      EXPECT_FALSE(grids.copy_bytes.contains(s->slot_bytes)) << setting.name;
      EXPECT_TRUE(has_odd_pages(s->slot_bytes)) << setting.name;
    } else if (const auto* prefetch = std::get_if<WeightPrefetch>(&setting.experiment)) {
      EXPECT_FALSE(grids.copy_bytes.contains(prefetch->compute.weight_bytes())) << setting.name;
    } else if (const auto* swap_in = std::get_if<SwapIn>(&setting.experiment)) {
      EXPECT_FALSE((swap_in->blocks == 1 ? grids.copy_bytes : grids.block_bytes).contains(swap_in->block_bytes))
          << setting.name;
      EXPECT_FALSE(grids.blocks.contains(swap_in->blocks)) << setting.name;
    } else if (const auto* page_out = std::get_if<PageOut>(&setting.experiment)) {
      EXPECT_FALSE(grids.block_bytes.contains(page_out->block_bytes)) << setting.name;
      EXPECT_FALSE(grids.blocks.contains(page_out->blocks)) << setting.name;
    } else if (const auto* overlap = std::get_if<CpuOverlap>(&setting.experiment)) {
      for (const HostAttention& attention : {overlap->first_attention, overlap->second_attention}) {
        if (attention.batch == 0) continue;
        EXPECT_FALSE(grids.contexts.contains(attention.context)) << setting.name;
        EXPECT_FALSE(grids.kv_bytes.contains(kv_bytes(attention))) << setting.name;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Bundled, ValidateSettings,
                         testing::Values(Machines{"t4-16gb", "g4dn.4xlarge-host"}, Machines{"a10-24gb", "a10-host"},
                                         Machines{"a100-80gb-sxm", "a100-host"},
                                         Machines{"h100-80gb-sxm", "hgx-h100-host"},
                                         Machines{"h200-141gb", "hgx-h100-host"},
                                         Machines{"gh200-96gb", "grace-480gb"}),
                         [](const testing::TestParamInfo<Machines>& machines) {
                           std::string name = machines.param.gpu;
                           std::erase_if(name, [](char c) { return c == '-'; });
                           return name;
                         });

TEST(ValidateSizes, OfAttention_ByHand) {
  // 3 sequences of 5 tokens, 2 KV heads of 8: K and V in 2 bytes, 3 * 5 * 2 * 8 * 2 * 2 = 960. Queries of 6 heads with
  // one new K and V: 3 * (6 + 2 * 2) * 8 * 2 = 480; the output in 4 bytes, 3 * 6 * 8 * 4 = 576.
  const HostAttention attention{.heads = {.query = 6, .kv = 2, .size = 8}, .batch = 3, .context = 5};
  EXPECT_EQ(kv_bytes(attention), 960);
  EXPECT_EQ(query_bytes(attention), 480);
  EXPECT_EQ(output_bytes(attention), 576);
}

TEST(ValidateSizes, Footprints_ByHand) {
  // 9 layers with 2 on the host: 7 slots on the GPU, 4 on the host.
  Footprint footprint = footprint_of(LayerSwapping{.layers = 9, .on_host = 2, .slot_bytes = 1000});
  EXPECT_EQ(footprint.gpu_bytes, 7000);
  EXPECT_EQ(footprint.host_bytes, 4000);
  // 13 layers at interval 4: three on the host, of 2 * 10 * 20 * 2 = 800 bytes, through two buffers.
  footprint =
      footprint_of(WeightPrefetch{.layers = 13, .interval = 4, .double_buffer = true, .compute = {1, 10, 20, 2}});
  EXPECT_EQ(footprint.gpu_bytes, 1600);
  EXPECT_EQ(footprint.host_bytes, 2400);
  footprint = footprint_of(SwapIn{.layers = 5, .blocks = 3, .block_bytes = 100});
  EXPECT_EQ(footprint.gpu_bytes, 1500);
  EXPECT_EQ(footprint.host_bytes, 1500);
  // Four sets of 3 * 100 bytes for ten calls.
  footprint = footprint_of(PageOut{.blocks = 3, .block_bytes = 100, .calls = 10});
  EXPECT_EQ(footprint.gpu_bytes, 1200);
  EXPECT_EQ(footprint.host_bytes, 1200);
}

// --- predictions

/// A GPU with integer times: products take 1 us each for any size (launch alone); copies run at 1 byte/ns in both
/// directions, and at half of that while both are busy.
GpuProfile plain_gpu() {
  GpuProfile gpu;
  gpu.file.name = "plain";
  gpu.file.path = "plain.json";
  gpu.memory = Bytes(std::int64_t{64} << 30);
  gpu.h2d = {BytesPerSecond(1e9), 0.0};
  gpu.d2h = {BytesPerSecond(1e9), 0.0};
  gpu.h2d_bandwidth_duplex = gpu.d2h_bandwidth_duplex = BytesPerSecond(0.5e9);
  hwmodels::FittedGemm gemm;
  gemm.model.sm_count = 100;
  gemm.model.launch_seconds = 1e-6;
  gemm.model.flops = 1e30;
  gemm.model.bandwidth = 1e30;
  gpu.fitted.gemm.push_back(gemm);
  return gpu;
}

TEST(ValidatePredict, ComputeAndCopies_AsTheProfileSays) {
  const Predictor predicts(plain_gpu(), {}, 1);
  // Pensieve's example: 4 layers of 2 calls, 2 us, with 3000 bytes each: 4 * 3 + 2 us pipelined, 4 * (3 + 2) blocking.
  SwapIn swap_in{.layers = 4, .pipelined = true, .compute = {8, 8, 8, 2}, .block_bytes = 3000};
  EXPECT_EQ(predicts.predict(swap_in).length, Duration(14'000));
  swap_in.pipelined = false;
  EXPECT_EQ(predicts.predict(swap_in).length, Duration(20'000));
  // Two calls of 5 blocks of 1000 bytes, 10000 ns.
  EXPECT_EQ(predicts.predict(PageOut{.blocks = 5, .block_bytes = 1000, .calls = 2}).length, Duration(10'000));
}

TEST(ValidatePredict, Swaps_SlowEachOtherAsTheProfileSays) {
  // n = 9, m = 2, copies of 1 us alone; both run back to back in steady state, 2 us beside each other, with layers of
  // 1 us: the example of Pie's paper, 9 us per token without a stall.
  const Predictor predicts(plain_gpu(), {}, 1);
  LayerSwapping swapping{.layers = 9, .on_host = 2, .compute = {8, 8, 8, 1}, .slot_bytes = 1000, .iterations = 6};
  EXPECT_EQ(predicts.predict(swapping).length, Duration(54'000));
  // Copies three times as large do not keep up.
  swapping.slot_bytes = 3000;
  EXPECT_GT(predicts.predict(swapping).length, Duration(70'000));
}

TEST(ValidatePredict, CpuAttention_ByTheFitElseByTheHost) {
  // One layer, one sub-batch on the CPU: 1 us of GPU work each, then 1024 bytes of queries and output there and back.
  // batch 1, heads 4/2 of 32: queries (4 + 4) * 32 * 2 = 512 bytes, output 4 * 32 * 4 = 512 bytes, 512 ns each; KV of
  // 100 tokens 100 * 2 * 32 * 4 = 25600 bytes.
  const CpuOverlap overlap{.layers = 1,
                           .first = {8, 8, 8, 1},
                           .second = {8, 8, 8, 1},
                           .second_attention = {.threads = 4, .heads = {4, 2, 32}, .batch = 1, .context = 100}};
  HostProfile host;
  host.dram_bandwidth = BytesPerSecond(20e9);
  host.dram_bandwidth_per_thread = BytesPerSecond(4e9);
  host.cpu_attention_efficiency = 0.5;
  // 4 threads reach 16 GB/s, of which half: 25600 / 8 = 3200 ns. 2000 + 512 + 3200 + 512.
  EXPECT_EQ(Predictor(plain_gpu(), host, 4).predict(overlap).length, Duration(6'224));
  // The fit comes first: 100 ns and 4 threads of 2 GB/s each, 3200 ns.
  GpuProfile gpu = plain_gpu();
  gpu.fitted.cpu_attention.emplace();
  gpu.fitted.cpu_attention->model = {100e-9, 2e9, 100e9};
  EXPECT_EQ(Predictor(gpu, host, 4).predict(overlap).length, Duration(6'324));
}

std::string problems_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    std::string all;
    for (const Problem& problem : error.problems()) all += problem.what + " at " + problem.where + "; ";
    return all;
  }
  return "none";
}

TEST(ValidatePredict, ProfileWithoutGemmOrCopies_NamesAllThatIsMissing) {
  GpuProfile gpu = plain_gpu();
  gpu.fitted.gemm.clear();
  gpu.d2h = {};
  const std::string problems = problems_of([&] { const Predictor predictor(gpu, {}, 1); });
  EXPECT_THAT(problems, HasSubstr("plain has no fitted gemm in 2-byte numbers at plain.json"));
  EXPECT_THAT(problems, HasSubstr("no copies in direction d2h"));
  EXPECT_THAT(problems, testing::Not(HasSubstr("direction h2d")));
}

TEST(ValidatePredict, NothingSaysHowFastTheCpuAttends_SettingIsRefusedAndOthersAreNot) {
  const Predictor predicts(plain_gpu(), {}, 1);
  const CpuOverlap overlap{
      .layers = 1, .first = {8, 8, 8, 1}, .second = {8, 8, 8, 1}, .second_attention = {.batch = 1, .context = 100}};
  EXPECT_THAT(problems_of([&] { static_cast<void>(predicts.predict(overlap)); }),
              HasSubstr("plain has no fitted cpu_attention, and no host is given"));
  EXPECT_EQ(held_out_settings(predicts.scale()).size(), 64U);
}

TEST(ValidatePredict, StandIns_NameTheMechanismsThatWereNotMeasured) {
  GpuProfile gpu = plain_gpu();
  hwmodels::Fitted<hwmodels::CopyModel> many;
  many.model.to_device = false;
  many.model.mechanism = CopyMechanism::many;
  many.model.bandwidth = 1e9;
  gpu.fitted.copies.push_back(many);
  const Predictor predicts(gpu, {}, 1);
  const std::vector<Setting> settings{{"d01", PageOut{.mechanism = CopyMechanism::many}},
                                      {"d02", PageOut{.mechanism = CopyMechanism::gather}}};
  EXPECT_THAT(predicts.stand_ins(settings),
              testing::ElementsAre(
                  "plain has no fit of copies d2h by gather: the predictions use the link's bandwidth and launch"));
}

}  // namespace
}  // namespace spillway::calibrate
