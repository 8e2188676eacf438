// `advise` and `plan` as a user calls them.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/cli/command.hpp"

namespace spillway {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr const char* kSlo = "p99_ttft_ms<1000,mean_tpot_ms<40";

class Advise : public test::CliTest {
 protected:
  /// Two policies on an A100 with little memory, which tell them apart.
  [[nodiscard]] test::Output advise(std::vector<std::string> more) {
    std::vector<std::string> arguments{"advise",
                                       "hardware=a100-80gb-sxm",
                                       "memory.gpu_kv=6GB",
                                       "tensor_parallel=1",
                                       "--slo",
                                       kSlo,
                                       "--progress",
                                       "off",
                                       "--quick"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return spillway(arguments);
  }
  /// The highest rate that `search` finds for the same runs.
  [[nodiscard]] double searched(const std::vector<std::string>& settings) {
    std::vector<std::string> arguments{
        "search", "--max", "workload.rate",          "hardware=a100-80gb-sxm", "memory.gpu_kv=6GB",
        "--slo",  kSlo,    "workload.requests=2000", "replications=1",         "--json"};
    arguments.insert(arguments.end(), settings.begin(), settings.end());
    return json::parse(spillway(arguments).out)["searches"][0]["value"];
  }
};

// The winner's settings, searched by themselves, sustain the same rate; so do the other's; and the order is theirs.
TEST_F(Advise, RanksByWhatASearchFinds) {
  const auto result = advise({"policy=vllm,sarathi", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json advice = json::parse(result.out);
  ASSERT_EQ(advice["configurations"].size(), 2U);
  double before = std::numeric_limits<double>::infinity();
  for (const json& one : advice["configurations"]) {
    if (one["standing"] != "ranked") continue;
    std::vector<std::string> settings{one["configuration"]};
    for (const auto& [key, text] : one["settings"].items()) settings.push_back(key + "=" + text.get<std::string>());
    const double capacity = one["capacity_requests_per_s"];
    // A search by itself also asks for a steady run, so it may stop earlier.
    const double found = searched(settings);
    EXPECT_LE(found / capacity, 1.05);
    EXPECT_GE(found / capacity, 0.7);
    EXPECT_LE(capacity, before);
    before = capacity;
    EXPECT_LT(one["metrics"]["p99_ttft_ms"]["value"].get<double>(), 1000.0);
    EXPECT_LT(one["metrics"]["mean_tpot_ms"]["value"].get<double>(), 40.0);
  }
}

// Clients that drop the history before every turn leave nothing to find in a cache. So a host cache pays only where
// turns keep it, if at all, and the search says from which share on. Where a cache is small, fewer histories may mean
// more hits, so the lead follows the histories and not the hits.
TEST_F(Advise, FindsFromWhichHistoriesAHostCachePays) {
  std::vector<std::string> arguments{"advise",
                                     "policy=vllm",
                                     "workload.trace=sharegpt-chat",
                                     "workload.requests=400",
                                     "hardware=a100-80gb-sxm",
                                     "memory.gpu_kv=6GB",
                                     "tensor_parallel=1",
                                     "--slo",
                                     kSlo,
                                     "--tolerance",
                                     "0.05",
                                     "--progress",
                                     "off",
                                     "--json"};
  // Only the host cache is left to choose.
  for (const char* const given :
       {"engine.max_num_batched_tokens=2048", "engine.max_num_seqs=256", "engine.preemption=recompute",
        "engine.prefix_caching=true", "memory.kv_dtype=auto"}) {
    arguments.emplace_back(given);
  }
  const auto result = spillway(arguments);
  ASSERT_EQ(result.code, 0) << result.err;
  const json advice = json::parse(result.out);
  const json& winner = advice["configurations"][0];
  ASSERT_TRUE(winner["settings"].contains("memory.host_cache"));
  ASSERT_EQ(advice["crossovers"].size(), 1U);
  const json& found = advice["crossovers"][0];
  EXPECT_EQ(found["unit"], "%");
  EXPECT_EQ(found["now"], 100.0);
  EXPECT_GT(found["at"], 0.0);
  EXPECT_LT(found["at"], 100.0);
  const std::string size = winner["settings"]["memory.host_cache"];
  EXPECT_EQ(found["below"], "this configuration without a host cache");
  EXPECT_EQ(found["above"], "this configuration with a host cache of " + size);
  EXPECT_THAT(found["note"].get<std::string>(), HasSubstr("% of the prompt tokens are in a cache"));

  // With all histories the cache sustains more, as two searches say; with none it does not.
  const auto capacity = [&](const std::string& cache, const std::string& dropped) {
    std::vector<std::string> search{"search",
                                    "--max",
                                    "workload.rate",
                                    "--slo",
                                    kSlo,
                                    "replications=1",
                                    "--json",
                                    "--tolerance",
                                    "0.05",
                                    "memory.host_cache=" + cache,
                                    "workload.drop_history=" + dropped};
    for (const std::string& one : arguments) {
      const bool kept = one.find('=') != std::string::npos && one != kSlo;
      if (kept) search.push_back(one);
    }
    return json::parse(spillway(search).out)["searches"][0]["value"].get<double>();
  };
  EXPECT_GT(capacity(size, "0"), 1.05 * capacity("0B", "0"));
  EXPECT_LT(capacity(size, "1"), 1.1 * capacity("0B", "1"));
}

TEST_F(Advise, GivesTheSameBytesOnAnyNumberOfThreads) {
  const auto one = advise({"policy=vllm,sarathi", "-j", "1", "--json"});
  const auto two = advise({"policy=vllm,sarathi", "-j", "2", "--json"});
  ASSERT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(one.out, two.out);
}

// A rate of 2.5 capacities takes at least 3 replicas, and `run` says that they meet the SLOs.
TEST_F(Advise, FindsTheReplicasForARate) {
  const json alone = json::parse(advise({"policy=vllm", "--json"}).out);
  const double capacity = alone["configurations"][0]["capacity_requests_per_s"];
  const std::string rate = "workload.rate=" + std::to_string(2.5 * capacity);
  const auto result = advise({"policy=vllm", rate, "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json winner = json::parse(result.out)["configurations"][0];
  const json& fleet = winner["fleet"];
  ASSERT_TRUE(fleet["holds"].get<bool>());
  EXPECT_GE(fleet["replicas"], 3);
  EXPECT_LE(fleet["replicas"], 4);
  std::vector<std::string> run{"run",
                               "hardware=a100-80gb-sxm",
                               "memory.gpu_kv=6GB",
                               rate,
                               "--json",
                               "workload.requests=2000",
                               "replicas=" + std::to_string(fleet["replicas"].get<int>())};
  for (const auto& [key, text] : winner["settings"].items()) run.push_back(key + "=" + text.get<std::string>());
  const json checked = json::parse(spillway(run).out);
  EXPECT_EQ(checked["metrics"]["p99_ttft_ms"]["value"], fleet["metrics"]["p99_ttft_ms"]["value"]);
  EXPECT_THAT(advise({"policy=vllm", rate}).out, HasSubstr("a run of all together meets the SLOs"));
}

TEST_F(Advise, SaysWhatItPrunesAndWhatCannotRun) {
  const auto result = spillway({"advise", "policy=vllm,deepspeed,expert-cache", "--slo", kSlo, "tensor_parallel=1",
                                "--progress", "off", "--quick"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("Cannot run   expert-cache"));
  EXPECT_THAT(result.out, HasSubstr("arrive at once: deepspeed"));
  EXPECT_THAT(result.out, HasSubstr("not checked for steady state"));
  EXPECT_THAT(result.out, HasSubstr("vllm serve MODEL"));
}

TEST_F(Advise, WhereNothingMeetsTheSlo_SaysHowCloseTheBestCame) {
  const auto result = spillway({"advise", "policy=vllm", "--slo", "mean_tpot_ms<1", "--quick", "tensor_parallel=1"});
  EXPECT_EQ(result.code, 5);
  EXPECT_THAT(result.out, HasSubstr("Misses"));
  EXPECT_THAT(result.out, HasSubstr("mean_tpot_ms is"));
  EXPECT_THAT(result.out, HasSubstr("Closest      this configuration on 1 GPU: mean_tpot_ms is"));
}

// Conversations that are in balance have no balance where all begin at once: the ceiling is that of conversations that
// begin with their first turn, and go on without a pause.
TEST_F(Advise, TheCeilingOfConversations_IsOfWholeOnes) {
  const std::vector<std::string> common{"policy=vllm",
                                        "workload.trace=sharegpt-chat",
                                        "workload.requests=400",
                                        "tensor_parallel=1",
                                        "--json",
                                        "--progress",
                                        "off"};
  std::vector<std::string> arguments{"advise", "--slo", "p99_ttft_ms<1", "--quick"};
  arguments.insert(arguments.end(), common.begin(), common.end());
  const auto result = spillway(arguments);
  ASSERT_EQ(result.code, 5) << result.err;
  const auto rate = [&](const char* start) {
    std::vector<std::string> run{"run", "workload.rate=1e6", std::string("workload.start=") + start,
                                 "workload.think_time=constant(0s)", "replications=1"};
    run.insert(run.end(), common.begin(), common.end());
    return json::parse(spillway(run).out)["metrics"]["request_throughput_per_s"]["value"].get<double>();
  };
  const double ceiling = json::parse(result.out)["configurations"][0]["ceiling_requests_per_s"];
  EXPECT_DOUBLE_EQ(ceiling, rate("empty"));
  EXPECT_GT(std::abs(ceiling / rate("stationary") - 1.0), 0.1) << "the two are told apart";
}

// Sarathi computes a prompt in pieces of 512 tokens unless it is told to take longer ones, vLLM in pieces of 2,048.
TEST_F(Advise, WhereNothingMeetsTheSlo_SaysWhatWouldHelp) {
  const auto closest_of = [this](const std::string& policies) {
    const auto result =
        spillway({"advise", policies, "--slo", "p99_ttft_ms<5", "--quick", "tensor_parallel=1", "--json", "-j", "2"});
    EXPECT_EQ(result.code, 5) << result.err;
    const json advice = json::parse(result.out);
    const json& closest = advice["closest"];
    const auto same = std::ranges::find_if(
        advice["configurations"], [&](const json& one) { return one["configuration"] == closest["configuration"]; });
    EXPECT_THAT((*same)["reason"].get<std::string>(), testing::StartsWith(closest["reason"].get<std::string>()));
    return closest;
  };
  EXPECT_EQ(closest_of("policy=sarathi,vllm")["configuration"], "policy=vllm");
  const json closest = closest_of("policy=sarathi");
  ASSERT_FALSE(closest["help"].empty());
  const auto figure = [](const json& reason) {
    const std::string text = reason.get<std::string>();
    return std::stod(text.substr(text.rfind(" is ") + 4));
  };
  double before = 0.0;
  for (const json& help : closest["help"]) {
    EXPECT_THAT(help["settings"].get<std::string>(), HasSubstr("engine.max_num_batched_tokens="));
    EXPECT_LT(figure(help["reason"]), figure(closest["reason"]));
    EXPECT_GE(figure(help["reason"]), before) << "the one that helps most comes first";
    before = figure(help["reason"]);
  }
}

TEST_F(Advise, AnswersBadInput) {
  EXPECT_THAT(spillway({"advise", "policy=vllm"}).err, HasSubstr("advice needs an SLO"));
  EXPECT_THAT(advise({"replicas=2"}).err, HasSubstr("advise finds the number of replicas"));
  EXPECT_THAT(advise({"workload.concurrency=4"}).err, HasSubstr("search --max workload.concurrency"));
  EXPECT_THAT(advise({"workload.rate=1,2"}).err, HasSubstr("one rate"));
  EXPECT_THAT(advise({"policy=vlm"}).err, HasSubstr("vllm"));
  EXPECT_THAT(advise({"policy=vllm,orca", "--dry-run"}).out, HasSubstr("Nothing was run"));
  EXPECT_THAT(spillway({"plan", "--slo", kSlo}).err, HasSubstr("a plan needs the rate to serve"));
  // Five requests meet the limit whatever the rate, so every rate that may be given would be a capacity.
  for (const char* command : {"advise", "plan"}) {
    const auto few = spillway({command, "policy=vllm", "workload.requests=5", "workload.rate=3", "tensor_parallel=1",
                               "--slo", "p99_ttft_ms<9000", "--quick"});
    EXPECT_EQ(few.code, 2);
    EXPECT_THAT(few.err, testing::AllOf(HasSubstr("5 requests meet the limits even if all arrive at once"),
                                        HasSubstr("workload.requests"), HasSubstr("raise it, for example to 100")));
  }
}

class PlanCommand : public test::CliTest {};

// Every fleet of the front meets the SLOs in a run of its own, and no other fleet beats it.
TEST_F(PlanCommand, FindsFleetsAndTheirFront) {
  const auto result = spillway({"plan", "hardware=h100-80gb-sxm,a100-80gb-sxm", "tensor_parallel=1,2",
                                "workload.rate=30", "--slo", kSlo, "--quick", "--json", "--progress", "off"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json plan = json::parse(result.out);
  ASSERT_GE(plan["pareto_front"].size(), 1U);
  for (const json& one : plan["pareto_front"]) {
    for (const json& other : plan["configurations"]) {
      if (!other.contains("fleet") || !other["fleet"]["holds"].get<bool>()) continue;
      const json& fleet = other["fleet"];
      EXPECT_EQ(fleet["gpus"], fleet["replicas"].get<int>() * other["gpus"].get<int>());
      const double ttft = fleet["metrics"]["p99_ttft_ms"]["value"];
      const double tpot = fleet["metrics"]["mean_tpot_ms"]["value"];
      const bool beats = fleet["gpus"] < one["gpus"] && ttft < one["p99_ttft_ms"].get<double>() &&
                         tpot < one["mean_tpot_ms"].get<double>();
      EXPECT_FALSE(beats) << other["configuration"];
    }
    EXPECT_LT(one["p99_ttft_ms"].get<double>(), 1000.0);
  }
  EXPECT_EQ(plan["configurations"].size(), 4U);
}

}  // namespace
}  // namespace spillway
