// Experts between GPU and host as a user runs them: what half and twice the locality do, hit curves, flags of engines.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "tests/cli/command.hpp"

namespace spillway {
namespace {

using nlohmann::json;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class Experts : public test::CliTest {
 protected:
  /// A small run of a cache of experts. What `more` gives takes the place of these settings.
  [[nodiscard]] static std::vector<std::string> small(const std::string& command, std::vector<std::string> more,
                                                      const std::string& policy = "expert-cache") {
    std::vector<std::string> all{command,
                                 "model=qwen3-30b-a3b",
                                 "hardware=hgx-h100-8",
                                 "policy=" + policy,
                                 "workload.requests=4",
                                 "workload.concurrency=1",
                                 "workload.input_tokens=50",
                                 "workload.output_tokens=12"};
    for (const std::string& argument : more) {
      const std::string key = argument.substr(0, argument.find('=') + 1);
      if (!key.empty()) std::erase_if(all, [&key](const std::string& one) { return one.starts_with(key); });
    }
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  /// A table whose long lines are not broken.
  static std::string unbroken(const std::string& table) {
    return std::regex_replace(table, std::regex("\n {13}"), " ");
  }
  [[nodiscard]] json run(std::vector<std::string> more, const std::string& policy = "expert-cache") {
    more.emplace_back("--json");
    const auto result = spillway(small("run", std::move(more), policy));
    EXPECT_EQ(result.code, 0) << result.err;
    return json::parse(result.out);
  }
  static double rate(const json& result) {
    return result["metrics"]["output_throughput_tokens_per_s"]["value"].get<double>();
  }
  static double tpot(const json& result) { return result["metrics"]["p50_tpot_ms"]["value"].get<double>(); }
};

// Half and twice are what runs with these localities give.
TEST_F(Experts, RunShowsHalfAndTwiceTheLocality) {
  const json result = run({"policy.slots=32"});
  const json& assumed = result["setup"]["expert_locality"];
  EXPECT_EQ(assumed["value"], 0.4);
  EXPECT_EQ(assumed["origin"], "default");
  EXPECT_THAT(assumed["source"].get<std::string>(), HasSubstr("PR 27861"));
  ASSERT_EQ(result["other_localities"]["runs"].size(), 2U);
  const std::vector<std::pair<std::string, double>> others{{"0.2", 0.2}, {"0.8", 0.8}};
  for (std::size_t i = 0; i < others.size(); ++i) {
    const json given = run({"policy.slots=32", "experts.locality=" + others[i].first, "--fixed-locality"});
    EXPECT_EQ(given["setup"]["expert_locality"], (json{{"value", others[i].second}, {"origin", "given"}}));
    EXPECT_FALSE(given.contains("other_localities"));
    const json& other = result["other_localities"]["runs"][i];
    EXPECT_EQ(other["value"], others[i].second);
    EXPECT_EQ(other["output_throughput_tokens_per_s"], rate(given));
    EXPECT_EQ(other["p50_tpot_ms"], tpot(given));
    EXPECT_NE(rate(given), rate(result));
  }
  const auto table = spillway(small("run", {"policy.slots=32"}));
  EXPECT_THAT(table.out, HasSubstr("Locality     0.4 (default): "));
  EXPECT_THAT(unbroken(table.out), HasSubstr("; at 0.2: "));
  EXPECT_THAT(unbroken(table.out), HasSubstr("; at 0.8: "));
}

TEST_F(Experts, AnyNumberOfThreadsGivesTheSameBytes) {
  const auto one = spillway(small("run", {"replications=2", "--json", "-j", "1"}));
  const auto many = spillway(small("run", {"replications=2", "--json", "-j", "5"}));
  ASSERT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(one.out, many.out);
}

TEST_F(Experts, NoRunWhereLocalityCannotMatter) {
  EXPECT_EQ(run({"experts.locality=0"})["other_localities"]["not_run"], "half and twice of 0 are 0");
  const auto table = spillway(small("run", {"experts.locality=0"}));
  EXPECT_THAT(
      unbroken(table.out),
      HasSubstr("Locality     0 (given); not run with this value halved and doubled: half and twice of 0 are 0"));
  const json dense = run({"model=llama-3.1-8b"}, "vllm");
  EXPECT_FALSE(dense.contains("other_localities"));
  EXPECT_FALSE(dense["setup"].contains("expert_locality"));
  EXPECT_THAT(
      unbroken(spillway(small("run", {"--dry-run"})).out),
      HasSubstr("There would be 3 runs, with experts.locality also halved and doubled (not with --fixed-locality)."));
}

// With --perturb, the 30 runs with other times keep the locality, and are the same with and without half and twice.
TEST_F(Experts, PerturbedRunsKeepTheLocality) {
  const json both = run({"workload.requests=2", "--perturb", "5%"});
  const json alone = run({"workload.requests=2", "--perturb", "5%", "--fixed-locality"});
  EXPECT_EQ(both["perturbation"], alone["perturbation"]);
  EXPECT_EQ(both["other_localities"]["runs"].size(), 2U);
}

TEST_F(Experts, CompareShowsHalfAndTwiceOfEach) {
  const auto result = spillway(small("compare", {"policy=expert-cache,vllm", "replications=1", "--json", "-j", "3"}));
  ASSERT_EQ(result.code, 0) << result.err;
  const json all = json::parse(result.out);
  ASSERT_EQ(all["runs"].size(), 2U);
  const json alone = run({});
  EXPECT_EQ(all["runs"][0]["other_localities"], alone["other_localities"]);
  EXPECT_EQ(all["runs"][0]["expert_locality"], alone["setup"]["expert_locality"]);
  EXPECT_FALSE(all["runs"][1].contains("other_localities"));
  const auto table = spillway(small("compare", {"policy=expert-cache,vllm", "replications=1"}));
  EXPECT_THAT(table.out, HasSubstr("Locality     policy=expert-cache: 0.4 (default): "));
  const auto fixed = spillway(small("compare", {"policy=expert-cache,vllm", "replications=1", "--fixed-locality"}));
  EXPECT_THAT(fixed.out, HasSubstr("Locality     policy=expert-cache: 0.4 (default)\n"));
}

TEST_F(Experts, CompareReplacesAGivenLocality) {
  const auto slots =
      spillway(small("compare", {"policy.slots=16,32", "experts.locality=0.3", "replications=1", "--json"}));
  ASSERT_EQ(slots.code, 0) << slots.err;
  const json comparison = json::parse(slots.out);
  ASSERT_EQ(comparison["runs"].size(), 2);
  for (const json& one : comparison["runs"]) {
    EXPECT_EQ(one["other_localities"]["runs"][0]["value"], 0.15);
    EXPECT_EQ(one["other_localities"]["runs"][1]["value"], 0.6);
  }
}

TEST_F(Experts, ALocalityThatIsAnAxisIsNotVariedAgain) {
  const auto table = spillway(small("compare", {"experts.locality=0.1,0.7", "replications=1"}));
  ASSERT_EQ(table.code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("0.1 (given)\n"));
  EXPECT_THAT(table.out, HasSubstr("0.7 (given)\n"));
}

// Half and twice of each point are what a run of it gives. A result in the folder stands for a point that asks for as
// much.
TEST_F(Experts, RowsOfASweepHaveHalfAndTwiceTheLocality) {
  const auto sweep = [&](std::vector<std::string> more) {
    std::vector<std::string> all{"policy.slots=16,32", "-o", file("s")};
    all.insert(all.end(), more.begin(), more.end());
    return spillway(small("sweep", std::move(all)));
  };
  const auto first = sweep({"--json", "-j", "2"});
  ASSERT_EQ(first.code, 0) << first.err;
  const json points = json::parse(first.out)["points"];
  ASSERT_EQ(points.size(), 2U);
  const json alone = run({"policy.slots=32"});
  EXPECT_EQ(points[1]["expert_locality"], 0.4);
  EXPECT_EQ(points[1]["other_localities"], alone["other_localities"]);
  EXPECT_EQ(points[1]["metrics"]["p50_tpot_ms"]["value"], tpot(alone));
  const auto again = sweep({"--format", "csv"});
  EXPECT_THAT(again.err, HasSubstr("2 of them reused"));
  EXPECT_THAT(again.out,
              testing::StartsWith("point,policy.slots,experts.locality,"
                                  "halved_locality_output_throughput_tokens_per_s,halved_locality_p50_tpot_ms,"
                                  "doubled_locality_output_throughput_tokens_per_s,"
                                  "doubled_locality_p50_tpot_ms,bottleneck,"));
  const json& runs = alone["other_localities"]["runs"];
  const std::string row =
      fmt::format("\n1,32,0.4,{},{},{},{},", runs[0]["output_throughput_tokens_per_s"].get<double>(),
                  runs[0]["p50_tpot_ms"].get<double>(), runs[1]["output_throughput_tokens_per_s"].get<double>(),
                  runs[1]["p50_tpot_ms"].get<double>());
  EXPECT_THAT(again.out, HasSubstr(row));
  const auto table = sweep({});
  EXPECT_THAT(table.out, ContainsRegex("locality +halved +doubled  bottleneck"));
  EXPECT_THAT(table.out, HasSubstr("halved, doubled: output tokens/s / p50 TPOT (ms) with half and twice of "
                                   "experts.locality, at most 1.\n"));
  const auto fixed = sweep({"--fixed-locality", "--format", "csv"});
  EXPECT_THAT(fixed.err, Not(HasSubstr("reused")));
  EXPECT_THAT(fixed.out, testing::StartsWith("point,policy.slots,experts.locality,bottleneck,"));
  EXPECT_THAT(fixed.out, HasSubstr("\n1,32,0.4,"));
  const auto axis = spillway(small("sweep", {"experts.locality=0.1,0.2", "--format", "csv"}));
  EXPECT_THAT(axis.out, testing::StartsWith("point,experts.locality,bottleneck,"));
  const auto none = spillway(small("sweep", {"experts.locality=0", "policy.slots=16,32", "--format", "csv"}));
  EXPECT_THAT(none.out, testing::StartsWith("point,policy.slots,experts.locality,bottleneck,"));
}

TEST_F(Experts, ScriptsAndPlansKeepTheLocalityFixed) {
  const auto script =
      spillway(small("sweep", {"policy.slots=16,32", "-o", file("s"), "--emit", "slurm", "--fixed-locality"}));
  EXPECT_THAT(script.out, HasSubstr("--fixed-locality"));
  const auto plan = [&](std::vector<std::string> more) {
    std::vector<std::string> all{"plan",
                                 "model=qwen3-30b-a3b",
                                 "hardware=hgx-h100-8",
                                 "policy=expert-cache",
                                 "policy.slots=32",
                                 "tensor_parallel=1",
                                 "workload.rate=1",
                                 "workload.requests=20",
                                 "workload.input_tokens=50",
                                 "workload.output_tokens=12",
                                 "--quick",
                                 "--slo",
                                 "p99_ttft_ms<400"};
    all.insert(all.end(), more.begin(), more.end());
    return spillway(all);
  };
  const auto fixed = plan({"--fixed-locality"});
  EXPECT_EQ(fixed.code, 0) << fixed.err;
  EXPECT_THAT(unbroken(fixed.out), HasSubstr("0.4 (default)\n"));
  EXPECT_THAT(unbroken(plan({}).out), HasSubstr("; at 0.8: "));
}

TEST_F(Experts, MergedShardsKeepOtherLocalities) {
  for (const char* const shard : {"1/2", "2/2"}) {
    const auto part =
        spillway(small("sweep", {"policy.slots=16,32", "--shard", shard, "-o", file(std::string("part") + shard[0])}));
    ASSERT_EQ(part.code, 0) << part.err;
  }
  const auto merged = spillway({"merge", file("part1"), file("part2"), "-o", file("all"), "--format", "csv"});
  ASSERT_EQ(merged.code, 0) << merged.err;
  EXPECT_EQ(merged.out, spillway(small("sweep", {"policy.slots=16,32", "--format", "csv"})).out);
}

TEST_F(Experts, PlansSayWhatAlsoRuns) {
  const auto plan = [&](const std::string& command, std::vector<std::string> more) {
    more.emplace_back("--dry-run");
    const auto result = spillway(small(command, std::move(more)));
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  };
  const std::string also = " also with experts.locality halved and doubled (not with --fixed-locality)";
  EXPECT_THAT(plan("compare", {"policy=expert-cache,vllm"}),
              HasSubstr("2 configurations; 1 configuration" + also + ":\n"));
  EXPECT_THAT(plan("sweep", {"policy.slots=16,32,64"}), HasSubstr("3 points; 3 points" + also + ". In this order:\n"));
  EXPECT_THAT(plan("sweep", {"policy.slots=16,32,64", "--shard", "1/3"}),
              HasSubstr("3 points; shard 1/3 runs 1 of them; 1 point" + also + ". In this order:\n"));
  // The first or the last 300 points place no experts.
  for (const char* const policies : {"policy=vllm,expert-cache", "policy=expert-cache,vllm"}) {
    EXPECT_THAT(plan("sweep", {policies, "seed=1:300:1"}),
                HasSubstr("600 points; points whose policy places experts" + also));
  }
  for (const char* const never : {"--fixed-locality", "experts.locality=0"}) {
    EXPECT_THAT(plan("compare", {"policy.slots=16,32", never}), HasSubstr("2 configurations:\n"));
  }
  EXPECT_THAT(plan("sweep", {"experts.locality=0.1,0.2"}), HasSubstr("2 points. In this order:\n"));
}

// Instances of several kinds: all are run with half and with twice of what each assumes, at most 1.
class LocalityOfInstances : public Experts {
 protected:
  static json element(const char* name, int gpu, const std::optional<double>& locality) {
    json element{{"name", name},
                 {"gpus", {gpu}},
                 {"model", "qwen3-30b-a3b"},
                 {"policy", {{"name", "expert-cache"}, {"slots", 32}}},
                 {"workload", {{"requests", 4}, {"input_tokens", 50}, {"output_tokens", 12}, {"rate", 1}}}};
    if (locality) element["experts"] = {{"locality", *locality}};
    return element;
  }
  /// The file of two elements with these localities, beside one without experts; empty: the default.
  std::string of(const std::optional<double>& a, const std::optional<double>& b) {
    json dense{{"name", "c"}, {"gpus", {2}}, {"model", "llama-3.1-8b"}, {"workload", {{"requests", 4}, {"rate", 1}}}};
    std::string path = file("kinds.json");
    test::write_text(
        path, json{{"hardware", "hgx-h100-8"}, {"instances", {element("a", 0, a), element("b", 1, b), dense}}}.dump());
    return path;
  }
  json result_of(const std::optional<double>& a, const std::optional<double>& b, bool fixed) {
    std::vector<std::string> arguments{"run", of(a, b), "--json"};
    if (fixed) arguments.emplace_back("--fixed-locality");
    const auto result = spillway(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    return json::parse(result.out);
  }
  /// The run says what a run with these localities says.
  void expect_as_run(const json& run, double a, double b) {
    const json metrics = result_of(a, b, true)["metrics"];
    for (const char* const metric : {"output_throughput_tokens_per_s", "p50_tpot_ms"}) {
      EXPECT_EQ(run[metric], metrics[metric]["value"]) << a << " and " << b << ": " << metric;
    }
  }
};

TEST_F(LocalityOfInstances, WithOneInCommon) {
  const json result = result_of({}, {}, false);
  EXPECT_EQ(result["setup"]["expert_locality"], result["instances"][0]["setup"]["expert_locality"]);
  EXPECT_EQ(result["setup"]["expert_locality"]["value"], 0.4);
  const json& runs = result["other_localities"]["runs"];
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0]["value"], 0.2);
  EXPECT_EQ(runs[1]["value"], 0.8);
  expect_as_run(runs[0], 0.2, 0.2);
  expect_as_run(runs[1], 0.8, 0.8);
  EXPECT_NE(runs[0]["p50_tpot_ms"], runs[1]["p50_tpot_ms"]);
  EXPECT_THAT(unbroken(spillway({"run", of({}, {})}).out),
              ContainsRegex("Locality     0.4 \\(default\\): .*; at 0.8: "));
}

TEST_F(LocalityOfInstances, WithDifferentOnes) {
  const json result = result_of({}, 0.6, false);
  EXPECT_FALSE(result["setup"].contains("expert_locality"));
  const json& runs = result["other_localities"]["runs"];
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_FALSE(runs[0].contains("value"));
  EXPECT_EQ(runs[0]["times"], 0.5);
  EXPECT_EQ(runs[1]["times"], 2.0);
  expect_as_run(runs[0], 0.2, 0.3);
  expect_as_run(runs[1], 0.8, 1.0);
  const std::string path = of({}, 0.6);
  EXPECT_THAT(unbroken(spillway({"run", path}).out),
              ContainsRegex("Locality     a 0.4 \\(default\\), b 0.6 \\(given\\): .*; at half of each: .*; at twice of "
                            "each: "));
  EXPECT_THAT(unbroken(spillway({"run", path, "--fixed-locality"}).out),
              HasSubstr("Locality     a 0.4 (default), b 0.6 (given)\n"));
  EXPECT_THAT(unbroken(spillway({"run", path, "--dry-run"}).out), HasSubstr("There would be 3 runs"));
  // One that cannot matter is no reason to run nothing, and of several such the first one is named.
  EXPECT_EQ(result_of(0.0, {}, false)["other_localities"]["runs"].size(), 2U);
  EXPECT_EQ(result_of(0.0, 0.0, false)["other_localities"]["not_run"], "half and twice of 0 are 0");
  // Sweeps and comparisons make the same runs.
  const auto swept = spillway({"sweep", of({}, 0.6), "seed=1,2", "--json"});
  ASSERT_EQ(swept.code, 0) << swept.err;
  const json points = json::parse(swept.out)["points"];
  EXPECT_EQ(points[0]["other_localities"], result["other_localities"]);
  EXPECT_FALSE(points[0].contains("expert_locality"));
  const auto compared = spillway({"compare", path, "engine.max_num_seqs=16,32", "replications=1"});
  ASSERT_EQ(compared.code, 0) << compared.err;
  EXPECT_THAT(
      unbroken(compared.out),
      ContainsRegex("Locality     engine.max_num_seqs=16: a 0.4 \\(default\\), b 0.6 \\(given\\): .*; at half of "
                    "each: "));
}

// With a timeline, each copy and each piece of work is executed by itself, and otherwise many at once: nothing else
// changes.
TEST_F(Experts, TimelineChangesNothingElse) {
  for (const char* const policy :
       {"llama-cpp-moe", "ktransformers", "fiddler", "mixtral-offloading", "moe-infinity", "expert-cache"}) {
    const std::vector<std::string> settings{"workload.requests=8",       "workload.concurrency=2",
                                            "workload.trace=uniform",    "workload.input_tokens=800",
                                            "workload.output_tokens=20", "engine.gpu_memory_utilization=0.5",
                                            "--fixed-locality",          "policy.pageable=0.5"};
    std::vector<std::string> own = settings;
    if (std::string(policy) != "fiddler") own.pop_back();
    const json alone = run(own, policy);
    own.insert(own.end(), {"--timeline", file("t.json")});
    EXPECT_EQ(run(own, policy), alone) << policy;
    EXPECT_TRUE(std::string(policy) != "fiddler" || alone["metrics"]["expert_load_fraction"]["value"] > 0.1);
  }
}

// A search has no key that changes the locality of each instance.
TEST_F(LocalityOfInstances, IsNotSearchedAgain) {
  test::write_text(file("two.json"), R"({"hardware": "hgx-h100-8", "model": "qwen3-30b-a3b",
    "policy": {"name": "expert-cache", "slots": 32}, "workload": {"requests": 4, "input_tokens": 50, "output_tokens": 12},
    "instances": [{"gpus": 0, "share": 0.5}, {"gpus": 1, "share": 0.5}]})");
  const auto result = spillway({"search", file("two.json"), "--max", "workload.rate", "--slo", "p99_ttft_ms<1000000",
                                "--to", "4", "replications=1", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json found = json::parse(result.out)["searches"][0];
  EXPECT_EQ(found["expert_locality"]["value"], 0.4);
  EXPECT_FALSE(found.contains("other_localities"));
}

// Kinds of instances share the links of one server, and the memory of its sockets where some place experts. GPUs 0
// to 3 are at the first socket, the others at the second. What element a does is what it does alone, anywhere.
TEST_F(Experts, BesideInstancesWithoutExperts) {
  json experts{{"name", "a"},
               {"gpus", {0}},
               {"model", "qwen3-30b-a3b"},
               {"policy", {{"name", "expert-cache"}, {"slots", 32}}},
               {"workload", {{"requests", 4}, {"input_tokens", 50}, {"output_tokens", 12}, {"rate", 1}}}};
  const json pools{{"name", "b"},
                   {"gpus", {1, 2, 3}},
                   {"model", "llama-3.1-8b"},
                   {"policy", "vllm"},
                   {"prefill_replicas", 1},
                   {"decode_replicas", 2},
                   {"workload", {{"requests", 20}, {"rate", 1}}}};
  std::vector<json> found;
  for (const bool first : {true, false}) {
    experts["gpus"] = {first ? 0 : 6};
    const json instances = first ? json{experts, pools} : json{pools, experts};
    test::write_text(file("kinds.json"), json{{"hardware", "hgx-h100-8"}, {"instances", instances}}.dump());
    const auto result = spillway({"run", file("kinds.json"), "--json", "seed=7"});
    ASSERT_EQ(result.code, 0) << result.err;
    found.push_back(json::parse(result.out));
    std::map<std::string, double> moved;
    for (const json& link : found.back()["links"]) moved[link["link"]] = link["moved_bytes"];
    EXPECT_GT(moved.at(first ? "socket-0-dram" : "socket-1-dram"), 0.0);
    EXPECT_EQ(moved.at(first ? "socket-1-dram" : "socket-0-dram"), 0.0);
    EXPECT_GT(moved.at("hand-overs of b replica 0 out"), 0.0);
    EXPECT_EQ(moved.at("hand-overs of b replica 0 out"),
              moved.at("hand-overs of b replica 1 in") + moved.at("hand-overs of b replica 2 in"));
  }
  const json alone = run({"policy.slots=32", "workload.concurrency=null", "workload.rate=1", "seed=7"});
  for (const char* const metric : {"p50_tpot_ms", "mean_ttft_ms", "cpu_expert_seconds", "demanded_expert_bytes"}) {
    EXPECT_EQ(found[0]["instances"][0]["metrics"][metric], alone["metrics"][metric]) << metric;
  }
}

// Half and twice are those of a run at the capacity with the settings that were found.
TEST_F(Experts, AdviceHasHalfAndTwiceTheLocality) {
  const auto advise = [&](std::vector<std::string> more) {
    std::vector<std::string> all{"advise",
                                 "model=qwen3-30b-a3b",
                                 "hardware=hgx-h100-8",
                                 "policy=expert-cache,mixtral-offloading",
                                 "policy.slots=32",
                                 "workload.requests=60",
                                 "workload.input_tokens=50",
                                 "workload.output_tokens=12",
                                 "--quick",
                                 "--slo",
                                 "p99_ttft_ms<400"};
    all.insert(all.end(), more.begin(), more.end());
    return spillway(all);
  };
  const auto result = advise({"--json", "-j", "2"});
  ASSERT_EQ(result.code, 0) << result.err;
  std::size_t found = 0;
  const json advice = json::parse(result.out);
  for (const json& one : advice["configurations"]) {
    if (one["configuration"] != "policy=expert-cache" || one["standing"] != "ranked") continue;
    ++found;
    std::vector<std::string> settings{"policy.slots=32", "replications=1", "workload.concurrency=null",
                                      "workload.rate=" + one["capacity_requests_per_s"].dump(),
                                      "workload.requests=" + one["requests"].dump()};
    for (const auto& [key, value] : one["settings"].items()) settings.push_back(key + "=" + value.get<std::string>());
    const json alone = run(settings);
    EXPECT_EQ(one["expert_locality"], alone["setup"]["expert_locality"]);
    EXPECT_EQ(one["other_localities"], alone["other_localities"]);
  }
  EXPECT_EQ(found, 1U);
  EXPECT_THAT(unbroken(advise({}).out), ContainsRegex("Locality     expert-cache: 0.4 \\(default\\): .*; at 0.8: "));
  EXPECT_THAT(unbroken(advise({"--fixed-locality"}).out), HasSubstr("Locality     expert-cache: 0.4 (default)\n"));
}

// Of 8 experts a token and layer, hit(32) = 0.75 finds 6, always: in prompts, the 32 slots hold 32 of more than 42.
TEST_F(Experts, AHitCurveDecidesWhatIsFound) {
  for (const char* const policy : {"expert-cache", "mixtral-offloading"}) {
    std::vector<double> hits;
    for (const char* const curve : {"32:0.25", "32:0.75"}) {
      const json result =
          run({"policy.slots=32", std::string("experts.hit_curve=") + curve, "workload.output_tokens=200",
               "workload.requests=1", "workload.input_tokens=1", "--fixed-locality"},
              policy);
      hits.push_back(result["metrics"]["expert_hit_fraction"]["value"].get<double>());
      EXPECT_EQ(result["config"]["experts.hit_curve"], curve);
    }
    if (std::string(policy) == "expert-cache") {
      EXPECT_DOUBLE_EQ(hits[0], 0.25);
      EXPECT_DOUBLE_EQ(hits[1], 0.75);
    } else {  // loads ahead may find more
      EXPECT_GE(hits[0], 0.25);
      EXPECT_GT(hits[1], hits[0]);
    }
  }
}

// A prompt uses all 128 experts of each layer. 32 slots would hold a quarter of them; the curve says a tenth.
TEST_F(Experts, AHitCurveDecidesWhatIsFoundOfAllExperts) {
  const json result = run({"policy.slots=32", "experts.hit_curve=32:0.1", "workload.output_tokens=1",
                           "workload.requests=1", "workload.input_tokens=2000", "--fixed-locality"});
  EXPECT_NEAR(result["metrics"]["expert_hit_fraction"]["value"].get<double>(), 0.1, 0.005);
}

// Of 61 layers, 3 are dense. An iteration that does not end counts in no kind of layer.
TEST_F(Experts, TheTableSaysHowLongKindsOfLayersTook) {
  const std::vector<std::string> deepseek{"model=deepseek-v3", "hardware=hgx-b200-8", "--fixed-locality"};
  const auto table = spillway(small("run", deepseek, "expert-cache"));
  ASSERT_EQ(table.code, 0) << table.err;
  const std::string number = "[0-9.e-]+ s";
  EXPECT_TRUE(std::regex_search(
      unbroken(table.out),
      std::regex("\nBusy         GPU: routed experts " + number + ", the rest of their layers " + number +
                 ", dense layers " + number + " \\(attention " + number + " of it\\); CPU: experts " + number + "\n")))
      << table.out;
  const json all = run(deepseek);
  const auto seconds = [](const json& result, const char* metric) {
    return result["metrics"][metric]["value"].get<double>();
  };
  const double dense = seconds(all, "gpu_dense_layer_seconds");
  const double rest = seconds(all, "gpu_expert_layer_seconds");
  // All layers attend alike. A dense MLP is wider than shared experts.
  EXPECT_GT(rest, 58.0 / 61.0 * seconds(all, "gpu_attention_seconds"));
  EXPECT_GT(dense, 3.0 / 61.0 * seconds(all, "gpu_attention_seconds"));
  EXPECT_LT(rest, 58.0 / 3.0 * dense);
  EXPECT_LT(dense + rest + seconds(all, "gpu_expert_seconds"), seconds(all, "duration_s"));
  // A prompt of 2,000 tokens takes half a second.
  const auto cut = run({"workload.input_tokens=2000", "policy.slots=32", "until=100ms", "--fixed-locality"});
  EXPECT_GT(seconds(cut, "gpu_expert_seconds"), 0.0);
  EXPECT_EQ(seconds(cut, "gpu_expert_layer_seconds"), 0.0);
  const auto without_dense = spillway(small("run", {"--fixed-locality"}, "expert-cache"));
  EXPECT_THAT(without_dense.out, AllOf(HasSubstr("\nBusy         GPU: routed"), Not(HasSubstr("dense layers"))));
}

TEST_F(Experts, HitCurvesThatCannotBe) {
  const auto falls = spillway(small("run", {"experts.hit_curve=16:0.5,32:0.4"}));
  EXPECT_EQ(falls.code, 2);
  EXPECT_THAT(falls.err, HasSubstr("point \"32:0.4\" falls below the share 0.5 of 16 slots"));
  const auto slots = spillway(small("run", {"experts.hit_curve=16:0.5"}, "llama-cpp-moe"));
  EXPECT_EQ(slots.code, 2);
  EXPECT_THAT(slots.err, HasSubstr("policy llama-cpp-moe has no slots that a hit curve could describe"));
  EXPECT_THAT(slots.err, HasSubstr("or use expert-cache or mixtral-offloading"));
  const auto none = spillway(small("run", {"experts.hit_curve=16:0.5"}, "vllm"));
  EXPECT_THAT(none.err, HasSubstr("experts.hit_curve has no effect: policy vllm does not draw which experts are used"));
}

// More layers on the host leave the GPU more memory: the smallest number that fits a quarter of its 80 GB. Above it the
// layout fits, below it does not.
TEST_F(Experts, SearchFindsTheFewestLayersOnTheHost) {
  const auto result =
      spillway(small("search",
                     {"--min", "policy.n_cpu_moe", "--from", "1", "--to", "48", "engine.gpu_memory_utilization=0.3",
                      "replications=1", "--slo", "p50_tpot_ms<10000", "--json"},
                     "llama-cpp-moe"));
  ASSERT_EQ(result.code, 0) << result.err;
  const json found = json::parse(result.out)["searches"][0];
  const auto layers = found["value"].get<int>();
  EXPECT_EQ(found["does_not_hold_at"], layers - 1);
  for (const int offset : {0, -1}) {
    const auto run = spillway(
        small("run",
              {"policy.n_cpu_moe=" + std::to_string(layers + offset), "engine.gpu_memory_utilization=0.3", "--dry-run"},
              "llama-cpp-moe"));
    EXPECT_EQ(run.code == 0, offset == 0) << run.err;
  }
}

// With half and twice the locality, the slots that are found meet the limit, and one slot less does not; no value: as
// many slots as the search may try do not.
TEST_F(Experts, SearchShowsHalfAndTwiceTheLocality) {
  const auto with = [&](int slots, const std::string& locality) {
    return tpot(run({"policy.slots=" + std::to_string(slots), "experts.locality=" + locality, "--fixed-locality"}));
  };
  const double limit = (with(8, "0.4") + with(64, "0.4")) / 2.0;
  const auto search = [&](std::vector<std::string> more) {
    std::vector<std::string> all{"--min",
                                 "policy.slots",
                                 "--from",
                                 "8",
                                 "--to",
                                 "64",
                                 "replications=1",
                                 "--slo",
                                 "p50_tpot_ms<" + std::to_string(limit)};
    all.insert(all.end(), more.begin(), more.end());
    return spillway(small("search", std::move(all)));
  };
  const auto result = search({"--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json found = json::parse(result.out)["searches"][0];
  EXPECT_EQ(found["expert_locality"]["value"], 0.4);
  EXPECT_EQ(found["expert_locality"]["origin"], "default");
  ASSERT_EQ(found["other_localities"].size(), 2U);
  const std::vector<std::pair<std::string, double>> others{{"0.2", 0.2}, {"0.8", 0.8}};
  for (std::size_t i = 0; i < others.size(); ++i) {
    const auto& [text, locality] = others[i];
    const json& other = found["other_localities"][i];
    EXPECT_EQ(other["value"], locality);
    if (other["found"].is_null()) {
      EXPECT_GE(with(64, text), limit);
      continue;
    }
    const int slots = other["found"].get<int>();
    EXPECT_LT(with(slots, text), limit);
    if (slots > 8) {
      EXPECT_GE(with(slots - 1, text), limit);
    }
  }
  EXPECT_NE(found["other_localities"][0]["found"], found["other_localities"][1]["found"]);
  const std::string shown = unbroken(search({}).out);
  EXPECT_THAT(shown, HasSubstr("Locality     0.4 (default): policy.slots " + found["value"].dump().substr(0, 2)));
  EXPECT_THAT(shown, HasSubstr("; at 0.8: "));
  EXPECT_THAT(search({"--fixed-locality"}).out, HasSubstr("Locality     0.4 (default)\n"));
  EXPECT_THAT(unbroken(search({"experts.locality=0"}).out),
              HasSubstr("not searched with this value halved and doubled: half and twice of 0 are 0"));
}

TEST_F(Experts, SearchSuggestsKeysOfPolicies) {
  const auto result = spillway(small("search", {"--min", "policy.slts", "--slo", "p50_tpot_ms<1000"}));
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("did you mean \"policy.slots\"?"));
}

// The locality that is searched, or that varies, is not halved and doubled as well.
TEST_F(Experts, SearchLeavesALocalityThatVariesAlone) {
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--min", "experts.locality", "--from", "0.1", "--to", "0.9"},
        {"--min", "policy.slots", "--from", "16", "--to", "17", "experts.locality=0.3,0.6"}}) {
    std::vector<std::string> all{"replications=1", "--slo", "p50_tpot_ms<1000", "--json"};
    all.insert(all.end(), more.begin(), more.end());
    const auto result = spillway(small("search", std::move(all)));
    ASSERT_EQ(result.code, 0) << result.err;
    const json searches = json::parse(result.out)["searches"];
    for (const json& one : searches) {
      EXPECT_TRUE(one.contains("expert_locality"));
      EXPECT_FALSE(one.contains("other_localities"));
    }
  }
}

// More slots hit more often. The smallest number that meets a TPOT between those of 8 and 64 slots: it does, and one
// slot less does not.
TEST_F(Experts, SearchFindsTheFewestSlots) {
  const auto with = [&](int slots) { return tpot(run({"policy.slots=" + std::to_string(slots), "--fixed-locality"})); };
  const double limit = (with(8) + with(64)) / 2.0;
  const auto result = spillway(small("search",
                                     {"--min", "policy.slots", "--from", "8", "--to", "64", "replications=1", "--slo",
                                      "p50_tpot_ms<" + std::to_string(limit), "--json"},
                                     "expert-cache"));
  ASSERT_EQ(result.code, 0) << result.err;
  const json found = json::parse(result.out)["searches"][0];
  const auto slots = found["value"].get<int>();
  EXPECT_EQ(found["does_not_hold_at"], slots - 1);
  EXPECT_LT(with(slots), limit);
  EXPECT_GE(with(slots - 1), limit);
}

TEST_F(Experts, FlagsOfEngines) {
  const auto flags = [&](std::vector<std::string> more, const std::string& policy) {
    more.emplace_back("--fixed-locality");
    return run(std::move(more), policy)["setup"]["engine_flags"]["flags"].get<std::string>();
  };
  EXPECT_EQ(flags({"policy.n_cpu_moe=36"}, "llama-cpp-moe"), "-ngl 99 --n-cpu-moe 36 -ub 512");
  EXPECT_EQ(flags({"policy.n_cpu_moe=4", "policy.mmap=false", "policy.op_offload_min_batch=0",
                   "engine.max_num_batched_tokens=4096"},
                  "llama-cpp-moe"),
            "-ngl 99 --n-cpu-moe 4 -ub 4096 -b 4096 --no-mmap --no-op-offload");
  EXPECT_EQ(flags({"policy.n_cpu_moe=4", "policy.op_offload_min_batch=64"}, "llama-cpp-moe"),
            "GGML_OP_OFFLOAD_MIN_BATCH=64 -ngl 99 --n-cpu-moe 4 -ub 512");
  EXPECT_EQ(flags({"policy.gpu_experts=40", "policy.deferred_experts=3"}, "ktransformers"),
            "--kt-num-gpu-experts 40 --kt-max-deferred-experts-per-token 3");
  EXPECT_EQ(flags({"policy.gpu_experts=40", "policy.gpu_prefill_threshold=1024", "policy.dynamic_update=true"},
                  "ktransformers"),
            "--kt-num-gpu-experts 40 --kt-max-deferred-experts-per-token 0 --kt-gpu-prefill-token-threshold 1024 "
            "--kt-enable-dynamic-expert-update");
  EXPECT_EQ(flags({"policy.weights=llama-cpp-moe", "policy.weights.n_cpu_moe=12", "policy.weights.mmap=false"}, "pie"),
            "-ngl 99 --n-cpu-moe 12 -ub 512 --no-mmap");
  const auto table = spillway(small("run", {"policy.n_cpu_moe=36", "--fixed-locality"}, "llama-cpp-moe"));
  EXPECT_THAT(unbroken(table.out),
              HasSubstr("Flags        llama.cpp: -ngl 99 --n-cpu-moe 36 -ub 512 (common/common.h (0010882))"));
  EXPECT_FALSE(run({"--fixed-locality"})["setup"].contains("engine_flags")) << "a proposal has no options";
}

// The experts of a GGUF type take its bytes on the host, too: 48 layers of 128 experts of 2,856,960 bytes in q4_k_m.
TEST_F(Experts, GgufTypesSetTheBytesOfExperts) {
  const json result = run({"policy.n_cpu_moe=48", "engine.quantization=q4_k_m", "--fixed-locality"}, "llama-cpp-moe");
  EXPECT_EQ(result["setup"]["host_layer_bytes_per_gpu"], 48LL * 128 * 2'856'960);
}

}  // namespace
}  // namespace spillway
