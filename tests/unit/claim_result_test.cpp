// Verdicts on claims: bands, rules, missing values, intervals, and counts.
#include "sim/study/claim_result.hpp"

#include <gmock/gmock.h>

#include "sim/core/error.hpp"
#include "sim/report/claims.hpp"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

Claim claim(const std::vector<std::pair<std::string, std::string>>& values, const Json& expected, const Json& accept,
            const std::vector<std::string>& rules = {}) {
  Claim claim;
  claim.id = "TOY-1";
  claim.kind = "ratio";
  claim.values = values;
  claim.expected = expected;
  claim.accept = accept;
  claim.rules = rules;
  claim.pointer = "/claims/0";
  return claim;
}

/// A run set `run` with one point: y = 2, and `latency` without a value.
ClaimFigures judged(const Claim& claim) {
  Experiment experiment;
  experiment.file = "toy.json";
  ClaimScript script;
  script.set_points("run", {{"run", {{"y", 2.0}, {"latency", nullptr}}, {}}});
  return judge_claim(experiment, claim, script);
}

TEST(JudgeClaim, Bands) {
  const ClaimFigures inside = judged(claim({{"", "run.y"}}, 1.9, {1.8, 2.0}));
  EXPECT_EQ(inside.simulated, Json(2.0));
  EXPECT_EQ(inside.accepted, true) << "the ends of a band belong to it";
  EXPECT_EQ(inside.reason, "");
  const ClaimFigures outside = judged(claim({{"", "run.y"}}, 1.9, {1.8, 1.99}));
  EXPECT_EQ(outside.accepted, false);
  EXPECT_EQ(outside.reason, "the value is 2, not within 1.80 to 1.99");
}

TEST(JudgeClaim, EveryPartHasItsBand) {
  const Json expected{{"best", 1.9}, {"at_12GB", 1.0}};
  const Json accept{{"best", {1.583, 2.28}}, {"at_12GB", {0.97, 1.1}}};
  const ClaimFigures figures = judged(claim({{"best", "run.y"}, {"at_12GB", "run.y / 2 + 0.2"}}, expected, accept));
  EXPECT_EQ(figures.simulated, (Json{{"best", 2.0}, {"at_12GB", 1.2}}));
  EXPECT_EQ(figures.accepted, false);
  EXPECT_EQ(figures.reason, "at_12GB is 1.20, not within 0.97 to 1.10");
}

/// The link moves 24 GB/s. At a published rate of 2 iterations per second, 12 GB each are as much as it can move.
ClaimFigures limited(const std::string& needs, const std::string& has = "24") {
  Claim one = claim({{"", "run.y"}}, 2.0, {1.0, 3.0});
  one.limits = {{"bytes over the link", "GB/s", needs, has}};
  return judged(one);
}

TEST(JudgeClaim, WhatNeedsMoreThanItsMachineHas_IsInfeasible) {
  const ClaimFigures beyond = limited("expected * 12.5");
  EXPECT_TRUE(beyond.infeasible);
  EXPECT_EQ(beyond.reason, "bytes over the link: needs 25 GB/s, has 24");
  EXPECT_EQ(beyond.simulated, Json(2.0)) << "what is simulated is shown";
  EXPECT_EQ(beyond.accepted, std::nullopt);
  Claim one = claim({{"", "run.y"}}, 2.0, {1.0, 3.0});
  EXPECT_EQ(verdict_of(one, beyond), ClaimVerdict::infeasible);
  one.fitted_on = "a figure";
  EXPECT_EQ(verdict_of(one, beyond), ClaimVerdict::infeasible);
  EXPECT_EQ(verdict_name(ClaimVerdict::infeasible), "infeasible");

  const ClaimFigures edge = limited("expected * 12");
  EXPECT_FALSE(edge.infeasible) << "as much as there is, is enough";
  EXPECT_EQ(edge.accepted, true);
  EXPECT_FALSE(limited("24", "run.y * 12").infeasible) << "24 are there";
  EXPECT_TRUE(limited("24.1", "run.y * 12").infeasible);
}

TEST(JudgeClaim, LimitsWithoutAValueDecideNothing) {
  const ClaimFigures none = limited("run.latency");
  EXPECT_FALSE(none.infeasible);
  EXPECT_EQ(none.accepted, false);
  EXPECT_THAT(none.reason, HasSubstr("a limit has no value"));
  try {
    limited("'much'");
    FAIL();
  } catch (const DataError& error) {
    EXPECT_EQ(error.problems().front().where, "toy.json (/claims/0/limits/0/needs)");
    EXPECT_THAT(error.problems().front().what, HasSubstr("where a number is needed"));
  }
}

TEST(JudgeClaim, RulesSeeTheValuesAndTheRuns) {
  const Json words = "in words";
  EXPECT_EQ(judged(claim({{"", "run.y"}}, words, words, {"value == run.y", "value > 1"})).accepted, true);
  const ClaimFigures fails = judged(claim({{"a", "run.y"}}, words, words, {"value.a > 1", "value.a > 3"}));
  EXPECT_EQ(fails.accepted, false);
  EXPECT_EQ(fails.reason, "the rule is false: value.a > 3");
  // A band and a rule must both hold.
  EXPECT_EQ(judged(claim({{"", "run.y"}}, 2, {1, 3}, {"value > 2"})).accepted, false);
}

TEST(JudgeClaim, WhatHasNoValueIsNotAccepted) {
  const ClaimFigures figures = judged(claim({{"", "run.latency"}}, 1, {0, 2}));
  EXPECT_TRUE(figures.simulated.is_null()) << "and not 0, which the band would take";
  EXPECT_EQ(figures.accepted, false);
  EXPECT_EQ(figures.reason, "no value: latency has no value at run");
  EXPECT_EQ(verdict_of(claim({{"", "x"}}, 1, {0, 2}), figures), ClaimVerdict::fail);
  const ClaimFigures part = judged(claim({{"a", "run.y"}, {"b", "1 / 0"}}, "words", "words", {"value.b < 1"}));
  EXPECT_EQ(part.simulated, (Json{{"a", 2.0}, {"b", nullptr}}));
  EXPECT_EQ(part.reason, "b has no value: the value is infinite") << "rules wait until there is something to judge";
  const ClaimFigures rule = judged(claim({{"", "run.y"}}, "words", "words", {"run.latency < 1"}));
  EXPECT_EQ(rule.accepted, false);
  EXPECT_EQ(rule.reason, "latency has no value at run");
}

TEST(JudgeClaim, ExpressionsThatCannotBeEvaluatedAreErrors) {
  const auto problem = [](const Claim& one) -> Problem {
    try {
      (void)judged(one);
    } catch (const DataError& error) {
      return error.problems().front();
    }
    return {};
  };
  const Problem unknown = problem(claim({{"best", "run.z"}}, {{"best", 1}}, {{"best", {1, 2}}}));
  EXPECT_THAT(unknown.what, HasSubstr("TOY-1: a point has no \"z\""));
  EXPECT_EQ(unknown.where, "toy.json (/claims/0/values/best)");
  EXPECT_THAT(problem(claim({{"", "'text'"}}, 1, {1, 2})).what, HasSubstr("gives \"text\" where a number is needed"));
  EXPECT_EQ(problem(claim({{"", "1"}}, "w", "w", {"value"})).where, "toy.json (/claims/0/rule)");
}

TEST(JudgeClaim, Verdicts) {
  Claim one = claim({{"", "run.y"}}, 2, {1, 3});
  EXPECT_EQ(verdict_of(one, judged(one)), ClaimVerdict::pass);
  one.fitted_on = "the very figure";
  EXPECT_EQ(verdict_of(one, judged(one)), ClaimVerdict::fitted);
  one.fitted_on.reset();
  one.kind = "report";
  EXPECT_EQ(verdict_of(one, judged(one)), ClaimVerdict::report);
  one.accept = "nothing decides it";
  EXPECT_EQ(judged(one).accepted, std::nullopt);
  EXPECT_EQ(verdict_of(one, judged(one)), ClaimVerdict::report);
  EXPECT_EQ(verdict_of(one, {nullptr, nullptr, std::nullopt, "no data"}), ClaimVerdict::skipped);
}

TEST(Interval, OfEveryPart) {
  // 1, 2, 3: mean 2, standard deviation 1, t(0.975, 2) = 4.303: half-width 4.303 / sqrt(3) = 2.484.
  const Json interval = interval_of({1, 2.0, 3});
  ASSERT_EQ(interval.size(), 2U);
  EXPECT_NEAR(interval[0].get<double>(), 2.0 - 2.484, 1e-3);
  EXPECT_NEAR(interval[1].get<double>(), 2.0 + 2.484, 1e-3);
  const Json parts = interval_of(
      {{{"a", 1}, {"b", "x"}, {"c", 1}}, {{"a", 2}, {"b", "x"}, {"c", nullptr}}, {{"a", 3}, {"b", "x"}, {"c", 3}}});
  EXPECT_EQ(parts["a"], interval);
  EXPECT_TRUE(parts["b"].is_null() && parts["c"].is_null());
  EXPECT_TRUE(interval_of({1}).is_null()) << "one seed tells no interval";
  EXPECT_TRUE(interval_of({}).is_null());
}

TEST(ClaimsReport, CountsAndShapes) {
  const Claim passes = claim({{"", "run.y"}}, 2, {1, 3});
  Claim fails = claim({{"", "run.y"}}, 2, {3, 4});
  fails.id = "TOY-2";
  fails.cause = "a toy";
  Claim fitted = fails;
  fitted.id = "TOY-3";
  fitted.fitted_on = "the figure";
  Experiment toy;
  toy.name = "toy";
  const std::vector<ExperimentResult> results{
      {toy,
       {{.claim = passes, .figures = judged(passes)},
        {.claim = fails, .figures = judged(fails)},
        {.claim = fitted, .figures = judged(fitted)},
        {.claim = passes, .figures = {nullptr, nullptr, std::nullopt, "no data"}}}}};
  const Json json = Json::parse(to_claims_json(results, false));
  EXPECT_EQ(json["summary"], (Json{{"counted", 2},
                                   {"passed", 1},
                                   {"failed", 1},
                                   {"fitted", 1},
                                   {"report", 0},
                                   {"infeasible", 0},
                                   {"skipped", 1}}));
  EXPECT_EQ(json["claims"][0]["verdict"], "pass");
  EXPECT_TRUE(json["claims"][0]["cause"].is_null());
  EXPECT_EQ(json["claims"][1]["verdict"], "fail");
  EXPECT_EQ(json["claims"][1]["cause"], "a toy");
  EXPECT_EQ(json["claims"][1]["reason"], "the value is 2, not within 3 to 4");
  EXPECT_EQ(json["claims"][2]["verdict"], "fitted");
  EXPECT_EQ(json["claims"][2]["accepted"], false);
  EXPECT_EQ(json["claims"][3]["verdict"], "skipped");
  EXPECT_EQ(json["claims"][3]["cause"], "no data");
  EXPECT_EQ(json["claims"][3]["experiment"], "toy");
  const std::string table = to_claims_table(results, true);
  EXPECT_THAT(table, HasSubstr("1 of 2 counted claims pass; 1 fitted, 0 report, 1 skipped\n"));
  EXPECT_THAT(table, HasSubstr("Quick "));
  EXPECT_THAT(table, testing::ContainsRegex("TOY-2 +2 +2 +- +3 to 4  fail\n"));
}

}  // namespace
}  // namespace spillway
