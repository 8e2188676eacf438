#include "traces/generators/quantile_table.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "sim/core/text.hpp"
#include "sim/io/file_reader.hpp"
#include "tests/support/paths.hpp"
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
  for (const auto& [q, tokens] :
       {std::pair(0.5, stated.p50), std::pair(0.9, stated.p90), std::pair(0.99, stated.p99)}) {
    // The file states a tenth, or the rounded whole tokens.
    const double exact = quantile_of(table, member, q);
    EXPECT_LE(std::abs(tokens - (tokens == std::floor(tokens) ? std::floor(exact + 0.5) : exact)), 0.06) << q;
  }
  // A curve may end half a token above its largest length, because the end still rounds to that length.
  EXPECT_GE(max_of(table, member), stated.max);
  EXPECT_LE(max_of(table, member), stated.max + 0.5);
}

TEST(QuantileTable, BundledNamesAreThoseOfTheFiles) {
  EXPECT_EQ(bundled_names(), (std::vector<std::string>{"alpaca", "arxiv", "azure-code", "azure-conv", "osc", "sharegpt",
                                                       "sharegpt-chat", "sharegpt-real", "ultrachat-chat", "uniform"}));
  for (const std::string& name : bundled_names()) EXPECT_EQ(bundled(name).name(), name);
  EXPECT_EQ(bundled_file("azure"), nullptr);
}

TEST(QuantileTable, EmbeddedBytesAreThoseOfTheFiles) {
  for (const std::string& name : bundled_names()) {
    const EmbeddedFile* file = bundled_file(name);
    EXPECT_EQ(sha256_hex(file->content), file_sha256(source_dir() + "/" + std::string(file->path)));
  }
}

TEST(QuantileTable, AzureConvHasThePublishedStatistics) {
  const QuantileTable table = bundled("azure-conv");
  // Of the published trace: in mean 1,154.7 / p50 1,020 / p90 2,735 / p99 4,142 / max 14,050; out 211.1 / 129 / 424 /
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

TEST(QuantileTable, ConversationsHaveThePublishedMeans) {
  const QuantileTable share = bundled("sharegpt-chat");
  EXPECT_DOUBLE_EQ(share.input().mean, 37.77);
  EXPECT_DOUBLE_EQ(share.output().mean, 204.58);
  EXPECT_EQ(share.mean_turns(), 5.56);
  const QuantileTable ultra = bundled("ultrachat-chat");
  EXPECT_DOUBLE_EQ(ultra.input().mean, 51.78);
  EXPECT_DOUBLE_EQ(ultra.output().mean, 257.81);
  EXPECT_EQ(ultra.mean_turns(), 3.86);
  for (const std::string& name : bundled_names()) {
    const QuantileTable table = bundled(name);
    EXPECT_EQ(table.mean_turns().has_value(), name.ends_with("-chat")) << name;
    EXPECT_EQ(table.think_time(), name.ends_with("-chat") ? "exponential(60s)" : "") << name;
  }
}

// Their shape is sharegpt-real's: one factor for all its inputs and one for all its outputs, never below half a token.
TEST(QuantileTable, ConversationsAreShareGptsTurnsScaled) {
  const QuantileTable real = bundled("sharegpt-real");
  for (const std::string name : {"sharegpt-chat", "ultrachat-chat"}) {
    SCOPED_TRACE(name);
    const QuantileTable table = bundled(name);
    ASSERT_EQ(table.strata().size(), real.strata().size());
    for (const Member member : {&Stratum::input, &Stratum::output}) {
      const double factor = max_of(table, member) / max_of(real, member);
      for (std::size_t i = 0; i < real.strata().size(); ++i) {
        EXPECT_EQ(table.strata()[i].weight, real.strata()[i].weight);
        const auto& points = (table.strata()[i].*member).points();
        const auto& unscaled = (real.strata()[i].*member).points();
        ASSERT_EQ(points.size(), unscaled.size());
        for (std::size_t at = 0; at < points.size(); ++at) {
          EXPECT_EQ(points[at].q, unscaled[at].q);
          EXPECT_NEAR(points[at].tokens, std::max(0.5, factor * unscaled[at].tokens), 0.0005);
        }
      }
    }
  }
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

/// Draws of a table, by side.
struct Draws {
  std::array<std::vector<std::int64_t>, 2> lengths;
};

Draws draw(const QuantileTable& table, int count) {
  RandomStream stream(1, 0, "test");
  Draws draws;
  for (int i = 0; i < count; ++i) {
    const Lengths lengths = table.sample(stream);
    draws.lengths[0].push_back(lengths.input.count());
    draws.lengths[1].push_back(lengths.output.count());
  }
  return draws;
}

/// Kolmogorov-Smirnov bound of a sample of n against its distribution, exceeded with probability alpha = 0.0001:
/// sqrt(-ln(alpha / 2) / 2) / sqrt(n).
double ks_bound(double n) { return 2.225 / std::sqrt(n); }

double mean_of(const std::vector<std::int64_t>& values) {
  double sum = 0.0;
  for (const std::int64_t value : values) sum += static_cast<double>(value);
  return sum / static_cast<double>(values.size());
}

double deviation_of(const std::vector<std::int64_t>& values) {
  const double mean = mean_of(values);
  double squares = 0.0;
  for (const std::int64_t value : values)
    squares += (static_cast<double>(value) - mean) * (static_cast<double>(value) - mean);
  return std::sqrt(squares / static_cast<double>(values.size()));
}

/// Ranks from 0; ties share their middle rank.
std::vector<double> ranks_of(const std::vector<std::int64_t>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (std::size_t i = begin; i < end; ++i) ranks[order[i]] = static_cast<double>(begin + end - 1) / 2.0;
    begin = end;
  }
  return ranks;
}

double correlation_of(const std::vector<double>& x, const std::vector<double>& y) {
  const auto n = static_cast<double>(x.size());
  const double mean_x = std::accumulate(x.begin(), x.end(), 0.0) / n;
  const double mean_y = std::accumulate(y.begin(), y.end(), 0.0) / n;
  double xy = 0.0;
  double xx = 0.0;
  double yy = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean_x) * (y[i] - mean_y);
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    yy += (y[i] - mean_y) * (y[i] - mean_y);
  }
  return xy / std::sqrt(xx * yy);
}

double rank_correlation_of(const Draws& draws) {
  return correlation_of(ranks_of(draws.lengths[0]), ranks_of(draws.lengths[1]));
}

TEST(QuantileTable, SamplesFollowTheirCurves) {
  constexpr int kDraws = 200'000;
  for (const std::string& name : bundled_names()) {
    const QuantileTable table = bundled(name);
    Draws draws = draw(table, kDraws);
    ASSERT_TRUE(table.rank_correlation().has_value()) << name;
    // The deviation of a rank correlation near 0 is 1 / sqrt(n); the stated one has three digits.
    EXPECT_NEAR(rank_correlation_of(draws), *table.rank_correlation(), 4.0 / std::sqrt(kDraws) + 0.0005) << name;
    for (const std::size_t side : {0U, 1U}) {
      SCOPED_TRACE(name + (side == 0 ? " input" : " output"));
      const Member member = side == 0 ? Member(&Stratum::input) : Member(&Stratum::output);
      std::vector<std::int64_t>& values = draws.lengths[side];
      const auto& stated = side == 0 ? table.input() : table.output();
      // 0.01 of rounding of the stated mean.
      EXPECT_NEAR(mean_of(values), stated.mean, 4.0 * deviation_of(values) / std::sqrt(kDraws) + 0.01);
      std::sort(values.begin(), values.end());
      EXPECT_GE(values.front(), 1);
      EXPECT_LE(static_cast<double>(values.back()), stated.max + 0.5);
      double worst = 0.0;
      for (std::size_t i = 0; i + 1 < values.size(); ++i) {
        if (values[i] == values[i + 1]) continue;
        // Lengths up to x, in whole tokens, are the curve's values below x + 0.5.
        double share = 0.0;
        for (const Stratum& stratum : table.strata()) {
          share += stratum.weight * share_below(stratum.*member, static_cast<double>(values[i]) + 0.5);
        }
        worst = std::max(worst, std::abs(share - static_cast<double>(i + 1) / kDraws));
      }
      EXPECT_LE(worst, ks_bound(kDraws));
    }
  }
}

TEST(QuantileTable, OneSeedDrawsOneSequence) {
  for (const std::string& name : bundled_names()) {
    const QuantileTable table = bundled(name);
    RandomStream a(3, 1, "test");
    RandomStream b(3, 1, "test");
    for (int i = 0; i < 1000; ++i) {
      const Lengths one = table.sample(a);
      const Lengths other = table.sample(b);
      ASSERT_EQ(one.input, other.input) << name;
      ASSERT_EQ(one.output, other.output) << name;
      ASSERT_EQ(table.sample_turns(a), table.sample_turns(b)) << name;
    }
    EXPECT_EQ(a.next_u64(), b.next_u64());
  }
}

TEST(QuantileTable, TurnsAreGeometricWithTheStatedMean) {
  constexpr int kDraws = 200'000;
  for (const std::string name : {"sharegpt-chat", "ultrachat-chat"}) {
    SCOPED_TRACE(name);
    const QuantileTable table = bundled(name);
    const double mean = table.mean_turns().value_or(0.0);
    RandomStream stream(1, 0, "test");
    std::vector<std::int64_t> turns;
    turns.reserve(kDraws);
    for (int i = 0; i < kDraws; ++i) turns.push_back(table.sample_turns(stream));
    // The variance of a geometric number on 1, 2, ... is m (m - 1).
    EXPECT_NEAR(mean_of(turns), mean, 4.0 * std::sqrt(mean * (mean - 1.0) / kDraws));
    std::sort(turns.begin(), turns.end());
    EXPECT_EQ(turns.front(), 1);
    // P(turns <= k) = 1 - (1 - 1/m)^k; the Kolmogorov-Smirnov bound holds for whole numbers too, being too wide there.
    double worst = 0.0;
    for (std::size_t i = 0; i + 1 < turns.size(); ++i) {
      if (turns[i] == turns[i + 1]) continue;
      const double share = 1.0 - std::pow(1.0 - 1.0 / mean, static_cast<double>(turns[i]));
      worst = std::max(worst, std::abs(share - static_cast<double>(i + 1) / kDraws));
    }
    EXPECT_LE(worst, ks_bound(kDraws));
  }
}

TEST(QuantileTable, TurnsTakeOneDrawByTheFormula) {
  const QuantileTable table = bundled("sharegpt-chat");
  RandomStream turns(5, 0, "test");
  RandomStream uniforms(5, 0, "test");
  for (int i = 0; i < 10'000; ++i) {
    const double u = uniforms.uniform();
    ASSERT_EQ(table.sample_turns(turns),
              1 + static_cast<std::int64_t>(std::floor(std::log(1.0 - u) / std::log(1.0 - 1.0 / 5.56))));
  }
  // Single requests have one turn, but the draw still happens.
  const QuantileTable alone = bundled("alpaca");
  for (int i = 0; i < 1000; ++i) {
    (void)uniforms.uniform();
    ASSERT_EQ(alone.sample_turns(turns), 1);
  }
  EXPECT_EQ(turns.next_u64(), uniforms.next_u64());
}

// A python port of split_mix and xoshiro256** reads the JSON files and samples stream (1, 0, "workload.lengths").
TEST(QuantileTable, FirstRowsAreThoseOfAnotherProgram) {
  const std::map<std::string, std::vector<std::pair<int, int>>> expected{
      {"alpaca", {{11, 4}, {7, 52}, {19, 79}, {20, 9}}},
      {"arxiv", {{3534, 59}, {1251, 169}, {2870, 216}, {2873, 87}}},
      {"azure-code", {{3539, 6}, {162, 15}, {1731, 23}, {1739, 7}}},
      {"azure-conv", {{332, 12}, {97, 183}, {1158, 343}, {1178, 40}}},
      {"osc", {{483, 34}, {236, 45}, {393, 49}, {394, 37}}},
      {"sharegpt", {{272, 16}, {18, 356}, {86, 515}, {86, 103}}},
      {"sharegpt-chat", {{33, 15}, {1, 151}, {9, 290}, {9, 73}}},
      {"sharegpt-real", {{137, 33}, {4, 331}, {38, 637}, {38, 160}}},
      {"ultrachat-chat", {{46, 19}, {1, 190}, {13, 366}, {13, 92}}},
      {"uniform", {{190, 90}, {183, 101}, {205, 104}, {205, 92}}}};
  for (const auto& [name, rows] : expected) {
    const QuantileTable table = bundled(name);
    RandomStream stream(1, 0, "workload.lengths");
    for (const auto& [input, output] : rows) {
      const Lengths lengths = table.sample(stream);
      EXPECT_EQ(lengths.input, Tokens(input)) << name;
      EXPECT_EQ(lengths.output, Tokens(output)) << name;
    }
  }
}

TEST(QuantileTable, AlpacaHasThePublishedMeansAndSaysThatItsInputIsAssumed) {
  const QuantileTable table = bundled("alpaca");
  EXPECT_DOUBLE_EQ(table.input().mean, 19.31);
  EXPECT_DOUBLE_EQ(table.output().mean, 58.45);
  EXPECT_EQ(table.strata().size(), 1U) << "independent";
  EXPECT_NE(table.assumed().front().find("lognormal"), std::string::npos);
  // Lognormal of mean 19.31 and CV 0.65: sigma^2 = ln 1.4225, median 19.31 / sqrt(1.4225) = 16.19, p99 = median
  // exp(2.3263 * 0.5937) = 64.4.
  EXPECT_NEAR(quantile_of(table, &Stratum::input, 0.5), 16.19, 0.1);
  EXPECT_NEAR(quantile_of(table, &Stratum::input, 0.99), 64.4, 1.0);
}

TEST(QuantileTable, UniformTakesEveryLengthWithinTenPercentAsOften) {
  const QuantileTable table = bundled("uniform");
  EXPECT_EQ(table.spread(), 0.1);
  EXPECT_FALSE(table.requests().has_value());
  std::map<std::int64_t, int> counts;
  const Draws draws = draw(table, 410'000);
  for (const std::int64_t input : draws.lengths[0]) ++counts[input];
  ASSERT_EQ(counts.size(), 41U);
  EXPECT_EQ(counts.begin()->first, 180);
  // 10,000 each, deviation 99: five of them, as there are 41.
  for (const auto& [tokens, count] : counts) EXPECT_NEAR(count, 10'000, 494) << tokens;
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
  // Inputs and outputs come from one stratum, so there are two pairs: 2,500 of 10,000, with deviation 43.
  EXPECT_EQ(seen.size(), 2U);
  EXPECT_NEAR((seen[{10, 20}]), 2500, 173);
  EXPECT_NEAR((seen[{30, 40}]), 7500, 173);
}

TEST(QuantileTable, EveryProblemOfAFileIsTold) {
  const auto parse = [](const std::string& json) {
    return problems_of([&] { (void)QuantileTable::parse(json, "t.json"); });
  };
  EXPECT_EQ(parse(R"({"schema_version": 2, "name": 5, "source": "s", "published": "p", "assumed": [],
    "statistics": {"requests": "x", "input_tokens": {"mean": 0, "p50": "x", "p90": 0, "p99": 0, "max": 0}},
    "spread": 1,
    "strata": [{"weight": 0, "input": [[0, 10], [0.9, 20]], "output": [[0, 5], [0.5, 4], [1, 9]]},
               {"weight": 0.5, "input": [[0, 0], [1, 20]], "output": [[0, 5], [1]]}]})"),
            "exit 3\n"
            "this version of spillway reads schema_version 1 | t.json at /schema_version | \n"
            "must be a text | t.json at /name | \n"
            "\"summary\" is missing | t.json at / | \n"
            "must be a list of texts | t.json at /published | \n"
            "must be a number | t.json at /statistics/input_tokens/p50 | \n"
            "\"output_tokens\" is missing | t.json at /statistics | \n"
            "must be a number | t.json at /statistics/requests | \n"
            "must be above 0 and below 1 | t.json at /spread | \n"
            "must be above 0 | t.json at /strata/0/weight | \n"
            "must run from q = 0 to q = 1 | t.json at /strata/0/input | \n"
            "q must rise and tokens must not fall from point to point | t.json at /strata/0/output/1 | \n"
            "tokens must be from 0.5 to 16777216 | t.json at /strata/1/input | \n"
            "must be a pair [q, tokens] | t.json at /strata/1/output/1 | \n"
            "the weights add up to 0.5, not 1 | t.json at /strata | ");
  EXPECT_TRUE(parse("{\"schema_version\"").starts_with("exit 3\nthe file is not JSON: "));
}

TEST(QuantileTable, ProblemsOfTurnsAreTold) {
  const auto problems = [](const std::string& members) {
    return problems_of([&] {
      (void)QuantileTable::parse(R"({"schema_version": 1, "name": "n", "summary": "s", "source": "s", "published": [],
        "assumed": [],
        "statistics": {"input_tokens": {"mean": 0, "p50": 0, "p90": 0, "p99": 0, "max": 0},
                       "output_tokens": {"mean": 0, "p50": 0, "p90": 0, "p99": 0, "max": 0}},
        "strata": [{"weight": 1, "input": [[0, 10], [1, 10]], "output": [[0, 20], [1, 20]]}], )" +
                                     members + "}",
                                 "t.json");
    });
  };
  EXPECT_EQ(problems(R"("turns": {"distribution": "geometric", "mean": 1}, "think_time": "constant")"), "");
  EXPECT_EQ(problems(R"("turns": {"distribution": "poisson", "mean": 0.5}, "think_time": 60)"),
            "exit 3\n"
            "must be \"geometric\" | t.json at /turns/distribution | \n"
            "must be a number from 1 to 1000000 | t.json at /turns/mean | \n"
            "must be a text | t.json at /think_time | ");
  EXPECT_EQ(problems(R"("turns": {"distribution": 1, "mean": "5"})"),
            "exit 3\n"
            "must be \"geometric\" | t.json at /turns/distribution | \n"
            "must be a number from 1 to 1000000 | t.json at /turns/mean | ");
  EXPECT_EQ(problems(R"("turns": 5)"),
            "exit 3\n"
            "\"distribution\" is missing | t.json at /turns | \n"
            "\"mean\" is missing | t.json at /turns | ");
  EXPECT_EQ(problems(R"("turns": {"distribution": "geometric", "mean": 1000001})"),
            "exit 3\nmust be a number from 1 to 1000000 | t.json at /turns/mean | ");
  EXPECT_TRUE(problems(R"("turns": {"distribution": "geometric", "mean": 1e999})").starts_with("exit 3\n"));
  EXPECT_EQ(problems(R"("think_time": "constant")"), "exit 3\nhas no use without \"turns\" | t.json at /think_time | ");
}

/// The pairs from which traces/generators/sharegpt.json was derived, according to the file, sorted.
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

using Pairs = std::vector<std::pair<int, int>>;

/// The numbers of two columns of a CSV file, counted from 0. Text fields before them do not matter.
Pairs csv_columns(const std::string& path, std::size_t input, std::size_t output) {
  Pairs pairs;
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::vector<int> row;
    for (std::size_t begin = 0; begin <= line.size();) {
      const std::size_t end = std::min(line.find(',', begin), line.size());
      int number = 0;
      std::from_chars(line.data() + begin, line.data() + end, number);
      row.push_back(number);
      begin = end + 1;
    }
    pairs.emplace_back(row.at(input), row.at(output));
  }
  return pairs;
}

Pairs json_members(const std::string& path, const char* input, const char* output) {
  std::ifstream file(path);
  Pairs pairs;
  for (const auto& one : nlohmann::json::parse(file)) pairs.emplace_back(one.at(input), one.at(output));
  return pairs;
}

/// A bundled workload and the rows behind it.
struct Derived {
  const char* name;
  const char* file;
  Pairs (*read)(const std::string& path);
  double input_factor;
  double output_factor;
  bool input_of_data;  // false: assumed
};

const std::vector<Derived>& derived() {
  static const std::vector<Derived> kAll{
      {"azure-code", "azure-2023-code.csv", [](const std::string& path) { return csv_columns(path, 1, 2); }, 1, 1,
       true},
      {"osc", "osc-lengths.json", [](const std::string& path) { return json_members(path, "prompt", "max_tokens"); }, 1,
       1, true},
      {"arxiv", "arxiv-lengths-5000.csv", [](const std::string& path) { return csv_columns(path, 0, 1); }, 1, 1, true},
      {"sharegpt-real", "sharegpt-turns-1000.csv", [](const std::string& path) { return csv_columns(path, 3, 4); }, 1,
       1, true},
      {"sharegpt-chat", "sharegpt-turns-1000.csv", [](const std::string& path) { return csv_columns(path, 3, 4); },
       37.77 / 155.68, 204.58 / 449.09, true},
      {"ultrachat-chat", "sharegpt-turns-1000.csv", [](const std::string& path) { return csv_columns(path, 3, 4); },
       51.78 / 155.68, 257.81 / 449.09, true},
      {"sharegpt", "sharegpt-turns-1000.csv", sharegpt_first_turns, 161.31 / 140.55625, 337.99 / 485.426875, true},
      {"alpaca", "alpaca-10k-output-lengths.json",
       [](const std::string& path) { return json_members(path, "L_gt", "L_gt"); }, 1, 58.45 / 65.61877, false}};
  return kAll;
}

Draws scaled(const Pairs& pairs, const Derived& one) {
  const auto scale = [](int length, double factor) {
    return std::max(std::int64_t{1}, static_cast<std::int64_t>(length * factor + 0.5));
  };
  Draws rows;
  for (const auto& [input, output] : pairs) {
    rows.lengths[0].push_back(scale(input, one.input_factor));
    rows.lengths[1].push_back(scale(output, one.output_factor));
  }
  return rows;
}

/// The largest distance between the distribution functions of two samples.
double ks_distance(std::vector<std::int64_t> a, std::vector<std::int64_t> b) {
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  const auto share = [](const std::vector<std::int64_t>& sorted, std::int64_t x) {
    const auto upto = std::upper_bound(sorted.begin(), sorted.end(), x) - sorted.begin();
    return static_cast<double>(upto) / static_cast<double>(sorted.size());
  };
  double worst = 0.0;
  for (const auto& values : {a, b}) {
    for (const std::int64_t x : values) worst = std::max(worst, std::abs(share(a, x) - share(b, x)));
  }
  return worst;
}

std::vector<std::int64_t> sums_of(const Draws& draws) {
  std::vector<std::int64_t> sums;
  for (std::size_t i = 0; i < draws.lengths[0].size(); ++i) sums.push_back(draws.lengths[0][i] + draws.lengths[1][i]);
  return sums;
}

TEST(QuantileTable, DrawnLengthsAreThoseOfTheData) {
  constexpr int kDraws = 50'000;
  int seen = 0;
  for (const Derived& one : derived()) {
    const std::string path = shared_trace(one.file);
    if (path.empty()) continue;
    SCOPED_TRACE(one.name);
    ++seen;
    const QuantileTable table = bundled(one.name);
    const Draws data = scaled(one.read(path), one);
    const Draws draws = draw(table, kDraws);
    EXPECT_EQ(table.requests(), static_cast<double>(data.lengths[0].size()));
    // 0.01 of the table's straight lines (0.025 where the lengths are scaled, as the table scales before it rounds to
    // whole tokens and the rows here are rounded twice), and what chance adds to a sample.
    const bool is_scaled = one.input_of_data && one.output_factor != 1.0;
    const double bound = ks_bound(kDraws) + (is_scaled ? 0.025 : 0.01);
    EXPECT_LE(ks_distance(draws.lengths[1], data.lengths[1]), bound);
    EXPECT_NEAR(table.output().mean, mean_of(data.lengths[1]), 0.005 * table.output().mean);
    if (!one.input_of_data) continue;
    EXPECT_LE(ks_distance(draws.lengths[0], data.lengths[0]), bound);
    EXPECT_NEAR(table.input().mean, mean_of(data.lengths[0]), 0.005 * table.input().mean);
    // The joint shape: rank correlation, and the distribution of input + output, which independence would change.
    EXPECT_NEAR(rank_correlation_of(draws), rank_correlation_of(data), 0.02);
    EXPECT_LE(ks_distance(sums_of(draws), sums_of(data)), bound + 0.005);
  }
  if (seen == 0) GTEST_SKIP() << "../shared/data/traces is not there";
}

/// Whether each knot (q, tokens) of the curve is a point of the data's: the share q of the values lies below it.
void expect_knots_on_data(const QuantileCurve& curve, double factor, const std::vector<std::int64_t>& values) {
  for (const auto& point : curve.points()) {
    const auto below = std::count_if(values.begin(), values.end(), [&](std::int64_t value) {
      return static_cast<double>(value) < point.tokens / factor;
    });
    ASSERT_NEAR(static_cast<double>(below) / static_cast<double>(values.size()), point.q, 1e-6) << point.tokens;
  }
}

TEST(QuantileTable, KnotsAreThoseOfTheData) {
  int seen = 0;
  for (const Derived& one : derived()) {
    const std::string path = shared_trace(one.file);
    // Those of sharegpt: ShareGptStrataAreThoseOfTheData, of conversations: ConversationsAreShareGptsTurnsScaled.
    const std::string_view name(one.name);
    if (path.empty() || name == "sharegpt" || name.ends_with("-chat")) continue;
    SCOPED_TRACE(one.name);
    ++seen;
    Pairs pairs = one.read(path);
    std::sort(pairs.begin(), pairs.end());
    const QuantileTable table = bundled(one.name);
    std::size_t begin = 0;
    for (const Stratum& stratum : table.strata()) {
      const auto rows = static_cast<std::size_t>(std::lround(stratum.weight * static_cast<double>(pairs.size())));
      ASSERT_LE(begin + rows, pairs.size());
      std::array<std::vector<std::int64_t>, 2> values;
      for (std::size_t i = begin; i < begin + rows; ++i) {
        values[0].push_back(pairs[i].first);
        values[1].push_back(pairs[i].second);
      }
      begin += rows;
      if (one.input_of_data) expect_knots_on_data(stratum.input, one.input_factor, values[0]);
      expect_knots_on_data(stratum.output, one.output_factor, values[1]);
    }
    EXPECT_EQ(begin, pairs.size());
  }
  if (seen == 0) GTEST_SKIP() << "../shared/data/traces is not there";
}

}  // namespace
}  // namespace spillway::traces
