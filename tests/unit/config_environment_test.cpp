#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/config/config.hpp"

namespace spillway {
namespace {

using testing::HasSubstr;

std::vector<Parameter> table() {
  return config_parameters({{"llama-3.1-8b"}, {"h100-80gb-sxm"}, {"vllm-0.23", "vllm-0.6.3"}}, {});
}

struct Parsed {
  std::vector<Assignment> assignments;
  std::vector<Problem> problems;
};
Parsed parse(const std::vector<std::string>& variables) {
  Parsed parsed;
  const std::vector<std::string> others{"SPILLWAY_JOBS"};
  parsed.assignments = parse_environment(variables, table(), others, parsed.problems);
  return parsed;
}

TEST(ConfigEnvironment, VariablesAreKeysInCapitalsWithUnderscores) {
  EXPECT_EQ(environment_variable("policy"), "SPILLWAY_POLICY");
  EXPECT_EQ(environment_variable("workload.rate"), "SPILLWAY_WORKLOAD_RATE");
  EXPECT_EQ(environment_variable("slo.ttft_ms"), "SPILLWAY_SLO_TTFT_MS");
  EXPECT_EQ(environment_variable("policy.two-words"), "SPILLWAY_POLICY_TWO_WORDS");
}

TEST(ConfigEnvironment, VariablesSetKeysOfTheTableAndOfEveryPolicy) {
  const Parsed parsed = parse({"SPILLWAY_POLICY_VERSION=0.2.0", "SPILLWAY_SEED=3", "SPILLWAY_SLO_RUN=p99_ttft_ms<=9"});
  ASSERT_EQ(parsed.assignments.size(), 3U);
  EXPECT_TRUE(parsed.problems.empty());
  EXPECT_EQ(parsed.assignments[0].key, "policy.version");
  EXPECT_EQ(parsed.assignments[0].text, "0.2.0");
  EXPECT_EQ(parsed.assignments[0].origin, Origin::environment);
  EXPECT_EQ(parsed.assignments[0].where, "environment SPILLWAY_POLICY_VERSION=0.2.0");
  EXPECT_EQ(parsed.assignments[1].key, "seed");
  EXPECT_EQ(parsed.assignments[2].text, "p99_ttft_ms<=9");
}

TEST(ConfigEnvironment, EmptyIsNotSetNullTakesBackAndOtherNamesAreLeftAlone) {
  const Parsed parsed = parse({"SPILLWAY_JOBS=4", "SPILLWAY_SEED=", "SPILLWAY_TYPO=", "SPILLWAY_UNTIL=null"});
  EXPECT_TRUE(parsed.problems.empty());
  ASSERT_EQ(parsed.assignments.size(), 1U);
  EXPECT_EQ(parsed.assignments[0].key, "until");
  EXPECT_FALSE(parsed.assignments[0].text);
}

TEST(ConfigEnvironment, UnknownVariablesNameTheNearest) {
  const Parsed parsed = parse({"SPILLWAY_=1", "SPILLWAY_JOBZ=2", "SPILLWAY_KV_DTYPE=fp8", "SPILLWAY_SEDE=2"});
  EXPECT_TRUE(parsed.assignments.empty());
  ASSERT_EQ(parsed.problems.size(), 4U);
  EXPECT_EQ(parsed.problems[0].what, "unknown environment variable \"SPILLWAY_\"");
  EXPECT_THAT(parsed.problems[1].fix, HasSubstr("did you mean \"SPILLWAY_JOBS\"?"));
  EXPECT_THAT(parsed.problems[2].fix, HasSubstr("did you mean \"SPILLWAY_MEMORY_KV_DTYPE\"?"));
  EXPECT_THAT(parsed.problems[3].fix, HasSubstr("did you mean \"SPILLWAY_SEED\"?"));
  EXPECT_EQ(parsed.problems[3].where, "environment SPILLWAY_SEDE=2");
}

TEST(ConfigEnvironment, ArgumentsWinOverTheEnvironmentAndItOverTheFile) {
  std::vector<Problem> problems;
  auto assignments = parse_config(R"({"seed": 1, "replications": 2, "until": "3s", "policy": "vllm"})", "f", problems);
  const std::vector<std::string> others;
  const std::vector<std::string> variables{"SPILLWAY_ENGINE_MAX_NUM_BATCHED_TOKENS=7", "SPILLWAY_POLICY=vllm-v0",
                                           "SPILLWAY_REPLICATIONS=20", "SPILLWAY_SEED=10"};
  for (auto& one : parse_environment(variables, table(), others, problems)) assignments.push_back(one);
  const std::vector<std::string> arguments{"seed=100"};
  for (auto& one : parse_arguments(arguments, problems)) assignments.push_back(one);
  const ResolvedConfig config = resolve_config(table(), assignments, problems);
  EXPECT_EQ(config.settings.get<std::int64_t>("seed"), 100);
  EXPECT_EQ(config.settings.get<std::int64_t>("replications"), 20);
  EXPECT_EQ(config.key("replications").origin, Origin::environment);
  EXPECT_EQ(config.key("replications").where, "environment SPILLWAY_REPLICATIONS=20");
  EXPECT_EQ(config.key("until").origin, Origin::file);
  EXPECT_EQ(config.policy->name, "vllm-v0");
  // The variable overrides the policy's default, as an argument does.
  EXPECT_EQ(config.settings.get<std::int64_t>("engine.max_num_batched_tokens"), 7);
  EXPECT_EQ(config.key("engine.chunked_prefill").origin, Origin::policy);
}

}  // namespace
}  // namespace spillway
