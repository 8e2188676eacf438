#include "traces/generators/quantile_table.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <map>
#include <utility>

#include "sim/text.hpp"
#include "tests/unit/trace_test_files.hpp"
#include "traces/readers/reader.hpp"

namespace spillway::traces {
namespace {

using Stratum = QuantileTable::Stratum;
using Member = QuantileCurve Stratum::*;

QuantileTable bundled(const std::string& name) {
  const EmbeddedFile* file = bundled_file(name);
  EXPECT_NE(file, nullptr) << name;
  return QuantileTable::parse(file->content, std::string(file->path));
}

/// Mean of a piecewise-linear quantile function: the area under it, a sum of trapezia.
double mean_of(const QuantileCurve& curve) {
  double area = 0.0;
  const auto& points = curve.points();
  for (std::size_t i = 0; i + 1 < points.size(); ++i) {
    area += (points[i + 1].q - points[i].q) * (points[i].tokens + points[i + 1].tokens) / 2.0;
  }
  return area;
}

/// Share of a curve at or below x.
double share_below(const QuantileCurve& curve, double x) {
  const auto& points = curve.points();
  if (x < points.front().tokens) return 0.0;
  for (std::size_t i = points.size() - 1; i > 0; --i) {
    if (x >= points[i].tokens) return points[i].q;
    if (x < points[i - 1].tokens) continue;
    const double part = (x - points[i - 1].tokens) / (points[i].tokens - points[i - 1].tokens);
    return points[i - 1].q + part * (points[i].q - points[i - 1].q);
  }
  return 0.0;
}

double mean_of(const QuantileTable& table, Member member) {
  double mean = 0.0;
  for (const Stratum& stratum : table.strata()) mean += stratum.weight * mean_of(stratum.*member);
  return mean;
}

/// Quantile of the mixture, by bisection on its distribution function.
double quantile_of(const QuantileTable& table, Member member, double q) {
  double low = 0.0;
  double high = 1e6;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2.0;
    double share = 0.0;
    for (const Stratum& stratum : table.strata()) share += stratum.weight * share_below(stratum.*member, middle);
    (share < q ? low : high) = middle;
  }
  return high;
}

double max_of(const QuantileTable& table, Member member) {
  double largest = 0.0;
  for (const Stratum& stratum : table.strata()) {
    largest = std::max(largest, (stratum.*member).points().back().tokens);
  }
  return largest;
}

void expect_statistics(const QuantileTable& table, Member member, const QuantileTable::Statistics& stated) {
  EXPECT_NEAR(mean_of(table, member), stated.mean, 0.01);
  EXPECT_NEAR(quantile_of(table, member, 0.5), stated.p50, 0.06);
  EXPECT_NEAR(quantile_of(table, member, 0.9), stated.p90, 0.06);
  EXPECT_NEAR(quantile_of(table, member, 0.99), stated.p99, 0.06);
  EXPECT_DOUBLE_EQ(max_of(table, member), stated.max);
}

TEST(QuantileTable, BundledNamesAreThoseOfTheFiles) {
  EXPECT_EQ(bundled_names(), (std::vector<std::string>{"azure-conv", "sharegpt"}));
  for (const std::string& name : bundled_names()) EXPECT_EQ(bundled(name).name(), name);
  EXPECT_EQ(bundled_file("azure"), nullptr);
}

TEST(QuantileTable, EmbeddedBytesAreThoseOfTheFiles) {
  for (const std::string& name : bundled_names()) {
    const EmbeddedFile* file = bundled_file(name);
    EXPECT_EQ(sha256_hex(file->content), file_sha256(std::string(SPILLWAY_SOURCE_DIR) + "/" + std::string(file->path)));
  }
}

TEST(QuantileTable, AzureConvHasThePublishedStatistics) {
  const QuantileTable table = bundled("azure-conv");
  // shared/data/README.md: in mean 1,154.7 / p50 1,020 / p90 2,735 / p99 4,142 / max 14,050; out 211.1 / 129 / 424 /
  // 601 / 1,000.
  EXPECT_DOUBLE_EQ(table.input().mean, 1154.7);
  EXPECT_DOUBLE_EQ(table.input().p50, 1020);
  EXPECT_DOUBLE_EQ(table.input().p90, 2735);
  EXPECT_DOUBLE_EQ(table.input().p99, 4142);
  EXPECT_DOUBLE_EQ(table.input().max, 14050);
  EXPECT_DOUBLE_EQ(table.output().mean, 211.1);
  EXPECT_DOUBLE_EQ(table.output().p50, 129);
  EXPECT_DOUBLE_EQ(table.output().p90, 424);
  EXPECT_DOUBLE_EQ(table.output().p99, 601);
  EXPECT_DOUBLE_EQ(table.output().max, 1000);
}

TEST(QuantileTable, ShareGptHasThePublishedMeans) {
  const QuantileTable table = bundled("sharegpt");
  EXPECT_DOUBLE_EQ(table.input().mean, 161.31);
  EXPECT_DOUBLE_EQ(table.output().mean, 337.99);
  EXPECT_GE(table.strata().size(), 8U);
}

TEST(QuantileTable, StatedStatisticsFollowFromTheStrata) {
  for (const std::string& name : bundled_names()) {
    SCOPED_TRACE(name);
    const QuantileTable table = bundled(name);
    expect_statistics(table, &Stratum::input, table.input());
    expect_statistics(table, &Stratum::output, table.output());
    EXPECT_FALSE(table.summary().empty());
    EXPECT_FALSE(table.source().empty());
    EXPECT_FALSE(table.published().empty());
    EXPECT_FALSE(table.assumed().empty());
  }
}

/// numpy's default quantile: linear interpolation at (n - 1) q.
double quantile_of(std::vector<std::int64_t>& values, double q) {
  std::sort(values.begin(), values.end());
  const double at = static_cast<double>(values.size() - 1) * q;
  const auto index = static_cast<std::size_t>(at);
  const auto low = static_cast<double>(values[index]);
  const auto high = static_cast<double>(values[std::min(index + 1, values.size() - 1)]);
  return low + (at - static_cast<double>(index)) * (high - low);
}

TEST(QuantileTable, SamplesHaveTheStatedStatistics) {
  for (const std::string& name : bundled_names()) {
    SCOPED_TRACE(name);
    const QuantileTable table = bundled(name);
    RandomStream stream(1, 0, "test");
    std::array<std::vector<std::int64_t>, 2> samples;
    std::array<double, 2> sums{};
    constexpr int kDraws = 400'000;
    for (int i = 0; i < kDraws; ++i) {
      const Lengths lengths = table.sample(stream);
      ASSERT_GE(lengths.input, Tokens(1));
      ASSERT_GE(lengths.output, Tokens(1));
      samples[0].push_back(lengths.input.count());
      samples[1].push_back(lengths.output.count());
      sums[0] += static_cast<double>(lengths.input.count());
      sums[1] += static_cast<double>(lengths.output.count());
    }
    for (const std::size_t side : {0U, 1U}) {
      const auto& stated = side == 0 ? table.input() : table.output();
      // Standard deviations of the lengths are below 1.4 means, so four of the mean of 400,000 are 0.9% of it. At p99
      // the estimated share has deviation 0.00016, which the steepest curve there turns into 1%.
      EXPECT_NEAR(sums[side] / kDraws, stated.mean, 0.009 * stated.mean);
      EXPECT_NEAR(quantile_of(samples[side], 0.5), stated.p50, 0.015 * stated.p50 + 0.5);
      EXPECT_NEAR(quantile_of(samples[side], 0.9), stated.p90, 0.015 * stated.p90);
      EXPECT_NEAR(quantile_of(samples[side], 0.99), stated.p99, 0.015 * stated.p99);
      EXPECT_LE(static_cast<double>(quantile_of(samples[side], 1.0)), stated.max + 0.5);
    }
  }
}

TEST(QuantileTable, CurveIsLinearBetweenItsPointsAndRounds) {
  const QuantileCurve curve({{0.0, 1.0}, {0.5, 11.0}, {1.0, 12.0}});
  EXPECT_EQ(curve.at(0.0), Tokens(1));
  EXPECT_EQ(curve.at(0.25), Tokens(6));   // 1 + 0.25 * 20
  EXPECT_EQ(curve.at(0.27), Tokens(6));   // 6.4
  EXPECT_EQ(curve.at(0.275), Tokens(7));  // 6.5, halves up
  EXPECT_EQ(curve.at(0.5), Tokens(11));
  EXPECT_EQ(curve.at(0.76), Tokens(12));  // 11.52
}

TEST(QuantileTable, StrataAreChosenByWeight) {
  const QuantileTable table = QuantileTable::parse(R"({"schema_version": 1, "name": "n", "summary": "s", "source": "s",
    "published": [], "assumed": [],
    "statistics": {"input_tokens": {"mean": 0, "p50": 0, "p90": 0, "p99": 0, "max": 0},
                   "output_tokens": {"mean": 0, "p50": 0, "p90": 0, "p99": 0, "max": 0}},
    "strata": [{"weight": 0.25, "input": [[0, 10], [1, 10]], "output": [[0, 20], [1, 20]]},
               {"weight": 0.75, "input": [[0, 30], [1, 30]], "output": [[0, 40], [1, 40]]}]})",
                                                   "table.json");
  RandomStream stream(1, 0, "test");
  std::map<std::pair<std::int64_t, std::int64_t>, int> seen;
  for (int i = 0; i < 10'000; ++i) {
    const Lengths lengths = table.sample(stream);
    ++seen[{lengths.input.count(), lengths.output.count()}];
  }
  // Inputs and outputs come from one stratum, so there are two pairs; 2,500 of 10,000 with deviation 43.
  EXPECT_EQ(seen.size(), 2U);
  EXPECT_NEAR((seen[{10, 20}]), 2500, 173);
  EXPECT_NEAR((seen[{30, 40}]), 7500, 173);
}

TEST(QuantileTable, EveryProblemOfAFileIsTold) {
  const auto parse = [](const std::string& json) {
    return problems_of([&] { (void)QuantileTable::parse(json, "t.json"); });
  };
  EXPECT_EQ(parse(R"({"schema_version": 2, "name": 5, "source": "s", "published": "p", "assumed": [],
    "statistics": {"input_tokens": {"mean": 0, "p50": "x", "p90": 0, "p99": 0, "max": 0}},
    "strata": [{"weight": 0, "input": [[0, 10], [0.9, 20]], "output": [[0, 5], [0.5, 4], [1, 9]]},
               {"weight": 0.5, "input": [[0, 0], [1, 20]], "output": [[0, 5], [1]]}]})"),
            "exit 3\n"
            "this version of spillway reads schema_version 1 | t.json at /schema_version | \n"
            "must be a text | t.json at /name | \n"
            "\"summary\" is missing | t.json at / | \n"
            "must be a list of texts | t.json at /published | \n"
            "must be a number | t.json at /statistics/input_tokens/p50 | \n"
            "\"output_tokens\" is missing | t.json at /statistics | \n"
            "must be above 0 | t.json at /strata/0/weight | \n"
            "must run from q = 0 to q = 1 | t.json at /strata/0/input | \n"
            "q must rise and tokens must not fall from point to point | t.json at /strata/0/output/1 | \n"
            "tokens must be from 1 to 16777216 | t.json at /strata/1/input | \n"
            "must be a pair [q, tokens] | t.json at /strata/1/output/1 | \n"
            "the weights add up to 0.5, not 1 | t.json at /strata | ");
  EXPECT_TRUE(parse("{\"schema_version\"").starts_with("exit 3\nthe file is not JSON: "));
}

/// The pairs that traces/generators/sharegpt.json says it is derived from, sorted.
std::vector<std::pair<int, int>> sharegpt_first_turns(const std::string& path) {
  std::vector<std::pair<int, int>> pairs;
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);  // conv_id,turn,prompt_tokens_cumulative,new_input_tokens,output_tokens
  while (std::getline(file, line)) {
    std::array<int, 5> row{};
    const char* at = line.data();
    for (int& field : row) at = std::from_chars(at, line.data() + line.size(), field).ptr + 1;
    const int input = row[3];
    const int output = row[4];
    if (row[1] == 0 && input >= 4 && output >= 4 && input <= 1024 && input + output <= 2048) {
      pairs.emplace_back(input, output);
    }
  }
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

TEST(QuantileTable, ShareGptStrataAreThoseOfTheData) {
  const std::string path = shared_trace("sharegpt-turns-1000.csv");
  if (path.empty()) GTEST_SKIP() << "../shared/data/traces/sharegpt-turns-1000.csv is not there";
  const auto pairs = sharegpt_first_turns(path);
  ASSERT_EQ(pairs.size(), 941U);
  const QuantileTable table = bundled("sharegpt");
  double upto = 0.0;
  std::size_t begin = 0;
  // The factors that bring the table's means (140.556 and 485.427, of the piecewise-linear form) to the published ones.
  const std::array<double, 2> factors{161.31 / 140.55625, 337.99 / 485.426875};
  for (const Stratum& stratum : table.strata()) {
    upto += stratum.weight;
    const auto end = static_cast<std::size_t>(upto * 941.0 + 1e-6);
    std::array<std::vector<std::int64_t>, 2> values;
    for (std::size_t i = begin; i < end; ++i) {
      values[0].push_back(pairs[i].first);
      values[1].push_back(pairs[i].second);
    }
    begin = end;
    for (const auto& point : stratum.input.points()) {
      EXPECT_NEAR(point.tokens, factors[0] * quantile_of(values[0], point.q), 0.0051);
    }
    for (const auto& point : stratum.output.points()) {
      EXPECT_NEAR(point.tokens, factors[1] * quantile_of(values[1], point.q), 0.0051);
    }
  }
  EXPECT_EQ(begin, pairs.size());
}

}  // namespace
}  // namespace spillway::traces
