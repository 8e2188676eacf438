// The key `instances`: what each element is, and what is assembled from it.
#include "sim/study/instances.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/study/assemble.hpp"
#include "sim/study/parameter_table.hpp"
#include "sim/study/replicated_run.hpp"
#include "sim/study/what_if.hpp"

namespace spillway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

ResolvedConfig resolve(const std::string& file) {
  std::vector<Problem> problems;
  const std::vector<Assignment> assignments = parse_config(file, "my.json", problems);
  return resolve_config(parameter_table(), assignments, problems);
}

std::vector<InstanceEntry> read(const std::string& file) {
  std::vector<Problem> problems;
  std::vector<InstanceEntry> entries = read_instances(resolve(file), problems);
  for (const Problem& problem : problems) ADD_FAILURE() << problem.what;
  return entries;
}

/// The keys of an element, those beside the list included.
std::map<std::string, std::string> keys(const InstanceEntry& entry) {
  std::map<std::string, std::string> keys;
  for (const Assignment& one : entry.assignments) keys[one.key] = one.text.value_or("null");
  return keys;
}

TEST(Instances, GpusAreNumbersAndRanges) {
  EXPECT_THAT(read(R"({"instances": [{"gpus": 3}]})")[0].gpus, ElementsAre(3));
  EXPECT_THAT(read(R"({"instances": [{"gpus": "5, 0-2"}]})")[0].gpus, ElementsAre(0, 1, 2, 5));
  EXPECT_THAT(read(R"({"instances": [{"gpus": [7, "2-3"]}]})")[0].gpus, ElementsAre(2, 3, 7));
  EXPECT_EQ(gpus_text({0, 1, 2, 5}), "0-2, 5");
  EXPECT_EQ(gpus_text({4}), "4");
}

TEST(Instances, TensorParallelFollowsFromGpus) {
  const auto entries = read(R"({"instances": [{"gpus": "0-3"}, {"gpus": "4-7", "replicas": 2}]})");
  EXPECT_EQ(keys(entries[0]).at("tensor_parallel"), "4");
  EXPECT_EQ(keys(entries[1]).at("tensor_parallel"), "2");
  const auto stated =
      read(R"({"tensor_parallel": 2, "instances": [{"gpus": "0-1"}, {"gpus": 2, "tensor_parallel": 1}]})");
  EXPECT_EQ(keys(stated[0]).at("tensor_parallel"), "2");
  EXPECT_EQ(keys(stated[1]).at("tensor_parallel"), "1");
}

// What an element lacks is as beside the list; nothing else of the list's own keys comes with it.
TEST(Instances, TakeTheKeysBesideTheList) {
  const auto entries = read(R"({"model": "opt-13b", "memory": {"gpu_kv": "5GB"}, "seed": 4, "instances": [
      {"gpus": 0, "model": {"name": "llama-3.1-8b"}}, {"gpus": 1, "memory.gpu_kv": null}]})");
  EXPECT_EQ(keys(entries[0]).at("model"), "llama-3.1-8b");
  EXPECT_EQ(keys(entries[0]).at("memory.gpu_kv"), "5GB");
  EXPECT_EQ(keys(entries[0]).at("seed"), "4");
  EXPECT_EQ(keys(entries[0]).count("instances"), 0U);
  EXPECT_EQ(keys(entries[1]).at("model"), "opt-13b");
  EXPECT_EQ(keys(entries[1]).at("memory.gpu_kv"), "null");
  EXPECT_EQ(entries[1].name, "instance-1");
}

// An own policy, router or trace begins with the defaults of its keys.
TEST(Instances, GroupsOfKeysGoTogether) {
  const auto entries = read(R"({"policy": "pie", "policy.expansion": "1.5", "router": "prefix",
      "router.balance_abs": 7, "router.retry": false, "workload.trace": "sharegpt", "workload.rate": 9, "instances": [
      {"gpus": 0}, {"gpus": 1, "policy": "vllm"}, {"gpus": 2, "router": "session"},
      {"gpus": 3, "workload.trace": "alpaca"}, {"gpus": 4, "workload.requests": 10}]})");
  for (const auto& [key, value] : std::map<std::string, std::string>{{"policy.expansion", "1.5"},
                                                                     {"router.balance_abs", "7"},
                                                                     {"router.retry", "false"},
                                                                     {"workload.rate", "9"}}) {
    EXPECT_EQ(keys(entries[0]).at(key), value);
  }
  EXPECT_EQ(keys(entries[1]).count("policy.expansion"), 0U);
  EXPECT_EQ(keys(entries[1]).at("router.balance_abs"), "7");
  EXPECT_EQ(keys(entries[2]).count("router.balance_abs"), 0U);
  EXPECT_EQ(keys(entries[2]).at("router.retry"), "false");
  EXPECT_EQ(keys(entries[3]).count("workload.rate"), 0U);
  EXPECT_EQ(keys(entries[4]).at("workload.rate"), "9");
  EXPECT_EQ(keys(entries[4]).at("workload.trace"), "sharegpt");
}

// Five elements: two have a workload of their own, so the others have a third each.
TEST(Instances, SharesAreEqualUnlessStated) {
  const auto equal = read(R"({"instances": [{"gpus": 0}, {"gpus": 1, "workload.rate": 2}, {"gpus": 2}, {"gpus": 3},
      {"gpus": 4, "workload.trace": "alpaca"}]})");
  EXPECT_DOUBLE_EQ(equal[0].share.value(), 1.0 / 3.0);
  EXPECT_FALSE(equal[1].share.has_value());
  EXPECT_TRUE(equal[4].own_workload);
  const auto stated = read(R"({"instances": [{"gpus": 0, "share": 0.125}, {"gpus": 1, "share": 0.875}]})");
  EXPECT_EQ(stated[1].share, 0.875);
  const auto thirds = read(R"({"instances": [{"gpus": 0, "share": 0.333333}, {"gpus": 1, "share": 0.333333},
      {"gpus": 2, "share": 0.333333}]})");
  EXPECT_EQ(thirds.size(), 3U);
}

TEST(Instances, ElementsHaveTheirPlacesInTheFile) {
  std::vector<Problem> problems;
  static_cast<void>(read_instances(resolve("{\n  // first\n  \"instances\":\n  [\n    {\"gpus\": 0},\n    /* 2 */\n"
                                           "    {\"gpus\": 1,\n     \"share\": \"x\"}\n  ]\n}"),
                                   problems));
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].where, "my.json:8 (/instances/1/share)");
}

Assembly assembled(const std::string& file) { return assemble(resolve(file)); }

// hgx-h100-8-node: GPUs 4 and 5 are behind the third of four switches, which has positions 8, 9 and 10 (in, out, both),
// of the second socket, position 1. Replicas of one GPU each.
TEST(Instances, CopyOverTheLinksOfTheirGpus) {
  const Assembly assembly = assembled(R"({"hardware": "hgx-h100-8-node", "instances": [
      {"gpus": "0-1"}, {"gpus": "4-5", "replicas": 2}]})");
  const InstancePlan& second = assembly.kinds[1].assembly.instance;
  ASSERT_EQ(second.routes.size(), 2U);
  using Crossings = std::vector<LinkCrossing>;
  EXPECT_EQ(second.routes[0].h2d, (Crossings{{1, 1}, {8, 1}, {10, 1}}));
  EXPECT_EQ(second.routes[1].d2h, (Crossings{{1, 1}, {9, 1}, {10, 1}}));
  EXPECT_EQ(assembly.kinds[0].assembly.instance.routes[0].h2d, (Crossings{{0, 2}, {2, 2}, {4, 2}}));
}

// hgx-h100-8: 2 TiB of DRAM and CPU attention at 98.3 GB/s for each of four GPUs (server_share_test.cpp), here two of
// two instances.
TEST(Instances, ShareTheHost) {
  const Assembly assembly = assembled(R"({"hardware": "hgx-h100-8", "policy": "deepspeed", "instances": [
      {"gpus": "0-1"}, {"gpus": "2-3"}]})");
  for (const AssembledKind& kind : assembly.kinds) {
    EXPECT_EQ(kind.assembly.setup.deployment.host_memory, Bytes(549'755'813'888));
    EXPECT_DOUBLE_EQ(kind.assembly.setup.deployment.cpu_attention_bandwidth.value(), 98.3e9);
  }
}

// 1,200 GB for each of two GPUs of different instances fit the 2,199 GB alone, and not together.
TEST(Instances, WarnWhenTogetherTheyNeedMoreThanTheHostHas) {
  const std::string list = R"("instances": [{"gpus": 0}, {"gpus": 1}]})";
  const auto warnings = [&](const std::string& host_kv) {
    std::string all;
    for (const std::string& one :
         assembled(R"({"hardware": "hgx-h100-8", "memory.host_kv": ")" + host_kv + "\", " + list).warnings) {
      all += one + "\n";
    }
    return all;
  };
  EXPECT_THAT(warnings("1200GB"), HasSubstr("all instances together keep up to 2400.00 GB on the host"));
  EXPECT_THAT(warnings("1000GB"), Not(HasSubstr("all instances together")));
  EXPECT_THAT(warnings("3000GB"), HasSubstr("3000.00 GB for 1 GPU, more than"));
  EXPECT_THAT(warnings("3000GB"), Not(HasSubstr("all instances together")));
  EXPECT_THAT(warnings("1GB"), HasSubstr("6 of the 8 GPUs of hgx-h100-8 are not used"));
}

TEST(Instances, SayWhoseAWarningIs) {
  const Assembly assembly = assembled(R"({"hardware": "hgx-h100-8", "instances": [
      {"name": "a", "gpus": 0, "workload.trace": "alpaca"},
      {"name": "b", "gpus": "1-7", "tensor_parallel": 1, "replicas": 7, "workload.trace": "sharegpt",
       "memory.gpu_kv": "5GB"}]})");
  EXPECT_THAT(assembly.warnings, testing::Contains(HasSubstr("a: 28")));  // blocks that are estimated
  EXPECT_THAT(assembly.warnings, Not(testing::Contains(HasSubstr("not used"))));
}

// Conversations are cut to what the instance with the least room accepts: 4,000 tokens here.
TEST(Instances, ConversationsFitEachOfThem) {
  Assembly assembly =
      assembled(R"({"hardware": "hgx-h100-8", "workload.trace": "sharegpt-chat", "workload.requests": 500,
      "workload.start": "empty", "workload.think_time": "1s", "instances": [{"gpus": 0},
      {"gpus": 1, "engine.max_model_len": 4000}]})");
  const ReplicationResults results = run_replications(assembly, 1, 1, {}, {});
  EXPECT_EQ(results.statistics.all.rejected, 0);
  EXPECT_GT(results.shortened, 0);
  EXPECT_EQ(results.kinds.size(), 2U);
}

std::vector<RequestRecord> records_of(Assembly& assembly) {
  std::vector<RequestRecord> records;
  ReplicationHooks hooks;
  hooks.on_request = [&](std::int64_t, const RequestRecord& record) { records.push_back(record); };
  static_cast<void>(run_replications(assembly, 1, 1, {}, hooks));
  std::ranges::sort(records, {}, &RequestRecord::index);
  return records;
}

// Two kinds of two replicas each, with a half of the requests: their random routers draw apart, or the choices for the
// first 30 requests of each would agree.
TEST(Instances, RoutersOfEachDrawApart) {
  Assembly assembly = assembled(R"({"hardware": "hgx-h100-8", "router": "random", "replicas": 2, "tensor_parallel": 1,
      "workload.requests": 100, "instances": [{"gpus": "0-1"}, {"gpus": "2-3"}]})");
  std::vector<std::vector<std::uint32_t>> choices(2);
  for (const RequestRecord& record : records_of(assembly)) {
    const std::uint32_t pool = record.traits.pool;
    choices[pool].push_back(record.replica - 2 * pool);
  }
  for (std::vector<std::uint32_t>& one : choices) {
    ASSERT_GE(one.size(), 30U);
    one.resize(30);
  }
  EXPECT_NE(choices[0], choices[1]);
}

// Equal workloads draw with seeds of their own: 1 and 2 here. The second is that of a run with seed=2.
TEST(Instances, EqualWorkloadsAreNotTheSameRequests) {
  Assembly assembly = assembled(R"({"hardware": "hgx-h100-8", "instances": [{"gpus": 0, "workload.requests": 50},
      {"gpus": 1, "workload.requests": 50}]})");
  Assembly alone = assembled(R"({"hardware": "hgx-h100-8", "workload.requests": 50, "seed": 2})");
  std::vector<std::vector<std::int64_t>> arrivals(3);
  for (const RequestRecord& record : records_of(assembly)) {
    arrivals[record.traits.pool].push_back(record.arrival.ns());
  }
  for (const RequestRecord& record : records_of(alone)) arrivals[2].push_back(record.arrival.ns());
  EXPECT_EQ(arrivals[1], arrivals[2]);
  EXPECT_NE(arrivals[0], arrivals[1]);
}

// Of gamma arrivals with a coefficient of variation of 3, a quarter: 1 + 8 / 4 is the square of its own.
TEST(Instances, APartOfALoadVariesLess) {
  const Assembly assembly = assembled(R"({"hardware": "hgx-h100-8", "workload.arrival": "gamma", "workload.cv": 3,
      "workload.rate": 8, "workload.requests": 1000, "instances": [{"gpus": 0, "share": 0.25}, {"gpus": 1, "share": 0.75},
      {"gpus": 2, "workload.rate": 2}]})");
  const OfferedLoad& quarter = assembly.kinds[0].offered.value();
  EXPECT_DOUBLE_EQ(quarter.rate, 2.0);
  EXPECT_DOUBLE_EQ(quarter.variation, std::sqrt(3.0));
  EXPECT_EQ(quarter.requests, 250);
  EXPECT_DOUBLE_EQ(assembly.kinds[2].offered.value().variation, 3.0);
  // Together: rates 8 and 2, squares 9.
  EXPECT_DOUBLE_EQ(assembly.workload.rate.value(), 10.0);
  EXPECT_DOUBLE_EQ(assembly.workload.variation.value(), 3.0);
  EXPECT_EQ(assembly.kinds[1].assembly.setup.requests, 750);
}

// Llama 3.1 70B on two GPUs serves 1.8 of these requests/s at most. Of the other one's closed loop, and so of both
// together, no rate is known.
TEST(Instances, ARunIsAsSteadyAsTheLeastSteadyOfThem) {
  Assembly assembly = assembled(R"({"hardware": "hgx-h100-8", "instances": [
      {"name": "loop", "gpus": 2, "workload": {"trace": "alpaca", "concurrency": 4, "requests": 1000}},
      {"name": "drowning", "gpus": "0-1", "model": "llama-3.1-70b", "workload": {"rate": 2.5, "requests": 2000}}]})");
  ReplicationResults runs = run_replications(assembly, 1, 1, {}, {});
  EXPECT_FALSE(runs.statistics.steady.has_value());
  const Result result = run_result(assembly, std::move(runs));
  EXPECT_FALSE(result.kinds[0].statistics.steady.has_value());
  EXPECT_EQ(result.kinds[1].statistics.steady->verdict, SteadyState::Verdict::saturated);
  ASSERT_TRUE(result.statistics.steady.has_value());
  EXPECT_EQ(result.statistics.steady->verdict, SteadyState::Verdict::saturated);
  EXPECT_THAT(result.statistics.steady->sentence, HasSubstr("drowning: "));
  EXPECT_THAT(result.warnings, testing::Contains(HasSubstr("drowning: saturated: ")));
}

// An element of one instance alone, with all of the workload, is the run without the list.
TEST(Instances, OneIsTheRunWithoutTheList) {
  Assembly listed = assembled(R"({"hardware": "hgx-h100-8", "workload.requests": 200, "instances": [{"gpus": 0}]})");
  Assembly plain = assembled(R"({"hardware": "hgx-h100-8", "workload.requests": 200})");
  const ReplicationResults one = run_replications(listed, 1, 1, {}, {});
  const ReplicationResults other = run_replications(plain, 1, 1, {}, {});
  ASSERT_EQ(one.statistics.metrics.size(), other.statistics.metrics.size());
  for (std::size_t i = 0; i < one.statistics.metrics.size(); ++i) {
    EXPECT_EQ(one.statistics.metrics[i].value, other.statistics.metrics[i].value) << one.statistics.metrics[i].name;
    EXPECT_EQ(one.kinds[0].metrics[i].value, other.statistics.metrics[i].value) << one.statistics.metrics[i].name;
  }
  EXPECT_TRUE(one.statistics.steady.has_value());
}

}  // namespace
}  // namespace spillway
