// Conditions on metrics as users write them.
#include <gtest/gtest.h>

#include "sim/metrics/metric_table.hpp"

namespace spillway {
namespace {

std::vector<Condition> parse(const std::string& text, bool per_request, std::vector<Problem>& problems) {
  return parse_conditions(text, "--slo", per_request, problems);
}

Problem refusal(const std::string& text, bool per_request = true) {
  std::vector<Problem> problems;
  EXPECT_TRUE(parse(text, per_request, problems).empty()) << text;
  EXPECT_EQ(problems.size(), 1U) << text;
  return problems.empty() ? Problem{} : problems.front();
}

TEST(Conditions, List_WithEveryOperatorAndSpaces_IsParsed) {
  std::vector<Problem> problems;
  const auto conditions =
      parse("ttft_ms<500, p99_ttft_ms <= 1e3,mean_e2e_ms>2 , peak_gpu_kv_fraction>=0.5", true, problems);
  ASSERT_TRUE(problems.empty());
  ASSERT_EQ(conditions.size(), 4U);
  EXPECT_EQ(conditions[0].metric, "ttft_ms");
  EXPECT_EQ(conditions[0].op, Condition::Op::less);
  EXPECT_EQ(conditions[0].limit, 500.0);
  EXPECT_EQ(conditions[1].metric, "p99_ttft_ms");
  EXPECT_EQ(conditions[1].op, Condition::Op::less_equal);
  EXPECT_EQ(conditions[1].limit, 1000.0);
  EXPECT_EQ(conditions[1].text, "p99_ttft_ms <= 1e3");
  EXPECT_EQ(conditions[2].op, Condition::Op::greater);
  EXPECT_EQ(conditions[3].op, Condition::Op::greater_equal);
}

TEST(Conditions, OfFairness_AreOnTheRun) {
  std::vector<Problem> problems;
  const auto conditions =
      parse("max_service_difference_tokens>1000,jain_index<0.9,worst_client_p99_ttft_ms>5", false, problems);
  EXPECT_TRUE(problems.empty());
  ASSERT_EQ(conditions.size(), 3U);
  EXPECT_EQ(conditions[0].metric, "max_service_difference_tokens");
  EXPECT_EQ(conditions[2].metric, "worst_client_p99_ttft_ms");
  EXPECT_TRUE(percentiles_of(conditions).empty());
}

TEST(Conditions, Holds_AtTheLimit_OnlyForTheInclusiveOperators) {
  std::vector<Problem> problems;
  const auto conditions = parse("ttft_ms<5,ttft_ms<=5,ttft_ms>5,ttft_ms>=5", true, problems);
  ASSERT_EQ(conditions.size(), 4U);
  EXPECT_FALSE(conditions[0].holds(5.0));
  EXPECT_TRUE(conditions[0].holds(4.9));
  EXPECT_TRUE(conditions[1].holds(5.0));
  EXPECT_FALSE(conditions[2].holds(5.0));
  EXPECT_TRUE(conditions[2].holds(5.1));
  EXPECT_TRUE(conditions[3].holds(5.0));
}

TEST(Conditions, Percentile_IsSpeltAsInResults) {
  std::vector<Problem> problems;
  const auto conditions = parse("p99.90_ttft_ms<9,p050_itl_ms<3,median_tpot_ms<9", false, problems);
  ASSERT_EQ(conditions.size(), 3U);
  EXPECT_EQ(conditions[0].metric, "p99.9_ttft_ms");
  EXPECT_EQ(conditions[1].metric, "p50_itl_ms");
  EXPECT_EQ(percentiles_of(conditions), (std::vector<double>{99.9, 50.0}));
  EXPECT_EQ(percentiles_of(parse("p0_ttft_ms<9,p100_ttft_ms<9", false, problems)), (std::vector<double>{0.0, 100.0}));
  EXPECT_TRUE(problems.empty());
}

TEST(Conditions, EveryDefinedMetric_IsAccepted) {
  for (const MetricDefinition& d : metric_definitions()) {
    std::vector<Problem> problems;
    if (d.series) {
      EXPECT_NE(refusal(d.name + "<1", true).what.find("a list over time"), std::string::npos);
      continue;
    }
    const auto conditions = parse((d.distribution ? "std_" + d.name : d.name) + "<1", false, problems);
    EXPECT_EQ(conditions.size(), 1U) << d.name;
    EXPECT_FALSE(d.definition.empty());
    EXPECT_FALSE(d.unit.empty());
  }
}

TEST(Conditions, PerRequestLatency_IsForRequestsOnly) {
  for (const std::string name : {"ttft_ms", "compute_ms_per_token"}) {
    const MetricEntry* latency = per_request_latency(name);
    ASSERT_NE(latency, nullptr) << name;
    EXPECT_EQ(latency->definition.name, name);
  }
  EXPECT_EQ(per_request_latency("p99_ttft_ms"), nullptr);
  EXPECT_EQ(per_request_latency("itl_ms"), nullptr);
  EXPECT_EQ(refusal("ttft_ms<500", false).fix, "say which one, as in p99_ttft_ms");
  EXPECT_NE(refusal("itl_ms<50", true).fix.find("tpot_ms"), std::string::npos);
}

TEST(Conditions, UnknownMetric_IsRefusedWithTheNearestName) {
  const Problem problem = refusal("p99_tfft_ms<500");
  EXPECT_EQ(problem.where, "--slo");
  EXPECT_EQ(problem.fix, "did you mean \"p99_ttft_ms\"?");
  EXPECT_EQ(refusal("request_throughput<5").fix, "did you mean \"request_throughput_per_s\"?");
  EXPECT_EQ(refusal("xyzzy_plugh_quux<5").fix, "`spillway list metrics` names them all");
}

TEST(Conditions, UnknownStatistic_IsRefusedWithTheKnownOnes) {
  for (const char* text : {"avg_ttft_ms<5", "p101_ttft_ms<5", "p-1_ttft_ms<5", "p_ttft_ms<5", "pinf_ttft_ms<5"}) {
    EXPECT_NE(refusal(text).fix.find("percentile"), std::string::npos) << text;
  }
}

TEST(Conditions, BadSyntax_IsRefused) {
  for (const char* text :
       {"", "ttft_ms", "ttft_ms=5", "ttft_ms<", "ttft_ms<500ms", "ttft_ms<<5", "ttft_ms<nan", "<5"}) {
    EXPECT_FALSE(refusal(text).fix.empty()) << text;
  }
}

TEST(Conditions, SeveralProblems_AreAllReported) {
  std::vector<Problem> problems;
  const auto conditions = parse("ttft_ms<500,,p99_nope_ms<1,e2e_ms<x", true, problems);
  EXPECT_EQ(conditions.size(), 1U);
  EXPECT_EQ(problems.size(), 3U);
}

}  // namespace
}  // namespace spillway
