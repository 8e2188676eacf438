#include "sim/config/config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "sim/api/key_owners.hpp"
#include "sim/core/printable.hpp"

namespace spillway {
namespace {

using testing::HasSubstr;

std::vector<Parameter> table() {
  Parameter trace{
      .name = "workload.trace", .unit = "-", .default_value = "azure-conv", .doc = "Requests", .source = "-"};
  trace.choices = {"azure-conv", "sharegpt"};
  const Parameter rate{.name = "workload.rate",
                       .type = ParameterType::real,
                       .unit = "requests/s",
                       .default_value = "",
                       .minimum = 0.0,
                       .above_minimum = true,
                       .doc = "Rate",
                       .source = "-"};
  const Parameter length{
      .name = "workload.input_tokens", .unit = "tokens", .default_value = "", .doc = "Lengths", .source = "-"};
  return config_parameters({{"llama-3.1-8b"}, {"h100-80gb-sxm"}, {"none", "vllm-0.23", "vllm-0.6.3"}},
                           {trace, rate, length});
}

ResolvedConfig resolve(const std::string& file, const std::vector<std::string>& arguments = {}) {
  std::vector<Problem> problems;
  std::vector<Assignment> assignments = parse_config(file, "my.json", problems);
  for (const Assignment& assignment : parse_arguments(arguments, problems)) assignments.push_back(assignment);
  return resolve_config(table(), assignments, problems);
}

std::vector<Problem> problems_of(const std::string& file, const std::vector<std::string>& arguments = {}) {
  try {
    static_cast<void>(resolve(file, arguments));
  } catch (const UserError& error) {
    return error.problems();
  }
  return {};
}

const Parameter& parameter(const std::vector<Parameter>& all, const std::string& name) {
  for (const Parameter& one : all) {
    if (one.name == name) return one;
  }
  throw std::out_of_range(name);
}

TEST(Config, TheDefaultsOfTheDesign) {
  const ResolvedConfig config = resolve("{}");
  EXPECT_EQ(config.policy->name, "vllm");
  EXPECT_EQ(config.settings.get<std::string>("model"), "llama-3.1-8b");
  EXPECT_EQ(config.settings.get<std::string>("hardware"), "h100-80gb-sxm");
  EXPECT_DOUBLE_EQ(config.settings.get<double>("engine.gpu_memory_utilization"), 0.9);
  EXPECT_EQ(config.settings.get<std::int64_t>("seed"), 1);
  EXPECT_EQ(config.settings.get<std::int64_t>("replications"), 1);
  for (const char* unset : {"warmup", "until", "engine.request_timeout", "memory.gpu_kv", "slo.ttft_ms"}) {
    EXPECT_FALSE(config.settings.has(unset)) << unset;
  }
}

TEST(Config, FlatAndNestedFormsAreTheSame) {
  const auto flat =
      canonical_config(resolve(R"({"policy": "vllm-v0", "policy.version": "0.6.3", "memory.gpu_kv": "40GB",
                                                 "engine": "none", "engine.max_num_seqs": 8})"));
  const auto nested = canonical_config(resolve(R"({
    // comments are allowed
    "policy": {"name": "vllm-v0", "version": "0.6.3"},
    "memory": {"gpu_kv": "40GB"}, /* and these too */
    "engine": {"name": "none", "max_num_seqs": "8"}
  })"));
  EXPECT_EQ(flat.dump(), nested.dump());
  EXPECT_EQ(flat["memory.gpu_kv"], "40GB");
  EXPECT_EQ(flat["engine.max_num_seqs"], 8);
}

TEST(Config, LaterLayersWinAndKeepTheirOrigin) {
  const ResolvedConfig config = resolve("{\n  \"seed\": 5,\n  \"replications\": 3\n}", {"seed=7"});
  EXPECT_EQ(config.settings.get<std::int64_t>("seed"), 7);
  EXPECT_EQ(config.key("seed").origin, Origin::argument);
  EXPECT_EQ(config.key("seed").where, "argument seed=7");
  EXPECT_EQ(config.key("replications").origin, Origin::file);
  EXPECT_EQ(config.key("replications").where, "my.json:3 (/replications)");
  EXPECT_EQ(config.key("model").origin, Origin::standard);
  EXPECT_EQ(config.place("replications"), "my.json:3 (/replications)");
  EXPECT_EQ(config.place("model"), "model (default)");
  EXPECT_EQ(config.place("x.csv:3"), "x.csv:3");
}

TEST(Config, NullTakesAValueBack) {
  const ResolvedConfig config = resolve(R"({"until": "10s", "seed": 9, "warmup": null})", {"until=null", "seed=null"});
  EXPECT_FALSE(config.settings.has("until"));
  EXPECT_EQ(config.settings.get<std::int64_t>("seed"), 1);
  EXPECT_TRUE(canonical_config(config)["until"].is_null());
}

// vllm-v0 computes whole prompts, vllm chunks them: a default of the policy, between the table's and the user's.
TEST(Config, PoliciesHaveDefaultsOfTheirOwn) {
  const ResolvedConfig v0 = resolve(R"({"policy": "vllm-v0"})");
  EXPECT_FALSE(v0.settings.get<bool>("engine.chunked_prefill"));
  EXPECT_EQ(v0.key("engine.chunked_prefill").origin, Origin::policy);
  EXPECT_EQ(v0.settings.get<std::string>("engine"), "vllm-0.6.3");
  const ResolvedConfig chosen = resolve(R"({"policy": "vllm-v0"})", {"engine.chunked_prefill=true", "engine=none"});
  EXPECT_TRUE(chosen.settings.get<bool>("engine.chunked_prefill"));
  EXPECT_EQ(chosen.settings.get<std::string>("engine"), "none");
}

TEST(Config, PolicyKeysFollowTheChosenPolicy) {
  const auto problems = problems_of(R"({"policy.version": "0.6.3"})");
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].what, "unknown key \"policy.version\"");
  EXPECT_THAT(problems[0].fix, HasSubstr("it is a key of policy=vllm-v0"));
}

TEST(Config, WeightsBringTheirKeys) {
  const ResolvedConfig config =
      resolve(R"({"policy": {"name": "pie", "weights": {"name": "select-n", "interval": 4}}})");
  EXPECT_TRUE(config.policy->streams.kv && config.policy->streams.weights);
  EXPECT_EQ(config.settings.get<std::int64_t>("policy.weights.interval"), 4);
  EXPECT_EQ(canonical_config(config)["policy.weights"], "select-n");
  const ResolvedConfig again = resolve(canonical_config(config).dump());
  EXPECT_EQ(canonical_config(again).dump(), canonical_config(config).dump());
  // The keys of the weights follow policy.weights, which follows those of the policy.
  const auto position = [&](const std::string& name) { return &config.key(name) - config.keys.data(); };
  EXPECT_LT(position("policy.scheduler"), position("policy.weights"));
  EXPECT_EQ(position("policy.weights.interval"), position("policy.weights") + 1);
}

TEST(Config, NoWeightsAreAsIfTheKeyWereAbsent) {
  const auto absent = canonical_config(resolve(R"({"policy": "select-n"})"));
  EXPECT_EQ(canonical_config(resolve(R"({"policy": "select-n", "policy.weights": "none"})")).dump(), absent.dump());
  EXPECT_FALSE(absent.contains("policy.weights"));
}

TEST(Config, WeightsThatCannotBeAreReportedOnce) {
  const auto only = [](const std::vector<std::string>& arguments) {
    const auto problems = problems_of("{}", arguments);
    EXPECT_EQ(problems.size(), 1U);
    return problems.empty() ? Problem{} : problems[0];
  };
  const Problem itself = only({"policy=flexgen", "policy.weights=select-n", "policy.weights.interval=4"});
  EXPECT_THAT(itself.what, HasSubstr("policy flexgen streams the weights itself"));
  EXPECT_EQ(itself.where, "argument policy.weights=select-n");
  EXPECT_THAT(itself.fix, HasSubstr("pie, sarathi"));
  EXPECT_THAT(only({"policy=vllm", "policy.weights=slect-n", "policy.weights.interval=4"}).fix,
              HasSubstr("did you mean \"select-n\"?"));
  EXPECT_THAT(only({"policy=vllm", "policy.weights=select-n", "policy.weights.intervall=4"}).fix,
              HasSubstr("did you mean \"policy.weights.interval\"?"));
  EXPECT_THAT(only({"policy=vllm", "policy.weights.interval=4"}).fix,
              HasSubstr("it is a key of policy.weights=select-n"));
  EXPECT_THAT(only({"policy=vlm", "policy.weights=select-n", "policy.weights.interval=4"}).fix,
              HasSubstr("did you mean \"vllm\"?"));
  const Problem both =
      only({"policy=vllm", "policy.weights=select-n", "policy.weights.interval=2", "policy.weights.slo_margin=0.5"});
  EXPECT_EQ(both.what,
            "a fixed policy.weights.interval follows no SLO, so policy.weights.slo_margin would have no "
            "effect");
  EXPECT_EQ(both.where, "argument policy.weights.slo_margin=0.5");
}

TEST(Config, PolicyChecksNameThePlaceOfTheValue) {
  const auto problems = problems_of("{\"engine\": {\n\"preemption\": \"swap\"}}");
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_THAT(problems[0].what, HasSubstr("cannot swap"));
  EXPECT_EQ(problems[0].where, "my.json:2 (/engine/preemption)");
}

TEST(Config, EveryProblemIsReportedAtOnceWithItsLine) {
  const auto problems = problems_of(
      "{\n"
      "  \"memory\": {\n"
      "    \"kv_dtipe\": \"fp8\",\n"
      "    \"gpu_kv\": 40\n"
      "  },\n"
      "  \"seed\": -1,\n"
      "  \"workload\": {\"trace\": \"sharegtp\"},\n"
      "  \"warmup\": [1]\n"
      "}",
      {"tensor_parallel", "polizy=pie"});
  std::vector<std::string> places;
  places.reserve(problems.size());
  for (const Problem& problem : problems) places.push_back(problem.where);
  EXPECT_THAT(places,
              testing::UnorderedElementsAre("my.json:3 (/memory/kv_dtipe)", "my.json:4 (/memory/gpu_kv)",
                                            "my.json:6 (/seed)", "my.json:7 (/workload/trace)", "my.json:8 (/warmup)",
                                            "argument tensor_parallel", "argument polizy=pie"));
}

TEST(Config, UnknownKeysNameTheNearestAndTheAllowed) {
  const auto problems = problems_of("", {"memory.block_token=16", "max_num_seqs=4", "memory=4"});
  ASSERT_EQ(problems.size(), 4U);  // the empty file is the fourth
  EXPECT_THAT(problems[1].fix, HasSubstr("did you mean \"memory.block_tokens\"?"));
  EXPECT_THAT(problems[1].fix, HasSubstr("allowed: memory.gpu_kv, memory.host_kv, memory.host_cache"));
  EXPECT_THAT(problems[2].fix, HasSubstr("did you mean \"engine.max_num_seqs\"?"));
  EXPECT_THAT(problems[3].fix, HasSubstr("allowed: memory.gpu_kv"));
}

TEST(Config, AKeyMayBeGivenOncePerLayer) {
  const auto problems = problems_of("{\"seed\": 1,\n\"engine.max_num_seqs\": 4, \"engine\": {\n\"max_num_seqs\": 5}}");
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].what, "engine.max_num_seqs is given twice");
  EXPECT_EQ(problems[0].where, "my.json:3 (/engine/max_num_seqs)");
  EXPECT_THAT(problems[0].fix, HasSubstr("my.json:2 (/engine.max_num_seqs)"));
  EXPECT_EQ(problems_of("{}", {"seed=1", "seed=1"}).size(), 1U);
}

TEST(Config, BrokenJsonNamesTheLine) {
  for (const auto& [text, line] : std::vector<std::pair<std::string, std::string>>{
           {"{\n\"seed\": 1,\n", "my.json:3"}, {"{\n\"seed\" 1}", "my.json:2"}, {"{\"seed\": nan}", "my.json:1"}}) {
    const auto problems = problems_of(text);
    ASSERT_FALSE(problems.empty()) << text;
    EXPECT_THAT(problems[0].what, HasSubstr("not valid JSON")) << text;
    EXPECT_EQ(problems[0].where, line) << text;
  }
  EXPECT_THAT(problems_of("[1, 2]").at(0).what, HasSubstr("the file is a list"));
  EXPECT_THAT(problems_of("3").at(0).what, HasSubstr("not an object"));
}

struct Refusal {
  std::string key;
  std::string text;
  std::string why;
};
void PrintTo(const Refusal& refusal, std::ostream* out) {  // NOLINT(readability-identifier-naming): GoogleTest's name
  *out << refusal.key << "=" << refusal.text;
}
class Refused : public testing::TestWithParam<Refusal> {};
TEST_P(Refused, SaysWhyAndWhatToWrite) {
  const auto& [key, text, why] = GetParam();
  std::vector<Problem> problems;
  EXPECT_FALSE(parse_value(parameter(table(), key), text, "here", problems));
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_THAT(problems[0].what, HasSubstr(key));
  EXPECT_THAT(problems[0].what, HasSubstr(why));
  EXPECT_EQ(problems[0].where, "here");
  EXPECT_THAT(problems[0].fix, HasSubstr(key + " takes "));
}
INSTANTIATE_TEST_SUITE_P(
    Values, Refused,
    testing::Values(
        Refusal{"memory.gpu_kv", "40", "has no unit"},
        Refusal{"memory.gpu_kv", "40s", "has the unit \"s\", which is not one of B, kB"},
        Refusal{"memory.gpu_kv", "40gb", "has the unit \"gb\""}, Refusal{"memory.gpu_kv", "-4GB", "is negative"},
        Refusal{"memory.gpu_kv", "nanGB", "is not a finite number"}, Refusal{"memory.gpu_kv", "9e30GB", "is too large"},
        Refusal{"memory.gpu_kv", "1001TB", "is out of range"},
        Refusal{"memory.gpu_kv", "much", "is not a number with a unit"}, Refusal{"memory.gpu_kv", "", "is empty"},
        Refusal{"until", "0s", "out of range"}, Refusal{"until", "1001d", "out of range"},
        Refusal{"until", "10GB", "has the unit \"GB\""}, Refusal{"workload.rate", "nan", "is not a finite number"},
        Refusal{"workload.rate", "inf", "is not a finite number"}, Refusal{"workload.rate", "0", "out of range"},
        Refusal{"workload.rate", "-1", "out of range"},
        Refusal{"workload.rate", "4req/s", "has \"req/s\" after the number"},
        Refusal{"engine.max_num_seqs", "2.5", "is not a whole number"},
        Refusal{"engine.max_num_seqs", "0", "out of range"}, Refusal{"engine.max_num_seqs", "1000001", "out of range"},
        Refusal{"engine.max_num_seqs", "99999999999999999999", "is too large"},
        Refusal{"engine.max_num_seqs", "9223372036854775808", "is too large"},
        Refusal{"engine.max_num_seqs", "1e400", "is too large"},
        Refusal{"engine.max_num_seqs", "-1e40", "is too small"}, Refusal{"engine.max_num_seqs", "1e7", "out of range"},
        Refusal{"engine.max_num_seqs", "16.00000000000000000001", "is not a whole number"},
        Refusal{"engine.max_num_seqs", "1e-1", "is not a whole number"},
        Refusal{"engine.max_num_seqs", "1e", "has \"e\" after the number"},
        Refusal{"engine.max_num_seqs", ".", "is not a whole number"},
        Refusal{"engine.max_num_seqs", "1e+-1", "has \"e+-1\" after the number"},
        Refusal{"engine.max_num_seqs", "1.2.3", "has \".3\" after the number"},
        Refusal{"engine.gpu_memory_utilization", "1.01", "out of range"},
        Refusal{"engine.chunked_prefill", "yes", "is neither true nor false"},
        Refusal{"engine.preemption", "swop", "is not known"}, Refusal{"warmup", "110%", "is not a share"},
        Refusal{"warmup", "-5req", "is not a share"}, Refusal{"warmup", "2.5req", "is not a share"}));

TEST(Config, WholeNumbersMayHaveAPointOrAnExponent) {
  const auto all = table();
  std::vector<Problem> problems;
  for (const auto& [text, number] :
       std::vector<std::pair<std::string, std::int64_t>>{{"16.0", 16},
                                                         {"1e2", 100},
                                                         {"1E+2", 100},
                                                         {"1.6e1", 16},
                                                         {"1600e-2", 16},
                                                         {"0.0", 0},
                                                         {"-0.0", 0},
                                                         {"0e99", 0},
                                                         {"007", 7},
                                                         {"9007199254740991.0", 9'007'199'254'740'991}}) {
    const auto parsed = parse_value(parameter(all, "seed"), text, "", problems);
    ASSERT_TRUE(parsed) << text << ": " << problems.at(0).what;
    EXPECT_EQ(std::get<std::int64_t>(parsed->value), number) << text;
    EXPECT_EQ(parsed->text, std::to_string(number));
  }
  const ResolvedConfig config = resolve(R"({"seed": 2.0, "memory.block_tokens": 16.0})", {"engine.max_num_seqs=1e2"});
  EXPECT_EQ(config.settings.get<std::int64_t>("seed"), 2);
  EXPECT_EQ(config.settings.get<std::int64_t>("memory.block_tokens"), 16);
  EXPECT_EQ(config.settings.get<std::int64_t>("engine.max_num_seqs"), 100);
  // 2^53 + 1 is no double; it is not rounded into the range.
  EXPECT_FALSE(parse_value(parameter(all, "seed"), "9.007199254740994e15", "", problems));
}

// 2^53 + 1 is no double: compared as doubles, it would equal the maximum of seed.
TEST(Config, AWholeNumberIsComparedWithItsMaximumExactly) {
  EXPECT_TRUE(problems_of("{}", {"seed=9007199254740992"}).empty());
  const auto problems = problems_of("{}", {"seed=9007199254740993"});
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].what, "seed: 9007199254740993 is out of range");
  EXPECT_THAT(problems[0].fix, HasSubstr("at most 9007199254740992"));
}

TEST(Config, AWarmUpLeavesRequests) {
  EXPECT_TRUE(problems_of("{}", {"warmup=99.9%"}).empty());
  EXPECT_EQ(problems_of("{}", {"warmup=100%"}).size(), 1U);
}

TEST(Config, KvMemoryTakesBlocks) {
  for (const char* text : {"2588 blocks", "2588blocks", " 2588.0  blocks "}) {
    const ResolvedConfig config = resolve("{}", {std::string("memory.gpu_kv=") + text, "memory.host_kv=1 block"});
    EXPECT_EQ(config.settings.get<Blocks>("memory.gpu_kv"), Blocks(2588)) << text;
    EXPECT_EQ(canonical_config(config)["memory.gpu_kv"], "2588 blocks");
    EXPECT_EQ(canonical_config(config)["memory.host_kv"], "1 blocks");
    const ResolvedConfig again = resolve(canonical_config(config).dump());
    EXPECT_EQ(canonical_config(again).dump(), canonical_config(config).dump());
  }
  const ResolvedConfig most = resolve("{}", {"memory.gpu_kv=1000000000 blocks"});
  EXPECT_EQ(most.settings.get<Blocks>("memory.gpu_kv"), Blocks(1'000'000'000));
  const auto refused = [](const std::string& assignment) {
    const auto problems = problems_of("{}", {assignment});
    return problems.size() == 1 ? problems[0].what : "";
  };
  EXPECT_THAT(refused("memory.gpu_kv=2.5 blocks"), HasSubstr("is not a whole number of blocks"));
  EXPECT_THAT(refused("memory.gpu_kv=-1 blocks"), HasSubstr("is negative"));
  EXPECT_THAT(refused("memory.gpu_kv=1000000001 blocks"), HasSubstr("is more than 1000000000 blocks"));
  EXPECT_THAT(refused("memory.gpu_kv=1e10 blocks"), HasSubstr("is more than 1000000000 blocks"));
  EXPECT_THAT(refused("memory.gpu_kv=9 bloks"), HasSubstr("TiB, blocks"));
  EXPECT_THAT(refused("memory.host_cache=9 blocks"), HasSubstr("the unit \"blocks\""));
}

TEST(Config, SeveralValuesAreForASweep) {
  for (const char* one : {"workload.rate=1,2", "workload.rate=1:8:x2", "seed=1:9:2", "memory.gpu_kv=1GB,2 blocks",
                          "policy=vllm,sarathi", "workload.trace=azure-conv,sharegpt"}) {
    const auto problems = problems_of("{}", {one});
    ASSERT_EQ(problems.size(), 1U) << one;
    EXPECT_THAT(problems[0].what, HasSubstr("is more than one value")) << one;
    EXPECT_THAT(problems[0].fix, HasSubstr("spillway sweep takes several")) << one;
  }
  for (const char* one : {"workload.rate=1,x", "workload.rate=1:2", "seed=1:9:x"}) {
    EXPECT_THAT(problems_of("{}", {one}).at(0).what, testing::Not(HasSubstr("more than one value"))) << one;
  }
}

TEST(Config, AnEmptyObjectIsAGroupOrAMistake) {
  EXPECT_TRUE(problems_of(R"({"memory": {}, "policy": {}, "engine": {}})").empty());
  EXPECT_EQ(resolve(R"({"policy": {}})", {"policy=vllm-v0"}).policy->name, "vllm-v0");
  const auto unknown = problems_of("{\n\"memry\": {}}");
  ASSERT_EQ(unknown.size(), 1U);
  EXPECT_EQ(unknown[0].what, "unknown key \"memry\"");
  EXPECT_EQ(unknown[0].where, "my.json:2 (/memry)");
  EXPECT_EQ(problems_of(R"({"memory": {"foo": {}}})").at(0).what, "unknown key \"memory.foo\"");
  EXPECT_EQ(problems_of(R"({"seed": {}})").at(0).what, "seed is an object; one value is needed");
}

// 120 bytes are quoted, then "...": 60 characters of two bytes, or 119 ASCII characters in front of a longer one.
TEST(Config, EchoedInputIsCut) {
  EXPECT_EQ(brief(std::string(120, 'x')), std::string(120, 'x'));
  EXPECT_EQ(brief(std::string(121, 'x')), std::string(120, 'x') + "...");
  EXPECT_EQ(brief(std::string(119, 'x') + "\u00e4\u00e4"), std::string(119, 'x') + "...");
  const std::string megabyte(1'000'000, 'x');
  for (const std::string& argument :
       {megabyte, "seed=" + megabyte, megabyte + "=1", "model=" + megabyte, "memory.gpu_kv=1" + megabyte,
        "until=1" + megabyte, "workload.rate=1" + megabyte}) {
    for (const Problem& problem : problems_of("{}", {argument})) {
      EXPECT_LT((problem.what + problem.where + problem.fix).size(), 2000U) << argument.substr(0, 20);
    }
  }
}

TEST(Config, SpansKeepTheirKind) {
  const auto all = table();
  std::vector<Problem> problems;
  const auto span = [&](const std::string& text) {
    return std::get<Span>(parse_value(parameter(all, "warmup"), text, "", problems)->value);
  };
  EXPECT_EQ(span("10%"), (Span{.kind = Span::Kind::share, .share = 0.1}));
  EXPECT_EQ(span("500req"), (Span{.kind = Span::Kind::requests, .requests = 500}));
  EXPECT_EQ(span("60s"), (Span{.kind = Span::Kind::time, .time = Duration(60'000'000'000)}));
}

TEST(Config, TheCanonicalFormResolvesToItself) {
  const ResolvedConfig config =
      resolve(R"({"memory": {"gpu_kv": "40000 MB", "host_kv": "1.5GiB"}, "warmup": "7.1 %", "until": "90s",
                  "slo.ttft_ms": 0.1, "workload": {"rate": 3.3333333333333335}, "engine.request_timeout": "1500us"})");
  const auto canonical = canonical_config(config);
  EXPECT_EQ(canonical["memory.gpu_kv"], "40GB");
  EXPECT_EQ(canonical["memory.host_kv"], "1536MiB");
  EXPECT_EQ(canonical["warmup"], "7.1%");
  EXPECT_EQ(canonical["slo.ttft_ms"], 0.1);
  EXPECT_EQ(canonical["engine.request_timeout"], "1500us");
  const auto named = [](const ResolvedKey& key) { return !key.parameter.quiet_default; };
  EXPECT_EQ(canonical.size(), static_cast<std::size_t>(std::ranges::count_if(config.keys, named)))
      << "all but policy.weights=none, replicas=1 and the like";
  const ResolvedConfig again = resolve(canonical.dump(2));
  EXPECT_EQ(canonical_config(again).dump(2), canonical.dump(2));
  for (const auto& [key, value] : config.settings.all()) EXPECT_EQ(again.settings.all().at(key), value) << key;
}

TEST(Config, AMissingFileIsADataError) {
  try {
    static_cast<void>(resolve("{}", {"workload.trace=no/such.csv"}));
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.problems().at(0).what, HasSubstr("no/such.csv"));
  }
  EXPECT_THROW(static_cast<void>(resolve("{}", {"workload.trace=no/such.csv", "seed=x"})), ConfigError);
}

TEST(Config, TheSchemaHasEveryKeyOfEveryPolicyInBothForms) {
  const auto schema = config_schema(table());
  EXPECT_EQ(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
  std::vector<Parameter> all = table();
  for (const KeyOwner& owner : key_owners()) {
    all.insert(all.end(), owner.parameters->begin(), owner.parameters->end());
  }
  for (const Parameter& one : all) {
    EXPECT_TRUE(schema["properties"].contains(one.name)) << one.name;
    const auto dot = one.name.find('.');
    if (dot == std::string::npos) continue;
    EXPECT_THAT(schema["properties"][one.name.substr(0, dot)].dump(), HasSubstr(one.name.substr(dot + 1)));
  }
  EXPECT_EQ(schema["properties"]["seed"]["minimum"], 0.0);
  const auto& utilization = schema["properties"]["engine.gpu_memory_utilization"];
  EXPECT_EQ(utilization["exclusiveMinimum"], 0.0);
  EXPECT_FALSE(utilization.contains("minimum"));
  EXPECT_EQ(schema["properties"]["until"]["type"], (nlohmann::ordered_json{"string", "null"}));
  // Values that a file may write with another type than text.
  using Json = nlohmann::ordered_json;
  EXPECT_EQ(schema["properties"]["engine.prefix_caching"]["enum"],
            (Json{"auto", "true", "false", true, false, nullptr}));
  EXPECT_EQ(schema["properties"]["engine.preemption"]["enum"], (Json{"recompute", "swap", nullptr}));
  EXPECT_EQ(schema["properties"]["workload.input_tokens"]["type"], (Json{"string", "number", "null"}));
  EXPECT_EQ(schema["properties"]["model"]["type"], (Json{"string", "null"}));
  // A group with its own value is a text or an object.
  EXPECT_EQ(schema["properties"]["engine"]["anyOf"].size(), 2U);
  EXPECT_EQ(schema["properties"]["memory"]["additionalProperties"], false);
  // A group within a group, too.
  const auto& policy = schema["properties"]["policy"]["anyOf"][1]["properties"];
  EXPECT_TRUE(policy.contains("weights.interval"));
  ASSERT_EQ(policy["weights"]["anyOf"].size(), 2U);
  EXPECT_EQ(policy["weights"]["anyOf"][1]["properties"]["interval"], schema["properties"]["policy.weights.interval"]);
  EXPECT_EQ(policy["weights"]["anyOf"][1]["properties"]["name"], schema["properties"]["policy.weights"]);
}

}  // namespace
}  // namespace spillway
