// Successful commands: runs, files, reproducibility, gates, and the commands that list and explain.
#include <gmock/gmock.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tests/cli/command.hpp"

namespace spillway::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

using RunCli = CliTest;

std::int64_t lines_of(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

// What the table and the JSON say of the KV of conversations, and of an eviction that knows the future.
TEST_F(RunCli, PensieveReportsItsHistory) {
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"run",
                                       "policy=pensieve",
                                       "model=opt-13b",
                                       "hardware=a100-80gb-pcie",
                                       "memory.gpu_kv=40GB",
                                       "memory.host_cache=60GB",
                                       "workload.trace=sharegpt-chat",
                                       "workload.rate=3",
                                       "workload.requests=1500"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return spillway(arguments);
  };
  const Output lru = with({"policy.eviction=lru"});
  ASSERT_EQ(lru.code, 0) << lru.err;
  EXPECT_THAT(lru.out, HasSubstr("History      tokens of earlier turns: "));
  EXPECT_THAT(lru.out, HasSubstr("suspensions: 0"));
  EXPECT_THAT(lru.out, Not(HasSubstr("prefix cache hits")));
  EXPECT_THAT(lru.out, Not(HasSubstr("oracle")));
  const Output oracle = with({"policy.eviction=farthest-next-use"});
  EXPECT_THAT(oracle.out, HasSubstr("policy pensieve (oracle), engine"));
  EXPECT_THAT(oracle.out, HasSubstr("knows when each conversation's next turn arrives"));
  const auto figures = [&](const std::string& eviction) {
    return json::parse(with({"policy.eviction=" + eviction, "--json"}).out);
  };
  const json known = figures("farthest-next-use");
  const json unknown = figures("lru");
  EXPECT_TRUE(known["setup"].contains("knows_future"));
  EXPECT_FALSE(unknown["setup"].contains("knows_future"));
  // 1,024 tokens of OPT-13B are 839 MB of KV, over 25 GB/s or less; computing them takes 2 x 13e9 x 1,024 FLOPs, of
  // which an A100 does at most 312e12 per second.
  const json& hit = known["setup"]["host_tier_hits"][0];
  EXPECT_EQ(hit["tokens"], 1024);
  EXPECT_GT(hit["load_ms"], 839e6 / 25e9 * 1e3);
  EXPECT_LT(hit["load_ms"], 1.5 * 839e6 / 25e9 * 1e3);
  EXPECT_GT(hit["compute_ms"], 2 * 13e9 * 1024 / 312e12 * 1e3);
  EXPECT_LT(hit["compute_ms"], 2 * 2 * 13e9 * 1024 / 312e12 * 1e3);
  EXPECT_EQ(known["setup"]["host_tier_hits"].size(), 1U) << "the model takes 2,048 tokens";
  EXPECT_THAT(oracle.out, HasSubstr("Host tier    a hit of 1024 tokens loads in "));
  EXPECT_FALSE(
      json::parse(spillway({"run", "--json", "workload.requests=20"}).out)["setup"].contains("host_tier_hits"));
  const auto recomputed = [](const json& result) {
    return result["metrics"]["recomputed_history_tokens"]["value"].get<double>();
  };
  EXPECT_LT(recomputed(known), 0.8 * recomputed(unknown));
}

// Retention under other schedulers, with the defaults of their engines; what cannot work is refused.
TEST_F(RunCli, PensieveRunsUnderOtherSchedulers) {
  const auto under = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"run",
                                       "policy=pensieve",
                                       "model=opt-13b",
                                       "hardware=a100-80gb-pcie",
                                       "memory.gpu_kv=20GB",
                                       "workload.trace=sharegpt-chat",
                                       "workload.rate=1",
                                       "workload.requests=300"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return spillway(arguments);
  };
  for (const char* scheduler : {"orca", "sarathi", "swiftllm", "tensorrt-llm", "vllm", "vllm-v0", "vtc"}) {
    const Output run = under({std::string("policy.scheduler=") + scheduler, "--json"});
    ASSERT_EQ(run.code, 0) << scheduler << ": " << run.err;
    const json metrics = json::parse(run.out)["metrics"];
    EXPECT_GT(metrics["history_gpu_hit_fraction"]["value"], 0.1) << scheduler;
    EXPECT_GT(metrics["history_host_hit_fraction"]["value"], 0.1) << scheduler;
  }
  const Output chunked = under({"policy.scheduler=sarathi", "policy.weights=select-n", "policy.weights.interval=4"});
  EXPECT_EQ(chunked.code, 0) << chunked.err;
  EXPECT_THAT(chunked.out, HasSubstr("engine sarathi-serve"));
  EXPECT_THAT(chunked.out, HasSubstr("History "));
  EXPECT_THAT(chunked.out, HasSubstr("10 of 40 layers of "));
  const Output buddy = under({"policy.scheduler=orca", "policy.allocator=buddy"});
  EXPECT_EQ(buddy.code, 2);
  EXPECT_THAT(buddy.err, HasSubstr("policy orca gives each request one range of addresses, but policy pensieve keeps "
                                   "the KV of conversations between them"));
  EXPECT_THAT(chunked.out, Not(HasSubstr("Host tier"))) << "layers wait for their weights as well";
  const Output shrinks = under({"policy.scheduler=orca", "policy.weights=select-n"});
  EXPECT_EQ(shrinks.code, 2);
  EXPECT_THAT(shrinks.err, HasSubstr("policy orca never preempts, but the KV memory may shrink"));
  EXPECT_THAT(shrinks.err, HasSubstr("at argument policy.scheduler=orca"));
  const Output unified = under({"policy.scheduler=sarathi", "policy.unified=false"});
  EXPECT_EQ(unified.code, 2);
  EXPECT_THAT(unified.err, HasSubstr("policy.unified"));
}

// The table and the JSON of a policy that keeps the KV of conversations: how long KV was on its way, and conversations
// over time. Every part of the time has a figure, and replications have means.
TEST_F(RunCli, PensieveReportsItsCopiesAndConversations) {
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"run",
                                       "policy=pensieve",
                                       "model=opt-13b",
                                       "hardware=a100-80gb-pcie",
                                       "memory.gpu_kv=20GB",
                                       "workload.trace=sharegpt-chat",
                                       "workload.rate=2",
                                       "workload.requests=400",
                                       "workload.think_time=exponential(30s)"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return spillway(arguments);
  };
  const Output table = with({});
  ASSERT_EQ(table.code, 0) << table.err;
  EXPECT_THAT(table.out, testing::ContainsRegex("; KV kept of [0-9.]+ conversations"));
  EXPECT_THAT(table.out, HasSubstr("KV copies    under way "));
  const json one = json::parse(with({"--json"}).out);
  const auto figure = [&](const char* name) { return one["metrics"][name]["value"].get<double>(); };
  EXPECT_GT(figure("hidden_kv_copy_s"), 0.0);
  EXPECT_GT(figure("exposed_kv_copy_s"), 0.0);
  EXPECT_NEAR(figure("hidden_kv_copy_s") + figure("exposed_kv_copy_s") + figure("idle_kv_copy_s"), figure("kv_copy_s"),
              1e-9);
  const json& samples = one["conversations_over_time"];
  ASSERT_GE(samples.size(), 128U);
  ASSERT_LT(samples.size(), 256U);
  double live = 0.0;
  for (const json& sample : samples) {
    live += sample["live"].get<double>() / static_cast<double>(samples.size());
    EXPECT_LE(sample["cached_on_gpu"], sample["cached"]);
    EXPECT_LE(sample["cached"].get<int>(), sample["cached_on_gpu"].get<int>() + sample["cached_on_host"].get<int>());
  }
  EXPECT_NEAR(live, figure("mean_live_conversations"), 0.05 * live) << "the mean of the samples";
  EXPECT_FALSE(one.contains("conversations_over_time_replication"));
  const json two = json::parse(with({"--json", "replications=2"}).out);
  EXPECT_EQ(two["conversations_over_time"], samples) << "replication 0 is the run without replications";
  EXPECT_EQ(two["conversations_over_time_replication"], 0);
  for (const char* name : {"kv_copy_s", "exposed_kv_copy_s", "mean_live_conversations", "peak_cached_conversations"}) {
    EXPECT_EQ(two["metrics"][name]["n"], 2) << name;
  }
  // Without conversations: no samples and no means. Nothing is copied.
  const Output plain = spillway({"run", "--json", "workload.requests=20"});
  const json none = json::parse(plain.out);
  EXPECT_FALSE(none.contains("conversations_over_time"));
  EXPECT_TRUE(none["metrics"]["mean_live_conversations"]["value"].is_null());
  EXPECT_EQ(none["metrics"]["kv_copy_s"]["value"], 0.0);
  EXPECT_THAT(spillway({"run", "workload.requests=20"}).out, Not(HasSubstr("KV copies")));
}

TEST_F(RunCli, TheDefaultRunFillsOneScreen) {
  // On a slow machine the run is long enough to report progress.
  const Output run = spillway({"run", "--progress", "off"});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err, IsEmpty());
  EXPECT_LE(lines_of(run.out), 40);
  std::istringstream lines(run.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
  for (const char* part :
       {"llama-3.1-8b on 1 x h100-80gb-sxm, policy vllm", "azure-conv, poisson at 4 requests/s, 2000 requests",
        "2000 submitted = 2000 finished", "TTFT (ms)", "TPOT (ms)", "ITL (ms)", "E2E (ms)", "Throughput", "Memory",
        "Links", "Bottleneck", "Try next", "Validity     expect TPOT within "}) {
    EXPECT_THAT(run.out, HasSubstr(part));
  }
  EXPECT_EQ(files_left(), 0);
}

TEST_F(RunCli, TwoRunsAndAnyNumberOfThreadsGiveTheSameBytes) {
  const std::vector<std::string> run{"run", "--json", "workload.requests=300", "replications=4", "workload.rate=20"};
  auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> all = run;
    all.insert(all.end(), more.begin(), more.end());
    return spillway(all);
  };
  const Output first = with({"-j", "1", "--requests-out", "one.jsonl"});
  const Output second = with({"-j", "1", "--requests-out", "two.jsonl"});
  const Output threads = with({"-j", "3", "--requests-out", "three.jsonl"});
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(first.out, second.out);
  EXPECT_EQ(first.out, threads.out);
  EXPECT_EQ(read_file(file("one.jsonl")), read_file(file("two.jsonl")));
  EXPECT_EQ(read_file(file("one.jsonl")), read_file(file("three.jsonl")));
  EXPECT_EQ(lines_of(read_file(file("one.jsonl"))), 1200);  // 4 replications of 300 requests
  const json result = json::parse(first.out);
  EXPECT_EQ(result["metrics"]["mean_ttft_ms"]["n"], 4);
  EXPECT_GT(result["metrics"]["mean_ttft_ms"]["half_width"], 0.0);
}

// The LM head of llama-3.1-8b has 128,256 outputs, more than were measured. It is one of 4 * 32 + 1 multiplications in
// each iteration, because here every iteration emits tokens.
TEST_F(RunCli, WhatLeavesTheMeasuredRangeIsCountedOverReplicationsWhateverTheThreads) {
  const auto outside = [&](const std::string& replications, const std::string& jobs) {
    const Output run = spillway({"run", "--json", "workload.requests=100", "workload.rate=20", "-j", jobs,
                                 "workload.input_tokens=300", "replications=" + replications});
    EXPECT_EQ(run.code, 0) << run.err;
    return json::parse(run.out)["outside_measured_range"];
  };
  const json one = outside("1", "1");
  ASSERT_EQ(one.size(), 1U) << one;
  EXPECT_EQ(one[0]["op"], "gemm");
  EXPECT_EQ(one[0]["quantity"], "n");
  EXPECT_EQ(one[0]["measured"], json::array({32.0, 65536.0}));
  EXPECT_EQ(one[0]["reached"], 128256.0);
  EXPECT_DOUBLE_EQ(one[0]["fraction"].get<double>(), 1.0 / 129.0);
  EXPECT_EQ(outside("3", "1"), outside("3", "2"));
  EXPECT_THAT(spillway({"run", "workload.requests=100"}).out, HasSubstr("% extrapolated: explain validity\n"));
  EXPECT_THAT(spillway({"run", "workload.requests=100", "latency_model=roofline"}).out, Not(HasSubstr("extrapolated")));
}

TEST_F(RunCli, PerturbedRunsStandBesideTheBaseRunWhateverTheThreads) {
  const std::vector<std::string> run{"run", "--json", "workload.requests=60", "workload.rate=20", "replications=2"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = run;
    all.insert(all.end(), more.begin(), more.end());
    const Output output = spillway(all);
    EXPECT_EQ(output.code, 0) << output.err;
    return output.out;
  };
  const std::string perturbed = with({"--perturb", "15%", "-j", "1", "-o", "out", "--requests-out", "r.csv"});
  EXPECT_EQ(with({"--perturb", "0.15", "-j", "3"}), perturbed);
  EXPECT_EQ(read_file(file("out/result.json")), perturbed);
  EXPECT_EQ(lines_of(read_file(file("r.csv"))), 121);  // only the base run: 2 replications of 60, and a header
  json result = json::parse(perturbed);
  const json perturbation = result["perturbation"];
  result.erase("perturbation");
  EXPECT_EQ(result, json::parse(with({}))) << "the base run is what it is without";
  EXPECT_EQ(perturbation["fraction"], 0.15);
  ASSERT_EQ(perturbation["runs"].size(), 30U);
  const double base = result["metrics"]["mean_tpot_ms"]["value"];
  std::map<std::string, double> changes;
  for (const json& one : perturbation["runs"]) {
    const json& tpot = one["metrics"]["mean_tpot_ms"];
    EXPECT_DOUBLE_EQ(tpot["change"].get<double>(), tpot["value"].get<double>() / base - 1.0);
    changes[one["label"]] = tpot["change"];
  }
  // Multiplications take most of a token's time, attention the rest; there are no copies.
  EXPECT_GT(changes.at("GEMM +15%"), 0.05);
  EXPECT_LT(changes.at("GEMM +15%"), 0.2);
  EXPECT_LT(changes.at("GEMM -15%"), -0.05);
  EXPECT_GT(changes.at("attention +15%"), 0.0);
  EXPECT_EQ(changes.at("copies +15%"), 0.0);
  EXPECT_EQ(changes.at("CPU -15%"), 0.0);
  EXPECT_LT(changes.at("GEMM +15%, attention -15%"), changes.at("GEMM +15%"));
}

TEST_F(RunCli, PerturbedRunsFitTheScreenAndAreSaidWhereTheyAreNotShown) {
  const Output table = spillway({"run", "--perturb", "5%", "workload.requests=100"});
  ASSERT_EQ(table.code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("\nTimes +-5% "));
  EXPECT_THAT(table.out, HasSubstr("\nGEMM  "));
  EXPECT_THAT(table.out, HasSubstr("\nlargest      "));
  EXPECT_LE(lines_of(table.out), 40);
  for (const char* format : {"csv", "vllm"}) {
    const Output base = spillway({"run", "--format", format, "workload.requests=30"});
    const Output run = spillway({"run", "--format", format, "workload.requests=30", "--perturb", "5%"});
    EXPECT_EQ(run.code, 0);
    EXPECT_EQ(run.out, base.out);
    EXPECT_THAT(run.err, HasSubstr(std::string("note: ") + format + " contains only the base run"));
  }
  const Output plan =
      spillway({"run", "--perturb", "5%", "--dry-run", "replications=3", "workload.requests=100000000"});
  EXPECT_THAT(plan.out, HasSubstr("With --perturb, there would be 93 runs."));  // 3 of the base and of each of 30
}

TEST_F(RunCli, APerturbationBeyondTheRuleIsRefused) {
  for (const char* bad : {"0", "0%", "-5%", "51%", "0.51", "x", "5%%", "nan", "inf"}) {
    const Output run = spillway({"run", std::string("--perturb=") + bad, "workload.rat=3"});
    EXPECT_EQ(run.code, 2) << bad;
    EXPECT_THAT(run.out, IsEmpty());
    EXPECT_THAT(run.err, HasSubstr("is not a fraction above 0 and at most 50%")) << bad;
    EXPECT_THAT(run.err, HasSubstr("did you mean \"workload.rate\"?")) << "with all other problems";
  }
  EXPECT_EQ(spillway({"run", "--perturb=50%", "workload.requests=5"}).code, 0);
}

TEST_F(RunCli, InterruptingPerturbedRunsLeavesThemOut) {
  const pid_t child = start({"run", "--json", "--perturb", "5%", "-o", "out", "workload.requests=100000000"});
  for (int i = 0; i < 600 && !std::filesystem::exists(file("out")); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  ::kill(child, SIGINT);
  const Output run = wait_for(child);
  EXPECT_EQ(run.code, 130) << run.err;
  const json result = json::parse(run.out);
  EXPECT_EQ(result["complete"], false);
  EXPECT_FALSE(result.contains("perturbation"));
}

TEST_F(RunCli, TheResolvedConfigurationGivesTheSameResult) {
  const Output first = spillway({"run", "--json", "-o", "a", "policy=vllm-v0", "workload.requests=200", "warmup=10%",
                                 "memory.gpu_kv=4000MB", "--slo", "ttft_ms<500,p99_e2e_ms<9000"});
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(first.out, read_file(file("a/result.json")));
  const Output again = spillway({"run", "--json", "a/config.resolved.json", "-o", "b"});
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(again.out, first.out);
  EXPECT_EQ(read_file(file("a/config.resolved.json")), read_file(file("b/config.resolved.json")));
  EXPECT_EQ(read_file(file("a/charts.json")), read_file(file("b/charts.json")));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(file("a")), std::filesystem::directory_iterator()), 3);

  const json result = json::parse(first.out);
  EXPECT_EQ(result["config"], json::parse(read_file(file("a/config.resolved.json"))));
  EXPECT_EQ(result["config"]["slo.ttft_ms"], 500.0);
  EXPECT_EQ(result["config"]["memory.gpu_kv"], "4GB");
  EXPECT_EQ(result["conservation"]["all"]["submitted"], 200);
  EXPECT_EQ(result["conservation"]["measured"]["submitted"], 180);  // 10% of 200 are warm-up
  EXPECT_EQ(result["slo"]["run"][0]["condition"], "p99_e2e_ms<9000");
  EXPECT_TRUE(result["metrics"].contains("goodput_requests_per_s"));
  EXPECT_THAT(first.out, Not(HasSubstr(folder().string())));
}

TEST_F(RunCli, AGivenKvCacheIsDividedIntoBlocks) {
  // llama-3.1-8b: 2 (K and V) * 32 layers * 8 KV heads * 128 * 2 bytes = 131,072 bytes per token, 2,097,152 per block
  // of 16 tokens. 4 GB store floor(1907.3) = 1907 blocks = 30,512 tokens, below the model's 131,072. 1 GiB on the host:
  // 512 blocks.
  const Output run = spillway({"run", "--json", "--dry-run", "memory.gpu_kv=4GB", "memory.host_kv=1GiB"});
  ASSERT_EQ(run.code, 0) << run.err;
  const json result = json::parse(run.out);
  EXPECT_EQ(result["setup"]["block_bytes_per_gpu"], 2097152);
  EXPECT_EQ(result["setup"]["gpu_kv_blocks"], 1907);
  EXPECT_EQ(result["setup"]["gpu_kv_tokens"], 30512);
  EXPECT_EQ(result["setup"]["max_model_len_tokens"], 30512);
  EXPECT_EQ(result["setup"]["host_kv_blocks"], 512);
  EXPECT_THAT(result["warnings"].dump(), HasSubstr("lowered from the model's 131072 to 30512 tokens"));
  EXPECT_FALSE(result.contains("metrics"));
  // With fp8 and two GPUs, a GPU stores 4 KV heads of 1 byte: a quarter of the bytes.
  const Output split =
      spillway({"run", "--json", "--dry-run", "memory.gpu_kv=4GB", "memory.kv_dtype=fp8", "tensor_parallel=2"});
  ASSERT_EQ(split.code, 0) << split.err;
  EXPECT_EQ(json::parse(split.out)["setup"]["block_bytes_per_gpu"], 524288);
}

TEST_F(RunCli, DryRunShowsTheSetUpAndRunsNothing) {
  const Output run = spillway({"run", "--dry-run", "-o", "out", "workload.requests=100000000"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("KV memory"));
  EXPECT_THAT(run.out, HasSubstr("nothing was run"));
  EXPECT_EQ(files_left(), 0);
}

TEST_F(RunCli, GatesExitWithFiveAndStillPrint) {
  const Output passes = spillway({"run", "workload.requests=50", "--fail-if", "p99.9_ttft_ms>100000"});
  EXPECT_EQ(passes.code, 0) << passes.err;
  const Output fails = spillway({"run", "--json", "workload.requests=50", "--fail-if", "mean_ttft_ms>=0,iterations<0",
                                 "--fail-if", "p99_e2e_ms>0"});
  EXPECT_EQ(fails.code, 5);
  EXPECT_EQ(json::parse(fails.out)["complete"], true);
  EXPECT_THAT(fails.err, HasSubstr("gate: --fail-if mean_ttft_ms>=0: mean_ttft_ms is "));
  EXPECT_THAT(fails.err, HasSubstr("gate: --fail-if p99_e2e_ms>0"));
  EXPECT_THAT(fails.err, Not(HasSubstr("iterations")));
  // No request finishes in a nanosecond, so the metric has no value and the gate fails.
  const Output missing = spillway({"run", "until=1ns", "--fail-if", "p99_ttft_ms>800"});
  EXPECT_EQ(missing.code, 5);
  EXPECT_THAT(missing.err, HasSubstr("p99_ttft_ms has no value"));
}

TEST_F(RunCli, ConfigFileAndArgumentsInAnyOrder) {
  write_text(file("my.json"), "{\"workload\": {\"requests\": 30}, // few\n \"seed\": 4}");
  const Output before = spillway({"run", "--json", "my.json", "seed=5"});
  const Output after = spillway({"run", "seed=5", "my.json", "--json"});
  ASSERT_EQ(before.code, 0) << before.err;
  EXPECT_EQ(before.out, after.out);
  EXPECT_EQ(json::parse(after.out)["config"]["seed"], 5);
  EXPECT_EQ(json::parse(after.out)["config"]["workload.requests"], 30);
}

TEST_F(RunCli, RequestsAreWrittenOnePerRow) {
  ASSERT_EQ(spillway({"run", "workload.requests=40", "--requests-out", "r.jsonl"}).code, 0);
  ASSERT_EQ(spillway({"run", "workload.requests=40", "--requests-out", "r.csv"}).code, 0);
  std::istringstream rows(read_file(file("r.jsonl")));
  std::set<std::int64_t> indices;
  for (std::string line; std::getline(rows, line);) {
    const json row = json::parse(line);
    indices.insert(row["index"].get<std::int64_t>());
    EXPECT_EQ(row["outcome"], "finished");
    EXPECT_LE(row["arrival_ns"], row["first_scheduled_ns"]);
    EXPECT_LE(row["first_scheduled_ns"], row["first_token_ns"]);
    EXPECT_LE(row["first_token_ns"], row["end_ns"]);
  }
  EXPECT_EQ(indices.size(), 40U);
  EXPECT_EQ(lines_of(read_file(file("r.csv"))), 41);  // including a header
  EXPECT_EQ(files_left(), 2);
}

TEST_F(RunCli, InterruptingGivesAPartialResult) {
  const pid_t child = start({"run", "--json", "-o", "out", "workload.requests=100000000", "--requests-out", "r.csv"});
  // The result's temporary file exists before the run starts; shortly after, the signal handler is installed.
  for (int i = 0; i < 600 && !std::filesystem::exists(file("out")); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  ::kill(child, SIGINT);
  const Output run = wait_for(child);
  EXPECT_EQ(run.code, 130) << run.err;
  EXPECT_THAT(run.err, HasSubstr("interrupted: the result is marked incomplete"));
  const json result = json::parse(run.out);
  EXPECT_EQ(result["complete"], false);
  EXPECT_GT(result["conservation"]["all"]["finished"], 0);
  EXPECT_EQ(run.out, read_file(file("out/result.json")));
  // Every submitted request has a row, finished or still live.
  EXPECT_EQ(lines_of(read_file(file("r.csv"))) - 1, result["conservation"]["all"]["submitted"].get<std::int64_t>());
}

TEST_F(RunCli, TerminatingGivesAPartialResult) {
  const pid_t child = start({"run", "--json", "-o", "out", "workload.requests=100000000"});
  for (int i = 0; i < 600 && !std::filesystem::exists(file("out")); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  ::kill(child, SIGTERM);
  const Output run = wait_for(child);
  EXPECT_EQ(run.code, 130) << run.err;
  EXPECT_EQ(json::parse(run.out)["complete"], false);
  EXPECT_EQ(run.out, read_file(file("out/result.json")));
}

TEST_F(RunCli, SaturationIsSaid) {
  const Output run = spillway({"run", "--json", "workload.rate=200", "workload.requests=3000"});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(json::parse(run.out)["warnings"].dump(), HasSubstr("saturated"));
  EXPECT_THAT(json::parse(spillway({"run", "--json"}).out)["warnings"].dump(), Not(HasSubstr("saturated")));
}

TEST_F(RunCli, TimeOutsAndTheHorizonAreCountedAndSaid) {
  const Output run = spillway({"run", "--json", "engine.request_timeout=500ms", "until=60s"});
  ASSERT_EQ(run.code, 0) << run.err;
  const json result = json::parse(run.out);
  EXPECT_GT(result["conservation"]["all"]["timed_out"], 0);
  EXPECT_THAT(result["warnings"].dump(), HasSubstr("timed out"));
  EXPECT_DOUBLE_EQ(result["metrics"]["duration_s"]["value"], 60.0);
}

TEST_F(RunCli, PrefixCachingFollowsTheTrace) {
  write_text(file("shared.jsonl"),
             "{\"arrival_s\": 0, \"input_tokens\": 64, \"output_tokens\": 2, \"prefix_ids\": [1, 2, 3, 4]}\n"
             "{\"arrival_s\": 9, \"input_tokens\": 64, \"output_tokens\": 2, \"prefix_ids\": [1, 2, 3, 4]}\n");
  const auto setup = [&](const std::vector<std::string>& arguments) {
    const Output run = spillway(arguments);
    EXPECT_EQ(run.code, 0) << run.err;
    return json::parse(run.out);
  };
  const json automatic = setup({"run", "--json", "workload.trace=./shared.jsonl"});
  EXPECT_EQ(automatic["setup"]["prefix_caching"], true);
  EXPECT_GT(automatic["metrics"]["prefix_cache_hit_fraction"]["value"], 0.0);
  const json off = setup({"run", "--json", "workload.trace=./shared.jsonl", "engine.prefix_caching=false"});
  EXPECT_EQ(off["setup"]["prefix_caching"], false);
  EXPECT_TRUE(off["metrics"]["prefix_cache_hit_fraction"]["value"].is_null());
  EXPECT_EQ(setup({"run", "--json", "--dry-run"})["setup"]["prefix_caching"], false);
}

TEST_F(RunCli, TheHostTierOfThePrefixCache) {
  // Blocks of llama-3.1-8b are 2 MiB; the GPU has 140. A prompt of 128 blocks returns after another prompt took its
  // blocks, so only the host still has them. (A short prefix would save no time: reading the weights takes as long.)
  std::string trace;
  for (const int first : {0, 128, 0}) {
    std::string ids;
    for (int id = first; id < first + 128; ++id) ids += (ids.empty() ? "" : ", ") + std::to_string(id);
    trace += "{\"arrival_s\": " + std::to_string(9 * std::count(trace.begin(), trace.end(), '\n')) +
             ", \"input_tokens\": 2060, \"output_tokens\": 2, \"prefix_ids\": [" + ids + "]}\n";
  }
  write_text(file("shared.jsonl"), trace);
  const auto with = [&](const std::string& host_cache) {
    const Output run = spillway({"run", "--json", "workload.trace=./shared.jsonl", "memory.gpu_kv=280MiB", host_cache});
    EXPECT_EQ(run.code, 0) << run.err;
    return json::parse(run.out);
  };
  const json none = with("memory.host_cache=0B");
  const json some = with("memory.host_cache=1GiB");
  EXPECT_EQ(some["setup"]["host_cache_blocks"], 512);
  EXPECT_EQ(none["metrics"]["host_cache_hit_fraction"]["value"], 0.0);
  EXPECT_GT(some["metrics"]["host_cache_hit_fraction"]["value"], 0.0);
  EXPECT_LT(some["metrics"]["mean_ttft_ms"]["value"], none["metrics"]["mean_ttft_ms"]["value"]);

  const Output table = spillway({"run", "workload.trace=./shared.jsonl", "memory.host_cache=1GiB"});
  EXPECT_THAT(table.out, HasSubstr("512 cache blocks on the host"));
  const Output off = spillway({"run", "memory.host_cache=1GiB", "workload.requests=5", "engine.kv_connector=none"});
  EXPECT_THAT(off.out, HasSubstr("memory.host_cache has no effect, because prefix"));
  // A connector stores what nobody asks for again, which is what it costs where no prompt repeats.
  const Output stores = spillway({"run", "memory.host_cache=1GiB", "workload.requests=5", "--json"});
  const json unshared = json::parse(stores.out);
  EXPECT_THAT(unshared["warnings"].dump(),
              HasSubstr("the connector stores the blocks of all requests, but the workload "
                        "does not say which prompts share a prefix: nothing is shared"));
  EXPECT_GT(unshared["metrics"]["connector_stored_blocks"]["value"], 0);
  EXPECT_EQ(unshared["metrics"]["connector_loaded_blocks"]["value"], 0);
  const Output small = spillway({"run", "memory.host_cache=1MB", "workload.requests=5"});
  EXPECT_EQ(small.code, 2);
  EXPECT_THAT(small.err, HasSubstr("less than one KV block of 2097152 bytes"));
}

/// 20 prompts of 64 blocks and 6 tokens, each three times in turn.
std::string cycle_of_prompts() {
  std::string trace;
  for (int i = 0; i < 60; ++i) {
    std::string ids;
    for (int id = 0; id < 64; ++id) ids += (ids.empty() ? "" : ", ") + std::to_string(64 * (i % 20) + id);
    trace += "{\"arrival_s\": " + std::to_string(2 * i) +
             ", \"input_tokens\": 1030, \"output_tokens\": 2, \"prefix_ids\": [" + ids + "]}\n";
  }
  return trace;
}

// 20 prompts of 64 blocks of 2 MiB, each three times in turn; the GPU has 70 blocks. A tier of 640 blocks holds the
// last 10 prompts, so a prompt that returns has gone: all 60 store their blocks, and all but the first 10 evict as
// many. A tier of 1,280 blocks holds all: 20 prompts store, 40 load.
TEST_F(RunCli, TheConnectorOfVllm) {
  write_text(file("cycle.jsonl"), cycle_of_prompts());
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"run", "workload.trace=./cycle.jsonl", "memory.gpu_kv=140MiB"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return spillway(arguments);
  };
  const json small = json::parse(with({"--json", "memory.host_cache=1280MiB"}).out);
  EXPECT_EQ(small["setup"]["kv_connector"], "vllm-offloading");
  EXPECT_EQ(small["metrics"]["connector_loaded_blocks"]["value"], 0.0);
  EXPECT_EQ(small["metrics"]["connector_stored_blocks"]["value"], 60 * 64);
  EXPECT_EQ(small["metrics"]["connector_evicted_blocks"]["value"], 50 * 64);
  const json large = json::parse(with({"--json", "memory.host_cache=2560MiB"}).out);
  EXPECT_EQ(large["metrics"]["connector_loaded_blocks"]["value"], 40 * 64);
  EXPECT_EQ(large["metrics"]["connector_stored_blocks"]["value"], 20 * 64);
  EXPECT_GT(large["metrics"]["connector_cpu_s"]["value"], 0.0);
  EXPECT_THAT(large["warnings"].dump(), HasSubstr("engine.kv_connector=none makes it an ideal write-through tier"));
  const Output table = with({"memory.host_cache=2560MiB"});
  EXPECT_THAT(table.out, HasSubstr("stored 1280"));
  EXPECT_THAT(table.out, HasSubstr("vllm-offloading of vLLM 0.11 to 0.13"));
  const json ideal = json::parse(with({"--json", "memory.host_cache=1GiB", "engine.kv_connector=none"}).out);
  EXPECT_EQ(ideal["setup"]["kv_connector"], "none");

  const auto refused = [&](const std::vector<std::string>& more) {
    const Output run = with(more);
    EXPECT_EQ(run.code, 2);
    return run.err;
  };
  EXPECT_THAT(refused({"engine.kv_connector=lmcache"}), HasSubstr("lmcache is not modelled"));
  EXPECT_THAT(refused({"engine.kv_connector=hicache"}), HasSubstr("hicache is not modelled"));
  EXPECT_THAT(refused({"engine.kv_connector=vllm-offloading"}), HasSubstr("set memory.host_cache"));
  const std::string connector = "engine.kv_connector=vllm-offloading";
  for (const char* policy : {"vllm-v0", "pie", "sarathi", "tensorrt-llm", "select-n"}) {
    EXPECT_THAT(refused({connector, "memory.host_cache=1GiB", std::string("policy=") + policy}),
                HasSubstr("has no vllm-offloading"));
  }
  EXPECT_THAT(refused({connector, "memory.host_cache=1GiB", "engine=vllm-0.6.3"}), HasSubstr("vLLM has it since 0.11"));
}

// The same cycle on a host of 640 blocks. Each prompt that comes for the first time stores its blocks, and the last 10
// of these 20, and each of the 40 that return, put 64 blocks out: 50 * 64 are evicted, and written once each. A disk of
// 2,560 blocks holds the working set of 1,280, so the 40 prompts that return read their blocks: from the second round
// on, a prompt's tokens but the last 6 of 1,030 are on the disk. A disk of 512 blocks holds the 8 prompts that were
// evicted last, and the host the 10 before: the prompt that returns is in neither, and each of the 60 stores.
TEST_F(RunCli, TheDiskBehindTheConnector) {
  write_text(file("cycle.jsonl"), cycle_of_prompts());
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"run", "workload.trace=./cycle.jsonl", "memory.gpu_kv=140MiB",
                                       "memory.host_cache=1280MiB"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return spillway(arguments);
  };
  const auto metrics = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Output run = with(arguments);
    EXPECT_EQ(run.code, 0) << run.err;
    json result = json::parse(run.out);
    EXPECT_EQ(result["setup"]["kv_connector"], "vllm-offloading");
    return result["metrics"];
  };
  json large = metrics({"memory.disk_cache=5GiB"});
  EXPECT_EQ(large["disk_written_blocks"]["value"], 20 * 64);
  EXPECT_EQ(large["disk_read_blocks"]["value"], 40 * 64);
  EXPECT_EQ(large["connector_evicted_blocks"]["value"], 50 * 64);
  EXPECT_EQ(large["disk_dropped_blocks"]["value"], 0.0);
  EXPECT_NEAR(large["disk_cache_hit_fraction"]["value"].get<double>(), 40.0 * 1024.0 / (60.0 * 1030.0), 1e-12);
  EXPECT_EQ(large["host_cache_hit_fraction"]["value"], 0.0);
  EXPECT_EQ(large["gpu_cache_hit_fraction"]["value"], 0.0);
  json small = metrics({"memory.disk_cache=1GiB"});
  EXPECT_EQ(small["disk_written_blocks"]["value"], 50 * 64);
  EXPECT_EQ(small["disk_read_blocks"]["value"], 0.0);
  // 64 blocks of 2 MiB take 1.342 s at 0.1 GB/s, 1.28 s at 50 operations/s, and 19.5 ms as the datasheet says. The disk
  // is done before the next prompt comes. With one place a write waits for the read before it: prompts 1 to 10 are
  // written when 11 to 20 store their blocks, without a read, and 11 to 20 when 1 to 10 return.
  const auto mean = [](json values) { return values["mean_ttft_ms"]["value"].get<double>(); };
  const double fast = mean(metrics({"memory.disk_cache=5GiB", "memory.disk_queue_depth=1"}));
  json one = metrics({"memory.disk_cache=5GiB", "memory.disk_queue_depth=1", "memory.disk_read_bandwidth=0.1"});
  EXPECT_NEAR(mean(one) - fast, 40.0 / 60.0 * 1e3 * (134'217'728 / 0.1e9 - 134'217'728 / 6.9e9), 0.01);
  const json operations = metrics({"memory.disk_cache=5GiB", "memory.disk_queue_depth=1", "memory.disk_read_iops=50"});
  EXPECT_NEAR(mean(operations) - fast, 40.0 / 60.0 * 1e3 * (64.0 / 50.0 - 134'217'728 / 6.9e9), 0.01);
  EXPECT_NEAR(one["disk_queue_wait_s"]["value"].get<double>(), 10 * 1.34217728, 1e-6);
  EXPECT_EQ(large["disk_queue_wait_s"]["value"], 0.0);

  const Output table = with({"memory.disk_cache=5GiB"});
  EXPECT_THAT(table.out, HasSubstr("640 cache blocks on the host, 2560 on the disk"));
  EXPECT_THAT(table.out, HasSubstr("blocks written 1280, read 2560, dropped 0"));
  EXPECT_THAT(with({}).out, Not(HasSubstr("Disk")));

  const auto refused = [&](const std::vector<std::string>& more) {
    const Output run = with(more);
    EXPECT_EQ(run.code, 2);
    return run.err;
  };
  const std::string disk = "memory.disk_cache=1GiB";
  EXPECT_THAT(with({disk, "engine.prefix_caching=false"}).out,
              HasSubstr("memory.host_cache and memory.disk_cache have no effect"));
  const Output no_host = spillway({"run", "workload.trace=./cycle.jsonl", disk});
  EXPECT_EQ(no_host.code, 2);
  EXPECT_THAT(no_host.err, HasSubstr("what memory.host_cache evicts, and that is 0B"));
  EXPECT_THAT(refused({disk, "engine.kv_connector=none"}), HasSubstr("needs engine.kv_connector=vllm-offloading"));
  EXPECT_THAT(refused({disk, "policy=sarathi"}), HasSubstr("needs engine.kv_connector=vllm-offloading"));
  EXPECT_THAT(refused({disk, "policy=pensieve"}), HasSubstr("keeps the KV of conversations on GPU and host alone"));
  EXPECT_THAT(refused({"memory.disk_cache=-1GiB"}), HasSubstr("is negative"));
  EXPECT_THAT(refused({"memory.disk_cache=1MB"}), HasSubstr("less than one KV block of 2097152 bytes"));
  EXPECT_THAT(refused({"memory.disk_cache=900TB"}), HasSubstr("that a run can track"));
  for (const char* zero : {"read_bandwidth", "write_bandwidth", "read_iops", "write_iops", "queue_depth"}) {
    EXPECT_THAT(refused({disk, std::string("memory.disk_") + zero + "=0"}), HasSubstr("out of range")) << zero;
    EXPECT_THAT(refused({disk, std::string("memory.disk_") + zero + "=-1"}), HasSubstr("out of range")) << zero;
  }
  EXPECT_THAT(refused({disk, "memory.disk_queue_depth=17"}), HasSubstr("at most 16"));
}

TEST_F(RunCli, EveryHelpHasAnExampleAndTheExitCodes) {
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{{},
                                                                                       {"run"},
                                                                                       {"list"},
                                                                                       {"explain"},
                                                                                       {"config"},
                                                                                       {"config", "check"},
                                                                                       {"config", "show"},
                                                                                       {"config", "schema"},
                                                                                       {"completion"},
                                                                                       {"complete"}}) {
    std::vector<std::string> arguments = command;
    arguments.emplace_back("--help");
    const Output help = spillway(arguments);
    EXPECT_EQ(help.code, 0);
    EXPECT_THAT(help.out, HasSubstr("Example: spillway "));
    EXPECT_THAT(help.out, HasSubstr("Exit codes: 0 ok, 2 usage"));
    EXPECT_THAT(help.err, IsEmpty());
  }
  EXPECT_THAT(spillway({"list", "keys"}).out, HasSubstr("engine.max_num_batched_tokens"));
  EXPECT_THAT(spillway({"--version"}).out, testing::MatchesRegex("spillway [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

TEST_F(RunCli, WithoutAKnownCommandTheCommandsAreNamed) {
  for (const auto& [arguments, what, fix] : std::vector<std::tuple<std::vector<std::string>, std::string, std::string>>{
           {{},
            "A subcommand is required",
            "commands: run, sweep, compare, search, advise, plan, place, merge, list, explain, config, schema, report, "
            "trace, calibrate, validate, reproduce, completion; see spillway --help"},
           {{"help"}, "unknown command \"help\"", "did you mean \"--help\"?"},
           {{"rnu", "seed=2"}, "unknown command \"rnu\"", "did you mean \"run\"?"},
           {{"config"}, "A subcommand is required", "commands: check, show, schema; see spillway config --help"},
           {{"config", "shwo"}, "unknown command \"shwo\"", "did you mean \"show\"?"}}) {
    const Output run = spillway(arguments);
    EXPECT_EQ(run.code, 2);
    EXPECT_THAT(run.out, IsEmpty());
    EXPECT_THAT(run.err, HasSubstr("error: " + what));
    EXPECT_THAT(run.err, HasSubstr(fix));
  }
}

TEST_F(RunCli, ListAndExplainCoverEverything) {
  for (const char* kind : {"policies", "routers", "hardware", "models", "engines", "workloads", "metrics"}) {
    const Output list = spillway({"list", kind, "--json"});
    ASSERT_EQ(list.code, 0) << list.err;
    EXPECT_EQ(lines_of(spillway({"list", kind}).out), static_cast<std::int64_t>(json::parse(list.out).size()));
    for (const json& row : json::parse(list.out)) {
      const Output explained = spillway({"explain", row["name"]});
      EXPECT_EQ(explained.code, 0) << row;
      EXPECT_THAT(explained.out, HasSubstr(row["name"].get<std::string>()));
    }
  }
}

TEST_F(RunCli, APairOfServersIsFilledInOrder) {
  const Output pair = spillway({"run", "hardware=hgx-h100-8-pair", "replicas=3", "tensor_parallel=4",
                                "model=llama-3.1-70b", "--dry-run", "--json"});
  ASSERT_EQ(pair.code, 0) << pair.err;
  const json result = json::parse(pair.out);
  EXPECT_EQ(result["setup"]["hardware"], "hgx-h100-8-pair");
  EXPECT_EQ(result["setup"]["servers"], 2);
  EXPECT_THAT(result["warnings"].dump(), HasSubstr("4 of the 16 GPUs of hgx-h100-8-pair are not used"));
  EXPECT_EQ(result["inputs"][1]["name"], "hwmodels/servers/hgx-h100-8-pair.json");
  EXPECT_EQ(result["inputs"][2]["role"], "server");
  EXPECT_EQ(result["inputs"][2]["name"], "hwmodels/servers/hgx-h100-8-node.json");
}

// A topology in which every GPU has a link of its own lifts the limit that all GPUs of the server share.
TEST_F(RunCli, ATopologyOfTheUsersOwn) {
  const auto ask = [&](std::vector<std::string> more) {
    std::vector<std::string> all{"run",
                                 "--json",
                                 "hardware=a10-pcie-4",
                                 "model=opt-13b",
                                 "policy=deepspeed",
                                 "replicas=4",
                                 "workload.requests=20"};
    all.insert(all.end(), more.begin(), more.end());
    return spillway(all);
  };
  std::string links;
  std::string gpus;
  for (const std::string gpu : {"0", "1", "2", "3"}) {
    links += (links.empty() ? "\"own-" : ", \"own-") + gpu + "\"";
    gpus += std::string(gpus.empty() ? "" : ", ") + R"({"host": ["own-)" + gpu + "\"]}";
  }
  const std::string figures = R"("in": {"value": 24e9, "unit": "bytes/s"}, "out": {"value": 24e9, "unit": "bytes/s"})";
  write_text(file("own.json"), R"({"schema_version": 1, "kind": "topology", "name": "own-links", "error": "none",
 "stands_for": "a link for each GPU", "source": {"kind": "assumed", "cite": "a test"},
 "topology": {"links": [{"names": [)" +
                                   links + R"(], "kind": "root-port", )" + figures + R"(},
   {"names": ["idle"], "kind": "nic"}], "gpus": [)" +
                                   gpus + "]}}");
  const Output shared = ask({});
  const Output own = ask({"topology=own.json"});
  ASSERT_EQ(own.code, 0) << own.err;
  ASSERT_EQ(shared.code, 0) << shared.err;
  const json result = json::parse(own.out);
  EXPECT_EQ(result["config"]["topology"], "own.json");
  EXPECT_EQ(result["inputs"][2]["role"], "topology");
  EXPECT_EQ(result["inputs"][2]["name"], "own.json");
  EXPECT_THAT(result["validity"].dump(), HasSubstr("a link for each GPU"));
  EXPECT_THAT(result["warnings"].dump(), HasSubstr("no GPU crosses link \\\"idle\\\" of the topology"));
  const auto e2e = [](const Output& run) { return json::parse(run.out)["metrics"]["mean_e2e_ms"]["value"]; };
  EXPECT_LT(e2e(own), e2e(shared)) << "layers wait for no other replica";
  const Output drawn = spillway({"explain", "own.json"});
  EXPECT_THAT(drawn.out, HasSubstr("own-links (topology)\n"));
  EXPECT_THAT(drawn.out, HasSubstr("    |- own-0 (root-port) of GPU 0: 24 GB/s each way (assumed)\n"));
}

TEST_F(RunCli, AServerBringsItsGpuAndHost) {
  const Output table = spillway({"run", "hardware=hgx-h100-8", "tensor_parallel=2", "--dry-run"});
  ASSERT_EQ(table.code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("llama-3.1-8b on 2 x h100-80gb-sxm of hgx-h100-8, policy vllm"));
  // 600 GB on each of 4 GPUs are 2,400 GB; the host has 2 TiB = 2,199.02 GB.
  const Output warned =
      spillway({"run", "hardware=hgx-h100-8", "tensor_parallel=4", "memory.host_kv=600GB", "--dry-run", "--json"});
  ASSERT_EQ(warned.code, 0) << warned.err;
  const json result = json::parse(warned.out);
  EXPECT_EQ(result["setup"]["hardware"], "hgx-h100-8");
  EXPECT_EQ(result["setup"]["gpu"], "h100-80gb-sxm");
  EXPECT_THAT(result["warnings"].dump(), HasSubstr("total 2400.00 GB for 4 GPUs, more than the 2199.02 GB of DRAM"));
  EXPECT_EQ(result["inputs"][0]["name"], "hwmodels/profiles/h100-80gb-sxm.json");
  EXPECT_EQ(result["inputs"][1]["role"], "server");
  EXPECT_EQ(result["inputs"][1]["name"], "hwmodels/servers/hgx-h100-8.json");
  EXPECT_EQ(result["inputs"][2]["role"], "host");
  EXPECT_EQ(result["inputs"][2]["name"], "hwmodels/hosts/hgx-h100-host.json");
  // 2,199.02 / 4 = 549.76 GB. A host cache above that is refused; of a GPU without a server the host is unknown.
  const auto cache = [&](const char* hardware, const char* size) {
    return spillway({"run", std::string("hardware=") + hardware, "tensor_parallel=4",
                     std::string("memory.host_cache=") + size, "--dry-run"});
  };
  EXPECT_EQ(cache("hgx-h100-8", "549GB").code, 0);
  const Output large = cache("hgx-h100-8", "550GB");
  EXPECT_EQ(large.code, 2);
  EXPECT_THAT(large.err, HasSubstr("memory.host_cache=550GB for each of 4 GPUs is more than the 2199.02 GB of DRAM of "
                                   "hgx-h100-host"));
  EXPECT_THAT(large.err, HasSubstr("give at most 549GB, or hardware=h100-80gb-sxm, a GPU on a host of any size"));
  EXPECT_EQ(cache("h100-80gb-sxm", "550GB").code, 0);
  // A tier of 60 GB (4,577 blocks of 16 x 819,200 bytes: 59.99 GB) fits these 68.72 GB, but not beside 40 streamed
  // layers of 12 x 5120^2 weights of 2 bytes, 25.17 GB. Where host memory for the layers is given, nobody asks.
  const auto streamed = [this](const char* more) {
    const Output output =
        spillway({"run", "policy=vllm", "policy.weights=select-n", "policy.weights.interval=1", "model=opt-13b",
                  "hardware=g4dn.4xlarge", more, "memory.host_cache=60GB", "--dry-run", "--json"});
    EXPECT_EQ(output.code, 0) << output.err;
    return json::parse(output.out)["warnings"].dump();
  };
  EXPECT_THAT(streamed("seed=1"),
              HasSubstr("streamed layers take 25.17 GB of host memory per GPU, and KV takes 59.99 GB: "
                        "85.16 GB in all for 1 GPU, more than the 68.72 GB of DRAM"));
  EXPECT_THAT(streamed("policy.weights.host_memory=200GB"), Not(HasSubstr("streamed layers")));
  // Pensieve's default of 200 GB is more than the 64 GiB = 68.72 GB of this host: 68.72e9 / 16.78e6 bytes are 4,096
  // blocks of 32 tokens of OPT-6.7B (32 layers x 2 x 4,096 x 2 bytes per token).
  const json small = json::parse(spillway({"run", "hardware=g4dn.4xlarge", "policy=pensieve", "model=opt-6.7b",
                                           "workload.trace=sharegpt-chat", "memory.gpu_kv=1GB", "--dry-run", "--json"})
                                     .out);
  EXPECT_EQ(small["setup"]["host_kv_blocks"], 4096);
  EXPECT_THAT(small["warnings"].dump(),
              HasSubstr("memory.host_cache is lowered to 68.72 GB per GPU, all DRAM of g4dn.4xlarge-host: the "
                        "default of policy pensieve, 200GB, is more"));
  const Output fits =
      spillway({"run", "hardware=hgx-h100-8", "tensor_parallel=4", "memory.host_kv=500GB", "--dry-run", "--json"});
  EXPECT_THAT(json::parse(fits.out)["warnings"].dump(), Not(HasSubstr("of DRAM")));
}

TEST_F(RunCli, ListOfHardwareTellsGpusFromServers) {
  const std::string list = spillway({"list", "hardware"}).out;
  EXPECT_THAT(list, testing::ContainsRegex("\nh100-80gb-sxm +GPU +NVIDIA H100"));
  EXPECT_THAT(list, testing::ContainsRegex("\nhgx-h100-8 +server +Eight H100"));
  for (const json& row : json::parse(spillway({"list", "hardware", "--json"}).out)) {
    EXPECT_EQ(row["kind"], row["name"].get<std::string>().find("gb") == std::string::npos ? "server" : "GPU") << row;
  }
  EXPECT_FALSE(json::parse(spillway({"list", "models", "--json"}).out)[0].contains("kind"));
}

TEST_F(RunCli, ConfigCommands) {
  write_text(file("my.json"), "{\n  \"seed\": 4\n}");
  const Output check = spillway({"config", "check", "my.json", "workload.rate=8"});
  EXPECT_EQ(check.code, 0);
  EXPECT_THAT(check.out, HasSubstr("ok: 2 keys given"));
  const Output show = spillway({"config", "show", "my.json", "policy=vllm-v0", "--json"});
  ASSERT_EQ(show.code, 0) << show.err;
  const json shown = json::parse(show.out);
  EXPECT_EQ(shown["seed"], (json{{"value", 4}, {"origin", "my.json:2 (/seed)"}}));
  EXPECT_EQ(shown["policy"]["origin"], "argument policy=vllm-v0");
  EXPECT_EQ(shown["engine.chunked_prefill"], (json{{"value", false}, {"origin", "policy default"}}));
  EXPECT_EQ(shown["model"]["origin"], "default");
  EXPECT_THAT(spillway({"config", "show"}).out, HasSubstr("llama-3.1-8b"));
  const Output bad = spillway({"config", "check", "my.json", "model=llama-3.1-70b"});
  EXPECT_EQ(bad.code, 2);
  EXPECT_THAT(bad.err, HasSubstr("tensor_parallel=2 fits"));
  // The schema has every key of a run.
  const json schema = json::parse(spillway({"config", "schema"}).out);
  for (const auto& [key, value] : shown.items()) EXPECT_TRUE(schema["properties"].contains(key)) << key;
}

}  // namespace
}  // namespace spillway::test
