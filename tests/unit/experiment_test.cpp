// Reading experiments: the contents of a file, all its problems, and the dependencies of its claims.
#include "sim/study/experiment.hpp"

#include <gmock/gmock.h>

#include <algorithm>

#include "sim/core/error.hpp"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;

/// Two run sets, the second at a rate that the first determines, and one claim on both; a log, and a claim on it.
Json document() {
  return Json::parse(R"json({
    "schema_version": 1, "experiment": "toy", "about": "A toy.", "source": "None.",
    "constants": {"gpu": "h100-80gb-sxm"},
    "open": {"limit_ms": {"what": "the limit", "value": 200, "reason": "round", "others": [100, 400]}},
    "set": {"model": "opt-13b", "hardware": "=gpu", "seed": 3},
    "seeds": 5, "quick": {"set": {"workload.requests": 100}, "seeds": 2},
    "runs": {
      "low": {"set": {"workload.rate": "1:4:1", "policy": ["vllm", "orca"]},
              "quick": {"set": {"workload.requests": 50}}},
      "high": {"config": "high.json", "set": {"workload.rate": "=highest_at(low, 'workload.rate', 'y', limit_ms)",
               "seed": 4}, "seeds": 5, "zip": ["seed,model"]},
      "log": {"validate": "data/log", "fit": ["a.csv", "b.csv"], "fit_base": "rtx4090-24gb",
              "fit_model": "llama-3.1-8b", "set": {"workload.trace": "ids.jsonl"}}},
    "claims": [
      {"id": "TOY-1", "system": "toy", "where": "Fig. 1", "kind": "ratio", "claim": "High over low.",
       "expected": 2.0, "accept": [1.8, 2.2], "values": "high.y / low.y",
       "columns": [{"name": "another GPU", "set": {"gpu": "h200-141gb"}}], "fitted_on": null, "cause": ""},
      {"id": "TOY-2", "system": "toy", "where": "Fig. 2", "kind": "shape", "claim": "It rises.",
       "expected": "rises", "accept": "rises within 2%", "values": {"first": "log.a", "last": "log.b"},
       "rule": ["value.last > value.first", "value.first > 0"], "fitted_on": "the log"}]})json");
}

Experiment read(const Json& document) { return parse_experiment(document.dump(), "toy.json"); }

/// "WHAT at WHERE" of every problem.
std::vector<std::string> problems_of_text(const std::string& text) {
  std::vector<std::string> problems;
  try {
    (void)parse_experiment(text, "toy.json");
  } catch (const DataError& error) {
    for (const Problem& one : error.problems()) problems.push_back(one.what + " at " + one.where);
  }
  return problems;
}
std::vector<std::string> problems_of(const Json& document) { return problems_of_text(document.dump()); }

TEST(Experiment, SaysWhatItsFileSays) {
  const Experiment toy = read(document());
  EXPECT_EQ(toy.name, "toy");
  EXPECT_EQ(toy.constants.at("gpu"), Json("h100-80gb-sxm"));
  EXPECT_EQ(toy.constants.at("limit_ms"), Json(200));
  ASSERT_EQ(toy.runs.size(), 3U);
  const RunSet& low = toy.runs[0];
  ASSERT_EQ(low.settings.size(), 5U) << "the common ones, then its own";
  EXPECT_EQ(low.settings[3].key, "workload.rate");
  EXPECT_EQ(low.settings[3].values, (std::vector<Json>{"1:4:1"}));
  EXPECT_EQ(low.settings[4].values, (std::vector<Json>{"vllm", "orca"}));
  EXPECT_EQ(low.settings[4].pointer, "/runs/low/set/policy");
  EXPECT_EQ(low.replications(false), 5);
  EXPECT_EQ(low.replications(true), 2);
  ASSERT_EQ(low.quick_settings.size(), 1U);
  EXPECT_EQ(low.quick_settings[0].values, (std::vector<Json>{50})) << "its own in place of the common one";
  const RunSet& high = toy.runs[1];
  EXPECT_EQ(high.config, "high.json");
  EXPECT_EQ(high.zips, (std::vector<std::string>{"seed,model"}));
  EXPECT_EQ(high.settings[2].values, (std::vector<Json>{4})) << "its own seed stands for the common one";
  EXPECT_EQ(high.quick_settings.at(0).values, (std::vector<Json>{100}));
  EXPECT_EQ(high.replications(true), 2);
  const RunSet& log = toy.runs[2];
  EXPECT_EQ(log.source, RunSet::Source::validation);
  EXPECT_EQ(log.fit, (std::vector<std::string>{"a.csv", "b.csv"}));
  EXPECT_EQ(log.settings.size(), 1U) << "the common settings are of simulations";
  EXPECT_FALSE(toy.claims[0].has_parts());
  EXPECT_TRUE(toy.claims[1].has_parts());
  EXPECT_EQ(toy.claims[1].rules.size(), 2U);
  EXPECT_EQ(toy.claims[1].fitted_on, "the log");
  EXPECT_EQ(toy.claims[0].columns.at(0).constants.at("gpu"), Json("h200-141gb"));
  EXPECT_EQ(toy.place("/claims/0"), "toy.json (/claims/0)");
}

TEST(Experiment, ClaimsDependOnWhatTheirExpressionsName) {
  const Experiment toy = read(document());
  const auto names = [](const std::vector<const RunSet*>& runs) {
    std::vector<std::string> all(runs.size());
    std::transform(runs.begin(), runs.end(), all.begin(), [](const RunSet* run) { return run->name; });
    return all;
  };
  EXPECT_THAT(names(toy.runs_of(toy.claims[0], false)), ElementsAre("low", "high"));
  EXPECT_THAT(names(toy.runs_of(toy.claims[1], false)), ElementsAre("log"));
  ASSERT_EQ(toy.open_of(toy.claims[0], false).size(), 1U) << "through the rate of the second run set";
  EXPECT_EQ(toy.open_of(toy.claims[0], false)[0]->name, "limit_ms");
  EXPECT_TRUE(toy.open_of(toy.claims[1], false).empty());
  Json fixed = document();
  fixed["runs"]["high"]["quick"]["set"]["workload.rate"] = 4;
  const Experiment other = read(fixed);
  EXPECT_EQ(other.open_of(other.claims[0], false).size(), 1U);
  EXPECT_TRUE(other.open_of(other.claims[0], true).empty()) << "a quick run takes no rate from the first run set";
}

TEST(Experiment, EverythingThatIsWrongIsSaidAtOnce) {
  Json bad = document();
  bad["schema_version"] = 2;
  bad["about"] = "";
  bad["extra"] = 1;
  bad["constants"]["max"] = 1;
  bad["constants"]["list"] = {1, 2};
  bad["open"]["limit_ms"]["others"] = {100};
  bad["open"]["unused"] = {{"what", "w"}, {"value", 1}, {"reason", "r"}, {"others", {2, 3}}};
  bad["set"]["seed"] = "=low[1].y";
  bad["runs"]["low"]["seeds"] = 0;
  bad["runs"]["low"]["sets"] = Json::object();
  bad["runs"]["low"]["set"]["policy"] = Json::array();
  bad["runs"]["high"]["set"]["seed"] = "=1 +";
  bad["runs"]["log"]["set"]["hardware"] = {"a", "b"};
  bad["runs"]["gpu"] = Json::object();
  bad["claims"][0]["kind"] = "guess";
  bad["claims"][0]["accept"] = {2.2, 1.8};
  bad["claims"][0]["columns"][0]["set"] = {{"cpu", "fast"}};
  bad["claims"][0].erase("where");
  bad["claims"][1]["id"] = "TOY-1";
  bad["claims"][1]["values"]["first"] = "log.";
  bad["claims"][1]["expected"] = {{"first", 1}, {"end", 2}};
  bad["claims"][1].erase("rule");
  const std::vector<std::string> problems = problems_of(bad);
  for (const char* one :
       {"must be 1 at toy.json (/schema_version)", "must be a text at toy.json (/about)",
        "unknown key \"extra\" at toy.json (/extra)",
        "\"max\" cannot be a name in expressions at toy.json (/constants/max)",
        "must be a number, text, true, false or null at toy.json (/constants/list)",
        "must be two values other than the one chosen at toy.json (/open/limit_ms/others)",
        "no claim depends on it at toy.json (/open/unused)",
        "run set low is not run before this at toy.json (/set/seed)",
        "must be a whole number from 1 to 1000 at toy.json (/runs/low/seeds)",
        "unknown key \"sets\" at toy.json (/runs/low/sets)", "has no values at toy.json (/runs/low/set/policy)",
        "must have one value: a log is one run at toy.json (/runs/log/set/hardware)",
        "the name \"gpu\" is already in use at toy.json (/runs/gpu)", "must be a text at toy.json (/claims/0/where)",
        "must be a band: [low, high] at toy.json (/claims/0/accept)",
        "is not one of the constants at toy.json (/claims/0/columns/0/set/cpu)",
        "TOY-1 is used twice at toy.json (/claims/1/id)",
        "must have the names of the values and no others at toy.json (/claims/1/expected)",
        "has neither a band nor a rule, so nothing decides the claim at toy.json (/claims/1)"}) {
    EXPECT_THAT(problems, testing::Contains(std::string(one)));
  }
  EXPECT_THAT(problems, testing::Contains(HasSubstr("must be one of ratio, absolute")));
  EXPECT_THAT(problems, testing::Contains(HasSubstr("<eof> at toy.json (/runs/high/set/seed)")));
  EXPECT_THAT(problems, testing::Contains(HasSubstr("<eof> at toy.json (/claims/1/values/first)")));
}

TEST(Experiment, ShapesMustFit) {
  Json parts = document();
  parts["claims"][1]["expected"] = 2;
  parts["claims"][1]["accept"] = {1, 3};
  EXPECT_THAT(problems_of(parts),
              ElementsAre("is one number, but the values have names at toy.json (/claims/1/expected)",
                          "is one band, but the values have names at toy.json (/claims/1/accept)"));
  Json unpaired = document();
  unpaired["runs"]["high"]["seeds"] = 3;
  EXPECT_THAT(problems_of(unpaired),
              ElementsAre("compares run sets of 3 and 5 seeds, which cannot be paired at toy.json (/claims/0)"));
  unpaired["runs"]["high"]["seeds"] = 1;
  EXPECT_THAT(problems_of(unpaired), ElementsAre()) << "one seed stands for all";
  EXPECT_THAT(problems_of_text("{"), ElementsAre(HasSubstr("not a JSON document: parse error at line 1")));
  EXPECT_THAT(problems_of_text("[]"), ElementsAre("must be an object at toy.json"));
  EXPECT_THAT(problems_of_text("{}"), testing::Contains("must be a list of claims at toy.json (/claims)"));
}

TEST(Experiment, ExpressionsBeginWithAnEqualsSign) {
  EXPECT_EQ(expression_of("=1 + 1"), "1 + 1");
  EXPECT_EQ(expression_of("1:2:3"), std::nullopt);
  EXPECT_EQ(expression_of(3), std::nullopt);
  EXPECT_THAT(expressions_in(Json::parse(R"([{"a": "=1", "b": {"c": "=2", "d": 3}}, "=4", null, "5"])")),
              ElementsAre("1", "2", "4"));
  EXPECT_THAT(expressions_in("=6"), ElementsAre("6"));
}

}  // namespace
}  // namespace spillway
