// Everything that a user can name has a description, unit, range and source. The tests run over the tables and
// registries, so they also check every new key, policy, metric and workload.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "sim/api/key_owners.hpp"
#include "sim/cli/environment.hpp"
#include "sim/config/config.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/study/assemble.hpp"
#include "sim/study/parameter_table.hpp"
#include "traces/generators/quantile_table.hpp"

namespace spillway {
namespace {

using testing::HasSubstr;

/// The real table, and the keys of every policy and of all weights.
std::vector<Parameter> all_parameters() {
  std::vector<Parameter> all = parameter_table();
  for (const KeyOwner& owner : key_owners()) {
    all.insert(all.end(), owner.parameters->begin(), owner.parameters->end());
  }
  return all;
}

bool is_number(const Parameter& parameter) {
  return parameter.type == ParameterType::integer || parameter.type == ParameterType::real ||
         parameter.type == ParameterType::duration || parameter.type == ParameterType::bytes;
}

TEST(Descriptions, EveryParameterSaysWhatItIsItsUnitAndItsSource) {
  for (const Parameter& one : all_parameters()) {
    SCOPED_TRACE(one.name);
    EXPECT_GE(one.doc.size(), 10U) << "no description";
    EXPECT_FALSE(one.unit.empty()) << "no unit; - for a name or a pure number";
    // "Spillway" alone is not a reason.
    EXPECT_GE(one.source.size(), 12U) << "no source: a paper, an argument of an engine, or Spillway: why this default";
    EXPECT_NE(one.source.find(' '), std::string::npos) << "the source is not a sentence: " << one.source;
  }
}

TEST(Descriptions, EveryNumberHasARange) {
  for (const Parameter& one : all_parameters()) {
    SCOPED_TRACE(one.name);
    if (one.type == ParameterType::choice) {
      EXPECT_FALSE(one.choices.empty());
    }
    if (!is_number(one)) continue;
    EXPECT_TRUE(std::isfinite(one.minimum)) << "no minimum";
    EXPECT_TRUE(std::isfinite(one.maximum)) << "no maximum";
    EXPECT_LT(one.minimum, one.maximum);
    EXPECT_NE(one.unit, one.type == ParameterType::duration || one.type == ParameterType::bytes ? "-" : "");
    // Limits of integers are doubles: up to 2^53 they are exact. Sums of two times or sizes fit 64 bits.
    const double exact = one.type == ParameterType::integer ? 9007199254740992.0 : 4611686018427387904.0;
    EXPECT_LE(std::abs(one.minimum), exact);
    EXPECT_LE(std::abs(one.maximum), exact);
  }
}

TEST(Descriptions, EveryDefaultIsValidAndInItsCanonicalForm) {
  for (const Parameter& one : all_parameters()) {
    if (one.default_value.empty()) continue;
    std::vector<Problem> problems;
    const auto parsed = parse_value(one, one.default_value, "", problems);
    ASSERT_TRUE(parsed) << one.name << ": " << problems.front().what;
    EXPECT_EQ(parsed->text, one.default_value) << one.name;
    const bool name = one.type == ParameterType::text && !one.choices.empty();
    if (name) {
      EXPECT_THAT(one.choices, testing::Contains(one.default_value)) << one.name;
    }
  }
}

TEST(Descriptions, NoRunHasAKeyTwice) {
  std::vector<const PolicyInfo*> policies = PolicyRegistry::instance().all();
  for (const PolicyInfo* weights : PolicyRegistry::instance().weights()) {
    for (const PolicyInfo* base : PolicyRegistry::instance().all()) {
      if (base->streams.weights || base->cpu_attention) continue;
      policies.push_back(&PolicyRegistry::instance().with_weights(*base, weights->name));
    }
  }
  for (const PolicyInfo* info : policies) {
    std::set<std::string> names;
    for (const Parameter& one : parameter_table()) EXPECT_TRUE(names.insert(one.name).second) << one.name;
    for (const Parameter& one : info->parameters) {
      EXPECT_TRUE(one.name.starts_with("policy.")) << info->name << ": " << one.name;
      EXPECT_TRUE(names.insert(one.name).second) << info->name << ": " << one.name;
    }
  }
}

TEST(Descriptions, TheSchemaSaysUnitAndRange) {
  const auto schema = config_schema(parameter_table());
  for (const Parameter& one : all_parameters()) {
    // Keys of several policies are alternatives of one property, so the text is looked for in all of them.
    const std::string text = schema["properties"][one.name].dump();
    const auto inside_json = [](const std::string& words) {
      const std::string quoted = nlohmann::json(words).dump();
      return quoted.substr(1, quoted.size() - 2);
    };
    EXPECT_THAT(text, HasSubstr(inside_json(describe_form(one)))) << one.name;
    EXPECT_THAT(text, HasSubstr(inside_json(describe_range(one)))) << one.name;
    if (one.type == ParameterType::integer || one.type == ParameterType::real) {
      EXPECT_THAT(text, HasSubstr("\"maximum\":")) << one.name;
      if (one.unit != "-") {
        EXPECT_THAT(text, HasSubstr("(" + one.unit + ")")) << one.name;
      }
    }
  }
}

// What an element of instances may have besides the keys of a run.
TEST(Descriptions, TheSchemaKnowsWhatOnlyElementsHave) {
  const auto properties = config_schema(parameter_table())["properties"]["instances"]["items"]["properties"];
  for (const char* const key : {"name", "gpus", "share", "free_memory", "hbm_share"}) {
    EXPECT_TRUE(properties.contains(key)) << key;
  }
  EXPECT_THAT(properties["free_memory"]["pattern"].dump(), HasSubstr("[kKMGT]?B"));
  EXPECT_EQ(properties["hbm_share"]["maximum"], 1);
}

// SPILLWAY_A_B could be a.b or a_b. No two keys may be that similar, and no key may resemble a variable of another
// purpose.
TEST(Descriptions, NoTwoKeysShareAVariable) {
  std::map<std::string, std::string> keys;
  for (const Parameter& one : all_parameters()) {
    const auto [it, added] = keys.emplace(environment_variable(one.name), one.name);
    EXPECT_TRUE(added || it->second == one.name) << one.name << " and " << it->second << " share " << it->first;
    EXPECT_THAT(it->first, testing::MatchesRegex("SPILLWAY_[A-Z0-9_]+"));
  }
  for (const std::string& other : cli::other_variables()) EXPECT_FALSE(keys.contains(other)) << other;
}

TEST(Descriptions, EveryPolicySaysWhatItIsItsSourceAndItsLimits) {
  for (const PolicyInfo* info : PolicyRegistry::instance().all()) {
    SCOPED_TRACE(info->name);
    EXPECT_THAT(info->name, testing::MatchesRegex("[a-z0-9]+(-[a-z0-9]+)*"));
    EXPECT_GE(info->summary.size(), 20U);
    EXPECT_GE(info->source.size(), 10U);
    EXPECT_GE(info->limits.size(), 20U);
  }
}

TEST(Descriptions, EveryMetricHasAUnitAndADefinition) {
  std::set<std::string> names;
  for (const MetricDefinition& one : metric_definitions()) {
    SCOPED_TRACE(one.name);
    EXPECT_TRUE(names.insert(one.name).second);
    EXPECT_FALSE(one.unit.empty());
    EXPECT_GE(one.definition.size(), 20U);
  }
}

// GPUs, models and engines: Catalog.EmbeddedFiles in catalog_test.cpp, value by value.
TEST(Descriptions, EveryBundledWorkloadNamesItsSource) {
  for (const std::string& name : traces::bundled_names()) {
    const EmbeddedFile* file = traces::bundled_file(name);
    const auto table = traces::QuantileTable::parse(file->content, std::string(file->path));
    EXPECT_EQ(table.name(), name);
    EXPECT_GE(table.summary().size(), 20U) << name;
    EXPECT_GE(table.source().size(), 20U) << name;
  }
}

}  // namespace
}  // namespace spillway
