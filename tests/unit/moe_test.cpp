// Fused mixture-of-experts modules: loads of experts, times, fits, and their JSON and CSV.
#include "hwmodels/models/moe.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hwmodels/calibration/calibration.hpp"
#include "hwmodels/calibration/moe_fits.hpp"
#include "hwmodels/calibration/profile_check.hpp"
#include "hwmodels/fitted.hpp"
#include "hwmodels/gpu_profile.hpp"
#include "hwmodels/numbers.hpp"
#include "tests/support/temp_file.hpp"

namespace spillway::hwmodels {
namespace {

using testing::HasSubstr;

RankLoad load_of(const ExpertLoad& load, std::int64_t tokens, std::int64_t top_k, std::int64_t experts,
                 std::int64_t ranks) {
  return MostLoadedRank(load, top_k, experts, ranks).at(tokens);
}

// 3 tokens in 2 of 8 experts are 6 pairs; each of two GPUs has 3 of them, for 3 of its 4 experts.
TEST(ExpertLoads, Balanced_WhenFewTokens_ThenSomeExpertsAreIdle) {
  const RankLoad load = load_of(ExpertLoad::balanced(), 3, 2, 8, 2);
  EXPECT_EQ(load.rows, 3.0);
  EXPECT_EQ(load.active, 3.0);
  EXPECT_EQ(load.largest, 1.0);
  EXPECT_THAT(load.tiles, testing::Each(3.0));
}

// 101 tokens are 202 pairs, 101 for each GPU: 26 for one expert, 25 for three. 26 rows are 2 tiles of 16.
TEST(ExpertLoads, Balanced_WhenRowsDoNotDivide_ThenOneExpertHasOneMore) {
  const RankLoad load = load_of(ExpertLoad::balanced(), 101, 2, 8, 2);
  EXPECT_EQ(load.rows, 101.0);
  EXPECT_EQ(load.active, 4.0);
  EXPECT_EQ(load.largest, 26.0);
  EXPECT_THAT(load.tiles, testing::ElementsAre(8.0, 4.0, 4.0, 4.0, 4.0));
}

// 9 pairs on 4 GPUs: the most loaded one has 3.
TEST(ExpertLoads, Balanced_WhenPairsDoNotDivide_ThenTheMostLoadedGpuHasTheRest) {
  EXPECT_EQ(load_of(ExpertLoad::balanced(), 9, 1, 8, 4).rows, 3.0);
}

TEST(ExpertLoads, PowerLaw_WhenOneGpuHoldsAll_ThenItHasAllPairs) {
  for (const double alpha : {0.0, 1.0, 1.01, 1.2, 2.5}) {
    for (const std::int64_t tokens : {1, 7, 16, 333, 16'384}) {
      const RankLoad load = load_of(ExpertLoad::power_law(alpha), tokens, 8, 128, 1);
      EXPECT_NEAR(load.rows, 8.0 * real(tokens), 1e-6 * load.rows) << alpha << " " << tokens;
      EXPECT_LE(load.active, 128.0);
    }
  }
}

// 1,000 tokens in 8 of 128 experts are 8,000 pairs. The law with exponent 1.2 draws x from 1 to 0.8 x 1,000 with a
// density of x^-1.2, so its mean is ((800^0.8 - 1) / 0.8) / ((1 - 800^-0.2) / 0.2) = 71.0. An expert with the smallest
// x has about 8,000 / (128 x 71.0) = 0.88 rows, so few experts are idle. If x began at 0.01, half of them would be.
TEST(ExpertLoads, PowerLaw_WhenTokensAreMany_ThenFewExpertsAreIdle) {
  const RankLoad load = load_of(ExpertLoad::power_law(1.2), 1000, 8, 128, 1);
  EXPECT_EQ(load.rows, 8000.0);
  EXPECT_GT(load.active, 110.0);
}

// One token in 8 of 512 experts: no x exceeds 2 of a sum near 192, so each rounds to 0 of 8 pairs. In order, the first
// 8 experts take them, which are those of one GPU.
TEST(ExpertLoads, Ties_WhenInOrder_ThenAFewPairsFallOnOneGpu) {
  const RankLoad first = load_of(ExpertLoad::power_law(1.01, ExpertLoad::Ties::in_order), 1, 8, 512, 64);
  EXPECT_EQ(first.rows, 8.0);
  EXPECT_EQ(first.active, 8.0);
  EXPECT_LT(load_of(ExpertLoad::power_law(1.01), 1, 8, 512, 64).rows, 4.0);
}

TEST(ExpertLoads, PowerLaw_WhenAlphaIsNearOne_ThenIsNearTheLimit) {
  const RankLoad at = load_of(ExpertLoad::power_law(1.0), 1000, 8, 64, 8);
  const RankLoad near = load_of(ExpertLoad::power_law(1.00001), 1000, 8, 64, 8);
  EXPECT_NEAR(near.rows / at.rows, 1.0, 0.01);
}

// One pair, two experts of a half each on the first of two GPUs: each is active in half of the draws.
TEST(ExpertLoads, Shares_WhenOnePair_ThenExpertsAreActiveByTheirShare) {
  const RankLoad load = load_of(ExpertLoad::shares({0.5, 0.5, 0.0, 0.0}), 1, 1, 4, 2);
  EXPECT_DOUBLE_EQ(load.rows, 1.0);
  EXPECT_DOUBLE_EQ(load.active, 1.0);
  EXPECT_DOUBLE_EQ(load.largest, 0.5);
}

// 4 pairs over 2 equal experts on one GPU: each is idle with a chance of 1 / 16.
TEST(ExpertLoads, Shares_WhenEqual_ThenARandomRouterLeavesExpertsIdle) {
  const RankLoad load = load_of(ExpertLoad::shares({0.5, 0.5}), 4, 1, 2, 1);
  EXPECT_DOUBLE_EQ(load.rows, 4.0);
  EXPECT_NEAR(load.active, 2.0 * 15.0 / 16.0, 1e-12);
}

// 100 pairs, a half for each of two GPUs: the larger number is 50 + 0.5642 sqrt(25) on average.
TEST(ExpertLoads, Shares_WhenGpusAreEqual_ThenTheMostLoadedHasMoreThanTheMean) {
  EXPECT_NEAR(load_of(ExpertLoad::shares({0.5, 0.5}), 100, 1, 2, 2).rows, 52.821, 1e-3);
}

std::string shares_problem(std::vector<double> shares) {
  try {
    (void)ExpertLoad::shares(std::move(shares));
  } catch (const ConfigError& error) {
    return error.problems().front().what;
  }
  return {};
}

TEST(ExpertLoads, Shares_WhenTheyAreNone_ThenSaysWhy) {
  EXPECT_EQ(shares_problem({0.5, 0.4}), "the shares of 2 experts sum to 0.9, not to 1");
  EXPECT_EQ(shares_problem({1.5, -0.5}), "the share of expert 0 is 1.5");
  EXPECT_EQ(shares_problem({0.5, std::nan(""), 0.5}), "the share of expert 1 is nan");
  EXPECT_EQ(shares_problem({0.25, 0.25, 0.5}), "");
}

TEST(ExpertLoads, Names_AreThoseOfTables) {
  EXPECT_EQ(ExpertLoad::balanced().name(), "balanced");
  EXPECT_EQ(ExpertLoad::power_law(1.2).name(), "power_law_1.2");
  EXPECT_EQ(ExpertLoad::shares({1.0}).name(), "shares");
}

// 1 TFLOP/s, 1 GB/s, two SMs, sum of arithmetic and memory.
MoeModel hand_model() {
  MoeModel model;
  model.sm_count = 2;
  model.launch_seconds = 1e-5;
  model.flops = 1e12;
  model.bandwidth = 1e9;
  model.norm_exponent = 1.0;
  return model;
}

double hand_seconds(const MoeModel& model, const MoeShape& shape, std::int64_t tokens) {
  return MoeTime(model, shape, ExpertLoad::balanced()).at(tokens).seconds;
}

// One row is a tile of 16. Gate and up: 256 outputs are 2 column tiles, one wave of 2 * 16 * 128 * 256 FLOPs on each
// SM. Down: one wave of 2 * 16 * 128 * 128. At half of 1 TFLOP/s: 3.145728 us. Weights: 3 * 256 * 128 * 2 bytes,
// 196.608 us.
TEST(MoeTimes, OneExpert_WhenByHand_ThenIsEqual) {
  EXPECT_NEAR(hand_seconds(hand_model(), {256, 128, 1, 1, 1}, 1), 1e-5 + 3.145728e-6 + 196.608e-6, 1e-15);
  // 17 rows: two tiles of 16 or one of 32 take twice the time.
  EXPECT_NEAR(hand_seconds(hand_model(), {256, 128, 1, 1, 1}, 17), 1e-5 + 6.291456e-6 + 196.608e-6, 1e-15);
  // Without a gate: 128 outputs are one column tile, still one wave; two matrices of weights.
  EXPECT_NEAR(hand_seconds(hand_model(), {256, 128, 1, 1, 1, 2}, 1), 1e-5 + 3.145728e-6 + 131.072e-6, 1e-15);
}

// In fp8 a weight is one byte.
TEST(MoeTimes, Weights_WhenQuantised_ThenTakeTheirBytes) {
  MoeModel model = hand_model();
  model.quantization = Quantization::fp8;
  EXPECT_NEAR(hand_seconds(model, {256, 128, 1, 1, 1}, 1), 1e-5 + 3.145728e-6 + 98.304e-6, 1e-15);
}

// A width of 120: both parts take half more. 2 * 16 * 128 * (256 + 120) FLOPs at half of 1 TFLOP/s: 3.080192 us.
// Weights: 3 * 256 * 120 * 2 bytes: 184.32 us.
TEST(MoeTimes, Width_WhenNoMultipleOf16_ThenTakesLonger) {
  MoeModel model = hand_model();
  model.ragged_loss = 0.5;
  EXPECT_NEAR(hand_seconds(model, {256, 120, 1, 1, 1}, 1), 1e-5 + 1.5 * (3.080192e-6 + 184.32e-6), 1e-15);
}

// A tile of 16 rows and 8 of loss; 64 columns more of each depth: 2 * 24 * 128 * (320 + 192) FLOPs.
TEST(MoeTimes, Tiles_WhenTheyLose_ThenTakeAsManyRowsAndColumnsMore) {
  MoeModel model = hand_model();
  model.edge_rows = 8.0;
  model.prologue = 64.0;
  EXPECT_NEAR(hand_seconds(model, {256, 128, 1, 1, 1}, 1), 1e-5 + 6.291456e-6 + 196.608e-6, 1e-15);
}

// 3 tokens in 2 of 4 experts on 2 GPUs: 6 pairs, 3 rows, 2 experts here.
//   6 (1e-9 + 256e-12 + 2 * 128e-12) + 3 (3 * 256e-12 + 4 * 128e-12) + 2 * 5e-9 + 3 * 6 * 256e-12 = 27.52 ns
TEST(MoeTimes, OtherWork_WhenByHand_ThenIsEqual) {
  MoeModel model = hand_model();
  const MoeShape shape{256, 128, 2, 4, 2};
  const double before = hand_seconds(model, shape, 3);
  model.pair_seconds = 1e-9;
  model.pair_hidden_seconds = 1e-12;
  model.pair_width_seconds = 2e-12;
  model.row_hidden_seconds = 3e-12;
  model.row_width_seconds = 4e-12;
  model.expert_seconds = 5e-9;
  model.token_hidden_seconds = 6e-12;
  EXPECT_NEAR(hand_seconds(model, shape, 3) - before, 27.52e-9, 1e-15);
}

// Weights far below the cache are read at four times the speed, weights far above at that of memory.
TEST(MoeTimes, Cache_WhenABenchmarkFillsIt_ThenWeightsAreReadFaster) {
  const MoeShape shape{256, 128, 1, 1, 1};
  const RankLoad load = load_of(ExpertLoad::balanced(), 1, 1, 1, 1);
  const auto seconds = [&](double cache) { return modelled_moe(hand_model(), shape, 1, load, cache).seconds; };
  EXPECT_NEAR(seconds(1e9), 1e-5 + 3.145728e-6 + 196.608e-6 / 4.0, 1e-12);
  EXPECT_NEAR(seconds(1e3), seconds(0.0), 1e-12);
  // As large as the cache: half comes from it.
  EXPECT_NEAR(seconds(196'608.0), 1e-5 + 3.145728e-6 + 196.608e-6 * (1.0 + 0.25) / 2.0, 1e-12);
}

// The anchor lies at the call's own coordinates: the factor is e^0.2.
TEST(MoeTimes, Residual_WhenThereIsOne_ThenIsAFactor) {
  MoeModel model = hand_model();
  const MoeShape shape{256, 128, 1, 1, 1};
  const double before = hand_seconds(model, shape, 4);
  model.residual = {{1.0, 1.0}, {1.0, 1.0}, {{{2.0, 2.0}, {15.0, 0.0}}}, {0.2}};
  EXPECT_NEAR(hand_seconds(model, shape, 4) / before, std::exp(0.2), 1e-4);
}

MoeModel truth(Quantization quantization = Quantization::none) {
  MoeModel model;
  model.quantization = quantization;
  model.sm_count = 132;
  model.launch_seconds = 3e-5;
  model.flops = quantization == Quantization::none ? 6e14 : 1.1e15;
  model.bandwidth = 2.8e12;
  model.edge_rows = 12.0;
  model.prologue = 100.0;
  model.ragged_loss = 0.4;
  model.pair_seconds = 1e-10;
  model.pair_hidden_seconds = 6e-13;
  model.pair_width_seconds = 1e-12;
  model.row_hidden_seconds = 1e-12;
  model.row_width_seconds = 1e-12;
  model.expert_seconds = 1e-8;
  model.token_hidden_seconds = 1e-12;
  model.norm_exponent = 2.0;
  return model;
}

// A power law is never faster where each expert has many rows, and more tokens never are.
TEST(MoeTimes, Properties_OfLoads_Hold) {
  for (const std::int64_t ranks : {1, 8, 32}) {
    const MoeShape shape{2048, 768, 8, 128, ranks};
    const MoeTime even(truth(), shape, ExpertLoad::balanced());
    const MoeTime skewed(truth(), shape, ExpertLoad::power_law(1.2));
    double before = 0.0;
    for (std::int64_t tokens = 1; tokens <= 65'536; tokens *= 2) {
      const double seconds = even.at(tokens).seconds;
      EXPECT_GE(seconds, before) << tokens;
      before = seconds;
      if (tokens < 4096) continue;
      EXPECT_GE(skewed.at(tokens).seconds, 0.999 * seconds) << ranks << " " << tokens;
    }
  }
}

TEST(MoeTimes, Bound_WhenManyRows_ThenIsCompute) {
  const MoeTime time(truth(), {2048, 768, 8, 128, 1}, ExpertLoad::balanced());
  EXPECT_FALSE(time.at(16).compute_bound);
  EXPECT_TRUE(time.at(65'536).compute_bound);
}

/// Rows of a truth in two formats.
std::vector<MoeRow> moe_rows(const MoeBenchmark& benchmark = {}) {
  std::vector<MoeRow> rows;
  for (const Quantization format : {Quantization::none, Quantization::fp8_block}) {
    for (const auto& [hidden, width, top_k, experts] : std::vector<std::array<std::int64_t, 4>>{
             {2048, 768, 8, 128}, {4096, 14'336, 2, 8}, {7168, 2048, 8, 256}, {2688, 1856, 6, 128}}) {
      for (const auto& [tp, ep] : std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {1, 8}, {4, 1}, {8, 1}}) {
        for (const bool skewed : {false, true}) {
          for (const std::int64_t tokens : {1, 4, 16, 64, 256, 1024, 4096, 16'384}) {
            MoeRow row{format,  format == Quantization::none ? "triton" : "cutlass",
                       tokens,  hidden,
                       width,   top_k,
                       experts, tp,
                       ep,      skewed ? std::optional(1.2) : std::nullopt,
                       1.0,     {0, static_cast<std::int64_t>(rows.size()) + 2}};
            rows.push_back(row);
          }
        }
      }
    }
  }
  const std::vector<MoeCase> cases = moe_cases(rows, benchmark);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].seconds =
        modelled_moe(truth(rows[i].quantization), cases[i].shape, cases[i].tokens, cases[i].load, benchmark.cache_bytes)
            .seconds;
  }
  return rows;
}

TEST(MoeFits, Cases_OfModelsWithoutAGate_HaveTwoMatrices) {
  std::vector<MoeRow> rows = moe_rows();
  const auto matrices = [&](const MoeBenchmark& benchmark) {
    std::map<std::int64_t, std::int64_t> by_hidden;
    for (const MoeCase& one : moe_cases(rows, benchmark)) by_hidden[one.shape.hidden] = one.shape.matrices;
    return by_hidden;
  };
  EXPECT_THAT(matrices({}), testing::ElementsAre(testing::Pair(2048, 3), testing::Pair(2688, 2), testing::Pair(4096, 3),
                                                 testing::Pair(7168, 3)));
  EXPECT_EQ(matrices({0.0, true, false}).at(2688), 3);
}

TEST(MoeFits, Benchmark_WhenRowsFollowOne_ThenIsFound) {
  const FitHints hints{132, 9.9e14, 3.35e12};
  for (const MoeBenchmark& benchmark :
       {MoeBenchmark{5.24e7, true, false}, MoeBenchmark{5.24e7, false, true}, MoeBenchmark{0.0, false, false}}) {
    EXPECT_EQ(guess_moe_benchmark(moe_rows(benchmark), hints), benchmark) << benchmark.cache_bytes;
  }
}

Measurements measured(std::vector<MoeRow> rows) {
  Measurements in;
  in.files.push_back({"moe.csv", std::string(64, '0'), "ops-moe-csv", static_cast<std::int64_t>(rows.size()), {}});
  in.moe = std::move(rows);
  return in;
}

TEST(MoeFits, Calibration_WhenRowsFollowTheModel_ThenErrsLittle) {
  const Measurements in = measured(moe_rows());
  const FittedKernels kernels = calibrate(in, {}, {});
  ASSERT_EQ(kernels.moe.size(), 2U);
  for (const FittedMoe& fit : kernels.moe) {
    EXPECT_LT(fit.record.held_out.median, 0.08) << fit.kernel;
    EXPECT_EQ(fit.shapes.size(), 16U);
    EXPECT_EQ(fit.record.held_out.n, 256);
  }
  GpuProfile profile;
  profile.fitted = kernels;
  const CheckReport report = check_profile(profile, in);
  ASSERT_EQ(report.lines.size(), 3U);
  EXPECT_EQ(report.lines[0].op, "moe");
  EXPECT_EQ(report.lines[0].error.n, 512);
  EXPECT_EQ(report.lines[1].op, "moe bf16");
  EXPECT_EQ(report.lines[2].op, "moe fp8_block");
  for (const CheckLine& line : report.lines) {
    EXPECT_LT(line.error.median, 0.05) << line.op;
    EXPECT_EQ(line.outside, 0);
  }
}

TEST(MoeFits, Check_WhenTheProfileLacksTheFormat_ThenSaysSo) {
  std::vector<MoeRow> rows = moe_rows();
  GpuProfile profile;
  profile.fitted.moe.push_back({"other", truth(), {}, {}, {{2048, 768, 8, 128, 1}}});
  const CheckReport report = check_profile(profile, measured(rows));
  ASSERT_EQ(report.lines.size(), 1U);
  EXPECT_EQ(report.lines[0].op, "moe bf16");  // by the only kernel of the format
  EXPECT_THAT(report.skipped, testing::ElementsAre("256 rows of moe fp8_block: the profile has no fit for them"));
}

TEST(MoeFits, Calibration_WhenRowsAreTooFew_ThenSaysHowManyItTakes) {
  std::vector<MoeRow> rows = moe_rows();
  rows.resize(23);
  try {
    (void)calibrate(measured(rows), {}, {});
    FAIL();
  } catch (const DataError& error) {
    EXPECT_EQ(error.problems().front().what, "23 rows of moe are too few to fit: at least 24 are required");
  }
}

FittedKernels two_kernels() {
  FittedKernels kernels;
  MoeModel model = truth(Quantization::fp8);
  model.residual = {{2.0, 2.0}, {4.0, 4.0}, {{{1.0, 2.0}, {3.0, 4.0}}}, {0.25}};
  const FitRecord record{"measured", "moe.csv", {}, "shapes", {}, {}};
  kernels.moe.push_back({"small", model, record, {4e7, true, false}, {{2048, 768, 8, 128, 1}}});
  kernels.moe.push_back({"large", model, record, {4e7, true, false}, {{7168, 2048, 8, 256, 8}}});
  return kernels;
}

TEST(MoeFits, Kernel_OfARun_IsThatOfTheNearestShape) {
  const FittedKernels kernels = two_kernels();
  EXPECT_EQ(kernels.moe_for(Quantization::fp8, {2880, 1024, 4, 128, 1})->kernel, "small");
  EXPECT_EQ(kernels.moe_for(Quantization::fp8, {6144, 2048, 8, 256, 4})->kernel, "large");
  EXPECT_EQ(kernels.moe_for(Quantization::none, {6144, 2048, 8, 256, 4}), nullptr);
}

TEST(MoeFits, Json_WhenReadAgain_ThenIsTheSame) {
  const nlohmann::json text = to_json(two_kernels());
  std::vector<Problem> problems;
  const FittedKernels again = read_fitted(text, "/fitted", problems);
  EXPECT_THAT(problems, testing::IsEmpty());
  EXPECT_EQ(to_json(again), text);
  ASSERT_EQ(again.moe.size(), 2U);
  EXPECT_EQ(again.moe[1].shapes, two_kernels().moe[1].shapes);
  EXPECT_EQ(again.moe[1].benchmark, two_kernels().moe[1].benchmark);
}

std::string json_problem(const std::function<void(nlohmann::json&)>& change) {
  nlohmann::json text = to_json(two_kernels());
  change(text["moe"][1]);
  std::vector<Problem> problems;
  (void)read_fitted(text, "/fitted", problems);
  return problems.empty() ? std::string() : problems.front().where + ": " + problems.front().what;
}

TEST(MoeFits, Json_WhenBad_ThenSaysWhere) {
  EXPECT_THAT(json_problem([](auto& moe) { moe.erase("shapes"); }), HasSubstr("/fitted/moe/1/shapes"));
  EXPECT_THAT(json_problem([](auto& moe) { moe["shapes"] = nlohmann::json::array(); }), HasSubstr("at least one"));
  EXPECT_THAT(json_problem([](auto& moe) { moe["shapes"][0][4] = 3; }), HasSubstr("/fitted/moe/1/shapes"));
  EXPECT_THAT(json_problem([](auto& moe) { moe["shapes"][0][5] = 1; }), HasSubstr("matrices of 2 or 3"));
  EXPECT_THAT(json_problem([](auto& moe) { moe["shapes"][0][2] = 512; }), HasSubstr("/fitted/moe/1/shapes"));
  EXPECT_THAT(json_problem([](auto& moe) { moe["kernel"] = "small"; }), HasSubstr("kernel and quantization"));
  EXPECT_THAT(json_problem([](auto& moe) { moe["benchmark"]["cache"] = 1; }), HasSubstr("/fitted/moe/1/benchmark"));
  EXPECT_THAT(json_problem([](auto& moe) { moe["quantization"] = "fp7"; }), HasSubstr("/fitted/moe/1/quantization"));
  EXPECT_THAT(json_problem([](auto& moe) { moe["norm_exponent"] = 3; }), HasSubstr("/fitted/moe/1/norm_exponent"));
}

// Twice the arithmetic, half the bandwidth, three times the memory's bandwidth, on as many SMs.
TEST(MoeFits, Borrowed_WhenScaled_ThenKeepsLaunches) {
  ScalingFacts from{132, 1e15, 1e15, 1e12, 1e12, 1e12};
  ScalingFacts to{132, 2e15, 1e15, 3e12, 0.5e12, 1e12};
  const FittedMoe fit = borrowed(two_kernels(), "x", from, to).moe.front();
  EXPECT_DOUBLE_EQ(fit.model.flops, 2.0 * 1.1e15);
  EXPECT_DOUBLE_EQ(fit.model.bandwidth, 0.5 * 2.8e12);
  EXPECT_DOUBLE_EQ(fit.model.pair_hidden_seconds, 2e-13);
  EXPECT_DOUBLE_EQ(fit.model.launch_seconds, 3e-5);
  EXPECT_EQ(fit.model.residual.anchors.size(), 1U);
  EXPECT_EQ(fit.record.source_kind, "borrowed");
  to.sm_count = 100;
  EXPECT_TRUE(borrowed(two_kernels(), "x", from, to).moe.front().model.residual.anchors.empty());
  EXPECT_EQ(lent(two_kernels(), "x").moe.front().record.source_kind, "borrowed");
}

const std::string kHeader = "moe_dtype,kernel,tokens,hidden,inter,topk,experts,tp,ep,distribution,latency_us\n";

/// The problems of a file with these rows, or the rows.
std::string csv_problems(const std::string& rows, std::vector<MoeRow>* read = nullptr) {
  const TempFile file(kHeader + rows, ".csv");
  const std::vector<MeasurementInput> inputs{{file.path(), {}}};
  try {
    const Measurements all = read_measurements(inputs);
    if (read != nullptr) *read = all.moe;
  } catch (const DataError& error) {
    return error.problems().front().where.substr(file.path().size()) + ": " + error.problems().front().what;
  }
  return {};
}

TEST(MoeRows, Csv_WhenGood_ThenIsRead) {
  std::vector<MoeRow> rows;
  EXPECT_EQ(csv_problems("bfloat16,triton,4,2048,768,8,128,2,4,power_law_1.2,100\n"
                         "w4a8_mxfp4_mxfp8,trtllm,4,2048,768,8,128,1,1,balanced,50\n",
                         &rows),
            "");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].quantization, Quantization::none);
  EXPECT_EQ(rows[0].power_law, 1.2);
  EXPECT_DOUBLE_EQ(rows[0].seconds, 1e-4);
  EXPECT_EQ(rows[0].expert_parallel, 4);
  EXPECT_EQ(rows[1].quantization, Quantization::mxfp4);
  EXPECT_EQ(rows[1].kernel, "trtllm mxfp8");
  EXPECT_FALSE(rows[1].power_law.has_value());
}

TEST(MoeRows, Csv_WhenBad_ThenSaysWhere) {
  const auto row = [](const char* middle) { return std::string("fp8,triton,") + middle + ",10\n"; };
  EXPECT_EQ(csv_problems("fp7,triton,4,2048,768,8,128,1,1,balanced,10\n"),
            " line 2, column moe_dtype: unknown type \"fp7\"");
  EXPECT_EQ(csv_problems(row("4,2048,768,8,128,5,1,balanced")),
            " line 2, column tp: 5 GPUs do not divide a width of 768");
  EXPECT_EQ(csv_problems(row("4,2048,768,8,128,1,3,balanced")), " line 2, column ep: 3 GPUs do not divide 128 experts");
  EXPECT_EQ(csv_problems(row("4,2048,768,129,128,1,1,balanced")),
            " line 2, column topk: 129 experts per token, but 128 experts");
  EXPECT_THAT(csv_problems(row("4,2048,768,8,128,1,1,uniform")), HasSubstr("unknown distribution \"uniform\""));
  EXPECT_THAT(csv_problems(row("4,2048,768,8,128,1,1,power_law_9")), HasSubstr("unknown distribution"));
  EXPECT_THAT(csv_problems(row("4,2048,768,8,128,1,1,power_law_x")), HasSubstr("unknown distribution"));
  EXPECT_THAT(csv_problems(row("0,2048,768,8,128,1,1,balanced")), HasSubstr("column tokens"));
  EXPECT_THAT(csv_problems(row("4,2048,768,8,200000,1,1,balanced")), HasSubstr("column experts: 200000 is above"));
  EXPECT_THAT(csv_problems(row("999999999999,2048,768,8,128,1,1,balanced")), HasSubstr("column tokens"));
}

// Exchanges of tokens

// 2 experts of 4 GPUs: 4 (1 - (3/4)^2) = 1.75 GPUs.
TEST(Exchanges, Copies_WhenByHand_ThenAreEqual) {
  ExchangeModel model;
  model.ranks = 4;
  EXPECT_DOUBLE_EQ(exchange_copies(model, 2), 1.75);
  model.copies = ExchangeCopies::per_expert;
  EXPECT_EQ(exchange_copies(model, 2), 2.0);
  model.copies = ExchangeCopies::all_gpus;
  EXPECT_EQ(exchange_copies(model, 2), 4.0);
}

// 100 tokens of 1000 elements of 2 bytes, two copies each: 100 (1 ns + 4000 * 0.1 ns) = 40.1 us beside 10 us.
TEST(Exchanges, Seconds_WhenByHand_ThenAreEqual) {
  ExchangeModel model{ExchangeBackend::deepep_low_latency,
                      ExchangeStep::combine,
                      8,
                      ExchangeCopies::per_expert,
                      1e-5,
                      1e-9,
                      1e-10,
                      1.0};
  EXPECT_NEAR(exchange_seconds(model, {100, 1000, 2, 2.0}), 50.1e-6, 1e-12);
  model.norm_exponent = 2.0;
  EXPECT_NEAR(exchange_seconds(model, {100, 1000, 2, 2.0}), std::sqrt(1e-10 + 40.1e-6 * 40.1e-6), 1e-12);
}

TEST(Exchanges, Names_WhenReadAgain_ThenAreTheSame) {
  for (const auto backend : {ExchangeBackend::deepep_low_latency, ExchangeBackend::nccl}) {
    EXPECT_EQ(exchange_backend_named(exchange_name(backend)), backend);
  }
  EXPECT_EQ(exchange_step_named("prepare"), ExchangeStep::prepare);
  EXPECT_EQ(exchange_step_named("prepared"), std::nullopt);
  EXPECT_EQ(exchange_copies_named("per_gpu"), ExchangeCopies::per_gpu);
}

Measurements exchanges_of(const ExchangeModel& truth) {
  Measurements in;
  in.files.push_back({"deepep.csv", std::string(64, '0'), "ops-deepep-ll-csv", 0, {}});
  for (const std::int64_t hidden : {2048, 4096, 7168}) {
    for (const std::int64_t top_k : {2, 8}) {
      for (std::int64_t tokens = 1; tokens <= 4096; tokens *= 4) {
        const ExchangeShape shape{tokens, hidden, top_k, 2.0};
        in.exchanges.push_back(
            {truth.backend, truth.step, truth.ranks, shape, 128, exchange_seconds(truth, shape), {0, tokens}});
      }
    }
  }
  return in;
}

TEST(Exchanges, Calibration_WhenRowsFollowAModel_ThenItIsFound) {
  for (const ExchangeCopies copies : {ExchangeCopies::per_expert, ExchangeCopies::per_gpu}) {
    const ExchangeModel truth{
        ExchangeBackend::deepep_normal, ExchangeStep::dispatch, 8, copies, 2e-5, 5e-9, 4e-12, 2.0};
    const Measurements in = exchanges_of(truth);
    const FittedKernels kernels = calibrate(in, {}, {});
    ASSERT_EQ(kernels.exchanges.size(), 1U);
    const FittedExchange& fit = kernels.exchanges.front();
    EXPECT_EQ(fit.model.copies, copies);
    EXPECT_EQ(fit.model.norm_exponent, 2.0);
    EXPECT_NEAR(fit.model.byte_seconds / 4e-12, 1.0, 0.05);
    EXPECT_LT(fit.record.held_out.p95, 0.05);
    EXPECT_EQ(fit.record.held_out_by, "whole models");
    GpuProfile profile;
    profile.fitted = kernels;
    const CheckReport report = check_profile(profile, in);
    ASSERT_EQ(report.lines.size(), 1U);
    EXPECT_EQ(report.lines[0].op, "expert_exchange deepep_normal dispatch");
    EXPECT_LT(report.lines[0].error.p95, 0.05);
    const nlohmann::json text = to_json(kernels);
    std::vector<Problem> problems;
    EXPECT_EQ(to_json(read_fitted(text, "/fitted", problems)), text);
    EXPECT_THAT(problems, testing::IsEmpty());
  }
}

TEST(Exchanges, Fit_OfARun_IsThatOfTheNearestNumberOfGpus) {
  FittedKernels kernels;
  for (const std::int64_t ranks : {2, 8, 64}) {
    FittedExchange fit;
    fit.model.ranks = ranks;
    kernels.exchanges.push_back(fit);
  }
  const auto ranks_for = [&](std::int64_t ranks) {
    return kernels.exchange_for(ExchangeBackend::nccl, ExchangeStep::dispatch, ranks)->model.ranks;
  };
  EXPECT_EQ(ranks_for(2), 2);
  EXPECT_EQ(ranks_for(16), 8);
  EXPECT_EQ(ranks_for(72), 64);
  EXPECT_EQ(kernels.exchange_for(ExchangeBackend::nccl, ExchangeStep::combine, 8), nullptr);
}

/// The exchanges of a file, or its first problem.
std::vector<ExchangeRow> exchanges_in(const std::string& text, std::string* problem = nullptr) {
  const TempFile file(text, ".csv");
  const std::vector<MeasurementInput> inputs{{file.path(), {}}};
  try {
    return read_measurements(inputs).exchanges;
  } catch (const DataError& error) {
    if (problem != nullptr)
      *problem = error.problems().front().where.substr(file.path().size()) + ": " + error.problems().front().what;
  }
  return {};
}

TEST(Exchanges, Tables_WhenGood_ThenAreRead) {
  const auto low = exchanges_in("nodes,hidden,tokens,topk,experts,dispatch_us,combine_us\n1,2048,4,8,128,10,12\n");
  ASSERT_EQ(low.size(), 2U);
  EXPECT_EQ(low[0].step, ExchangeStep::dispatch);
  EXPECT_EQ(low[0].ranks, 8);
  EXPECT_DOUBLE_EQ(low[0].shape.element_bytes, 1.03125);
  EXPECT_DOUBLE_EQ(low[0].seconds, 1e-5);
  EXPECT_DOUBLE_EQ(low[1].seconds, 1.2e-5);
  EXPECT_EQ(low[1].shape.element_bytes, 2.0);
  const auto normal = exchanges_in(
      "nodes,hidden,tokens,topk,experts,dispatch_sms,dispatch_transmit_us,combine_sms,combine_transmit_us\n"
      "1,2048,4,8,128,20,10,4,12\n");
  ASSERT_EQ(normal.size(), 1U);
  EXPECT_EQ(normal[0].backend, ExchangeBackend::deepep_normal);
  const auto nvlink = exchanges_in(
      "op,kernel,dtype,tokens,hidden,topk,experts,ep,distribution,latency_us\n"
      "alltoall_dispatch,NVLinkTwoSided,nvfp4,4,7168,8,256,16,balanced,10\n"
      "alltoall_combine_low_precision,NVLinkTwoSided,nvfp4,4,7168,8,256,16,balanced,10\n");
  ASSERT_EQ(nvlink.size(), 1U);
  EXPECT_DOUBLE_EQ(nvlink[0].shape.element_bytes, 0.5625);
  EXPECT_EQ(nvlink[0].ranks, 16);
  // A gathered buffer of 1600 bytes on 8 GPUs: each sends 100 elements.
  const auto nccl = exchanges_in("op,backend,dtype,ranks,bytes,latency_us\nall_gather,nccl,half,8,1600,10\n");
  ASSERT_EQ(nccl.size(), 1U);
  EXPECT_EQ(nccl[0].shape.tokens, 100);
  EXPECT_EQ(nccl[0].step, ExchangeStep::dispatch);
}

TEST(Exchanges, Tables_WhenBad_ThenSayWhere) {
  std::string problem;
  (void)exchanges_in("nodes,hidden,tokens,topk,experts,dispatch_us,combine_us\n1,2048,4,8,128,0,12\n", &problem);
  EXPECT_THAT(problem, HasSubstr(" line 2, column dispatch_us"));
  (void)exchanges_in("nodes,hidden,tokens,topk,experts,dispatch_us,combine_us\n1,2048,4,129,128,1,12\n", &problem);
  EXPECT_THAT(problem, HasSubstr("129 experts per token, but 128 experts"));
}

}  // namespace
}  // namespace spillway::hwmodels
