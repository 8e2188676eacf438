// `compare` and `search` as a user calls them.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/cli/command.hpp"

namespace spillway {
namespace {

using nlohmann::json;
using test::write_text;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class Compare : public test::CliTest {};

TEST_F(Compare, DifferencesArePairedBySeed) {
  const auto result = spillway({"compare", "policy=vllm,sarathi", "workload.requests=60", "replications=3", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json all = json::parse(result.out);
  EXPECT_EQ(all["baseline"], "policy=vllm");
  ASSERT_EQ(all["runs"].size(), 2U);
  // By hand, from runs of each: the difference of the means equals that of the metrics, and its interval is narrower
  // than either run's.
  const json& base = all["runs"][0]["metrics"]["mean_ttft_ms"];
  const json& other = all["runs"][1]["metrics"]["mean_ttft_ms"];
  const json& pair = all["runs"][1]["differences"]["mean_ttft_ms"];
  EXPECT_NEAR(pair["difference"].get<double>(), other["value"].get<double>() - base["value"].get<double>(), 1e-9);
  EXPECT_EQ(pair["verdict"], "worse");
  EXPECT_EQ(pair["n"], 3);
  EXPECT_FALSE(all["runs"][0].contains("differences"));
  EXPECT_THAT(all["runs"][1]["bottleneck"].get<std::string>(), HasSubstr("limits"));
}

TEST_F(Compare, ReplicationsAreFiveUnlessSaid) {
  const auto table = spillway({"compare", "policy=vllm,sarathi", "workload.requests=40"});
  EXPECT_THAT(table.out, HasSubstr("5 replications"));
  EXPECT_THAT(table.out, HasSubstr("worse"));
  const auto one = spillway({"compare", "policy=vllm,sarathi", "workload.requests=40", "replications=1"});
  EXPECT_THAT(one.out, HasSubstr("no intervals with one replication"));
  EXPECT_THAT(one.out, Not(HasSubstr("worse")));
}

TEST_F(Compare, ATraceThatIsNotDrawnIsTheSameInEveryReplication) {
  write_text(file("trace.csv"), "arrival_s,input_tokens,output_tokens\n0,100,5\n1,200,6\n");
  const auto table = spillway({"compare", "policy=vllm,sarathi", "workload.trace=./trace.csv"});
  EXPECT_THAT(table.out, HasSubstr("differences are exact"));
}

TEST_F(Compare, AllPoliciesPassOverThoseThatCannotRun) {
  // One prompt of 100,000 tokens: policies that need whole prompts can never admit it.
  write_text(file("trace.csv"), "arrival_s,input_tokens,output_tokens\n0,100000,5\n");
  const auto all = spillway({"compare", "policy=all", "workload.trace=./trace.csv", "replications=1", "--json"});
  ASSERT_EQ(all.code, 0) << all.err;
  const json result = json::parse(all.out);
  EXPECT_GE(result["runs"].size(), 2U);
  ASSERT_GE(result["skipped"].size(), 1U);
  EXPECT_THAT(result["skipped"][0]["reason"].get<std::string>(), HasSubstr("rejected for their size"));
  // With the same policies listed by name, a skipped policy is a failure.
  const std::string skipped = result["skipped"][0]["label"];
  const auto named = spillway({"compare", skipped + ",vllm,sarathi", "workload.trace=./trace.csv", "replications=1"});
  EXPECT_EQ(named.code, 4);
  EXPECT_THAT(named.out, HasSubstr("Skipped      " + skipped));
}

TEST_F(Compare, PerturbedTimesSayWhetherTheOrderHolds) {
  const auto result = spillway({"compare", "policy=vllm,sarathi", "workload.requests=40", "replications=2", "--perturb",
                                "5%", "--metrics", "mean_ttft_ms,mean_tpot_ms", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json comparison = json::parse(result.out);
  const json& perturbation = comparison["perturbation"];
  EXPECT_EQ(perturbation["runs"].size(), 30U);
  EXPECT_EQ(perturbation["runs"][0]["label"], "GEMM +5%");
  // Matrix products are most of an iteration, and no more than all of it.
  const json& base = comparison["runs"][0]["metrics"]["mean_tpot_ms"]["value"];
  const double slower = perturbation["runs"][0]["metrics"]["policy=vllm"]["mean_tpot_ms"].get<double>();
  EXPECT_GT(slower, base.get<double>() * 1.025);
  EXPECT_LE(slower, base.get<double>() * 1.051);
  EXPECT_THAT(perturbation["flips"], IsEmpty());  // 20 ms against 7 ms per iteration: 5% cannot change the order
  const auto table =
      spillway({"compare", "policy=vllm,sarathi", "workload.requests=40", "replications=2", "--perturb", "5%"});
  EXPECT_THAT(table.out, HasSubstr("Robust       none of 30 changes of 5%"));
}

TEST_F(Compare, WhatIsDoneIsKept) {
  const std::vector<std::string> command{"compare", "policy=vllm,sarathi", "workload.requests=40", "-o", "out"};
  const auto first = spillway(command);
  ASSERT_EQ(first.code, 0);
  EXPECT_EQ(spillway(command).out, first.out);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(file("out/points")), {}), 2);
  // A sweep over the same grid reuses the results.
  EXPECT_THAT(spillway({"sweep", "policy=vllm,sarathi", "workload.requests=40", "replications=5", "-o", "out"}).err,
              HasSubstr("2 of them reused"));
}

TEST_F(Compare, TheBaselineCanBeChosen) {
  const auto by_value = spillway({"compare", "policy=vllm,sarathi", "workload.requests=20", "--baseline", "sarathi"});
  EXPECT_THAT(by_value.out, HasSubstr("against policy=sarathi"));
  const auto unknown = spillway({"compare", "policy=vllm,sarathi", "--baseline", "policy=sarati"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("did you mean \"policy=sarathi\"?"));
}

TEST_F(Compare, RefusesWhatIsNoComparison) {
  const auto refused = [&](std::vector<std::string> arguments, const std::string& what) {
    arguments.insert(arguments.begin(), "compare");
    const auto result = spillway(arguments);
    EXPECT_EQ(result.code, 2) << what;
    EXPECT_THAT(result.err, HasSubstr(what));
  };
  refused({"policy=vllm"}, "there is nothing to compare");
  refused({"policy=vllm,sarathi", "workload.rate=2,4"}, "all configurations must see the same traffic");
  refused({"policy=vllm,sarathi", "--perturb", "80%"}, "not a fraction above 0 and at most 50%");
  refused({"policy=vllm,saraty"}, "saraty");
  refused({"memory.gpu_kv=90GB,95GB", "workload.requests=20"}, "does not fit h100-80gb-sxm");
}

TEST_F(Compare, AllPoliciesAreComparedWithTheDefaultPolicy) {
  const auto plan = spillway({"compare", "policy=all", "--dry-run"});
  EXPECT_THAT(plan.out, HasSubstr("  policy=vllm (baseline)\n"));
  EXPECT_THAT(spillway({"compare", "policy=sarathi,vllm", "--dry-run"}).out,
              HasSubstr("  policy=sarathi (baseline)\n"));
}

// A figure that only one policy has is compared with nothing, whichever comes first.
TEST_F(Compare, PoliciesWithFiguresOfTheirOwn) {
  for (const char* const policies : {"policy=pie,vllm", "policy=vllm,pie"}) {
    for (const char* const format : {"table", "json", "csv"}) {
      const auto result = spillway({"compare", policies, "workload.requests=30", "replications=2", "--format", format});
      EXPECT_EQ(result.code, 0) << policies << ' ' << format << ": " << result.err;
      EXPECT_THAT(result.out, testing::HasSubstr("pie"));
    }
  }
  // Nobody is first in what nobody has.
  const auto none = spillway({"compare", "policy=vllm,pie,sarathi", "workload.requests=30", "replications=1",
                              "--metrics", "mean_ttft_ms,expert_hit_fraction"});
  EXPECT_EQ(none.code, 0) << none.err;
  EXPECT_THAT(none.out, testing::HasSubstr("mean_ttft_ms, best first"));
  EXPECT_THAT(none.out, testing::Not(testing::HasSubstr("expert_hit_fraction, best first")));
}

class Search : public test::CliTest {};

TEST_F(Search, FindsTheHighestRateUnderAnSlo) {
  const auto result = spillway({"search", "--max", "workload.rate", "--slo", "p99_ttft_ms<300", "workload.requests=200",
                                "replications=2", "--tolerance", "5%", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json found = json::parse(result.out)["searches"][0];
  const double best = found["value"];
  const double beyond = found["does_not_hold_at"];
  EXPECT_LE(beyond - best, 0.05 * beyond);
  // Check with separate runs on both sides.
  const auto check = [&](double rate) {
    std::int64_t requests = 0;
    for (const json& probe : found["probes"]) {
      if (probe["value"].get<double>() == rate) requests = probe["requests"];
    }
    EXPECT_GE(requests, 200);
    const auto run = spillway({"run", "workload.rate=" + std::to_string(rate),
                               "workload.requests=" + std::to_string(requests), "replications=2", "--json"});
    const json checked = json::parse(run.out);
    return std::pair(checked["metrics"]["p99_ttft_ms"]["value"].get<double>(), checked["steady_state"]["verdict"]);
  };
  EXPECT_LT(check(best).first, 300.0);
  EXPECT_EQ(check(best).second, "steady");
  EXPECT_TRUE(check(beyond).first >= 300.0 || check(beyond).second != "steady");
  for (const json& probe : found["probes"]) {
    EXPECT_EQ(probe["holds"].get<bool>(), probe["value"].get<double>() <= best) << probe["value"];
    EXPECT_EQ(probe["reason"].get<std::string>().empty(), probe["holds"].get<bool>());
  }
}

// Without a value to start at, a search of whole numbers starts at the least. Little's law: of N requests in flight,
// each for E2E seconds, N / E2E end in a second.
TEST_F(Search, FindsTheMostRequestsInFlight) {
  const auto found = spillway({"search", "--max", "workload.concurrency", "--slo", "mean_tpot_ms<9",
                               "workload.trace=sharegpt", "workload.requests=600", "replications=1", "--json"});
  ASSERT_EQ(found.code, 0) << found.err;
  const double most = json::parse(found.out)["searches"][0]["value"];
  EXPECT_GE(most, 32.0);
  EXPECT_LE(most, 256.0);
  const auto run = spillway({"run", "workload.concurrency=" + std::to_string(std::lround(most)),
                             "workload.trace=sharegpt", "workload.requests=6000", "workload.ramp=5s", "--json"});
  ASSERT_EQ(run.code, 0) << run.err;
  const json metrics = json::parse(run.out)["metrics"];
  const double in_flight =
      metrics["request_throughput_per_s"]["value"].get<double>() * metrics["mean_e2e_ms"]["value"].get<double>() * 1e-3;
  EXPECT_NEAR(in_flight / most, 1.0, 0.05) << "but for the ramp and the last requests";
}

// Runs that are too short say nothing of what is sustained, so they grow; rows of a file cannot.
TEST_F(Search, TheAnswerDoesNotDependOnTheLengthOfTheFirstRuns) {
  const auto search = [this](const std::string& requests) {
    const auto run = spillway({"search", "--max", "workload.rate", "--slo", "p99_ttft_ms<500",
                               "workload.trace=sharegpt", "replications=2", "--tolerance", "3%", "--json", requests});
    EXPECT_EQ(run.code, 0) << run.err;
    return json::parse(run.out)["searches"][0]["value"].get<double>();
  };
  const double from_few = search("workload.requests=300");
  EXPECT_NEAR(from_few / search("workload.requests=16000"), 1.0, 0.06);
  write_text(file("few.csv"), "input_tokens,output_tokens\n100,50\n100,50\n100,50\n");
  const auto few = spillway({"search", "--max", "workload.rate", "--slo", "p99_ttft_ms<500", "workload.trace=./few.csv",
                             "replications=1", "--to", "8", "--json"});
  EXPECT_EQ(few.code, 5) << few.err;
  const json probes = json::parse(few.out)["searches"][0]["probes"];
  EXPECT_EQ(probes[0]["requests"], 3);
  EXPECT_THAT(probes[0]["reason"].get<std::string>(), HasSubstr("unsteady: the run is too short"));
}

// 10 requests are too few to tell whether a run is steady. Of 800 tokens, each takes 800 iterations where they do not
// overlap, so runs grow; of 12,000 tokens, 20 take some 240,000 iterations, and twice as many are more than a search
// runs.
TEST_F(Search, RunsDoNotGrowBeyondThreeHundredThousandIterations) {
  const auto requests = [this](const std::string& output_tokens) {
    const auto run =
        spillway({"search", "--min", "engine.max_num_seqs", "--from", "100", "--to", "100", "--slo", "p99_ttft_ms<1e9",
                  "workload.trace=uniform", "workload.input_tokens=100", "workload.output_tokens=" + output_tokens,
                  "workload.rate=0.001", "workload.requests=10", "memory.gpu_kv=20GB", "replications=1", "--json"});
    return json::parse(run.out)["searches"][0]["probes"][0]["requests"].get<std::int64_t>();
  };
  EXPECT_GT(requests("800"), 40);
  EXPECT_EQ(requests("12000"), 20);
}

// Alone, 1,000 requests of 400 tokens take 400,000 iterations, and where many are together far fewer: runs grow at high
// rates, and are again as short as the configuration says at low ones, but no shorter.
TEST_F(Search, RunsBecomeShorterWhereRequestsTakeMoreIterations) {
  const auto run = spillway({"search", "--max", "workload.rate", "workload.rate=8", "workload.trace=uniform",
                             "workload.input_tokens=1000", "workload.output_tokens=400", "workload.requests=1000",
                             "replications=2", "--slo", "mean_ttft_ms<31,p99_ttft_ms<77.5", "--json"});
  ASSERT_EQ(run.code, 0) << run.err;
  const json found = json::parse(run.out)["searches"][0];
  std::vector<std::int64_t> requests;
  for (const json& probe : found["probes"]) requests.push_back(probe["requests"]);
  EXPECT_GE(*std::ranges::max_element(requests), 4000);
  EXPECT_EQ(requests.back(), 1000);
  EXPECT_EQ(*std::ranges::min_element(requests), 1000);
}

TEST_F(Search, FindsTheLeastMemory) {
  const auto result = spillway({"search", "--min", "memory.gpu_kv", "memory.gpu_kv=20GB", "workload.rate=8", "--slo",
                                "p99_ttft_ms<500", "workload.requests=100", "replications=1", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json found = json::parse(result.out)["searches"][0];
  EXPECT_LT(found["does_not_hold_at"].get<double>(), found["value"].get<double>());
}

TEST_F(Search, SlosOnSingleRequestsNeedAnAttainment) {
  const auto rate = [&](const std::string& attainment) {
    const auto result = spillway({"search", "--max", "workload.rate", "--slo", "ttft_ms<200", "--attainment",
                                  attainment, "workload.requests=100", "replications=1", "--json"});
    EXPECT_EQ(result.code, 0) << result.err;
    return json::parse(result.out)["searches"][0]["value"].get<double>();
  };
  EXPECT_LT(rate("99%"), rate("50%"));
}

TEST_F(Search, EveryCombinationIsSearchedAndPerturbed) {
  const auto table = spillway({"search", "policy=vllm,sarathi", "--max", "workload.rate", "--slo", "p99_ttft_ms<500",
                               "workload.requests=60", "replications=1", "--tolerance", "20%", "--perturb", "5%"});
  ASSERT_EQ(table.code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("policy=sarathi"));
  EXPECT_THAT(table.out, HasSubstr("under 30 changes of 5%"));
  EXPECT_THAT(table.out, testing::AnyOf(HasSubstr("Robust"), HasSubstr("Flips")));
}

TEST_F(Search, WhereNothingHoldsTheGateIsNotMet) {
  const auto result = spillway({"search", "--max", "workload.rate", "--from", "1", "--slo", "p99_ttft_ms<1",
                                "workload.requests=20", "replications=1"});
  EXPECT_EQ(result.code, 5);
  EXPECT_THAT(result.out, HasSubstr("No value     p99_ttft_ms is"));
}

// No rate can bring a time to first token below 1 ms, because a prompt alone takes longer. Runs at the lowest rates
// take too long, but that must not end the search.
TEST_F(Search, WhereNothingHoldsItSaysHowCloseTheBestCame) {
  const auto result =
      spillway({"search", "--max", "workload.rate", "--slo", "ttft_ms<1", "workload.requests=20", "replications=1"});
  EXPECT_EQ(result.code, 5) << result.err;
  EXPECT_THAT(result.out,
              testing::ContainsRegex("No value     0.0% of the requests meet the SLOs at .*, the closest of"));
}

// The condition always holds, so the answer is the largest whole number in the bounds.
TEST_F(Search, WholeNumbersStayWithinTheBounds) {
  const auto result = spillway({"search", "--max", "engine.max_num_seqs", "--from", "1.5", "--to", "9.7", "--slo",
                                "p99_ttft_ms<1e9", "workload.requests=20", "replications=1", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json found = json::parse(result.out)["searches"][0];
  EXPECT_EQ(found["value"], 9.0);
  for (const json& probe : found["probes"]) {
    EXPECT_GE(probe["value"].get<double>(), 2.0);
    EXPECT_LE(probe["value"].get<double>(), 9.0);
  }
}

TEST_F(Search, RefusesWhatCannotBeSearched) {
  const auto refused = [&](std::vector<std::string> arguments, const std::string& what) {
    arguments.insert(arguments.begin(), "search");
    const auto result = spillway(arguments);
    EXPECT_EQ(result.code, 2) << what;
    EXPECT_THAT(result.err, HasSubstr(what));
  };
  refused({"--slo", "ttft_ms<500"}, "a search needs either --max KEY or --min KEY");
  refused({"--max", "workload.rate"}, "a search needs an SLO");
  refused({"--max", "workload.rat", "--slo", "ttft_ms<500"}, "did you mean \"workload.rate\"?");
  refused({"--max", "policy", "--slo", "ttft_ms<500"}, "policy is not a number");
  refused({"--max", "memory.gpu_kv", "--slo", "ttft_ms<500"}, "the search has no value of memory.gpu_kv to start at");
  refused({"--max", "workload.rate", "workload.rate=2,4", "--slo", "ttft_ms<500"},
          "workload.rate is searched, so it cannot have several values");
  refused({"--max", "workload.rate", "--slo", "ttft_ms<500", "--tolerance", "2"}, "is not a fraction");
  refused({"--max", "workload.rate", "--slo", "ttft_ms<500", "--from", "8", "--to", "2"}, "--from is above --to");
  refused({"--max", "workload.rate", "--slo", "ttft_ms<500", "model=llama-3.1-70b"}, "does not fit h100-80gb-sxm");
  refused({"--max", "seed", "--slo", "ttft_ms<500"}, "seed has no largest or smallest useful value");
  refused({"--max", "engine.max_num_seqs", "--slo", "ttft_ms<500", "--from", "1.2", "--to", "1.8"},
          "there is no whole number from 1.2 to 1.8");
  refused({"--max", "workload.rate", "--slo", "ttft_ms<500", "seed=1:1000000:1", "engine.max_num_seqs=1:1000000:1"},
          "the grid has 1000000000000 points: 1000000 of seed x 1000000 of engine.max_num_seqs");
}

}  // namespace
}  // namespace spillway
