// Paired differences; expected values by hand.
#include "sim/report/comparison.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "sim/study/paired_difference.hpp"

namespace spillway {
namespace {

Metric metric(const std::string& name, const std::vector<std::optional<double>>& values) {
  Metric one;
  one.name = name;
  one.unit = "ms";
  double sum = 0.0;
  for (const auto& value : values) {
    if (!value) continue;
    sum += *value;
    ++one.n;
  }
  if (one.n > 0) one.value = sum / static_cast<double>(one.n);
  if (values.size() > 1) one.replications = values;
  return one;
}

TEST(PairedDifference, WhatTheTrafficDoesToBothDropsOut) {
  // Both vary from 100 to 300 by seed; the differences are 9, 10, 11: mean 10, s = 1, and t(0.975, 2) = 4.302653, so
  // the half-width is 4.302653 / sqrt(3) = 2.484138. Unpaired, nothing could be said of 10 in 100 to 300.
  const auto pair = paired_difference(metric("mean_ttft_ms", {100, 200, 300}), metric("mean_ttft_ms", {109, 210, 311}));
  EXPECT_DOUBLE_EQ(*pair.difference, 10.0);
  EXPECT_NEAR(*pair.half_width, 2.484138, 1e-6);
  EXPECT_DOUBLE_EQ(*pair.relative, 0.05);  // 10 of 200
  EXPECT_EQ(pair.n, 3);
  EXPECT_EQ(pair.verdict, PairVerdict::worse);
}

TEST(PairedDifference, AnIntervalThatHoldsZeroIsNoise) {
  // Differences -1, 0, 4: mean 1, s = sqrt(7) = 2.6458, half-width 4.302653 * 2.6458 / sqrt(3) = 6.57.
  const auto pair = paired_difference(metric("mean_ttft_ms", {10, 20, 30}), metric("mean_ttft_ms", {9, 20, 34}));
  EXPECT_EQ(pair.verdict, PairVerdict::noise);
}

TEST(PairedDifference, TheMetricSaysWhichSideIsBetter) {
  const auto verdict = [](const std::string& name, double second) {
    return paired_difference(metric(name, {10, 20, 30}), metric(name, {10 + second, 20 + second, 30.1 + second}))
        .verdict;
  };
  EXPECT_EQ(verdict("p99_e2e_ms", 5.0), PairVerdict::worse);
  EXPECT_EQ(verdict("p99_e2e_ms", -5.0), PairVerdict::better);
  EXPECT_EQ(verdict("output_throughput_tokens_per_s", 5.0), PairVerdict::better);
  EXPECT_EQ(verdict("goodput_requests_per_s", -5.0), PairVerdict::worse);
  EXPECT_EQ(verdict("swap_preemptions", -5.0), PairVerdict::better);
  EXPECT_EQ(verdict("mean_batch_requests", 5.0), PairVerdict::different);
}

TEST(PairedDifference, OneReplicationHasNoInterval) {
  const auto pair = paired_difference(metric("mean_ttft_ms", {10}), metric("mean_ttft_ms", {12}));
  EXPECT_DOUBLE_EQ(*pair.difference, 2.0);
  EXPECT_FALSE(pair.half_width);
  EXPECT_EQ(pair.verdict, PairVerdict::no_interval);
  // Equal traffic in every replication adds no information.
  EXPECT_EQ(paired_difference(metric("mean_ttft_ms", {10, 10}), metric("mean_ttft_ms", {12, 12})).verdict,
            PairVerdict::no_interval);
  EXPECT_EQ(paired_difference(metric("mean_ttft_ms", {10, 11}), metric("mean_ttft_ms", {10, 11})).verdict,
            PairVerdict::same);
}

TEST(PairedDifference, OnlyReplicationsInWhichBothHaveAValueCount) {
  const auto pair = paired_difference(metric("mean_ttft_ms", {10, std::nullopt, 30, 40}),
                                      metric("mean_ttft_ms", {11, 21, std::nullopt, 43}));
  EXPECT_EQ(pair.n, 2);
  EXPECT_DOUBLE_EQ(*pair.difference, 2.0);       // of 1 and 3
  EXPECT_DOUBLE_EQ(*pair.relative, 4.0 / 50.0);  // of 10 and 40
  const auto none =
      paired_difference(metric("mean_ttft_ms", {10, std::nullopt}), metric("mean_ttft_ms", {std::nullopt, 3}));
  EXPECT_EQ(none.verdict, PairVerdict::no_value);
  EXPECT_FALSE(none.difference);
}

TEST(PairedDifference, ABaseOfZeroHasNoShare) {
  const auto pair = paired_difference(metric("swap_preemptions", {0, 0}), metric("swap_preemptions", {3, 5}));
  EXPECT_FALSE(pair.relative);
  EXPECT_DOUBLE_EQ(*pair.difference, 4.0);
}

TEST(BetterDirection, EveryNameIsAMetric) {
  // Metrics that the code lists by name must exist: metrics with a direction that are not latencies.
  std::size_t directed = 0;
  for (const MetricDefinition& definition : metric_definitions()) {
    if (!definition.distribution && better_direction(definition.name)) ++directed;
    if (definition.distribution) {
      EXPECT_EQ(better_direction("p99_" + definition.name), Better::smaller);
    }
  }
  // The last five: history of conversations (3) and suspensions (2), the connector (5), its disk (3), exposed copies,
  // clusters (4), requests that are paged out, a coordinated bus (4), hits of
  // experts, alone and beside a policy that streams KV (2), cost and energy (2).
  EXPECT_EQ(directed, 8U + 8U + 5U + 5U + 3U + 1U + 4U + 1U + 4U + 2U + 2U);
  EXPECT_FALSE(better_direction("duration_s"));
  EXPECT_FALSE(better_direction(""));
}

Comparison three_policies() {
  Comparison comparison;
  comparison.setup = "model on 1 x gpu";
  comparison.metrics = {"mean_ttft_ms", "request_throughput_per_s"};
  comparison.replications = 3;
  const auto add = [&](const std::string& label, const std::vector<std::optional<double>>& ttft, double rate) {
    comparison.runs.push_back(
        {.label = label,
         .metrics = {metric("mean_ttft_ms", ttft), metric("request_throughput_per_s", {rate, rate + 0.1, rate + 0.2})},
         .bottleneck = "The load is light."});
  };
  add("policy=a", {10, 20, 30}, 5);
  add("policy=b", {8, 18, 28.1}, 4);
  add("policy=c", {11, 19, 30.5}, 6);
  return comparison;
}

TEST(Comparison, RanksByTheBetterSide) {
  const Comparison comparison = three_policies();
  // Means: a 20, b 18.033, c 20.167; throughput a 5.1, b 4.1, c 6.1.
  EXPECT_EQ(comparison.ranking("mean_ttft_ms"), (std::vector<std::size_t>{1, 0, 2}));
  EXPECT_EQ(comparison.ranking("request_throughput_per_s"), (std::vector<std::size_t>{2, 0, 1}));
  EXPECT_TRUE(comparison.ranking("mean_batch_requests").empty());
}

TEST(Comparison, OnlyPairsThatDifferCanFlip) {
  Comparison comparison = three_policies();
  comparison.perturbation = 0.05;
  comparison.perturbations = {"GEMM +5%", "GEMM -5%"};
  const auto under = [](double ttft, double rate) {
    return std::vector<Metric>{metric("mean_ttft_ms", {ttft}), metric("request_throughput_per_s", {rate})};
  };
  // a and c differ by noise in TTFT (1, -1, 0.5), so their swap means nothing. a and b differ, and swap in the second
  // perturbation.
  comparison.runs[0].perturbed = {under(21, 5), under(17, 5)};
  comparison.runs[1].perturbed = {under(18, 4), under(19, 4)};
  comparison.runs[2].perturbed = {under(20, 6), under(30, 6)};
  const auto flips = comparison.flips();
  ASSERT_EQ(flips.size(), 1U);
  EXPECT_EQ(flips[0].metric, "mean_ttft_ms");
  EXPECT_EQ(flips[0].perturbation, "GEMM -5%");
  EXPECT_EQ(flips[0].before, "policy=b");
  EXPECT_EQ(flips[0].behind, "policy=a");
}

TEST(Comparison, ADifferenceOfTheEnginesIsSaidFirst) {
  Comparison comparison = three_policies();
  for (ComparedRun& run : comparison.runs) run.engine = "vllm-0.23";
  EXPECT_FALSE(comparison.engines_differ());
  EXPECT_TRUE(to_comparison_table(comparison).starts_with("Set-up"));
  EXPECT_NE(to_comparison_table(comparison).find("\nEngine       vllm-0.23\n"), std::string::npos);
  comparison.runs.back().engine = "sarathi-serve";
  EXPECT_TRUE(comparison.engines_differ());
  const std::string table = to_comparison_table(comparison);
  EXPECT_TRUE(table.starts_with("Engines      differ: ")) << table;
  EXPECT_NE(table.find("4.10  vllm-0.23\n"), std::string::npos) << table;
  EXPECT_NE(table.find("6.10  sarathi-serve\n"), std::string::npos) << table;
}

TEST(Comparison, RunsThatAreNotSteadyAreMarked) {
  Comparison comparison = three_policies();
  comparison.runs[0].steadiness = "steady";
  comparison.runs[1].steadiness = "saturated";
  const std::string table = to_comparison_table(comparison);
  EXPECT_NE(table.find("\npolicy=a  "), std::string::npos) << table;
  EXPECT_NE(table.find("\npolicy=b (saturated)  "), std::string::npos) << table;
  const nlohmann::json json = nlohmann::json::parse(to_comparison_json(comparison));
  EXPECT_EQ(json["runs"][0]["steady_state"], "steady");
  EXPECT_EQ(json["runs"][1]["steady_state"], "saturated");
  EXPECT_TRUE(json["runs"][2]["steady_state"].is_null());
  const std::string csv = to_comparison_csv(comparison);
  EXPECT_NE(csv.find(",verdict,steady_state\npolicy=a,"), std::string::npos) << csv;
  EXPECT_NE(csv.find("baseline,steady\n"), std::string::npos) << csv;
  EXPECT_NE(csv.find(",saturated\npolicy=b,"), std::string::npos) << csv;
}

TEST(Comparison, TheTableNamesNoiseAndWhatIsBetter) {
  const std::string table = to_comparison_table(three_policies());
  EXPECT_NE(table.find(" -9.8% +-0.7% better"), std::string::npos) << table;  // -2, -2, -1.9 of 20
  EXPECT_NE(table.find("noise"), std::string::npos) << table;
}

// Runs with other times say how certain the figures are; those with other localities need them as they are.
TEST(ComparedPoints, OtherLocalitiesAreOfBaseRuns) {
  PointGrid grid;
  grid.other_localities = true;
  const std::vector<Point> points = compared_points(grid, {{}, {.gemm = 1.05}});
  ASSERT_EQ(points.size(), 2U);
  EXPECT_TRUE(points[0].other_localities);
  EXPECT_FALSE(points[1].other_localities);
  EXPECT_EQ(points[1].scales.gemm, 1.05);
}

}  // namespace
}  // namespace spillway
