// Replicas, failures and pools through the whole program: what a user sees, and what is refused.
#include <gmock/gmock.h>

#include <algorithm>
#include <boost/algorithm/string/replace.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/command.hpp"

namespace spillway::test {
namespace {

using nlohmann::json;
using testing::ContainsRegex;
using testing::HasSubstr;

class ClusterCli : public CliTest {
 protected:
  [[nodiscard]] json run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"run", "--json", "workload.requests=300"});
    const Output output = spillway(arguments);
    EXPECT_EQ(output.code, 0) << output.err;
    return output.code == 0 ? json::parse(output.out) : json();
  }
  void refused(const std::vector<std::string>& arguments, const std::vector<std::string>& parts) {
    std::vector<std::string> all{"run"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Output output = spillway(all);
    EXPECT_EQ(output.code, 2) << output.out;
    for (const std::string& part : parts) EXPECT_THAT(output.err, HasSubstr(part));
  }
};

TEST_F(ClusterCli, OneReplicaIsARunWithoutReplicas) {
  const std::vector<std::string> plain{"run", "--json", "workload.requests=300"};
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"replicas=1"},
        {"replicas=1", "router=round-robin", "servers=1", "hardware=hgx-h100-8"}}) {
    std::vector<std::string> given = plain;
    given.insert(given.end(), more.begin(), more.end());
    std::vector<std::string> without = plain;
    if (more.size() > 1) without.emplace_back("hardware=hgx-h100-8");
    json with = json::parse(spillway(given).out);
    json expected = json::parse(spillway(without).out);
    if (more.size() == 1) {
      EXPECT_EQ(spillway(given).out, spillway(without).out);
    }
    EXPECT_EQ(with["metrics"], expected["metrics"]);
    EXPECT_EQ(with["conservation"], expected["conservation"]);
  }
}

// Every router serves everything; replicas and totals agree.
TEST_F(ClusterCli, ReplicasAddUp) {
  for (const char* router :
       {"least-kv", "least-outstanding", "power-of-two", "prefix", "random", "round-robin", "session"}) {
    const json result = run({"replicas=3", std::string("router=") + router, "workload.rate=20",
                             "workload.trace=sharegpt-chat", "workload.think_time=2s", "workload.start=empty"});
    EXPECT_EQ(result["setup"]["replicas"], 3);
    ASSERT_EQ(result["replicas"].size(), 3U);
    std::int64_t requests = 0;
    std::int64_t finished = 0;
    std::int64_t iterations = 0;
    for (const json& one : result["replicas"]) {
      requests += one["requests"].get<std::int64_t>();
      finished += one["finished_requests"].get<std::int64_t>();
      iterations += one["iterations"].get<std::int64_t>();
      EXPECT_GT(one["requests"], 0) << router;
      EXPECT_EQ(one["pool"], "all");
    }
    EXPECT_EQ(requests, 300) << router;
    EXPECT_EQ(finished, 300) << router;
    EXPECT_EQ(iterations, result["metrics"]["iterations"]["value"]);
    double shares = 0.0;
    for (const auto& [name, metric] : result["metrics"].items()) {
      if (name.ends_with("_time_fraction")) shares += metric["value"].get<double>();
    }
    EXPECT_NEAR(shares, 1.0, 1e-6) << router;  // layers are rounded to nanoseconds
  }
}

TEST_F(ClusterCli, TheScreenSaysWhereReplicasAre) {
  const Output alone = spillway({"run", "replicas=3", "workload.requests=100", "workload.rate=9"});
  EXPECT_THAT(alone.out, HasSubstr("3 replicas on 3 GPUs, each with a host and links of its own, router"));
  EXPECT_THAT(alone.out, HasSubstr("the busiest worked "));
  const Output server = spillway({"run", "replicas=5", "tensor_parallel=2", "hardware=hgx-h100-8", "model=llama-2-13b",
                                  "workload.requests=100", "workload.rate=9", "replications=2"});
  EXPECT_THAT(server.out, HasSubstr("5 replicas on 10 GPUs of 2 servers"));
  EXPECT_THAT(server.out, HasSubstr("2 replications (seeds): figures are means"));
  EXPECT_THAT(server.out, HasSubstr("6 of the 16 GPUs of 2 servers hgx-h100-8 are not used"));
  const Output compared = spillway(
      {"compare", "replicas=2", "policy=vllm,sarathi", "workload.requests=100", "workload.rate=9", "replications=2"});
  EXPECT_THAT(compared.out, HasSubstr("2 replicas of llama-3.1-8b on 1 x h100-80gb-sxm"));
  const Output pools = spillway({"run", "prefill_replicas=1", "decode_replicas=2", "hardware=hgx-h100-8",
                                 "workload.requests=100", "workload.rate=9"});
  EXPECT_THAT(pools.out, HasSubstr("3 replicas on 3 GPUs of 1 server, 1 for prompts and 2 for answers"));
  EXPECT_THAT(pools.out, HasSubstr("KV as a whole over nvlink at 342 GB/s per GPU"));
}

// One of the three is down from 5 s to 10 s. Nothing is lost but by router.retry=false, and that is counted.
TEST_F(ClusterCli, FailuresAreCounted) {
  write_text(file("events.json"),
             R"([{"at": "5s", "replica": 1, "event": "down"}, {"at": "10s", "replica": 1, "event": "up"}])");
  const json again = run({"replicas=3", "workload.rate=20", "events=events.json"});
  EXPECT_EQ(again["conservation"]["all"]["finished"], 300);
  EXPECT_GT(again["replicas"][1]["lost_requests"], 0);
  EXPECT_NEAR(again["replicas"][1]["down_s"].get<double>(), 5.0, 1e-9);
  std::int64_t sent = 0;
  for (const json& one : again["replicas"])
    sent += one["requests"].get<std::int64_t>() - one["lost_requests"].get<std::int64_t>();
  EXPECT_EQ(sent, 300);
  // The list in the configuration is the same as the file.
  write_text(file("c.json"), R"({"replicas": 3, "workload": {"rate": 20}, "router": {"retry": false},
    "events": [{"at": "5s", "replica": 1, "event": "down"}, {"at": "10s", "replica": 1, "event": "up"}]})");
  const json lost = run({"c.json"});
  const std::int64_t count = again["replicas"][1]["lost_requests"];
  EXPECT_EQ(lost["conservation"]["all"]["lost"], count);
  EXPECT_EQ(lost["conservation"]["all"]["finished"], 300 - count);
  EXPECT_THAT(lost["warnings"].dump(), HasSubstr("were lost with their replica"));
}

// Pools keep long prompts out of the gaps between tokens.
TEST_F(ClusterCli, PoolsHandOverEveryAnswer) {
  const json pools = run({"prefill_replicas=1", "decode_replicas=1", "workload.rate=10", "hardware=hgx-h100-8",
                          "--requests-out", "r.csv"});
  const json both = run({"replicas=2", "workload.rate=10", "hardware=hgx-h100-8"});
  EXPECT_EQ(pools["conservation"]["all"]["finished"], 300);
  EXPECT_LT(pools["metrics"]["p99_itl_ms"]["value"], both["metrics"]["p99_itl_ms"]["value"]);
  EXPECT_EQ(pools["replicas"][0]["pool"], "prefill");
  EXPECT_EQ(pools["replicas"][1]["pool"], "decode");
  // 131,072 bytes a token, whole blocks: the tokens of the prompts without their last, and up to 15 more each.
  const double tokens = pools["metrics"]["input_tokens"]["value"].get<double>() - 300.0;
  const double bytes = pools["metrics"]["handed_over_bytes"]["value"];
  EXPECT_GE(bytes, 131'072.0 * tokens);
  EXPECT_LE(bytes, 131'072.0 * (tokens + 15.0 * 300.0));
  EXPECT_THAT(read_file(file("r.csv")), HasSubstr(",replica,decode_replica\n"));
  EXPECT_THAT(read_file(file("r.csv")), HasSubstr(",0,1\n"));
}

// GPUs with NVLink that are told to go over the host: its DRAM carries every byte out and in. Each of 300 hand-overs
// ends at a whole nanosecond, in which a GPU moves 50 bytes.
TEST_F(ClusterCli, KvOverPcieCrossesTheHost) {
  const json pools =
      run({"prefill_replicas=1", "decode_replicas=1", "workload.rate=10", "hardware=hgx-h100-8", "handover.link=pcie"});
  const double bytes = pools["metrics"]["handed_over_bytes"]["value"];
  EXPECT_GT(bytes, 0.0);
  std::map<std::string, double> moved;
  for (const json& link : pools["links"]) moved[link["link"]] = link["moved_bytes"];
  EXPECT_NEAR(moved.at("host-dram out"), bytes, 15e3);
  EXPECT_NEAR(moved.at("host-dram in"), bytes, 15e3);
  EXPECT_EQ(moved.at("nvlink-0 out"), 0.0);
}

TEST_F(ClusterCli, BadClustersAreRefused) {
  refused({"replicas=20", "hardware=hgx-h100-8", "servers=2"},
          {"20 replicas on 1 GPU each need 3 servers of 8 GPUs", "give servers=3, or at most 16 replicas"});
  refused({"replicas=2", "servers=2"}, {"h100-80gb-sxm is no server"});
  refused({"router=least"}, {"router: \"least\" can mean least-kv or least-outstanding"});
  refused({"router.staleness=1s"}, {"it is a key of router=prefix"});
  refused({"prefill_replicas=2"}, {"decode_replicas is missing"});
  refused({"prefill_replicas=2", "decode_replicas=2", "replicas=5"}, {"replicas=5 is not the sum"});
  refused({"handover.mode=layers"}, {"handover.mode has no effect without pools"});
  refused({"prefill_replicas=1", "decode_replicas=1", "policy=vtc"}, {"policy vtc does not run in pools"});
  refused({"prefill_replicas=1", "decode_replicas=1", "policy=pensieve"}, {"it keeps the KV of conversations"});
  refused({"prefill_replicas=1", "decode_replicas=1", "memory.host_cache=64GiB"}, {"does not run in pools"});
  refused({"prefill_replicas=1", "decode_replicas=1", "policy=pie"}, {"it streams KV between the GPU and the host"});
  refused({"prefill_replicas=1", "decode_replicas=1", "policy=select-n", "policy.phase=decode"},
          {"policy.phase follows from the pool"});
  refused({"prefill_replicas=1", "decode_replicas=1", "policy=sarathi", "policy.weights=select-n",
           "policy.weights.phase=prefill"},
          {"policy.weights.phase follows from the pool"});
  refused({"prefill_replicas=5", "decode_replicas=5", "hardware=hgx-h100-8", "handover.link=nvlink"},
          {"handover.link=nvlink ends at the server"});
  refused({"prefill_replicas=1", "decode_replicas=1", "hardware=a10-pcie-4", "handover.link=nvlink",
           "tensor_parallel=1", "model=llama-2-7b"},
          {"a10-pcie-4 has no figures of copies between its GPUs"});
}

// Each pool streams by the record of its phase. A replica of prompts that has a host of its own does what an instance
// with policy.phase=prefill does, so it samples the same first tokens at the same times; one of both phases has a
// tighter record. The configuration of the result states policy.phase, and gives the same.
TEST_F(ClusterCli, SelectNFollowsThePhaseOfItsPool) {
  const std::vector<std::string> common{"policy=select-n", "model=llama-3.1-8b", "hardware=h100-80gb-sxm",
                                        "workload.trace=sharegpt", "workload.rate=1"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), common.begin(), common.end());
    return run(more);
  };
  const auto ttft = [](const json& result) { return result["metrics"]["mean_ttft_ms"]["value"].get<double>(); };
  const std::vector<std::string> in_pools{"prefill_replicas=1", "decode_replicas=1", "handover.first_token=prefill"};
  const json pools = with(in_pools);
  EXPECT_EQ(pools["conservation"]["all"]["finished"], 300);
  EXPECT_EQ(ttft(pools), ttft(with({"policy.phase=prefill"})));
  EXPECT_NE(ttft(pools), ttft(with({})));
  EXPECT_THAT(pools["setup"]["layer_terms"].get<std::string>(),
              AllOf(HasSubstr("for prompts: Select-N follows"), HasSubstr("; for answers: Select-N follows")));
  // Fewer layers leave the GPU for answers, whose weights are read for few tokens, so KV has less room there. Waiting
  // does not slow the decodes of requests that are alone: it counts from the end of their prompts.
  const json decode = with({"policy.phase=decode"});
  EXPECT_EQ(pools["setup"]["most_gpu_kv_blocks"], decode["setup"]["most_gpu_kv_blocks"]);
  EXPECT_LT(pools["setup"]["most_gpu_kv_blocks"], with({"policy.phase=prefill"})["setup"]["most_gpu_kv_blocks"]);
  const auto alone = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"workload.concurrency=1", "policy.slo=200ms"});
    std::vector<std::string> own = common;
    std::erase(own, "workload.rate=1");
    std::erase(own, "hardware=h100-80gb-sxm");
    more.insert(more.end(), own.begin(), own.end());
    more.emplace_back("hardware=hgx-h100-8");
    more.emplace_back("policy.coordinate=false");
    return run(more)["metrics"]["p50_tpot_ms"]["value"].get<double>();
  };
  std::vector<std::string> whatever = in_pools;
  whatever.emplace_back("policy.slo_counts_waiting=false");
  EXPECT_EQ(alone(in_pools), alone(whatever));
  write_text(file("again.json"), pools["config"].dump());
  EXPECT_EQ(run({"again.json"})["metrics"], pools["metrics"]);
}

// Prompt and answer need more than the decode replica can hold: rejected before the prompt is computed.
TEST_F(ClusterCli, WhatADecodeReplicaCanNeverHoldIsRejectedAtOnce) {
  const json result = run({"prefill_replicas=1", "decode_replicas=1", "memory.gpu_kv=100 blocks", "workload.rate=1",
                           "workload.trace=uniform", "workload.input_tokens=1200", "workload.output_tokens=400"});
  const std::int64_t rejected = result["conservation"]["all"]["rejected"];
  EXPECT_GT(rejected, 100);
  EXPECT_LT(rejected, 200);
  EXPECT_EQ(result["conservation"]["all"]["finished"], 300 - rejected);
  EXPECT_EQ(result["replicas"][1]["requests"], 300 - rejected);
  EXPECT_EQ(result["replicas"][0]["finished_requests"], 300 - rejected);
}

TEST_F(ClusterCli, BadEventsAreRefusedTogether) {
  write_text(file("e.json"), R"([{"at": "soon", "replica": 4, "event": "dwn"}, {"replica": 0, "why": 1}, 7,
    {"at": "1s", "replica": 1, "event": "up"}])");
  refused({"replicas=2", "events=e.json"},
          {"e.json (/0/at)", "at is \"soon\", no time", "there is no replica 4", "replicas are numbered from 0 to 1",
           "event is \"dwn\"", "unknown key \"why\"", "at is missing", "event is missing", "an event is not an object",
           "replica 1 is up already at 1s", "it is up at the start"});
  refused({"events=none.json"}, {"cannot read the file none.json"});
  write_text(file("broken.json"), "[{");
  refused({"events=broken.json"}, {"not valid JSON"});
  write_text(file("object.json"), "{}");
  refused({"events=object.json"}, {"events are not a list"});
  write_text(file("c.json"), R"({"seed": [{"at": 1}]})");
  refused({"c.json"}, {"seed holds more than plain values"});
}

TEST_F(ClusterCli, WhatIsNotModelledSaysWhatComesNearest) {
  refused({"pipeline_parallel=2"}, {"pipeline_parallel is not modelled", "nearest is tensor_parallel"});
  refused({"pipeline-parallel-size=2"}, {"pipeline-parallel-size is not modelled"});
  refused({"engine.speculative_config=x"},
          {"engine.speculative_config is not modelled", "nearest is workload.output_tokens"});
  refused({"lora=true"}, {"lora is not modelled", "nearest is the base model"});
}

// The smallest number of replicas for a rate: one fails, the answer is a number of GPUs.
TEST_F(ClusterCli, SearchFindsHowManyReplicas) {
  const Output found = spillway({"search", "--min", "replicas", "--slo", "p99_ttft_ms<1000", "workload.rate=40",
                                 "workload.requests=1000", "replications=2", "--json"});
  ASSERT_EQ(found.code, 0) << found.err;
  const json report = json::parse(found.out);
  const double replicas = report["searches"][0]["value"];
  EXPECT_GE(replicas, 2.0);
  EXPECT_LE(replicas, 4.0);
}

/// Two models on one server, each with traffic of its own.
constexpr const char* kTwoModels = R"({
  "hardware": "hgx-h100-8",
  "instances": [
    {"name": "large", "gpus": "0-3", "model": "llama-3.1-70b",
     "workload": {"trace": "sharegpt", "rate": 3, "requests": 150}},
    // its own policy, in a group
    {"name": "small", "gpus": [5, 6], "replicas": 2, "policy": {"name": "vllm-v0"}, "router": "round-robin",
     "workload": {"trace": "alpaca", "rate": 9, "requests": 200}, "slo.ttft_ms": 1}
  ]
})";

// What each does is what it does alone on as many GPUs: neither copies, so nothing is shared.
TEST_F(ClusterCli, InstancesDoWhatTheyDoAlone) {
  write_text(file("two.json"), kTwoModels);
  const Output output = spillway({"run", "--json", "two.json", "--requests-out", "r.csv"});
  ASSERT_EQ(output.code, 0) << output.err;
  const json both = json::parse(output.out);
  const Output large = spillway({"run", "--json", "hardware=hgx-h100-8", "model=llama-3.1-70b", "tensor_parallel=4",
                                 "workload.trace=sharegpt", "workload.rate=3", "workload.requests=150"});
  const Output small =
      spillway({"run", "--json", "hardware=hgx-h100-8", "policy=vllm-v0", "replicas=2", "router=round-robin",
                "workload.trace=alpaca", "workload.rate=9", "workload.requests=200", "seed=2"});
  ASSERT_EQ(both["instances"].size(), 2U);
  const std::vector<json> alone{json::parse(large.out), json::parse(small.out)};
  for (std::size_t i = 0; i < alone.size(); ++i) {
    const json& one = both["instances"][i];
    EXPECT_EQ(one["conservation"],
              (json{{"all", alone[i]["conservation"]["all"]}, {"measured", alone[i]["conservation"]["measured"]}}));
    for (const char* const metric :
         {"mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "p99_itl_ms", "max_e2e_ms", "iterations"}) {
      EXPECT_EQ(one["metrics"][metric], alone[i]["metrics"][metric]) << metric;
    }
    EXPECT_EQ(one["setup"]["gpu_kv_blocks"], alone[i]["setup"]["gpu_kv_blocks"]);
  }
  EXPECT_EQ(both["instances"][1]["metrics"]["replica_imbalance"]["value"],
            alone[1]["metrics"]["replica_imbalance"]["value"]);
  EXPECT_EQ(both["instances"][0]["gpus"], (json{0, 1, 2, 3}));
  EXPECT_EQ(both["instances"][0]["workload_share"], nullptr);
  EXPECT_EQ(both["conservation"]["all"]["finished"], 350);
  EXPECT_EQ(both["setup"]["replicas"], 3);
  EXPECT_EQ(both["replicas"][0]["instance"], "large");
  EXPECT_EQ(both["replicas"][2]["instance"], "small");
  for (const json& one : both["replicas"]) EXPECT_EQ(one["pool"], one["instance"]);
  // Every answer of the small one misses 1 ms; the large one has no limit.
  EXPECT_EQ(both["instances"][1]["metrics"]["slo_met_fraction"]["value"], 0.0);
  EXPECT_EQ(both["instances"][0]["metrics"].count("slo_met_fraction"), 0U);
  EXPECT_EQ(both["instances"][1]["slo"]["per_request"], json{"ttft_ms<1"});
  // Its requests end after 200 / 9 s, and the run goes on for more than twice as long.
  EXPECT_EQ(both["instances"][1]["bottleneck"]["resource"], "load");
  EXPECT_EQ(both["instances"][0]["bottleneck"]["resource"], "memory");
  const std::string rows = read_file(file("r.csv"));
  EXPECT_THAT(rows, HasSubstr(",decode_replica,instance\n"));
  EXPECT_EQ(std::count(rows.begin(), rows.end(), '\n'), 351);
  std::size_t large_rows = 0;
  for (std::size_t at = rows.find(",large\n"); at != rows.npos; at = rows.find(",large\n", at + 1)) ++large_rows;
  EXPECT_EQ(large_rows, 150U);
  // The configuration of the result is one, and gives the same.
  write_text(file("again.json"), both["config"].dump());
  const json again = json::parse(spillway({"run", "--json", "again.json"}).out);
  EXPECT_EQ(again["metrics"], both["metrics"]);
  EXPECT_EQ(again["config"], both["config"]);
}

// 200 requests in turn to two replicas are 100 each. A lone replica has no balance unless it was down, here from 1 s to
// 3 s; those of its 150 requests that it lost are sent again, and count twice.
TEST_F(ClusterCli, EachInstanceHasItsBalance) {
  write_text(file("two.json"), kTwoModels);
  const std::string even = "Balance      small: requests per replica 100 to 100; the busiest worked ";
  const Output up = spillway({"run", "two.json"});
  EXPECT_THAT(up.out, AllOf(HasSubstr(even), Not(HasSubstr("Balance      large"))));
  json down = json::parse(kTwoModels, nullptr, true, true);
  down["events"] = {{{"at", "1s"}, {"replica", 0}, {"event", "down"}}, {{"at", "3s"}, {"replica", 0}, {"event", "up"}}};
  write_text(file("down.json"), down.dump());
  const Output failed = spillway({"run", "down.json"});
  EXPECT_EQ(failed.code, 0) << failed.err;
  std::string text = failed.out;
  boost::algorithm::replace_all(text, "\n             ", " ");
  EXPECT_THAT(text, AllOf(HasSubstr(even), ContainsRegex("Balance      large: requests per replica 15[0-9] to 15[0-9]; "
                                                         "the busiest worked 1 times the mean; down for 2 s in all")));
  down["events"][0]["replica"] = down["events"][1]["replica"] = 2;  // the second of the small ones
  write_text(file("small.json"), down.dump());
  EXPECT_THAT(spillway({"run", "small.json"}).out,
              AllOf(HasSubstr("Balance      small: requests per replica"), Not(HasSubstr("Balance      large"))));
}

// A quarter of 2,000 requests is 500 +- 5 sqrt(2,000 * 3 / 16); what an element lacks is what is beside the list.
TEST_F(ClusterCli, InstancesShareAWorkload) {
  write_text(file("c.json"), R"({"hardware": "hgx-h100-8", "workload.requests": 2000, "engine.max_num_seqs": 170,
    "workload.rate": 4, "instances": [{"gpus": 7, "share": 0.75}, {"gpus": 2, "share": 0.25,
    "engine": {"max_num_seqs": 190}}]})");
  const Output output = spillway({"run", "--json", "c.json", "workload.rate=6", "--jobs", "2", "replications=2"});
  ASSERT_EQ(output.code, 0) << output.err;
  const json result = json::parse(output.out);
  const json& second = result["instances"][1];
  EXPECT_EQ(second["name"], "instance-1");
  EXPECT_EQ(second["workload_share"], 0.25);
  EXPECT_NEAR(second["conservation"]["all"]["finished"].get<double>(), 1'000.0, 5.0 * 27.4);
  EXPECT_EQ(result["conservation"]["all"]["finished"], 4000);
  EXPECT_EQ(second["config"]["workload.rate"], 6);
  EXPECT_EQ(second["config"]["engine.max_num_seqs"], 190);
  EXPECT_EQ(result["instances"][0]["config"]["engine.max_num_seqs"], 170);
  EXPECT_EQ(result["steady_state"]["verdict"], "steady");
  const Output table = spillway({"run", "c.json"});
  for (const char* const part : {"2 instances of 2 kinds on hgx-h100-8", "on GPU 7,", "; 25.0% of the",
                                 "Instances (ms)", "azure-conv, poisson at 4 requests/s, 2000 requests"}) {
    EXPECT_THAT(table.out, HasSubstr(part));
  }
  // A trace of the common workload, and settings that are swept beside the list.
  EXPECT_EQ(spillway({"sweep", "c.json", "workload.rate=10,20", "workload.requests=100"}).code, 0);
}

// An instance that streams layers beside one that does not: each has its own figures, the total those of both.
TEST_F(ClusterCli, InstancesThatStreamLayersShareTheLinks) {
  write_text(file("c.json"), R"({"hardware": "hgx-h100-8", "workload.requests": 100, "model": "opt-13b",
    "instances": [{"name": "offloaded", "gpus": 0, "policy": "select-n", "policy.interval": 4}, {"name": "plain",
    "gpus": 1}]})");
  const json result = run({"c.json"});
  const json& offloaded = result["instances"][0]["metrics"];
  EXPECT_GT(offloaded["moved_h2d_bytes"]["value"], 0.0);
  EXPECT_EQ(offloaded.count("layer_stall_fraction"), 1U);
  EXPECT_EQ(result["instances"][1]["metrics"].count("layer_stall_fraction"), 0U);
  EXPECT_EQ(result["metrics"].count("layer_stall_fraction"), 0U);
  // The memory of both: each block counts the same.
  double used = 0.0;
  double blocks = 0.0;
  for (const json& one : result["instances"]) {
    const double own = one["setup"]["gpu_kv_blocks"];
    used += one["metrics"]["mean_gpu_kv_fraction"]["value"].get<double>() * own;
    blocks += own;
  }
  EXPECT_NEAR(result["metrics"]["mean_gpu_kv_fraction"]["value"], used / blocks, 1e-12);
  EXPECT_EQ(result["links"][0]["link"], "host-dram in");
  EXPECT_EQ(result["links"][0]["moved_bytes"], offloaded["moved_h2d_bytes"]["value"]);
}

// Figures of streamed layers are of each kind, also where all stream. Counts may be written as numbers with a point,
// and null is as if the key were absent.
TEST_F(ClusterCli, InstancesOfManyForms) {
  write_text(file("c.json"), R"({"hardware": "hgx-h100-8", "workload.requests": 60, "policy": "pie", "instances": [
    {"gpus": "0-1", "replicas": 2.0, "tensor_parallel": null}, {"gpus": 2, "model": "llama-2-7b", "slo.ttft_ms": null}]})");
  const json result = run({"c.json"});
  EXPECT_EQ(result["setup"]["replicas"], 3);
  EXPECT_EQ(result["instances"][0]["setup"]["tensor_parallel_gpus"], 1);
  EXPECT_EQ(result["instances"][0]["metrics"].count("mean_expansion_ratio"), 1U);
  EXPECT_EQ(result["metrics"].count("mean_expansion_ratio"), 0U);
  EXPECT_EQ(result.count("expansion_over_time"), 0U);
}

TEST_F(ClusterCli, InstancesThatCannotBe_AreRefused) {
  const auto bad = [this](const std::string& list, const std::vector<std::string>& parts,
                          const std::vector<std::string>& more = {}) {
    write_text(file("bad.json"), "{\n  \"hardware\": \"hgx-h100-8\",\n  \"instances\": " + list + "}");
    std::vector<std::string> arguments{"bad.json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    refused(arguments, parts);
  };
  bad(R"([{"name": "a", "gpus": "0-3"},
          {"name": "b", "gpus": [3, 4]}])",
      {"GPU 3 is in two instances, a and b", "bad.json:4 (/instances/1/name)", "give each GPU to one"});
  // A typo beside it is told at once.
  bad(R"([{"name": "a", "gpus": 3}, {"name": "b", "gpus": 3, "shares": 1}])",
      {"GPU 3 is in two instances", "b: unknown key \"shares\""});
  bad(R"([{"gpus": [1, 1]}])", {"GPU 1 is given twice"});
  bad(R"([{"gpus": "6-8"}])", {"hgx-h100-8 has no GPU 8", "its GPUs are 0 to 7"});
  bad(R"([{"gpus": "0,2"}])", {"tensor_parallel=2 needs consecutive GPUs, not 0, 2"});
  bad(R"([{"gpus": "x-y"}])", {"\"x-y\" is no GPU of a server"});
  bad(R"([{"gpus": []}])", {"gpus: none is given"});
  bad(R"([{"name": "a"}])", {"a has no gpus"});
  bad(R"([{"nam": "a", "gpu": 0}])", {"instance-0: unknown key \"nam\"", "did you mean \"name\"?",
                                      "instance-0: unknown key \"gpu\"", "did you mean \"gpus\"?"});
  bad(R"([{"gpus": "0-3", "tensor_parallel": 2}])",
      {"instance-0 has 4 GPUs, and 1 replica of tensor_parallel=2 takes 2"});
  bad(R"([{"gpus": 0, "share": 0.5}, {"gpus": 1, "share": 0.6}])", {"the shares sum to 1.1"});
  bad(R"([{"gpus": 0, "share": 0.5}, {"gpus": 1}])", {"1 of 2 instances state their share"});
  bad(R"([{"gpus": 0, "share": 2}])", {"share is 2", "more than 0 and at most 1"});
  bad(R"([{"gpus": 0, "share": 1, "workload.rate": 2}])", {"has a share and a workload of its own"});
  bad(R"([{"gpus": 0, "name": "a"}, {"gpus": 1, "name": "a"}])", {"two instances are called a"});
  bad(R"([{"gpus": 0, "name": "a,b"}])", {"is no name of an instance"});
  bad(R"([{"gpus": 0, "seed": 3}])", {"seed holds for all instances", "give it beside instances"});
  bad(R"([{"gpus": 0, "slo.run": "p99_ttft_ms<5"}])", {"slo.run holds for all instances"});
  bad(R"([{"gpus": 0, "handover.mode": "whole"}])", {"handover.mode has no effect without pools"});
  bad(R"([{"gpus": 0}])", {"prefill_replicas is given beside instances", "give it in one element"},
      {"prefill_replicas=1", "decode_replicas=1"});
  bad(R"([{"name": "a", "gpus": "0-1", "prefill_replicas": 1, "decode_replicas": 1},
          {"name": "b", "gpus": "2-3", "prefill_replicas": 1, "decode_replicas": 1}])",
      {"a and b both have pools, but only one element of instances may have them"});
  bad(R"([{"name": "a", "gpus": "0-2", "prefill_replicas": 1, "decode_replicas": 1}])",
      {"a has 3 GPUs, and 2 replicas"});
  bad(R"([{"gpus": 0}])", {"servers has no effect beside instances"}, {"servers=1"});
  bad(R"([{"gpus": 0}])", {"h100-80gb-sxm is one GPU", "name a server"}, {"hardware=h100-80gb-sxm"});
  bad(R"([{"gpus": 0}])", {"hgx-h100-8-pair is 2", "use hardware=hgx-h100-8-node"}, {"hardware=hgx-h100-8-pair"});
  bad(R"([{"gpus": 0, "policy": "piee"},
          {"gpus": 1, "memory": {"gpu_kvv": 1}}])",
      {"instance-0: policy: \"piee\" is not known", "bad.json:3 (/instances/0/policy)",
       "instance-1: unknown key \"memory.gpu_kvv\"", "bad.json:4 (/instances/1/memory/gpu_kvv)"});
  bad(R"([{"gpus": 0, "model": "llama-3.1-70b"}])",
      {"instance-0: llama-3.1-70b does not fit", "tensor_parallel=2 fits"});
  bad(R"([{"gpus": 0}, {"gpus": 1, "memory.block_tokens": 32}])", {"need blocks of one size"});
  bad(R"([{"gpus": 0}], "events": [{"at": "1s", "replica": 1, "event": "down"}])", {"there is no replica 1"});
  bad("[]", {"instances is an empty list"});
  bad(R"([{"gpus": 0, "replicas": 2, "gpus": 1}])", {"gpus is given twice"});
  bad(R"([{"gpus": ["0-99999", "0-99999"]}])", {"they are more than a server has"});
  bad(R"([{"gpus": "0-1", "replicas": 100000}])", {"100000 replicas of tensor_parallel=1 take 100000"});
  bad(R"([{"gpus": 0, "tensor_parallel": "x"}])", {"tensor_parallel: \"x\" is not a whole number"});
  bad(R"([{"gpus": 0, "workload.rate": 1}, {"gpus": 1, "workload.rate": 2}])",
      {"workload.rate has no effect: no instance uses the value given beside the list", "argument workload.rate=3"},
      {"workload.rate=3"});
  bad(R"([{"gpus": 0, "policy": "pie"}])", {"policy.reserve_full_input has no effect"},
      {"policy.reserve_full_input=false"});
  refused({"hardware=hgx-h100-8", R"(instances=[{"gpus":"0"},{"gpus":"1","name":"a:99999999999 (x"}])"},
          {"is no name of an instance", "argument:1 (/instances/1/name)"});
  bad(R"([{"gpus": 0},
          7])",
      {"an element of the list is not an object", "bad.json:4 (/instances/1)"});
  bad(R"("c.json")", {"instances is not a JSON list"});
}

}  // namespace
}  // namespace spillway::test
