#include "hwmodels/models/simple_kernels.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hwmodels/calibration/layer_fits.hpp"
#include "hwmodels/calibration/least_squares.hpp"
#include "hwmodels/calibration/simple_fits.hpp"
#include "sim/core/error.hpp"
#include "sim/core/random.hpp"
#include "tests/support/paths.hpp"

namespace spillway::hwmodels {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr double kExact = 1e-9;  // relative; what a fit may lose of parameters that made the rows

void expect_relative(double actual, double expected) { EXPECT_NEAR(actual, expected, kExact * std::abs(expected)); }

/// The problems that `call` throws as a DataError, one per line: "where: what".
std::string data_error(const std::function<void()>& call) {
  try {
    call();
  } catch (const DataError& error) {
    std::string text;
    for (const Problem& problem : error.problems()) text += problem.where + ": " + problem.what + "\n";
    return text;
  }
  return "no DataError";
}

// Through (10, 1), (20, 3), (40, 4).
const Curve kCurve{{{10.0, 1.0}, {20.0, 3.0}, {40.0, 4.0}}};

TEST(Curve, At_WhenBetweenPoints_ThenOnTheLineThroughThem) {
  EXPECT_EQ(kCurve.at(10.0), 1.0);
  EXPECT_EQ(kCurve.at(15.0), 2.0);
  EXPECT_EQ(kCurve.at(20.0), 3.0);
  EXPECT_EQ(kCurve.at(30.0), 3.5);
  EXPECT_EQ(kCurve.at(40.0), 4.0);
}

// Right of the end at 1 / 20 per unit: 4 + 20 / 20. Left of it the line 1 - 0.2 per unit is below the first point.
TEST(Curve, At_WhenBeyondTheEnds_ThenTheLastLineGoesOnWithinItsBounds) {
  EXPECT_EQ(kCurve.at(60.0), 5.0);
  EXPECT_EQ(kCurve.at(5.0), 1.0);
  EXPECT_EQ(kCurve.at(0.0), 1.0);
  const Curve falling{{{10.0, 3.0}, {20.0, 1.0}}};
  EXPECT_EQ(falling.at(5.0), 4.0);            // 3 + 0.2 * 5
  EXPECT_NEAR(falling.at(24.0), 0.2, 1e-15);  // 1 - 0.2 * 4
  EXPECT_EQ(falling.at(100.0), 0.0);
}

TEST(Curve, At_WhenThereIsOnePoint_ThenItIsTheValueEverywhere) {
  const Curve constant{{{10.0, 3.0}}};
  EXPECT_EQ(constant.at(0.0), 3.0);
  EXPECT_EQ(constant.at(1e9), 3.0);
  EXPECT_THROW(static_cast<void>(Curve{}.at(1.0)), InvariantError);
}

// 1 ns per byte from 1 us at 0 on 2 ranks, 2 ns on 8.
const AllReduceModel kAllReduce{{{2, {{{0.0, 1e-6}, {1e6, 1.001e-3}}}}, {8, {{{0.0, 1e-6}, {1e6, 2.001e-3}}}}}};

// 4 ranks move 2 * 3/4 of the buffer each, 8 ranks 2 * 7/8: 7000 bytes on 4 are 6000 on 8. 16 ranks move 2 * 15/16
// each: 7000 bytes are 7500 on 8.
TEST(AllReduce, Seconds_WhenRanksWereNotMeasured_ThenScalesToTheSameBytesPerRank) {
  EXPECT_NEAR(kAllReduce.seconds(2, 1000.0), 2e-6, 1e-15);
  EXPECT_NEAR(kAllReduce.seconds(8, 1000.0), 3e-6, 1e-15);
  EXPECT_NEAR(kAllReduce.seconds(4, 7000.0), 1e-6 + 2e-9 * 6000.0, 1e-15);
  EXPECT_NEAR(kAllReduce.seconds(16, 7000.0), 1e-6 + 2e-9 * 7500.0, 1e-15);
}

TEST(AllReduce, Seconds_WhenOneRankIsAlone_ThenNone) {
  EXPECT_EQ(kAllReduce.seconds(1, 1e9), 0.0);
  EXPECT_THROW(static_cast<void>(AllReduceModel{}.seconds(2, 1.0)), InvariantError);
}

TEST(Copy, Seconds_WhenTheBlockIsSmall_ThenFromTheCurve) {
  const CopyModel line{true, CopyMechanism::many, 4e-6, 50e9, {}};
  EXPECT_DOUBLE_EQ(line.seconds(100e3), 6e-6);
  EXPECT_DOUBLE_EQ(line.seconds(1.0), 4e-6 + 1.0 / 50e9);
  const CopyModel curved{true, CopyMechanism::many, 4e-6, 50e9, {{{1000.0, 3e-6}, {2000.0, 5e-6}}}};
  EXPECT_DOUBLE_EQ(curved.seconds(1500.0), 4e-6);
  EXPECT_DOUBLE_EQ(curved.seconds(2000.0), 5e-6);
  EXPECT_DOUBLE_EQ(curved.seconds(100e3), 6e-6);
}

// 100e6 bytes: 2 threads read 10 GB/s together, 8 are held to 25 GB/s.
TEST(CpuAttention, Seconds_WhenThreadsAreMany_ThenTheirSumIsBounded) {
  const CpuAttentionModel model{1e-3, 5e9, 25e9};
  EXPECT_DOUBLE_EQ(model.seconds(2, 100e6), 11e-3);
  EXPECT_DOUBLE_EQ(model.seconds(8, 100e6), 5e-3);
}

TEST(Lines, Seconds_ThenEqualTheirFormulas) {
  EXPECT_DOUBLE_EQ((ElementwiseModel{2e-6, 1e12}.seconds(3e6)), 5e-6);
  EXPECT_DOUBLE_EQ((HostModel{1e-3, 1e-5}.seconds(20)), 1.2e-3);
  EXPECT_DOUBLE_EQ((IterationModel{1.0, 0.1, 0.01, 0.001}.seconds(10.0, 200.0, 3000.0)), 7.0);
}

TEST(Elementwise, Fit_WhenRowsLieOnALine_ThenFindsIt) {
  std::vector<ElementwiseRow> rows;
  for (const double bytes : {1e3, 1e4, 1e6, 1e8}) rows.push_back({"norm", 1, bytes, 2.5e-6 + bytes / 1.6e12, {}});
  const ElementwiseModel model = fit_elementwise(rows);
  expect_relative(model.launch_seconds, 2.5e-6);
  expect_relative(model.bandwidth, 1.6e12);
  for (const double ratio : ratios(model, rows)) EXPECT_NEAR(ratio, 1.0, kExact);
}

// Errors count as fractions of what was measured: of 1 and 3 at one size, c = sum(1/t) / sum(1/t^2) = (4/3) / (10/9) =
// 1.2, not their mean. The row of 12 at ten times the size makes that a line through 0.
TEST(Elementwise, Fit_WhenRowsDisagree_ThenErrorsAreRelative) {
  const std::vector<ElementwiseRow> rows{{"a", 1, 1.0, 1.0, {}}, {"b", 1, 1.0, 3.0, {}}, {"c", 1, 10.0, 12.0, {}}};
  const ElementwiseModel model = fit_elementwise(rows);
  EXPECT_NEAR(model.launch_seconds, 0.0, 1e-12);
  EXPECT_NEAR(model.bandwidth, 1.0 / 1.2, 1e-12);
}

// Of (1, 1) and (2, 3) the line cuts the axis at -1. Without launch time, b minimises (b - 1)^2 + (2 b / 3 - 1)^2:
// b = (1 + 2/3) / (1 + 4/9) = 15/13.
TEST(Elementwise, Fit_WhenTheLineStartsBelowZero_ThenThereIsNoLaunchTime) {
  const std::vector<ElementwiseRow> rows{{"a", 1, 1.0, 1.0, {}}, {"a", 2, 2.0, 3.0, {}}};
  const ElementwiseModel model = fit_elementwise(rows);
  EXPECT_EQ(model.launch_seconds, 0.0);
  expect_relative(model.bandwidth, 13.0 / 15.0);
}

TEST(Elementwise, Fit_WhenRowsLeaveItOpen_ThenSaysWhatIsMissing) {
  const std::vector<ElementwiseRow> same{{"a", 1, 8.0, 1.0, {}}, {"a", 1, 8.0, 2.0, {}}};
  EXPECT_THAT(data_error([&] { static_cast<void>(fit_elementwise(same)); }),
              AllOf(HasSubstr("elementwise rows"), HasSubstr("at least 2 sizes, not 2 of one")));
  EXPECT_THAT(data_error([] { static_cast<void>(fit_elementwise({})); }), HasSubstr("at least 2 sizes"));
  const std::vector<ElementwiseRow> falling{{"a", 1, 8.0, 2.0, {}}, {"a", 1, 16.0, 1.0, {}}};
  EXPECT_THAT(data_error([&] { static_cast<void>(fit_elementwise(falling)); }), HasSubstr("does not grow"));
}

TEST(AllReduce, Fit_WhenSizesAreFew_ThenEachIsAKnot) {
  const std::vector<AllReduceRow> rows{
      {2, 4096, 8e-6, {}}, {2, 1024, 5e-6, {}}, {4, 1024, 9e-6, {}}, {4, 1024, 9e-6, {}}};
  const AllReduceModel model = fit_all_reduce(rows);
  ASSERT_EQ(model.by_ranks.size(), 2U);
  ASSERT_EQ(model.by_ranks.at(2).points.size(), 2U);
  expect_relative(model.seconds(2, 1024.0), 5e-6);
  expect_relative(model.seconds(2, 4096.0), 8e-6);
  expect_relative(model.seconds(4, 1024.0), 9e-6);
  for (const double ratio : ratios(model, rows)) EXPECT_NEAR(ratio, 1.0, kExact);
}

// 1000 sizes on a line: every knot lies on it too, whichever sizes were chosen.
TEST(AllReduce, Fit_WhenSizesAreMany_ThenSpreadsAtMost32Knots) {
  std::vector<AllReduceRow> rows;
  for (std::int64_t i = 1; i <= 1000; ++i) {
    rows.push_back({8, i * 8192, 20e-6 + static_cast<double>(i) * 8192.0 / 200e9, {}});
  }
  const AllReduceModel model = fit_all_reduce(rows);
  const auto& points = model.by_ranks.at(8).points;
  EXPECT_LE(points.size(), 32U);
  EXPECT_GE(points.size(), 24U);  // near the start whole multiples of 8 KiB are coarser than the log scale
  EXPECT_EQ(points.front().size, 8192.0);
  EXPECT_EQ(points.back().size, 8192000.0);
  for (const double ratio : ratios(model, rows)) EXPECT_NEAR(ratio, 1.0, kExact);
}

TEST(AllReduce, Fit_WhenARowHasOneRank_ThenIsRefusedByItsPlace) {
  const std::vector<AllReduceRow> rows{{1, 8, 1.0, {0, 7}}};
  EXPECT_THAT(data_error([&] { static_cast<void>(fit_all_reduce(rows)); }),
              AllOf(HasSubstr("file 1 row 7"), HasSubstr("of 1 ranks")));
  EXPECT_THAT(data_error([] { static_cast<void>(fit_all_reduce({})); }), HasSubstr("no row"));
}

/// Rows of `copies` blocks each at 4 us + bytes / 50 GB/s.
std::vector<CopyRow> copies_on_a_line(CopyMechanism mechanism, const std::vector<std::int64_t>& sizes,
                                      std::int64_t copies) {
  std::vector<CopyRow> rows;
  for (const std::int64_t bytes : sizes) {
    const double each = 4e-6 + static_cast<double>(bytes) / 50e9;
    rows.push_back({true, mechanism, false, bytes, copies, each * static_cast<double>(copies), {}});
  }
  return rows;
}

// The 4 KiB block takes 10 us, which the line does not predict. From 64 KiB, the next measured size, the line is right.
TEST(Copy, Fit_WhenSmallBlocksLeaveTheLine_ThenTheCurveHoldsThem) {
  std::vector<CopyRow> rows = copies_on_a_line(CopyMechanism::many, {65536, 1 << 20, 1 << 24}, 100);
  rows.push_back({true, CopyMechanism::many, false, 4096, 10, 100e-6, {}});
  const std::vector<CopyModel> models = fit_copies(rows);
  ASSERT_EQ(models.size(), 1U);
  const CopyModel& model = models.front();
  expect_relative(model.launch_seconds, 4e-6);
  expect_relative(model.bandwidth, 50e9);
  ASSERT_EQ(model.small.points.size(), 2U);
  EXPECT_EQ(model.small.points[0], (Curve::Point{4096.0, 10e-6}));
  EXPECT_EQ(model.small.points[1].size, 65536.0);
  expect_relative(model.small.points[1].seconds, 4e-6 + 65536.0 / 50e9);
  for (const double ratio : ratios(models, rows)) EXPECT_NEAR(ratio, 1.0, kExact);
}

TEST(Copy, Fit_WhenDirectionsAndMechanismsDiffer_ThenEachHasAModel) {
  std::vector<CopyRow> rows = copies_on_a_line(CopyMechanism::many, {1 << 20, 1 << 24}, 1);
  for (const auto& [to_device, mechanism] : {std::pair(false, CopyMechanism::many), {true, CopyMechanism::kernel}}) {
    for (const std::int64_t bytes : {1 << 20, 1 << 24}) {
      rows.push_back({to_device, mechanism, false, bytes, 1, static_cast<double>(bytes) / 10e9, {}});
    }
  }
  rows.push_back({true, CopyMechanism::many, true, 1 << 20, 1, 1.0, {}});  // duplex: not of the line
  const std::vector<CopyModel> models = fit_copies(rows);
  ASSERT_EQ(models.size(), 3U);
  for (const CopyModel& model : models) {
    EXPECT_TRUE(model.small.points.empty());
    expect_relative(model.bandwidth, model.to_device && model.mechanism == CopyMechanism::many ? 50e9 : 10e9);
  }
  EXPECT_EQ(ratios(models, rows).size(), 6U);
  const std::vector<CopyRow> unknown{{true, CopyMechanism::peer, false, 1 << 20, 1, 1.0, {}}};
  EXPECT_TRUE(ratios(models, unknown).empty());
}

// 10, 50 and 100 thousand descriptors of 16 KiB at 1, 3 and 2 us each: 2 us. A batched curve goes up to 64 KiB.
TEST(Copy, Fit_WhenBatchedTimeDependsOnTheCount_ThenTakesTheMedianPerSize) {
  std::vector<CopyRow> rows = copies_on_a_line(CopyMechanism::batched, {65536, 131072, 1 << 20, 1 << 24}, 1000);
  rows.push_back({true, CopyMechanism::batched, false, 16384, 10'000, 10e-3, {}});
  rows.push_back({true, CopyMechanism::batched, false, 16384, 50'000, 150e-3, {}});
  rows.push_back({true, CopyMechanism::batched, false, 16384, 100'000, 200e-3, {}});
  const std::vector<CopyModel> models = fit_copies(rows);
  ASSERT_EQ(models.size(), 1U);
  const auto& points = models.front().small.points;
  ASSERT_EQ(points.size(), 3U);
  EXPECT_EQ(points[0].size, 16384.0);
  EXPECT_DOUBLE_EQ(points[0].seconds, 2e-6);
  EXPECT_EQ(points[1].size, 65536.0);
  EXPECT_EQ(points[2].size, 131072.0);
}

// One size of 64 KiB or more cannot tell launch time and bandwidth apart: the line is that of all sizes.
TEST(Copy, Fit_WhenOneSizeIsLarge_ThenTheLineIsOfAllSizes) {
  const std::vector<CopyModel> models = fit_copies(copies_on_a_line(CopyMechanism::many, {8192, 65536}, 7));
  ASSERT_EQ(models.size(), 1U);
  expect_relative(models.front().launch_seconds, 4e-6);
  expect_relative(models.front().bandwidth, 50e9);
}

TEST(Copy, Fit_WhenRowsLeaveItOpen_ThenNamesEveryMechanism) {
  std::vector<CopyRow> rows{{true, CopyMechanism::single, false, 1 << 20, 1, 1.0, {0, 2}},
                            {false, CopyMechanism::single, false, 1 << 20, 1, 1.0, {1, 3}}};
  EXPECT_THAT(data_error([&] { static_cast<void>(fit_copies(rows)); }),
              AllOf(HasSubstr("file 1 row 2"), HasSubstr("file 2 row 3"), HasSubstr("at least 2 sizes")));
  rows = {{true, CopyMechanism::single, true, 1 << 20, 1, 1.0, {}}};
  EXPECT_THAT(data_error([&] { static_cast<void>(fit_copies(rows)); }), HasSubstr("no row of one direction alone"));
}

struct MeasuredCopies {
  std::string_view name;
  bool to_device;
  CopyMechanism mechanism;
  std::array<double, 13> gigabytes_per_second;
};
// H100, 1000 blocks of 4 KiB, 8 KiB ... 16 MiB in pinned memory, read off figures 3 and 4 of the vLLM blog of
// 2026-01-08 on KV offloading; +-0.3 GB/s.
constexpr std::array<MeasuredCopies, 4> kH100Copies{{
    {"D2H, one cudaMemcpyAsync per block",
     false,
     CopyMechanism::many,
     {0.9, 2.2, 4.5, 8.2, 15.3, 21.5, 29.2, 37.1, 42.5, 46.2, 48.7, 50.0, 50.7}},
    {"H2D, one cudaMemcpyAsync per block",
     true,
     CopyMechanism::many,
     {1.1, 2.3, 4.2, 7.4, 14.4, 22.7, 31.7, 39.4, 44.3, 47.7, 49.8, 50.6, 51.1}},
    {"D2H, kernel",
     false,
     CopyMechanism::kernel,
     {5.2, 22.0, 30.6, 34.2, 41.0, 45.4, 46.9, 48.0, 48.4, 48.7, 48.8, 48.8, 48.9}},
    {"H2D, kernel",
     true,
     CopyMechanism::kernel,
     {12.5, 24.4, 30.6, 35.8, 41.9, 44.0, 46.1, 46.8, 47.3, 47.6, 47.6, 47.7, 47.8}},
}};

void record(const std::string& name, const ErrorSummary& error) {
  std::ostringstream text;
  text << "n " << error.n << ", median " << error.median << ", p95 " << error.p95 << ", bias " << error.bias;
  testing::Test::RecordProperty(name, text.str());
}

// Every second size is held out, once the odd and once the even ones, and those of 64 KiB and more are predicted: the
// project's goal there is 5% median and 10% p95. Measured: at most 2.4% and 8.3%, of D2H by cudaMemcpyAsync.
TEST(Copy, Fit_WhenEverySecondSizeIsLeftOut_ThenPredictsIt) {
  for (const MeasuredCopies& measured : kH100Copies) {
    std::vector<double> large;
    for (const std::size_t parity : {0U, 1U}) {
      std::vector<CopyRow> known;
      std::vector<CopyRow> held_out;
      for (std::size_t i = 0; i < measured.gigabytes_per_second.size(); ++i) {
        const std::int64_t bytes = std::int64_t{4096} << i;
        const double seconds = 1000.0 * static_cast<double>(bytes) / (measured.gigabytes_per_second[i] * 1e9);
        const CopyRow row{measured.to_device, measured.mechanism, false, bytes, 1000, seconds, {}};
        if (i % 2 == parity) {
          known.push_back(row);
        } else if (bytes >= 65536) {
          held_out.push_back(row);
        }
      }
      for (const double ratio : ratios(fit_copies(known), held_out)) large.push_back(ratio);
    }
    ASSERT_EQ(large.size(), 9U);
    const ErrorSummary error = summarise(large);
    record(std::string(measured.name), error);
    EXPECT_LE(error.median, 0.05) << measured.name;
    EXPECT_LE(error.p95, 0.10) << measured.name;
  }
}

/// Rows of `model` for these threads and two sizes.
std::vector<CpuAttentionRow> cpu_rows(const CpuAttentionModel& model, const std::vector<std::int64_t>& threads) {
  std::vector<CpuAttentionRow> rows;
  for (const std::int64_t count : threads) {
    for (const double bytes : {1e6, 1e9}) rows.push_back({count, 1, 1, bytes, model.seconds(count, bytes), {}});
  }
  return rows;
}

// 10 threads fill the memory's 50 GB/s: between the measured 8 and 16.
TEST(CpuAttention, Fit_WhenRowsFollowTheModel_ThenFindsIt) {
  const CpuAttentionModel truth{20e-6, 5e9, 50e9};
  for (const std::vector<std::int64_t>& threads : {std::vector<std::int64_t>{1, 2, 4, 8, 16, 32}, {1, 5, 10, 20}}) {
    const std::vector<CpuAttentionRow> rows = cpu_rows(truth, threads);
    const CpuAttentionModel model = fit_cpu_attention(rows);
    expect_relative(model.launch_seconds, truth.launch_seconds);
    expect_relative(model.bandwidth_per_thread, truth.bandwidth_per_thread);
    expect_relative(model.bandwidth, truth.bandwidth);
    for (const double ratio : ratios(model, rows)) EXPECT_NEAR(ratio, 1.0, kExact);
  }
}

// Of 1 to 4 threads nobody learns more than 4 * 5 GB/s; of 16 and 32 no more than a sixteenth of 50 GB/s each.
TEST(CpuAttention, Fit_WhenRowsShowOneBoundOnly_ThenTheOtherIsWhatTheyReach) {
  const CpuAttentionModel truth{20e-6, 5e9, 50e9};
  CpuAttentionModel model = fit_cpu_attention(cpu_rows(truth, {1, 2, 4}));
  expect_relative(model.bandwidth_per_thread, 5e9);
  expect_relative(model.bandwidth, 20e9);
  model = fit_cpu_attention(cpu_rows(truth, {16, 32}));
  expect_relative(model.bandwidth_per_thread, 50e9 / 16.0);
  expect_relative(model.bandwidth, 50e9);
}

TEST(CpuAttention, Fit_WhenRowsLeaveItOpen_ThenSaysWhatIsMissing) {
  const std::vector<CpuAttentionRow> rows{{4, 1, 1, 1e6, 1.0, {}}, {4, 2, 1, 2e6, 2.0, {}}};
  EXPECT_THAT(data_error([&] { static_cast<void>(fit_cpu_attention(rows)); }), HasSubstr("at least 3 rows"));
  const std::vector<CpuAttentionRow> same(5, CpuAttentionRow{4, 1, 1, 1e6, 1.0, {}});
  EXPECT_THAT(data_error([&] { static_cast<void>(fit_cpu_attention(same)); }), HasSubstr("2 sizes"));
}

TEST(Host, Fit_WhenRowsLieOnALine_ThenFindsIt) {
  std::vector<HostRow> rows;
  for (const std::int64_t sequences : {1, 8, 64, 256}) {
    rows.push_back({sequences, 1, 1.5e-3 + 12e-6 * static_cast<double>(sequences), {}});
  }
  const HostModel model = fit_host(rows);
  expect_relative(model.fixed_seconds, 1.5e-3);
  expect_relative(model.per_sequence_seconds, 12e-6);
  for (const double ratio : ratios(model, rows)) EXPECT_NEAR(ratio, 1.0, kExact);
  const std::vector<HostRow> same(3, HostRow{8, 1, 1.0, {}});
  EXPECT_THAT(data_error([&] { static_cast<void>(fit_host(same)); }), HasSubstr("2 different numbers of sequences"));
}

// Of (1, 2) and (2, 1) time falls; the constant c = (1/2 + 1) / (1/4 + 1) = 1.2 is the best without that.
TEST(Host, Fit_WhenTimeFallsWithSequences_ThenTheyCostNothing) {
  const std::vector<HostRow> rows{{1, 1, 2.0, {}}, {2, 1, 1.0, {}}};
  const HostModel model = fit_host(rows);
  EXPECT_EQ(model.per_sequence_seconds, 0.0);
  expect_relative(model.fixed_seconds, 1.2);
}

TEST(Iterations, Fit_WhenRowsFollowTheModel_ThenFindsIt) {
  const IterationModel truth{8e-3, 20e-6, 50e-9, 0.3e-9};
  std::vector<IterationRow> rows;
  for (const std::int64_t decodes : {1, 16, 200}) {
    for (const std::int64_t chunk : {0, 100, 2000}) {
      const std::int64_t context = 700 * decodes + 3 * chunk + decodes * decodes;
      const double pairs = static_cast<double>(chunk) * (300.0 + static_cast<double>(chunk) / 2.0);
      rows.push_back({decodes + chunk,
                      context,
                      pairs,
                      truth.seconds(static_cast<double>(decodes + chunk), static_cast<double>(context), pairs),
                      {}});
    }
  }
  const IterationModel model = fit_iterations(rows);
  expect_relative(model.fixed_seconds, truth.fixed_seconds);
  expect_relative(model.token_seconds, truth.token_seconds);
  expect_relative(model.context_seconds, truth.context_seconds);
  expect_relative(model.pair_seconds, truth.pair_seconds);
  for (const double ratio : ratios(model, rows)) EXPECT_NEAR(ratio, 1.0, kExact);
}

// Decodes alone have no chunk pairs: nothing is known of their cost, and the other three are recovered.
TEST(Iterations, Fit_WhenOnlyDecodesWereLogged_ThenChunkPairsCostNothing) {
  std::vector<IterationRow> rows;
  for (std::int64_t i = 1; i < 9; ++i) {
    const auto tokens = static_cast<double>(i);
    rows.push_back({i, 100 * i * i, 0.0, 5e-3 + 1e-5 * tokens + 2e-7 * (100.0 * tokens * tokens), {}});
  }
  const IterationModel model = fit_iterations(rows);
  expect_relative(model.fixed_seconds, 5e-3);
  expect_relative(model.token_seconds, 1e-5);
  expect_relative(model.context_seconds, 2e-7);
  EXPECT_EQ(model.pair_seconds, 0.0);
}

// Every sequence has 100 tokens of context, so the costs of a token and of its context cannot be told apart.
TEST(Iterations, Fit_WhenRowsLeaveItOpen_ThenSaysWhatIsMissing) {
  std::vector<IterationRow> rows;
  for (std::int64_t i = 1; i < 9; ++i) rows.push_back({i, 100 * i, 0.0, static_cast<double>(i), {}});
  EXPECT_THAT(data_error([&] { static_cast<void>(fit_iterations(rows)); }),
              AllOf(HasSubstr("vary independently"), HasSubstr("there are 8")));
}

double mixed_seconds(double chunk, double chunk_context, double decodes, double decode_context) {
  return 10.0 + chunk * (1.0 + chunk_context / 100.0) + decodes * (2.0 + decode_context / 10.0);
}

/// Rows of mixed_seconds on the grid chunks {0, 16, 32} x contexts {0, 100} x decodes {0, 1, 2, 4} x contexts {10, 30},
/// those of pure batches once, with context 0; row numbers from 1. Whole numbers, so that lines hold exactly.
std::vector<MixedRow> grid_rows() {
  std::vector<MixedRow> rows;
  for (const std::int64_t chunk : {0, 16, 32}) {
    for (const std::int64_t chunk_context : {0, 100}) {
      for (const std::int64_t decodes : {0, 1, 2, 4}) {
        for (const std::int64_t decode_context : {10, 30}) {
          if ((chunk == 0 && (decodes == 0 || chunk_context > 0)) || (decodes == 0 && decode_context > 10)) continue;
          const std::int64_t context = decodes == 0 ? 0 : decode_context;
          rows.push_back({chunk,
                          chunk_context,
                          decodes,
                          context,
                          mixed_seconds(static_cast<double>(chunk), static_cast<double>(chunk_context),
                                        static_cast<double>(decodes), static_cast<double>(context)),
                          {0, static_cast<std::int64_t>(rows.size()) + 1}});
        }
      }
    }
  }
  return rows;
}

TEST(LayerTables, Tabulate_WhenTheGridIsWhole_ThenHoldsItsAxesAndRows) {
  const LayerTables tables = tabulate_layers({}, grid_rows());
  EXPECT_EQ(tables.chunk_axis, (std::vector<double>{0, 16, 32}));
  EXPECT_EQ(tables.chunk_context_axis, (std::vector<double>{0, 100}));
  EXPECT_EQ(tables.decodes_axis, (std::vector<double>{0, 1, 2, 4}));
  EXPECT_EQ(tables.decode_context_axis, (std::vector<double>{10, 30}));
  ASSERT_EQ(tables.attention_seconds.size(), 3U * 2U * 4U * 2U);
  for (const double ratio : ratios(tables, grid_rows())) EXPECT_EQ(ratio, 1.0);
}

// mixed_seconds is linear in each argument, so the multilinear table gives it back inside the grid and beyond.
TEST(LayerTables, Attention_WhenBetweenOrBeyondGridPoints_ThenIsMultilinear) {
  const LayerTables tables = tabulate_layers({}, grid_rows());
  EXPECT_DOUBLE_EQ(tables.attention(24, 50, 3, 20), mixed_seconds(24, 50, 3, 20));
  EXPECT_DOUBLE_EQ(tables.attention(64, 300, 8, 100), mixed_seconds(64, 300, 8, 100));
  // Contexts before the first measured one count as that.
  EXPECT_DOUBLE_EQ(tables.attention(24, 50, 3, 1), mixed_seconds(24, 50, 3, 10));
}

TEST(LayerTables, Attention_WhenACountIsZero_ThenItsContextChangesNothing) {
  const LayerTables tables = tabulate_layers({}, grid_rows());
  for (const double context : {0.0, 50.0, 1e6}) {
    EXPECT_DOUBLE_EQ(tables.attention(0, context, 3, 20), mixed_seconds(0, 0, 3, 20));
    EXPECT_DOUBLE_EQ(tables.attention(24, 50, 0, context), mixed_seconds(24, 50, 0, 0));
  }
  EXPECT_EQ(tables.attention(0, 100, 0, 20), 0.0);
}

// A chunk of 1 costs what one of 16 does, alone and beside decodes: not a sixteenth of the way from no chunk at all.
TEST(LayerTables, Attention_WhenAChunkIsSmallerThanAnyMeasured_ThenTakesAsLongAsTheSmallest) {
  const LayerTables tables = tabulate_layers({}, grid_rows());
  for (const double chunk : {1.0, 15.0, 16.0}) {
    EXPECT_DOUBLE_EQ(tables.attention(chunk, 100, 0, 0), mixed_seconds(16, 100, 0, 0));
    EXPECT_DOUBLE_EQ(tables.attention(chunk, 100, 3, 20), mixed_seconds(16, 100, 3, 20));
  }
}

TEST(LayerTables, Attention_WhenOneChunkWasMeasured_ThenItHoldsForAll) {
  const std::vector<MixedRow> rows{{16, 0, 0, 0, 3.0, {}}};
  const LayerTables tables = tabulate_layers({}, rows);
  EXPECT_EQ(tables.attention(64, 100, 0, 0), 3.0);
  EXPECT_THROW(static_cast<void>(tables.attention(16, 0, 1, 10)), InvariantError);
}

TEST(LayerTables, Attention_WhenTheLastCellFalls_ThenNeverBelowZero) {
  const std::vector<MixedRow> rows{{16, 0, 0, 0, 3.0, {}}, {32, 0, 0, 0, 1.0, {}}};
  const LayerTables tables = tabulate_layers({}, rows);
  EXPECT_EQ(tables.attention(24, 0, 0, 0), 2.0);
  EXPECT_EQ(tables.attention(1000, 0, 0, 0), 0.0);
  EXPECT_THROW(static_cast<void>(LayerTables{}.attention(1, 0, 0, 0)), InvariantError);
}

/// grid_rows without the rows that `drop` selects.
std::vector<MixedRow> grid_without(const std::function<bool(const MixedRow&)>& drop) {
  std::vector<MixedRow> rows = grid_rows();
  rows.erase(std::remove_if(rows.begin(), rows.end(), drop), rows.end());
  return rows;
}

// An engine of 4 sequences has no room for a chunk beside 4 decodes; the line through 1 and 2 goes on.
TEST(LayerTables, Tabulate_WhenTheMostDecodesAreMissingBesideChunks_ThenTheLineGoesOn) {
  const LayerTables tables =
      tabulate_layers({}, grid_without([](const MixedRow& row) { return row.chunk > 0 && row.decodes == 4; }));
  EXPECT_DOUBLE_EQ(tables.attention(16, 100, 4, 30), mixed_seconds(16, 100, 4, 30));
}

// Five of the 34 rows of the grid, then 15: too few.
TEST(LayerTables, Tabulate_WhenFewRowsCoverNoFullGrid_ThenNamesTheFirstMissingPoint) {
  const std::vector<MixedRow> rows = grid_rows();
  for (const std::size_t count : {std::size_t{7}, std::size_t{15}}) {
    const std::vector<MixedRow> few(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(count));
    EXPECT_FALSE(is_full_grid(few));
    EXPECT_THAT(data_error([&] { static_cast<void>(tabulate_layers({}, few)); }),
                HasSubstr(fmt::format("{} rows of attention are too few to interpolate", count)));
  }
  const std::vector<MixedRow> corner{{16, 0, 0, 0, 3.0, {}}, {32, 100, 0, 0, 1.0, {}}};
  EXPECT_THAT(data_error([&] { static_cast<void>(tabulate_layers({}, corner)); }),
              HasSubstr("a chunk of 16 tokens after 100, 0 decodes of 0 tokens, which is not measured: at least 16"));
}

TEST(LayerTables, Tabulate_WhenAKindOfCallIsMissing_ThenRefuses) {
  const auto refusal = [](const std::function<bool(const MixedRow&)>& drop) {
    std::vector<MixedRow> rows = grid_without(drop);
    for (std::int64_t more = 1; more <= 16; ++more) rows.push_back({64 + more, 0, 3 + more, 10, 50.0, {0, 100 + more}});
    return data_error([&] { static_cast<void>(tabulate_layers({}, rows)); });
  };
  EXPECT_THAT(refusal([](const MixedRow& row) { return row.chunk == 0; }),
              HasSubstr("attention of decodes alone is not measured"));
  EXPECT_THAT(refusal([](const MixedRow& row) { return row.decodes == 0; }),
              HasSubstr("attention of chunks alone is not measured"));
  std::vector<MixedRow> apart;
  for (std::int64_t i = 1; i <= 8; ++i) {
    apart.push_back({16 * i, i, 0, 0, 1.0, {0, i}});
    apart.push_back({0, 0, i, 10 * i, 1.0, {0, 8 + i}});
  }
  EXPECT_THAT(data_error([&] { static_cast<void>(tabulate_layers({}, apart)); }),
              HasSubstr("attention of chunks and decodes together is not measured"));
}

TEST(LayerTables, FullGrid_WhenEveryCombinationIsThere_ThenIsFull) {
  EXPECT_TRUE(is_full_grid(grid_rows()));
  EXPECT_TRUE(is_full_grid({}));
  EXPECT_TRUE(is_full_grid(grid_without([](const MixedRow& row) { return row.chunk > 0 && row.decodes == 4; })));
  EXPECT_FALSE(is_full_grid(grid_without([](const MixedRow& row) { return row.chunk == 0 && row.decodes == 4; })));
  EXPECT_FALSE(is_full_grid(grid_without([](const MixedRow& row) { return row.chunk == 16 && row.decodes == 2; })));
  std::vector<MixedRow> twice = grid_rows();
  twice.push_back(twice.front());
  EXPECT_FALSE(is_full_grid(twice));
}

TEST(LayerTables, Tabulate_WhenPointsRepeat_ThenNamesBothRowsOfEach) {
  std::vector<MixedRow> rows = grid_rows();
  rows.push_back({0, 77, 1, 10, 1.0, {1, 5}});  // no chunk: its context is nothing
  rows.push_back({0, 0, 0, 0, 1.0, {1, 6}});
  const std::vector<LayerRow> layers{{"qkv_proj", false, 8, 1.0, {0, 2}}, {"qkv_proj", false, 8, 2.0, {0, 9}}};
  EXPECT_THAT(
      data_error([&] { static_cast<void>(tabulate_layers(layers, rows)); }),
      AllOf(HasSubstr("file 1 row 2 and file 1 row 9: qkv_proj of 8 tokens is measured twice"),
            HasSubstr("file 1 row 1 and file 2 row 5: attention of a chunk of 0 tokens after 0, 1 decodes of 10"),
            HasSubstr("file 2 row 6: attention of 0 chunk tokens and 0 decodes")));
}

TEST(LayerTables, Tabulate_WhenKernelsGoByTokensAndSequences_ThenKeepsThemApart) {
  const std::vector<LayerRow> layers{
      {"qkv_proj", false, 8, 3.0, {}}, {"qkv_proj", false, 4, 1.0, {}}, {"lm_head", true, 4, 5.0, {}}};
  const LayerTables tables = tabulate_layers(layers, {});
  ASSERT_EQ(tables.per_token.size(), 1U);
  ASSERT_EQ(tables.per_sequence.size(), 1U);
  EXPECT_EQ(tables.per_token.at("qkv_proj").at(6.0), 2.0);
  EXPECT_EQ(tables.per_sequence.at("lm_head").at(100.0), 5.0);
  EXPECT_TRUE(tables.attention_seconds.empty());
  EXPECT_EQ(ratios(tables, layers), (std::vector<double>{1.0, 1.0, 1.0}));
  const std::vector<LayerRow> unknown{{"lm_head", false, 4, 5.0, {0, 3}}};
  EXPECT_THAT(data_error([&] { static_cast<void>(ratios(tables, unknown)); }),
              AllOf(HasSubstr("file 1 row 3"), HasSubstr("no table of 'lm_head' by tokens")));
}

const std::string kLogs = source_dir() + "/../shared/data/engine-logs/rtx4090-llama31-8b/";

/// Calls `row` with the comma-separated fields of each line after the header, and with the line's number.
void for_each_line(const std::string& path,
                   const std::function<void(const std::vector<std::string>&, std::int64_t)>& row) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  for (std::int64_t number = 2; std::getline(file, line); ++number) {
    std::vector<std::string> fields;
    std::istringstream text(line);
    for (std::string field; std::getline(text, field, ',');) fields.push_back(field);
    row(fields, number);
  }
}

std::vector<LayerRow> logged_layers(const std::string& name, bool per_sequence) {
  std::vector<LayerRow> rows;
  for_each_line(kLogs + name, [&](const std::vector<std::string>& fields, std::int64_t line) {
    rows.push_back({fields.at(0), per_sequence, std::stoll(fields.at(1)), std::stod(fields.at(2)) * 1e-6, {0, line}});
  });
  return rows;
}

std::vector<MixedRow> logged_attention() {
  std::vector<MixedRow> rows;
  for_each_line(kLogs + "attention.csv", [&](const std::vector<std::string>& fields, std::int64_t line) {
    rows.push_back({std::stoll(fields.at(0)),
                    std::stoll(fields.at(1)),
                    std::stoll(fields.at(2)),
                    std::stoll(fields.at(3)),
                    std::stod(fields.at(4)) * 1e-6,
                    {0, line}});
  });
  return rows;
}

/// Attention rows of the engine's table, split by `keep`: into those that a fit gets and those that it must predict.
template <class Keep>
std::pair<std::vector<MixedRow>, std::vector<MixedRow>> split_attention(const Keep& keep) {
  std::pair<std::vector<MixedRow>, std::vector<MixedRow>> split;
  for (const MixedRow& row : logged_attention()) (keep(row) ? split.first : split.second).push_back(row);
  return split;
}

/// The error of the predicted rows; the kept rows must be met exactly.
ErrorSummary hole_error(const std::pair<std::vector<MixedRow>, std::vector<MixedRow>>& split) {
  const LayerTables tables = tabulate_layers({}, split.first);
  for (const double ratio : ratios(tables, std::span<const MixedRow>(split.first))) EXPECT_NEAR(ratio, 1.0, kExact);
  return summarise(ratios(tables, std::span<const MixedRow>(split.second)));
}

// Bounds: what was measured on this table (in brackets, median and p95 of the rows left out) and a quarter more.
TEST(LayerTables, Tabulate_WhenTheTableOfAnEngineHasHoles_ThenInterpolatesThem) {
  if (logged_attention().empty()) GTEST_SKIP() << "../shared/data/engine-logs/rtx4090-llama31-8b is not there";
  const auto thinned = [](double share) {
    RandomStream random(1, 1, "thin");
    return split_attention([&](const MixedRow&) { return random.uniform() < share; });
  };
  const auto check = [](const std::string& name, const ErrorSummary& error, double median, double p95) {
    record(name, error);
    EXPECT_LE(error.median, median) << name;
    EXPECT_LE(error.p95, p95) << name;
  };
  check("thinned_to_70", hole_error(thinned(0.7)), 0.0213, 0.134);  // [0.0170, 0.107]
  check("thinned_to_50", hole_error(thinned(0.5)), 0.0254, 0.15);   // [0.0203, 0.119]

  // Two grids that share no value but 0: even and odd powers of two. 85% of the rows are left out.
  const auto power = [](std::int64_t value, int parity) {
    return value == 0 || std::countr_zero(static_cast<std::uint64_t>(value)) % 2 == parity;
  };
  const auto interleaved = [&](const MixedRow& row) {
    for (const int parity : {0, 1}) {
      if (power(row.chunk, parity) && power(row.chunk_context, parity) && power(row.decodes, parity) &&
          power(row.decode_context, parity)) {
        return true;
      }
    }
    return false;
  };
  check("interleaved_grids", hole_error(split_attention(interleaved)), 0.0366, 0.2);  // [0.0292, 0.159]

  // A grid of short contexts, and a coarser one of some counts with all contexts: long contexts beside most counts are
  // left out, so whole series are continued.
  const auto joined = [](const MixedRow& row) {
    const auto one_of = [](std::int64_t value, std::initializer_list<std::int64_t> values) {
      return std::find(values.begin(), values.end(), value) != values.end();
    };
    return (row.chunk_context <= 512 && row.decode_context <= 512) ||
           (one_of(row.chunk, {0, 128, 512, 2048}) && one_of(row.decodes, {0, 1, 8, 64, 128}));
  };
  check("short_and_coarse_grids", hole_error(split_attention(joined)), 0.0903, 0.425);  // [0.0722, 0.339]
}

/// Predicted / measured of the rows with one value of `value`, from tables without them; for each of its values but the
/// first and the last.
template <class Row, class Value, class Tabulate>
std::vector<double> leave_one_out(const std::vector<Row>& rows, const Value& value, const Tabulate& tabulate) {
  std::set<std::int64_t> values;
  for (const Row& row : rows) values.insert(value(row));
  std::vector<double> all;
  for (const std::int64_t out : values) {
    if (out == *values.begin() || out == *values.rbegin()) continue;
    std::vector<Row> known;
    std::vector<Row> held_out;
    for (const Row& row : rows) (value(row) == out ? held_out : known).push_back(row);
    for (const double ratio : ratios(tabulate(known), std::span<const Row>(held_out))) all.push_back(ratio);
  }
  return all;
}

TEST(LayerTables, Tabulate_WhenTheTablesAreThoseOfAnEngine_ThenInterpolatesThem) {
  const std::vector<LayerRow> dense = logged_layers("dense.csv", false);
  if (dense.empty()) GTEST_SKIP() << "../shared/data/engine-logs/rtx4090-llama31-8b is not there";
  const std::vector<LayerRow> sampled = logged_layers("per_sequence.csv", true);
  const std::vector<MixedRow> attention = logged_attention();
  std::vector<LayerRow> layers = dense;
  layers.insert(layers.end(), sampled.begin(), sampled.end());
  ASSERT_EQ(layers.size(), 1368U + 80U);
  ASSERT_EQ(attention.size(), 8643U);
  const LayerTables tables = tabulate_layers(layers, attention);
  EXPECT_EQ(tables.per_token.size(), 9U);
  EXPECT_EQ(tables.per_sequence.size(), 2U);
  EXPECT_EQ(tables.attention_seconds.size(), 9U * 12U * 10U * 11U);
  for (const double ratio : ratios(tables, std::span<const LayerRow>(layers))) EXPECT_NEAR(ratio, 1.0, kExact);
  for (const double ratio : ratios(tables, std::span<const MixedRow>(attention))) EXPECT_NEAR(ratio, 1.0, kExact);

  const auto check = [](const std::string& name, std::vector<double> ratios, double median, double p95) {
    const ErrorSummary error = summarise(std::move(ratios));
    record(name, error);
    EXPECT_LE(error.median, median) << name;
    EXPECT_LE(error.p95, p95) << name;
  };
  const auto count = [](const LayerRow& row) { return row.count; };
  const auto curves = [](const std::vector<LayerRow>& rows) { return tabulate_layers(rows, {}); };
  // Bounds: what was measured on these tables (in brackets) and a quarter more. Leaving a value out doubles the gap
  // that is interpolated: of the grid, whose values are powers of two, from a factor of 2 to one of 4. What is left
  // over near 64 and 128 decodes are waves of blocks: time is not even monotonic there.
  check("leave_one_out_per_token", leave_one_out(dense, count, curves), 0.007, 0.106);       // [0.0055, 0.084]
  check("leave_one_out_per_sequence", leave_one_out(sampled, count, curves), 0.006, 0.047);  // [0.0046, 0.038]
  const auto grid = [](const std::vector<MixedRow>& rows) { return tabulate_layers({}, rows); };
  const auto axis = [&](const std::string& name, std::int64_t MixedRow::*field, double median, double p95) {
    check("leave_one_out_" + name,
          leave_one_out(
              attention, [&](const MixedRow& row) { return row.*field; }, grid),
          median, p95);
  };
  axis("chunk", &MixedRow::chunk, 0.015, 0.23);                      // [0.0117, 0.183]
  axis("chunk_context", &MixedRow::chunk_context, 0.0034, 0.093);    // [0.0027, 0.074]
  axis("decodes", &MixedRow::decodes, 0.0145, 0.53);                 // [0.0116, 0.424]
  axis("decode_context", &MixedRow::decode_context, 0.0065, 0.163);  // [0.0052, 0.130]

  // 256 decodes fill this engine's batch, so beside chunks they are missing and the line through 64 and 128 goes on.
  // The same one step lower, where the answer is known.
  std::vector<MixedRow> known;
  std::vector<MixedRow> held_out;
  for (const MixedRow& row : attention) {
    if (row.decodes < 128 || (row.decodes == 128 && row.chunk == 0)) known.push_back(row);
    if (row.decodes == 128 && row.chunk > 0) held_out.push_back(row);
  }
  check("most_decodes_beside_chunks", ratios(grid(known), std::span<const MixedRow>(held_out)), 0.046,
        0.59);  // [0.036, 0.468]
}

}  // namespace
}  // namespace spillway::hwmodels
