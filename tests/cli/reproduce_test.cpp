// `spillway reproduce`: names, verdicts, exit codes, and the test's own experiment.
#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/command.hpp"

namespace spillway::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;

using Texts = std::vector<std::string>;

class Reproduce : public CliTest {
 protected:
  /// Two run sets of 50 requests: `base` at two rates, `again` at the rate that `base` reached.
  static Json document() {
    return Json::parse(R"json({
      "schema_version": 1, "experiment": "toy", "about": "A toy.", "source": "Nobody, nowhere.",
      "constants": {"unit": 1},
      "open": {"limit_ms": {"what": "the limit", "value": 1000, "reason": "round", "others": [0.001, 2000]},
               "batch": {"what": "sequences at once", "value": 8, "reason": "small", "others": [16, 32]}},
      "set": {"workload.trace": "sharegpt", "workload.requests": 50, "engine.max_num_seqs": "=batch"},
      "seeds": 2, "quick": {"set": {"workload.requests": 20}, "seeds": 1},
      "runs": {
        "base": {"set": {"workload.rate": [1, 2], "policy": "vllm"}},
        "again": {"config": "again.json", "set": {"workload.rate": "=max(values(base, 'workload.rate'))"}}},
      "claims": []})json");
  }
  static Json claim(const std::string& id, const Json& more) {
    Json claim{
        {"id", id},        {"system", "toys"},     {"where", "Fig. 1"}, {"kind", "ratio"},     {"claim", "It is so."},
        {"expected", 1.0}, {"accept", {0.9, 1.1}}, {"values", "unit"},  {"fitted_on", nullptr}};
    claim.update(more);
    return claim;
  }
  void write(const std::vector<Json>& claims) {
    Json all = document();
    for (const Json& one : claims) all["claims"].push_back(one);
    fs::create_directories(file("toy"));
    write_text(file("toy/expected.json"), all.dump());
    write_text(file("toy/again.json"), R"({"policy": "vllm"} // a comment)");
  }
  /// The claims of a run, by id.
  std::map<std::string, Json> claims_of(const Output& output) {
    std::map<std::string, Json> claims;
    const Json all = Json::parse(output.out);
    for (const Json& one : all["claims"]) claims[one["id"]] = one;
    return claims;
  }
};

// OPT-13B has 25.7 GB of weights, an A10 24 GB. The published 5 iterations per second move 5 x 6 GB = 30 GB/s.
TEST_F(Reproduce, WhatItsMachineCannotDo_IsInfeasible) {
  Json all = document();
  all["runs"]["beyond"] = Json{{"set", {{"model", "opt-13b"}, {"hardware", "a10-24gb"}, {"policy", "vllm"}}}};
  const Json limits =
      Json::array({{{"what", "bytes"}, {"unit", "GB/s"}, {"needs", "expected * 6"}, {"has", "unit * 24"}}});
  all["claims"] = {
      claim("BIG-1", {{"values", "beyond.mean_ttft_ms"}}),
      claim("LINK-1", {{"values", "unit * 5 * limit_ms / 1000 + 0 * batch"}, {"expected", 5.0}, {"limits", limits}}),
      claim("FINE-1", {{"values", "max(values(base, 'workload.rate')) / 2"}})};
  fs::create_directories(file("toy"));
  write_text(file("toy/expected.json"), all.dump());
  write_text(file("toy/again.json"), R"({"policy": "vllm"})");
  const Output json = spillway({"reproduce", file("toy"), "--quick", "--json"});
  EXPECT_EQ(json.code, 0) << "an infeasible claim is no failure: " << json.err;
  const auto claims = claims_of(json);
  EXPECT_EQ(claims.at("BIG-1")["verdict"], "infeasible");
  EXPECT_THAT(claims.at("BIG-1")["cause"].get<std::string>(),
              AllOf(HasSubstr("beyond"), HasSubstr("opt-13b does not fit a10-24gb"), HasSubstr("weights 25.")));
  EXPECT_EQ(claims.at("LINK-1")["verdict"], "infeasible");
  EXPECT_EQ(claims.at("LINK-1")["reason"], "bytes: needs 30 GB/s, has 24");
  EXPECT_EQ(claims.at("FINE-1")["verdict"], "pass");
  EXPECT_EQ(Json::parse(json.out)["summary"]["infeasible"], 2);
  EXPECT_EQ(Json::parse(json.out)["summary"]["counted"], 1);
  const Output table = spillway({"reproduce", file("toy"), "--quick"});
  EXPECT_THAT(table.out, AllOf(HasSubstr("infeasible bytes: needs 30 GB/s, has 24"),
                               HasSubstr("1 of 1 counted claims pass"), HasSubstr("2 infeasible as printed")));

  all["claims"][1]["limits"][0]["has"] = "unit *";
  all["claims"][1]["limits"][0]["why"] = "so";
  write_text(file("toy/expected.json"), all.dump());
  const Output refused = spillway({"reproduce", file("toy"), "--quick"});
  EXPECT_EQ(refused.code, 3);
  EXPECT_THAT(refused.err, HasSubstr("/claims/1/limits/0"));
}

/// Needs both run sets, the limit and the batch. Equal traffic gives equal results, so exactly 1.
const Json kSame{{"values",
                  "again.output_throughput_tokens_per_s / one(base, {['workload.rate'] = 2})"
                  ".output_throughput_tokens_per_s"},
                 {"rule", "again.mean_ttft_ms < limit_ms"}};

TEST_F(Reproduce, ListAndNames) {
  const Output list = spillway({"reproduce", "--list"});
  EXPECT_EQ(list.code, 0);
  EXPECT_THAT(list.out, AllOf(HasSubstr("ENG-1"), HasSubstr("Experiment   orca: "), HasSubstr("ORCA-2")));
  const Json rows = Json::parse(spillway({"reproduce", "--list", "--json", "orca", "ENG-1"}).out)["claims"];
  EXPECT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[0]["experiment"], "orca");
  EXPECT_EQ(rows[3]["expected"], "the log");
  const Output wrong = spillway({"reproduce", "ENG-2", "orka", "no/where"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.out, IsEmpty());
  EXPECT_THAT(wrong.err, AllOf(HasSubstr("did you mean \"ENG-1\"?"), HasSubstr("did you mean \"orca\"?"),
                               HasSubstr("there is no no/where/expected.json"), HasSubstr("3 errors")));
  EXPECT_EQ(spillway({"reproduce"}).code, 2);
  EXPECT_EQ(spillway({"reproduce", "orca", "--all"}).code, 2);
  EXPECT_THAT(spillway({"list", "experiments"}).out, HasSubstr("claims: ORCA-1, ORCA-2, ORCA-3"));
  EXPECT_THAT(spillway({"explain", "ORCA-1"}).out,
              AllOf(HasSubstr("claim of experiment orca"), HasSubstr("highest_at")));
}

TEST_F(Reproduce, VerdictsOfEveryKind) {
  write({claim("TOY-1", kSame), claim("TOY-2", {{"values", "base[1].mean_ttft_ms"}, {"fitted_on", "this very figure"}}),
         claim("TOY-3", {{"kind", "report"},
                         {"accept", "whatever"},
                         {"values", {{"ttft", "again.mean_ttft_ms"}}},
                         {"expected", {{"ttft", 5}}}})});
  const Output output = spillway({"reproduce", "toy", "--json"});
  ASSERT_EQ(output.code, 0) << output.err;
  auto claims = claims_of(output);
  ASSERT_EQ(claims.size(), 3U);
  const Json& same = claims["TOY-1"];
  for (const char* key : {"id", "kind", "expected", "accept", "simulated", "interval", "verdict", "cause"}) {
    EXPECT_TRUE(same.contains(key)) << key;
  }
  EXPECT_EQ(same["verdict"], "pass");
  EXPECT_EQ(same["simulated"], 1.0) << "the rate of the second run set is that of the first one";
  EXPECT_EQ(same["interval"], (Json{1.0, 1.0})) << "of two seeds, each of which gives 1";
  EXPECT_TRUE(same["cause"].is_null());
  EXPECT_EQ(claims["TOY-2"]["verdict"], "fitted");
  EXPECT_EQ(claims["TOY-2"]["accepted"], false);
  EXPECT_EQ(claims["TOY-3"]["verdict"], "report");
  EXPECT_TRUE(claims["TOY-3"]["simulated"]["ttft"].is_number());
  EXPECT_TRUE(claims["TOY-3"]["interval"]["ttft"].is_array());
  EXPECT_EQ(Json::parse(output.out)["summary"], (Json{{"counted", 1},
                                                      {"passed", 1},
                                                      {"failed", 0},
                                                      {"fitted", 1},
                                                      {"report", 1},
                                                      {"infeasible", 0},
                                                      {"skipped", 0}}));
  EXPECT_THAT(output.err, HasSubstr("run set base: 2 points"));
  EXPECT_EQ(spillway({"reproduce", "./toy", "--json", "-j", "2", "--progress", "off"}).out, output.out)
      << "the same bytes for any number of threads";
}

TEST_F(Reproduce, WhatIsLeftOpenIsShownAtTwoOtherValues) {
  Json column = kSame;
  column["columns"] = {{{"name", "twice"}, {"set", {{"unit", 2}}}}};
  column["values"] = "unit * again.mean_ttft_ms / again.mean_ttft_ms";
  write({claim("TOY-1", column)});
  const Json cheap = claims_of(spillway({"reproduce", "toy", "--json"}))["TOY-1"];
  ASSERT_EQ(cheap["open"].size(), 2U);
  // Only the rule reads the limit, so its other values need no runs.
  EXPECT_EQ(cheap["open"][0]["name"], "limit_ms");
  EXPECT_EQ(cheap["open"][0]["others"][0]["value"], 0.001);
  EXPECT_EQ(cheap["open"][0]["others"][0]["accepted"], false);
  EXPECT_EQ(cheap["open"][0]["others"][1]["accepted"], true);
  EXPECT_TRUE(cheap["open"][1]["others"][0]["accepted"].is_null());
  EXPECT_EQ(cheap["open"][1]["others"][0]["reason"], "not run (needs --full)");
  EXPECT_EQ(cheap["columns"][0]["simulated"], 2.0);
  const Output full = spillway({"reproduce", "toy", "--json", "--full"});
  ASSERT_EQ(full.code, 0) << full.err;
  const Json run = claims_of(full)["TOY-1"];
  EXPECT_EQ(run["open"][1]["others"][0]["accepted"], true);
  EXPECT_EQ(run["simulated"], cheap["simulated"]) << "other values decide nothing";
  const Output table = spillway({"reproduce", "toy"});
  EXPECT_THAT(table.out, AllOf(HasSubstr("limit_ms at 0.001: 1, not accepted; at 2000: 1, accepted"),
                               HasSubstr("Left open    batch = 8: sequences at once. small"), HasSubstr("twice: 2")));
}

TEST_F(Reproduce, FilesBesideTheExperimentAreInItsFolder) {
  Json all = document();
  all["runs"]["again"]["set"]["workload.trace"] = "=folder .. '/lengths.csv'";
  all["runs"]["again"]["set"]["workload.requests"] = 3;
  all["claims"] = {
      claim("TOY-1", {{"values", "again.output_tokens + limit_ms - limit_ms"}, {"expected", 6}, {"accept", {6, 6}}})};
  write({});
  write_text(file("toy/expected.json"), all.dump());
  write_text(file("toy/lengths.csv"), "input_tokens,output_tokens\n10,1\n20,2\n30,3\n");
  const Output output = spillway({"reproduce", "toy", "--json"});
  EXPECT_EQ(output.code, 0) << output.err;
  EXPECT_EQ(claims_of(output)["TOY-1"]["simulated"], 6.0) << output.out;
}

// The metrics of an element of `instances` are NAME.METRIC. Three requests have 1 + 2 + 3 output tokens, two have 1
// + 2.
TEST_F(Reproduce, ARunSetMayHaveInstances) {
  Json all = document();
  const auto element = [](const char* name, const char* gpus, int requests) {
    return Json{{"name", name},
                {"gpus", gpus},
                {"model", "=small"},
                {"workload", {{"trace", "=folder .. '/lengths.csv'"}, {"requests", requests}, {"rate", 1}}}};
  };
  all["constants"]["small"] = "llama-3.1-8b";
  all["runs"]["pair"] = {{"set",
                          {{"hardware", "hgx-h100-8"},
                           {"workload.trace", nullptr},
                           {"workload.requests", nullptr},
                           {"instances", {element("long", "0", 3), element("short", "1", 2)}}}}};
  const char* const both = "10 * pair['long.output_tokens'] + pair['short.output_tokens'] + 0 * limit_ms";
  all["claims"] = {claim("TOY-1", {{"values", both}, {"expected", 63}, {"accept", {63, 63}}})};
  write({});
  write_text(file("toy/expected.json"), all.dump());
  write_text(file("toy/lengths.csv"), "input_tokens,output_tokens\n10,1\n20,2\n30,3\n");
  const Output output = spillway({"reproduce", "toy", "--json"});
  EXPECT_EQ(output.code, 0) << output.err;
  EXPECT_EQ(claims_of(output)["TOY-1"]["simulated"], 63.0) << output.out;
  all["runs"]["pair"]["set"]["instances"][1]["model"] = "=small ..";
  write_text(file("toy/expected.json"), all.dump());
  const Output broken = spillway({"reproduce", "./toy"});
  EXPECT_EQ(broken.code, 3);
  EXPECT_THAT(broken.err, HasSubstr("(/runs/pair/set/instances)"));
  all["runs"]["pair"]["set"]["instances"] = "two";
  write_text(file("toy/expected.json"), all.dump());
  EXPECT_THAT(spillway({"reproduce", "./toy"}).err, HasSubstr("must be a list of objects"));
}

TEST_F(Reproduce, QuickRunsSayThatTheyAre) {
  write({claim("TOY-1", kSame)});
  const Output table = spillway({"reproduce", "toy", "--quick"});
  ASSERT_EQ(table.code, 0) << table.err;
  EXPECT_THAT(table.out, AllOf(ContainsRegex("TOY-1 +1 +1 +- +0.9 to 1.10  pass\n"), HasSubstr("\nQuick "),
                               HasSubstr("1 of 1 counted claims pass; 0 fitted, 0 report, 0 skipped\n")))
      << "one seed tells no interval";
}

TEST_F(Reproduce, AClaimThatFailsIsExit5) {
  write({claim("TOY-1", {{"values", "2 * unit"}, {"cause", "it is twice"}}),
         claim("TOY-2", {{"values", "base[1].prefix_cache_hit_fraction"}}), claim("TOY-3", kSame)});
  const Output output = spillway({"reproduce", "toy", "--json"});
  EXPECT_EQ(output.code, 5) << output.err;
  auto claims = claims_of(output);
  EXPECT_EQ(claims["TOY-1"]["verdict"], "fail");
  EXPECT_EQ(claims["TOY-1"]["cause"], "it is twice");
  EXPECT_EQ(claims["TOY-1"]["reason"], "the value is 2, not within 0.9 to 1.10");
  EXPECT_EQ(claims["TOY-2"]["verdict"], "fail") << "without a prefix cache there is no hit rate, which is not one of 0";
  EXPECT_TRUE(claims["TOY-2"]["simulated"].is_null());
  EXPECT_THAT(claims["TOY-2"]["cause"], HasSubstr("prefix_cache_hit_fraction has no value at base at workload.rate=1"));
}

TEST_F(Reproduce, WhatIsNotThereIsSkipped) {
  const Output log = spillway({"reproduce", "ENG-1"});  // in a folder without ../shared
  EXPECT_EQ(log.code, 0) << log.err;
  EXPECT_THAT(log.out, AllOf(HasSubstr("skipped"), HasSubstr("there is no ../shared/data/engine-logs/"),
                             HasSubstr("0 of 0 counted claims pass; 0 fitted, 0 report, 1 skipped")));
  Json all = document();
  all["runs"]["base"]["set"]["policy"] = "tomorrow";
  all["claims"] = {claim("TOY-1", kSame)};
  fs::create_directories(file("toy"));
  write_text(file("toy/expected.json"), all.dump());
  const Output policy = spillway({"reproduce", "toy", "--json"});
  ASSERT_EQ(policy.code, 0) << policy.err;
  EXPECT_EQ(claims_of(policy)["TOY-1"]["cause"], "policy tomorrow is not in this build");
}

TEST_F(Reproduce, WrongExperimentsAreExit3WithEverythingThatIsWrong) {
  const auto refused = [&](const Json& document, const Texts& parts) {
    fs::create_directories(file("toy"));
    write_text(file("toy/expected.json"), document.dump());
    const Output output = spillway({"reproduce", "./toy"});
    EXPECT_EQ(output.code, 3) << output.err;
    EXPECT_THAT(output.out, IsEmpty());
    for (const std::string& part : parts) EXPECT_THAT(output.err, HasSubstr(part));
  };
  Json form = document();
  form["claims"] = {claim("TOY-1", {{"values", "1 +"}, {"accept", "so"}})};
  form["open"]["batch"]["others"] = {1};
  refused(form, {"toy/expected.json (/claims/0/values)", "(/open/batch/others)", "so nothing decides the claim"});
  Json keys = document();
  keys["claims"] = {claim("TOY-1", kSame)};
  keys["runs"]["again"]["set"]["workload.rat"] = 3;
  write({});
  refused(keys, {"unknown key \"workload.rat\"", "toy/expected.json (/runs/again/set/workload.rat)"});
  Json names = document();
  names["claims"] = {claim("TOY-1", {{"values", "base[1].mean_tfft_ms + limit_ms + batch + again.mean_ttft_ms"}})};
  refused(names, {"TOY-1: a point has no \"mean_tfft_ms\"", "did you mean \"mean_ttft_ms\"", "(/claims/0/values)"});
}

}  // namespace
}  // namespace spillway::test
