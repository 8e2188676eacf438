// Fair scheduling over memory that other GPUs lend, from the command line.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/cli/command.hpp"

namespace spillway::test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Lenders : public CliTest {
 protected:
  using Texts = std::vector<std::string>;
  /// Two GPUs with little room for KV, in a burst.
  static Texts burst(Texts more) {
    Texts arguments{"run",
                    "hardware=hgx-h100-8",
                    "model=llama-3.1-70b",
                    "tensor_parallel=2",
                    "memory.gpu_kv=1.45GB",
                    "workload.trace=sharegpt",
                    "workload.rate=3",
                    "workload.requests=60"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  double metric(const json& result, const std::string& name) { return result["metrics"][name]["value"].get<double>(); }
};

// 30 GB hold 11,444 blocks of 16 tokens: 327,680 B per token on two GPUs, 2,621,440 B per block on each.
TEST_F(Lenders, RequestsPageToLentMemory_AndTheRunSaysSo) {
  const auto run = spillway(burst({"policy=aqua", "memory.peer=30GB", "--json"}));
  ASSERT_EQ(run.code, 0) << run.err;
  const json result = json::parse(run.out);
  EXPECT_EQ(result["setup"]["peer_kv_blocks"], 11444);
  EXPECT_GT(metric(result, "page_outs"), 0.0);
  EXPECT_GT(metric(result, "slices"), metric(result, "page_outs") / 60);
  EXPECT_GT(metric(result, "moved_peer_out_bytes"), 0.0);
  EXPECT_EQ(metric(result, "moved_peer_out_bytes"), metric(result, "moved_peer_in_bytes"));
  EXPECT_EQ(metric(result, "moved_d2h_bytes"), 0.0);
  const auto table = spillway(burst({"policy=aqua", "memory.peer=30GB"}));
  EXPECT_THAT(table.out, AllOf(HasSubstr("lent by"), HasSubstr("to the lender"), HasSubstr("left the batch for others"),
                               HasSubstr("4 of the 8 GPUs of hgx-h100-8 are not used")));
}

// The same scheduler over the host pages as much, and waits longer: 160 launches a block, and PCIe.
TEST_F(Lenders, TheHostIsTheSlowerLender) {
  const json aqua = json::parse(spillway(burst({"policy=aqua", "memory.peer=30GB", "--json"})).out);
  const json cfs = json::parse(spillway(burst({"policy=cfs", "--json"})).out);
  EXPECT_GT(metric(cfs, "moved_d2h_bytes"), 0.0);
  EXPECT_GT(metric(cfs, "exposed_kv_copy_s"), 10.0 * metric(aqua, "exposed_kv_copy_s"));
  EXPECT_GT(metric(cfs, "mean_tpot_ms"), metric(aqua, "mean_tpot_ms"));
}

// The server's own figures: a switch joins GPUs and lenders, and two replicas with lenders of their own fit, not three.
TEST_F(Lenders, EachReplicaHasLendersOfItsOwn) {
  const auto two = spillway(burst({"policy=aqua", "memory.peer=30GB", "replicas=2", "--json"}));
  ASSERT_EQ(two.code, 0) << two.err;
  EXPECT_EQ(json::parse(two.out)["setup"]["peer_kv_blocks"], 11444);
  const auto three = spillway(burst({"policy=aqua", "memory.peer=30GB", "replicas=3", "servers=1"}));
  EXPECT_EQ(three.code, 2);
  EXPECT_THAT(three.err, HasSubstr("3 replicas on 4 GPUs each, those that lend memory included, need 2 servers"));
}

TEST_F(Lenders, WithoutALender_AquaPagesToTheHostAndSaysSo) {
  const auto run = spillway(burst({"policy=aqua", "--json"}));
  ASSERT_EQ(run.code, 0) << run.err;
  const json result = json::parse(run.out);
  EXPECT_GT(metric(result, "moved_d2h_bytes"), 0.0);
  EXPECT_THAT(result["warnings"].dump(),
              HasSubstr("no GPU lends memory (memory.peer), so policy aqua uses host memory"));
}

TEST_F(Lenders, MemoryThatNobodyUses_IsTold) {
  const auto warnings = [&](const char* policy) {
    const auto run =
        spillway({"run", policy, "hardware=hgx-h100-8", "memory.peer=30GB", "workload.requests=10", "--json"});
    EXPECT_EQ(run.code, 0) << run.err;
    return json::parse(run.out)["warnings"].dump();
  };
  EXPECT_THAT(warnings("policy=vllm"), HasSubstr("memory.peer has no effect: policy vllm keeps no KV"));
  EXPECT_THAT(warnings("policy=cfs"), HasSubstr("lend without policy.swap_tier=peer"));
}

TEST_F(Lenders, BadInputIsTold) {
  const auto refused = [&](Texts arguments) {
    arguments.insert(arguments.begin(), {"run", "workload.requests=10"});
    const auto run = spillway(arguments);
    EXPECT_EQ(run.code, 2);
    return run.err;
  };
  EXPECT_THAT(refused({"policy=aqua", "memory.peer=30GB"}),
              AllOf(HasSubstr("h100-80gb-sxm is a single GPU without a server"), HasSubstr("hardware=hgx-h100-8")));
  EXPECT_THAT(refused({"policy=aqua", "hardware=a10-pcie-4", "memory.peer=3GB"}),
              HasSubstr("no GPU of a10-pcie-4 reaches the memory of another one"));
  EXPECT_THAT(refused({"policy=aqua", "hardware=hgx-h100-8", "memory.peer=90GB"}),
              HasSubstr("memory.peer=90GB is more than the"));
  EXPECT_THAT(refused({"policy=aqua", "hardware=hgx-h100-8", "memory.peer=1kB"}),
              HasSubstr("memory.peer=1kB is less than one KV block"));
  EXPECT_THAT(refused({"policy=aqua", "hardware=hgx-h100-8", "memory.peer=30GB", "tensor_parallel=8"}),
              AllOf(HasSubstr("takes 8 GPUs that lend beside 8 that compute"), HasSubstr("tensor_parallel=4")));
  EXPECT_THAT(refused({"policy=cfs", "policy.slice=0"}), HasSubstr("policy.slice"));
  EXPECT_THAT(refused({"policy=cfs", "engine.preemption=swap"}), HasSubstr("has no choice of preemption"));
  EXPECT_THAT(refused({"policy=cfs", "policy.rules=code", "engine.chunked_prefill=true"}),
              HasSubstr("computes whole prompts"));
}

// --- elements of instances that lend
// -------------------------------------------------------------------------------

/// A consumer with little memory on GPUs 0 and 1, and what else there is on the server.
std::string consumer_beside(const std::string& others, const std::string& more = "") {
  return R"({"hardware": "hgx-h100-8", "instances": [{"name": "chat", "gpus": "0-1", "model": "llama-3.1-70b",
      "policy": "aqua", "memory": {"gpu_kv": "1.45GB", "lender": "small"}, )" +
         more + R"("workload": {"trace": "sharegpt", "rate": 3, "requests": 100}}, )" + others + "]}";
}
constexpr const char* kSmall = R"({"name": "small", "gpus": "2-3", "model": "llama-3.1-8b", "policy": "vllm",
    "engine.max_num_seqs": 16, "memory.lend_reclaim_at": 3,
    "workload": {"trace": "sharegpt", "arrival": "gamma", "cv": 4, "rate": 10, "requests": 300}})";

// The lender keeps 5 GB. Its bursts keep more than 16 requests waiting, so it reclaims and offers, again and again.
TEST_F(Lenders, AnLlmLendsWhatItDoesNotNeed) {
  write_text(file("l.json"), consumer_beside(kSmall));
  const auto run = spillway({"run", "l.json", "--json"});
  ASSERT_EQ(run.code, 0) << run.err;
  const json result = json::parse(run.out);
  ASSERT_EQ(result["lending"].size(), 1U);
  const json& loan = result["lending"][0];
  EXPECT_EQ(loan["borrower"], "chat");
  EXPECT_EQ(loan["lender"], "small");
  EXPECT_GT(loan["offers"], 1);
  EXPECT_GT(loan["reclaims"], 1);
  EXPECT_GT(loan["mean_return_s"], 0.0);
  EXPECT_LE(loan["longest_return_s"], 4.5);  // the consumer asks every 4 s, at the end of an iteration
  EXPECT_GT(loan["peak_held_bytes"], 0);
  EXPECT_GT(loan["over_time"].size(), 100U);
  const json& chat = result["instances"][0];
  const json& small = result["instances"][1];
  EXPECT_EQ(chat["setup"]["peer_kv_blocks"],
            (small["setup"]["gpu_kv_blocks"].get<std::int64_t>() * 1'048'576 - 4'999'610'368) / 2'621'440);
  EXPECT_EQ(loan["copied_bytes"].get<double>(),
            metric(chat, "moved_peer_out_bytes") + metric(chat, "moved_peer_in_bytes"));
  const auto table = spillway({"run", "l.json"});
  EXPECT_THAT(table.out, AllOf(HasSubstr("Lending      small lends"), HasSubstr("reclaims, back after")));
}

// 35 GB without 5 GiB. Nobody reclaims them, and the copies' share of the memory bandwidth is told beside the model's.
TEST_F(Lenders, GpusThatServeNothing_LendTheirFreeMemory) {
  write_text(file("s.json"),
             consumer_beside(R"({"name": "small", "gpus": "2-3", "free_memory": "35GB", "hbm_share": 0.999})"));
  const auto run = spillway({"run", "s.json", "--json"});
  ASSERT_EQ(run.code, 0) << run.err;
  const json result = json::parse(run.out);
  const json& loan = result["lending"][0];
  EXPECT_EQ(loan["reclaims"], 0);
  EXPECT_NEAR(loan["mean_offered_bytes"].get<double>(), 35e9 - 5.0 * (1 << 30), 1.0);
  EXPECT_EQ(loan["lender_own_memory_bandwidth_fraction"], 0.999);
  EXPECT_GT(loan["lender_memory_bandwidth_fraction"], 0.001);
  EXPECT_EQ(result["instances"].size(), 1U);
  EXPECT_THAT(result["warnings"].dump(), HasSubstr("more than there is, so both take longer"));
}

// 3 GB are less than the 5 GiB that it keeps.
TEST_F(Lenders, ALenderWithoutMemoryToSpare_IsWarnedOf) {
  write_text(file("n.json"), consumer_beside(R"({"name": "small", "gpus": "2-3", "free_memory": "3GB"})"));
  const auto run = spillway({"run", "n.json", "--json"});
  ASSERT_EQ(run.code, 0) << run.err;
  const json result = json::parse(run.out);
  EXPECT_THAT(result["warnings"].dump(), HasSubstr("no GPU lends memory (small has none to spare)"));
  EXPECT_EQ(result.count("lending"), 0U);
  EXPECT_GT(metric(result, "moved_d2h_bytes"), 0.0);
}

TEST_F(Lenders, LendersThatCannotLend_AreTold) {
  const auto refused = [&](const std::string& text) {
    write_text(file("r.json"), text);
    const auto run = spillway({"run", "r.json"});
    EXPECT_EQ(run.code, 2);
    return run.err;
  };
  EXPECT_THAT(refused(consumer_beside(R"({"name": "smal", "gpus": "2-3", "free_memory": "35GB"})")),
              AllOf(HasSubstr("memory.lender=small does not name another element"), HasSubstr("smal")));
  EXPECT_THAT(refused(consumer_beside(R"({"name": "small", "gpus": "2-3", "free_memry": "35GB", "hbm_share": 0.1})")),
              AllOf(HasSubstr("small: unknown key \"free_memry\""), HasSubstr("did you mean \"free_memory\"?"),
                    Not(HasSubstr("this element has no free_memory"))));
  EXPECT_THAT(refused(consumer_beside(R"({"name": "small", "gpus": "2-3", "free_memory": "95GB"})")),
              HasSubstr("small has free_memory of 95.0 GB, more than the"));
  EXPECT_THAT(refused(consumer_beside(R"({"name": "small", "gpus": 2, "free_memory": "35GB"})")),
              HasSubstr("chat has 2 GPUs, and small 1: each GPU borrows from one"));
  EXPECT_THAT(refused(consumer_beside(R"({"name": "small", "gpus": "2-3", "free_memory": "much"})")),
              HasSubstr("free_memory"));
  EXPECT_THAT(
      refused(consumer_beside(R"({"name": "small", "gpus": "2-3", "free_memory": "35GB", "model": "opt-13b"})")),
      HasSubstr("small has free_memory, so it serves nothing and model has no effect"));
  EXPECT_THAT(refused(consumer_beside(R"({"name": "small", "gpus": "2-3", "hbm_share": 0.5})")),
              HasSubstr("this element has no free_memory"));
  EXPECT_THAT(refused(consumer_beside(R"({"name": "small", "gpus": "2-3", "free_memory": "35GB", "hbm_share": 2})")),
              HasSubstr("hbm_share is 2"));
  EXPECT_THAT(refused(consumer_beside(
                  R"({"name": "small", "gpus": "2-3", "model": "opt-13b", "policy": "orca",
                      "workload": {"trace": "alpaca", "rate": 1, "requests": 10}})")),
              HasSubstr("small cannot lend: the KV memory of policy orca must not change"));
  EXPECT_THAT(refused(consumer_beside(
                  R"({"name": "small", "gpus": "2-3", "free_memory": "35GB"},
                     {"name": "other", "gpus": "4-5", "model": "llama-3.1-70b", "policy": "aqua",
                      "memory.gpu_kv": "2GB", "memory.lender": "small",
                      "workload": {"trace": "alpaca", "rate": 1, "requests": 10}})")),
              HasSubstr("small lends to chat, and a lender has one borrower"));
  EXPECT_THAT(refused(consumer_beside(
                  R"({"name": "small", "gpus": "2-3", "model": "llama-3.1-8b", "policy": "aqua",
                      "memory.lender": "chat", "workload": {"trace": "alpaca", "rate": 1, "requests": 10}})")),
              HasSubstr("small borrows memory itself"));
  const auto alone = spillway({"run", "policy=aqua", "memory.lender=small", "hardware=hgx-h100-8"});
  EXPECT_EQ(alone.code, 2);
  EXPECT_THAT(alone.err, HasSubstr("memory.lender names an element of instances, and this run has none"));
}

// What no paper shows: the replicas that generate answers lend, on GPUs 3 and 4, and the one that computes prompts does
// not. GPUs 1 and 2 have a model of the same tensor_parallel.
TEST_F(Lenders, ADecodePoolLends) {
  write_text(file("pools.json"), R"({"hardware": "hgx-h100-8", "instances": [
    {"name": "chat", "gpus": "0-1", "model": "llama-3.1-8b", "policy": "aqua", "replicas": 2,
     "memory": {"gpu_kv": "0.6GB", "lender": "pools"}, "workload": {"trace": "sharegpt", "rate": 20, "requests": 100}},
    {"name": "pools", "gpus": "2-4", "model": "llama-3.1-8b", "policy": "vllm",
     "prefill_replicas": 1, "decode_replicas": 2,
     "workload": {"trace": "sharegpt", "rate": 10, "requests": 100}}]})");
  const auto run = spillway({"run", "./pools.json", "--json"});
  ASSERT_EQ(run.code, 0) << run.err;
  const json result = json::parse(run.out);
  EXPECT_EQ(result["conservation"]["all"]["finished"], 200);
  ASSERT_EQ(result["lending"].size(), 2U);
  for (const json& loan : result["lending"]) {
    EXPECT_EQ(loan["lender"], "pools");
    EXPECT_GT(loan["peak_held_bytes"].get<double>(), 0.0);
  }
  ASSERT_EQ(result["replicas"].size(), 5U);
  const std::vector<std::pair<std::string, std::string>> places{{"chat", "chat"},
                                                                {"chat", "chat"},
                                                                {"pools", "pools prefill"},
                                                                {"pools", "pools decode"},
                                                                {"pools", "pools decode"}};
  for (std::size_t i = 0; i < places.size(); ++i) {
    EXPECT_EQ(result["replicas"][i]["instance"], places[i].first);
    EXPECT_EQ(result["replicas"][i]["pool"], places[i].second);
  }
  EXPECT_GT(metric(result, "handed_over_bytes"), 0.0);
  // All KV that is handed over is that of the element with pools.
  for (const char* const figure : {"handed_over_bytes", "mean_handover_ms", "decode_replica_imbalance"}) {
    EXPECT_EQ(metric(result["instances"][1], figure), metric(result, figure)) << figure;
    EXPECT_FALSE(result["instances"][0]["metrics"].contains(figure)) << figure;
  }
  const auto table = spillway({"run", "./pools.json"});
  EXPECT_THAT(
      table.out,
      AllOf(HasSubstr("1 replicas for prompts and 2 for answers of llama-3.1-8b"),
            HasSubstr("Balance      chat: requests per replica"),
            HasSubstr("Prompts      pools: requests per replica 100 to 100; the busiest worked 1 times the mean"),
            HasSubstr("Answers      pools: requests per replica"), HasSubstr("Hand-over    pools: ")));
  write_text(file("one.json"), R"({"hardware": "hgx-h100-8", "instances": [
    {"name": "chat", "gpus": 0, "policy": "aqua", "memory": {"lender": "pools"}},
    {"name": "pools", "gpus": "2-4", "policy": "vllm", "prefill_replicas": 1, "decode_replicas": 2}]})");
  EXPECT_THAT(spillway({"run", "./one.json"}).err, HasSubstr("chat has 1 GPU, and pools 2 that decode"));
}

// What no paper shows: fair scheduling over Pie's expanded memory. The memory must not change, because prompts join
// with room for a part of them. Over Pensieve's conversations nobody leaves once the host cannot keep its KV: on a host
// of 1 GB slices would else compute the same tokens for ever.
TEST_F(Lenders, FairSchedulingComposes) {
  const auto pie = spillway({"run", "policy=pie", "policy.scheduler=cfs", "policy.expansion=1.4", "hardware=gh200-96gb",
                             "model=opt-13b", "memory.gpu_kv=3GB", "memory.host_kv=40GB", "workload.trace=sharegpt",
                             "workload.rate=12", "workload.requests=100", "--json"});
  ASSERT_EQ(pie.code, 0) << pie.err;
  EXPECT_GT(metric(json::parse(pie.out), "page_outs"), 0.0);
  const auto adaptive = spillway({"run", "policy=pie", "policy.scheduler=cfs", "hardware=gh200-96gb", "model=opt-13b"});
  EXPECT_EQ(adaptive.code, 2);
  EXPECT_THAT(
      adaptive.err,
      HasSubstr("admits prompts of which only a part fits the KV memory, but the KV memory changes during the run"));
  for (const char* const host : {"50GB", "1GB", "0B"}) {
    SCOPED_TRACE(host);
    const auto pensieve =
        spillway({"run", "policy=pensieve", "policy.scheduler=cfs", "model=opt-13b", "hardware=a100-80gb-pcie",
                  "memory.gpu_kv=6GB", std::string("memory.host_cache=") + host, "workload.trace=sharegpt-chat",
                  "workload.rate=3", "workload.requests=200", "--json"});
    ASSERT_EQ(pensieve.code, 0) << pensieve.err;
    const json result = json::parse(pensieve.out);
    EXPECT_EQ(result["conservation"]["all"]["finished"], 200);
    EXPECT_EQ(metric(result, "page_outs") > 0.0, std::string(host) != "0B");
  }
}

// Long prompts keep half of their KV on another GPU, and each token waits for NVLink, not for PCIe.
TEST_F(Lenders, LongPromptsKeepTheirKvInLentMemory) {
  const auto run = [this](Texts more) {
    Texts arguments{"run",
                    "hardware=hgx-h100-8",
                    "model=opt-30b",
                    "policy=flexgen",
                    "policy.gpu_batch=1",
                    "policy.batches=1",
                    "policy.weights_host=0",
                    "policy.cache_host=0.5",
                    "policy.hidden_host=0",
                    "policy.pad_input=1920",
                    "policy.pad_output=128",
                    "policy.cpu_attention=false",
                    "workload.trace=uniform",
                    "workload.input_tokens=1920",
                    "workload.output_tokens=128",
                    "workload.requests=2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return spillway(arguments);
  };
  const json host = json::parse(run({"--json"}).out);
  const json lent = json::parse(run({"policy.swap_tier=peer", "memory.peer=5GB", "--json"}).out);
  EXPECT_EQ(metric(lent, "moved_h2d_bytes"), 0.0);
  EXPECT_EQ(metric(lent, "moved_peer_in_bytes"), metric(host, "moved_h2d_bytes"));
  EXPECT_LT(metric(lent, "mean_tpot_ms"), metric(host, "mean_tpot_ms"));
  // 2,048 tokens of 1,376,256 B, a half of them.
  EXPECT_EQ(lent["lending"][0]["peak_held_bytes"].get<double>(), 1'409'286'144.0);
  EXPECT_THAT(run({"policy.swap_tier=peer", "memory.peer=5GB"}).out, HasSubstr("(1.41 GB in memory that another GPU"));
  const auto small = run({"policy.swap_tier=peer", "memory.peer=1GB", "--json"});
  EXPECT_EQ(metric(json::parse(small.out), "moved_peer_in_bytes"), 0.0);
  EXPECT_THAT(small.out, HasSubstr("on the host: 1.41 GB, and another GPU lends 1.00 GB"));
  const auto attends =
      spillway({"run", "hardware=hgx-h100-8", "policy=flexgen", "policy.swap_tier=peer", "memory.peer=5GB"});
  EXPECT_EQ(attends.code, 2);
  EXPECT_THAT(attends.err, AllOf(HasSubstr("the CPU cannot attend to KV in memory that other GPUs lend"),
                                 HasSubstr("give the whole placement: policy.gpu_batch")));
}

TEST_F(Lenders, ContextsAreKeptInLentMemory) {
  std::string rows;
  for (int i = 0; i < 20; ++i) {
    rows += R"({"input_tokens": 4112, "output_tokens": 8, "prefix_ids": [1], "prefix_block_tokens": 4096})"
            "\n";
  }
  write_text(file("contexts.jsonl"), rows);
  const auto run = [this](Texts more) {
    Texts arguments{"run",
                    "hardware=hgx-h100-8",
                    "policy=aqua",
                    "engine.prefix_caching=true",
                    "policy.keep_prefixes=false",
                    "workload.trace=./contexts.jsonl",
                    "workload.rate=1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return spillway(arguments);
  };
  const json lent = json::parse(run({"memory.peer=10GB", "memory.peer_cache=4GB", "--json"}).out);
  const json host = json::parse(run({"memory.peer=10GB", "memory.host_cache=4GB", "--json"}).out);
  EXPECT_EQ(metric(lent, "moved_h2d_bytes"), 0.0);
  // 4,096 tokens of 131,072 B, for all prompts but those that come before the first has been stored.
  EXPECT_GT(metric(lent, "moved_peer_in_bytes"), 15 * 536'870'912.0);
  EXPECT_GT(metric(host, "moved_h2d_bytes"), 15 * 536'870'912.0);
  EXPECT_EQ(metric(host, "moved_peer_in_bytes"), 0.0);
  EXPECT_TRUE(lent["setup"]["host_cache_is_lent"].get<bool>());
  EXPECT_GE(lent["lending"][0]["peak_held_bytes"].get<double>(), 3.9e9);
  // The cache is as much less for requests that are paged out.
  EXPECT_EQ(lent["setup"]["peer_kv_blocks"].get<int>() + lent["setup"]["host_cache_blocks"].get<int>(),
            host["setup"]["peer_kv_blocks"].get<int>());
  const auto refused = [&](Texts more, const std::string& what) {
    EXPECT_THAT(run(std::move(more)).err, HasSubstr(what));
  };
  refused({"memory.peer_cache=4GB"}, "the run borrows no memory");
  refused({"memory.peer=3GB", "memory.peer_cache=4GB"}, "memory.peer_cache=4GB is more than memory.peer=3GB");
  refused({"memory.peer=10GB", "memory.peer_cache=4GB", "memory.host_cache=1GB"}, "exclude each other");
}

// The lender of AnLlmLendsWhatItDoesNotNeed wants its memory back again and again, so contexts come from both places.
TEST_F(Lenders, ContextsGoToTheHostWhileNobodyLends) {
  std::string rows;
  for (int i = 0; i < 60; ++i) {
    rows +=
        R"({"timestamp": )" + std::to_string(i * 500) + R"(, "input_length": 4160, "output_length": 4, "hash_ids": [)";
    for (int block = 0; block < 8; ++block) rows += (block == 0 ? "" : ",") + std::to_string(i % 2 * 100 + block);
    rows += "," + std::to_string(1000 + i) + "]}\n";
  }
  write_text(file("contexts.jsonl"), rows);
  const auto run = [this](const std::string& memory) {
    write_text(file("c.json"), R"({"hardware": "hgx-h100-8", "instances": [{"name": "chat", "gpus": "0-1",
        "model": "llama-3.1-70b", "policy": "aqua", "engine.prefix_caching": true, "policy.keep_prefixes": false,
        "memory": {"lender": "small", )" +
                                   memory + R"(}, "workload": {"trace": "./contexts.jsonl"}}, )" + kSmall + "]}");
    return spillway({"run", "c.json", "--json"});
  };
  const auto both = run(R"("peer_cache": "4GB")");
  ASSERT_EQ(both.code, 0) << both.err;
  const json result = json::parse(both.out);
  const json& chat = result["instances"][0];
  EXPECT_TRUE(chat["setup"]["host_cache_moves_to_lender"].get<bool>());
  EXPECT_GT(metric(chat, "moved_peer_in_bytes"), 0.0);
  EXPECT_GT(metric(chat, "moved_h2d_bytes"), 0.0);
  EXPECT_GT(result["lending"][0]["reclaims"], 0);
  EXPECT_EQ(result["lending"][0]["peak_held_bytes"].get<double>(),
            chat["setup"]["host_cache_blocks"].get<double>() * 2'621'440.0);
  EXPECT_THAT(run(R"("peer_cache": "70GB")").err,
              AllOf(HasSubstr("memory.peer_cache=70GB is more than the"), HasSubstr("that small lends of each GPU")));
  EXPECT_THAT(run(R"("peer_cache": "4GB", "host_kv": "3GB")").err,
              HasSubstr("memory.peer_cache=4GB is more than memory.host_kv=3GB"));
}

}  // namespace
}  // namespace spillway::test
