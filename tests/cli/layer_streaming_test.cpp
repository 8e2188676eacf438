// Policies that stream layers, from the command line: reported figures, refused settings, and probes of experiments.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/cli/command.hpp"

namespace spillway::test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class LayerStreaming : public CliTest {
 protected:
  using Texts = std::vector<std::string>;
  static Texts with(Texts arguments, const Texts& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  const Texts pie_{"run",
                   "policy=pie",
                   "hardware=gh200-96gb",
                   "model=opt-30b",
                   "memory.gpu_kv=7GB",
                   "workload.trace=sharegpt",
                   "workload.rate=8",
                   "workload.requests=300",
                   "--json"};
};

TEST_F(LayerStreaming, ARunSaysWhatBecameOfItsMemory) {
  const auto run = spillway(with(pie_, {"policy.expansion=1.5"}));
  ASSERT_EQ(run.code, 0) << run.err;
  const json result = json::parse(run.out);
  // 48 / 32 = 1.5: slots have 7e9 / 32 = 218,750,000 bytes. 48 slots store 476.8 blocks of 22,020,096 bytes; the host
  // has 18.
  EXPECT_EQ(result["setup"]["gpu_kv_blocks"], 476);
  EXPECT_EQ(result["setup"]["host_layer_bytes_per_gpu"], 18 * 218'750'000LL);
  const json& metrics = result["metrics"];
  EXPECT_NEAR(metrics["mean_expansion_ratio"]["value"].get<double>(), 476 * 22'020'096LL / 7e9, 1e-9);
  EXPECT_LE(metrics["peak_host_layer_bytes"]["value"].get<double>(), 18 * 218'750'000.0);
  EXPECT_GE(metrics["peak_host_layer_bytes"]["value"].get<double>(), 16 * 218'750'000.0);
  EXPECT_GT(metrics["mean_dwell_ms"]["value"].get<double>(), 0.0);
  EXPECT_EQ(result["expansion_over_time"].size(), 1U);
  const json adaptive = json::parse(spillway(pie_).out);
  EXPECT_GT(adaptive["expansion_over_time"].size(), 5U);
  EXPECT_GT(adaptive["metrics"]["peak_expansion_ratio"]["value"].get<double>(), 1.2);
  EXPECT_FALSE(json::parse(spillway({"run", "--json", "workload.requests=20"}).out).contains("expansion_over_time"));
}

// The more both directions carry together, the less compute waits: 149.7 GB/s out by the copy engines of a GH200 120GB,
// 187.3 by those of a GH200 480GB, 204 by its SMs, and 289 by the other's SMs.
TEST_F(LayerStreaming, ARunSaysWhatCopiesItsLayersAndOnWhichMachine) {
  const auto copies = [&](const char* hardware, const Texts& overrides) {
    Texts arguments = with(pie_, with({"policy.expansion=2"}, overrides));
    arguments[2] = hardware;
    const auto run = spillway(arguments);
    EXPECT_EQ(run.code, 0) << run.err;
    const json result = json::parse(run.out);
    return std::pair(result["setup"]["layer_copies"].get<std::string>(),
                     result["metrics"]["layer_stall_fraction"]["value"].get<double>());
  };
  const auto paper = copies("hardware=gh200-96gb", {});
  EXPECT_EQ(paper.first,
            "SMs: 372.3 GB/s in and 297* out alone, 204 and 204 together (gh200-96gb; *: of its copy engines)");
  const auto engines = copies("hardware=gh200-96gb", {"policy.copy=engine"});
  EXPECT_EQ(engines.first, "copy engines: 375 GB/s in and 297 out alone, 176.9 and 187.3 together (gh200-96gb)");
  const auto other = copies("hardware=gh200-120gb", {"policy.copy=kernel"});
  EXPECT_EQ(other.first, "SMs: 410 GB/s in and 380.1 out alone, 290.3 and 289 together (gh200-120gb)");
  // The profile of the H200 says that its SMs' copies slow computation down more.
  EXPECT_THAT(copies("hardware=h200-141gb", {}).first, testing::StartsWith("copy engines: "));
  EXPECT_THAT(copies("hardware=h200-141gb", {"policy.copy=kernel"}).first, testing::StartsWith("SMs: "));
  const auto other_engines = copies("hardware=gh200-120gb", {"policy.copy=engine"});
  EXPECT_LT(other.second, paper.second);
  EXPECT_LT(paper.second, engines.second);
  EXPECT_LT(engines.second, other_engines.second);
  EXPECT_FALSE(json::parse(spillway({"run", "--json", "workload.requests=20"}).out)["setup"].contains("layer_copies"));
  const auto about = spillway({"explain", "gh200-96gb"});
  EXPECT_THAT(about.out, testing::AllOf(HasSubstr("h2d_bandwidth_kernel"), HasSubstr("d2h_bandwidth_duplex_kernel"),
                                        HasSubstr("copy_compute_slowdown_kernel")));
  EXPECT_THAT(spillway({"run", "policy=pie", "policy.copy=dma"}).err, HasSubstr("engine"));
}

TEST_F(LayerStreaming, ReplicationsKeepTheSeriesOfTheFirst) {
  const json one = json::parse(spillway(pie_).out);
  const json two = json::parse(spillway(with(pie_, {"replications=2"})).out);
  EXPECT_FALSE(one.contains("expansion_over_time_replication"));
  EXPECT_EQ(two["expansion_over_time_replication"], 0);
  EXPECT_GE(one["expansion_over_time"].size(), 1U);
  EXPECT_EQ(two["expansion_over_time"], one["expansion_over_time"]) << "replication 0 is the run without replications";
  EXPECT_THAT(two["definitions"]["expansion_over_time"]["definition"], HasSubstr("replication 0"));
}

// One iteration of OPT-30B on a T4 takes several seconds, because its 59 GB cross PCIe; the horizon cuts the iteration.
TEST_F(LayerStreaming, AnIterationThatTheHorizonCutsCountsInPart) {
  const auto run = spillway({"run", "policy=deepspeed", "model=opt-30b", "hardware=g4dn.4xlarge",
                             "workload.trace=alpaca", "until=1s", "--json"});
  ASSERT_EQ(run.code, 0) << run.err;
  const json metrics = json::parse(run.out)["metrics"];
  const auto value = [&](const char* name) { return metrics[name]["value"].get<double>(); };
  EXPECT_EQ(value("iterations"), 0.0);
  for (const char* const name : {"layer_stall_fraction", "h2d_link_fraction", "d2h_link_fraction"}) {
    EXPECT_LE(value(name), 1.0) << name;
  }
  EXPECT_GT(value("layer_stall_fraction"), 0.9);
  EXPECT_GT(value("h2d_link_fraction"), 0.9);
  // PCIe 3.0 x16 moves at most 16 GB per second.
  EXPECT_GT(value("moved_h2d_bytes"), 1e9);
  EXPECT_LT(value("moved_h2d_bytes"), 16e9);
}

TEST_F(LayerStreaming, TheTableHasALineForLayersAndOneForStreaming) {
  const auto run = spillway({"run", "policy=deepspeed", "hardware=a10-24gb", "model=opt-13b", "workload.requests=4",
                             "workload.trace=sharegpt", "workload.output_tokens=4"});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("\nLayers "), HasSubstr("\nStreaming "), HasSubstr("on the host")));
}

// 671 billion weights of a byte fit no GPU, so there is nothing to compare with. 8 of 48 layers on the host: 48 / 40.
// Pie begins without an expansion and grows where memory is short.
TEST_F(LayerStreaming, TheTableNamesAnExpansionOnceUnlessItChanges) {
  const auto streaming = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"run", "workload.requests=40", "workload.output_tokens=20"});
    const auto run = spillway(arguments);
    EXPECT_EQ(run.code, 0) << run.err;
    return run.out.substr(std::min(run.out.size(), run.out.find("\nStreaming ")));
  };
  EXPECT_THAT(streaming({"policy=llama-cpp-moe", "model=deepseek-v3", "hardware=hgx-b200-8"}),
              StartsWith("\nStreaming    compute waits "));
  EXPECT_THAT(streaming({"policy=pie", "policy.expansion=1.2", "model=opt-30b", "hardware=hgx-h100-8"}),
              StartsWith("\nStreaming    expansion 1.20; compute waits "));
  EXPECT_THAT(streaming({"policy=pie", "model=opt-30b", "hardware=gh200-1", "memory.gpu_kv=2GB", "workload.rate=20"}),
              StartsWith("\nStreaming    expansion mean "));
}

// Select-N fills its record with batches far beyond the measured range. The run itself has 20 prompts of 100 tokens, so
// at most 2,000 tokens per batch; only the model's vocabulary exceeds the range.
TEST_F(LayerStreaming, TheRangeIsThatOfTheRunNotOfItsPlanning) {
  const auto run =
      spillway({"run", "policy=select-n", "policy.slo_margin=0.1", "hardware=h100-80gb-sxm", "workload.requests=20",
                "workload.input_tokens=100", "workload.output_tokens=20", "--json"});
  ASSERT_EQ(run.code, 0) << run.err;
  const json outside = json::parse(run.out)["outside_measured_range"];
  ASSERT_EQ(outside.size(), 1U) << outside;
  EXPECT_EQ(outside[0]["op"], "gemm");
  EXPECT_EQ(outside[0]["quantity"], "n");
  EXPECT_EQ(outside[0]["reached"], 128256.0);
}

// The engine ends a run with exit 70 unless the links carried the bytes that its iterations were charged with.
TEST_F(LayerStreaming, RequestsSwapBesideLayers) {
  const auto metrics = [&](const Texts& arguments) {
    const auto run = spillway(arguments);
    EXPECT_EQ(run.code, 0) << run.err;
    return json::parse(run.out)["metrics"];
  };
  const auto value = [](const json& all, const char* name) { return all[name]["value"].get<double>(); };
  const Texts select_n{"run",
                       "policy=select-n",
                       "policy.interval=4",
                       "hardware=a10-24gb",
                       "model=opt-6.7b",
                       "memory.gpu_kv=3GB",
                       "workload.rate=8",
                       "workload.requests=200",
                       "--json",
                       "workload.trace=sharegpt"};
  const Texts swap{"engine.preemption=swap", "memory.host_kv=100GB"};
  for (const Texts& policy : {with(pie_, {"policy.expansion=1.2"}), pie_, select_n}) {
    const json recomputing = metrics(policy);
    const json swapping = metrics(with(policy, swap));
    EXPECT_GT(value(recomputing, "recompute_preemptions"), 0.0);
    EXPECT_GT(value(swapping, "swap_preemptions"), 0.0);
    EXPECT_EQ(value(swapping, "recompute_preemptions"), 0.0);
    EXPECT_GT(value(swapping, "peak_host_kv_fraction"), 0.0);
  }
}

// Layers come first: 18 slots of 218,750,000 bytes are 3.9375 GB of 10 GB, which leaves 6.0625e9 / 22,020,096 = 275.3
// blocks for requests. Without swaps requests need none.
TEST_F(LayerStreaming, RequestsSwapToWhatTheLayersLeave) {
  const auto host_blocks = [&](const Texts& more) {
    const auto run = spillway(with(with(pie_, {"policy.expansion=1.5", "memory.host_kv=10GB", "--dry-run"}), more));
    EXPECT_EQ(run.code, 0) << run.err;
    return json::parse(run.out)["setup"]["host_kv_blocks"].get<std::int64_t>();
  };
  EXPECT_EQ(host_blocks({"engine.preemption=swap"}), 275);
  EXPECT_EQ(host_blocks({}), 0);
}

// The prompts of every second request begin with the same 1,600 tokens.
TEST_F(LayerStreaming, APrefixCacheAndItsHostTierLiveBesideLayers) {
  std::string trace;
  for (int i = 0; i < 200; ++i) {
    std::string ids;
    for (int b = 0; b < 100; ++b) ids += (b == 0 ? "" : ", ") + std::to_string(i % 2 == 0 ? b : 1000 * i + b);
    trace += "{\"arrival_s\": " + std::to_string(i / 4) +
             ", \"input_tokens\": 1700, \"output_tokens\": 60, \"prefix_ids\": [" + ids + "]}\n";
  }
  write_text(file("shared.jsonl"), trace);
  for (const Texts& policy :
       {Texts{"run", "policy=pie", "hardware=gh200-96gb", "model=opt-30b", "memory.gpu_kv=20GB"},
        Texts{"run", "policy=select-n", "policy.slo_margin=0.5", "hardware=a10-24gb", "model=opt-6.7b"}}) {
    const auto run = spillway(with(
        policy, {"workload.trace=./shared.jsonl", "engine.prefix_caching=true", "memory.host_cache=50GB", "--json"}));
    ASSERT_EQ(run.code, 0) << run.err;
    const json result = json::parse(run.out);
    EXPECT_EQ(result["setup"]["prefix_caching"], true);
    EXPECT_GT(result["metrics"]["prefix_cache_hit_fraction"]["value"], 0.1);
    EXPECT_GT(result["metrics"]["moved_d2h_bytes"]["value"], 0.0);
  }
}

TEST_F(LayerStreaming, WhatCannotBeIsRefusedWithItsArithmetic) {
  const auto refused = [&](const Texts& arguments, const std::string& why) {
    const auto run = spillway(with({"run", "workload.requests=5"}, arguments));
    EXPECT_EQ(run.code, 2) << run.out;
    EXPECT_THAT(run.err, HasSubstr(why));
  };
  const Texts pie{"policy=pie", "hardware=gh200-96gb", "model=opt-30b", "memory.gpu_kv=7GB"};
  refused(with(pie, {"policy.expansion=17"}), "48 / 3 = 16");
  refused(with(pie, {"policy.expansion=2", "memory.host_kv=5GB"}), "26 slots of 0.292 GB = 7.58 GB");
  refused(with(pie, {"policy.scheduler=orca"}), "never preempts");
  refused(with(pie, {"policy.scheduler=pie"}), "policy.scheduler");
  refused({"policy=vllm", "policy.expansion=2"}, "it is a key of policy=pie");
  refused({"policy=select-n", "policy.weights=deepspeed"}, "policy select-n streams the weights itself");
  refused({"policy=vllm", "policy.weights=deepsped"}, "did you mean \"deepspeed\"?");
  refused({"policy=vllm", "policy.weights.interval=2"}, "it is a key of policy.weights=select-n");
  refused({"policy=orca", "policy.weights=select-n"}, "give policy.weights.interval");
  refused(with(pie, {"policy.weights=select-n", "policy.weights.interval=49"}),
          "policy.weights.interval=49 is more than the model's 48 layers");
  refused({"policy=select-n", "hardware=a10-24gb", "model=opt-6.7b", "policy.interval=40"}, "32");
  refused({"policy=select-n", "hardware=t4-16gb", "model=opt-66b", "policy.interval=1",
           "engine.gpu_memory_utilization=0.3"},
          "interval 1");
  refused({"policy=select-n", "hardware=a10-24gb", "model=opt-6.7b", "policy.slo=1ms"}, "SLO");
  refused({"policy=deepspeed", "hardware=a10-24gb", "model=opt-13b", "policy.host_memory=5GB"}, "5.00 GB");
  refused({"policy=flexgen", "hardware=t4-16gb", "model=opt-30b", "policy.host_memory=5GB"}, "policy.cpu_attention");
}

// Interval 8: 6 of 48 layers of 1,233,125,376 bytes live on the host. Slots of 7e9 / 40 bytes: 48 / 40 = 1.2, and 10 of
// them on the host.
TEST_F(LayerStreaming, WeightsStreamBesideKvSlots) {
  const Texts weights{"policy.expansion=1.2", "policy.weights=select-n", "policy.weights.interval=8"};
  const auto run = spillway(with(pie_, weights));
  ASSERT_EQ(run.code, 0) << run.err;
  const json result = json::parse(run.out);
  EXPECT_EQ(result["config"]["policy.weights"], "select-n");
  EXPECT_EQ(result["config"]["policy.weights.interval"], 8);
  EXPECT_EQ(result["setup"]["host_layer_bytes_per_gpu"], 6 * 1'233'125'376LL + 10 * 175'000'000LL);
  const json& metrics = result["metrics"];
  const auto value = [&](const char* name) { return metrics[name]["value"].get<double>(); };
  EXPECT_EQ(value("weights_mean_interval_layers"), 8.0);
  EXPECT_EQ(value("weights_peak_host_layer_bytes"), 6 * 1'233'125'376.0);
  EXPECT_GE(value("peak_host_layer_bytes"), 8 * 175'000'000.0);
  EXPECT_LE(value("peak_host_layer_bytes"), 10 * 175'000'000.0);
  EXPECT_TRUE(metrics["mean_interval_layers"]["value"].is_null()) << "Pie has no interval";
  // The weights alone take most of the way in, so moved bytes exceed theirs by the slots.
  EXPECT_GT(value("moved_h2d_bytes"), value("iterations") * 6 * 1'233'125'376.0);
  Texts table = with(pie_, weights);
  std::erase(table, "--json");
  const std::string text = std::regex_replace(spillway(table).out, std::regex("\\s+"), " ");
  EXPECT_THAT(text, AllOf(HasSubstr("6 of 48 layers of 1233.1 MB live on the host (offloading interval 8)"),
                          HasSubstr("Pie keeps 8 of 48 layers on the host"), HasSubstr("; host memory of weights 7.4"),
                          HasSubstr("policy pie, weights select-n, engine")));
}

TEST_F(LayerStreaming, NoWeightsAreAsIfTheKeyWereAbsent) {
  const auto absent = spillway(with(pie_, {"policy.expansion=1.2"}));
  const auto none = spillway(with(pie_, {"policy.expansion=1.2", "policy.weights=none"}));
  ASSERT_EQ(none.code, 0) << none.err;
  EXPECT_EQ(none.out, absent.out);
}

// The engine ends a run with exit 70 unless the links carried the bytes that its iterations were charged with.
TEST_F(LayerStreaming, RequestsSwapAndCachesLiveBesideBothRoles) {
  std::string trace;
  for (int i = 0; i < 120; ++i) {
    std::string ids;
    for (int b = 0; b < 40; ++b) ids += (b == 0 ? "" : ", ") + std::to_string(i % 2 == 0 ? b : 1000 * i + b);
    trace += "{\"arrival_s\": " + std::to_string(i / 8) +
             ", \"input_tokens\": 700, \"output_tokens\": 150, \"prefix_ids\": [" + ids + "]}\n";
  }
  write_text(file("shared.jsonl"), trace);
  for (const char* const weights : {"select-n", "deepspeed"}) {
    const auto run = spillway({"run", "policy=pie", "policy.expansion=1.2", "hardware=gh200-96gb", "model=opt-30b",
                               "memory.gpu_kv=7GB", "policy.weights=" + std::string(weights), "engine.preemption=swap",
                               "memory.host_kv=100GB", "memory.host_cache=50GB", "engine.prefix_caching=true",
                               "workload.trace=./shared.jsonl", "--json"});
    ASSERT_EQ(run.code, 0) << run.err;
    const json metrics = json::parse(run.out)["metrics"];
    EXPECT_GT(metrics["swap_preemptions"]["value"], 0.0) << weights;
    EXPECT_GT(metrics["prefix_cache_hit_fraction"]["value"], 0.0) << weights;
    EXPECT_GT(metrics["peak_host_layer_bytes"]["value"], 0.0) << weights;
    EXPECT_GT(metrics["weights_peak_host_layer_bytes"]["value"], 0.0) << weights;
  }
}

TEST_F(LayerStreaming, AttentionOnTheCpuIsAClassOfWork) {
  const Texts attends{"model=opt-6.7b",
                      "hardware=g4dn.4xlarge",
                      "policy=flexgen",
                      "policy.gpu_batch=8",
                      "policy.batches=2",
                      "policy.weights_host=0.5",
                      "policy.cache_host=1",
                      "policy.hidden_host=1",
                      "policy.pad_input=256",
                      "policy.pad_output=32",
                      "workload.trace=sharegpt",
                      "workload.input_tokens=256",
                      "workload.output_tokens=32",
                      "workload.requests=16",
                      "workload.arrival=all-at-once"};
  const std::string table = std::regex_replace(spillway(with({"run"}, attends)).out, std::regex("\\s+"), " ");
  EXPECT_THAT(table, HasSubstr("; GPU waits for attention on the CPU "));
  const auto run = spillway(with({"run", "--json", "--perturb", "10%"}, attends));
  ASSERT_EQ(run.code, 0) << run.err;
  std::map<std::string, double> changes;
  const json result = json::parse(run.out);
  for (const json& one : result["perturbation"]["runs"]) {
    changes[one["label"]] = one["metrics"]["mean_tpot_ms"]["change"];
  }
  EXPECT_GT(changes.at("CPU +10%"), 0.0);
  EXPECT_LT(changes.at("CPU -10%"), 0.0);
  EXPECT_GT(changes.at("copies +10%"), 0.0);
}

TEST_F(LayerStreaming, ProbesAreRunSetsToo) {
  const json pie = json::parse(spillway({"reproduce", "PIE-19", "SELN-13", "--json"}).out);
  ASSERT_EQ(pie["claims"].size(), 2U);
  EXPECT_EQ(pie["claims"][0]["verdict"], "pass");
  EXPECT_EQ(pie["claims"][0]["simulated"]["duration"], 54.0);
  EXPECT_EQ(pie["claims"][1]["simulated"]["matching"], 20.0);
  // 64 us + bytes / 250 GB/s: 4 MB in 80 us, 64 MB in 320 us.
  const json aqua = json::parse(spillway({"reproduce", "AQUA-19", "--json"}).out);
  EXPECT_EQ(aqua["claims"][0]["verdict"], "fitted");
  EXPECT_DOUBLE_EQ(aqua["claims"][0]["simulated"]["4MB"], 50.0);
  EXPECT_DOUBLE_EQ(aqua["claims"][0]["simulated"]["64MB"], 200.0);
  const auto broken = [&](const json& probe, const std::string& why) {
    const json experiment{{"schema_version", 1},
                          {"experiment", "toy"},
                          {"about", "A toy."},
                          {"source", "Nobody."},
                          {"runs", {{"swaps", probe}}},
                          {"claims",
                           {{{"id", "TOY-1"},
                             {"system", "toys"},
                             {"where", "nowhere"},
                             {"kind", "exact"},
                             {"claim", "It is so."},
                             {"expected", 1},
                             {"accept", {1, 1}},
                             {"values", "swaps.stall"},
                             {"fitted_on", nullptr}}}}};
    std::filesystem::create_directories(file("toy"));
    write_text(file("toy/expected.json"), experiment.dump());
    const auto result = spillway({"reproduce", "./toy"});
    EXPECT_EQ(result.code, 3) << result.out;
    EXPECT_THAT(result.err, HasSubstr(why));
  };
  broken({{"probe", "layer-swaps"}}, "unknown probe \"layer-swaps\"");
  broken({{"probe", "layer-swap"}, {"set", {{"layer", 9}}}}, "unknown key \"layer\"");
  broken({{"probe", "layer-swap"}, {"set", {{"layers", 9}, {"on_host", 8}}}},
         "on_host must be at most layers - 3, because three layers stay on the GPU");
  broken({{"probe", "layer-times"}, {"set", {{"policy", "vllm"}}}}, "streams no layers");
  broken({{"probe", "copy"}, {"set", {{"hardware", "g5.16xlarge"}, {"path", "to-lender"}}}},
         "states no peer_bandwidth of a server");
}

// OPT-6.7B has 32 layers of 402.7 MB, and the GPUs share 24 GB/s. Alone, each would stream 5 layers within 100 ms.
TEST_F(LayerStreaming, ReplicasOnOneBusAgreeOnTheirIntervals) {
  const Texts two{"run",
                  "policy=select-n",
                  "policy.slo=100ms",
                  "hardware=a10-pcie-4",
                  "model=opt-6.7b",
                  "workload.trace=sharegpt",
                  "workload.rate=1",
                  "workload.requests=100",
                  "replicas=2"};
  const auto value = [](const Output& run, const char* name) { return json::parse(run.out)["metrics"][name]["value"]; };
  const Output shared = spillway(with(two, {"--json"}));
  const Output apart = spillway(with(two, {"policy.coordinate=false", "--json"}));
  ASSERT_EQ(shared.code, 0) << shared.err;
  ASSERT_EQ(apart.code, 0) << apart.err;
  EXPECT_LT(value(shared, "mean_tpot_ms").get<double>(), 100.0);
  EXPECT_GT(value(apart, "mean_tpot_ms").get<double>(), 120.0);
  EXPECT_GT(value(shared, "mean_interval_layers").get<double>(), value(apart, "mean_interval_layers").get<double>());
  EXPECT_GT(value(shared, "mean_bus_demand_gb_per_s").get<double>(), 12.0);
  EXPECT_LT(value(shared, "mean_bus_demand_gb_per_s").get<double>(), 24.0);
  EXPECT_EQ(value(shared, "refused_requests"), 0.0);
  EXPECT_TRUE(value(apart, "mean_bus_demand_gb_per_s").is_null());
  EXPECT_THAT(spillway(two).out, HasSubstr("; coordinated demand"));
}

// OPT-13B needs an interval of 3 for any KV: 13 layers of 0.629 GB, or 20.4 GB/s together at 800 ms.
TEST_F(LayerStreaming, ABusThatIsTooSmall) {
  const Texts large{"run",           "policy=select-n",         "hardware=a10-pcie-4", "replicas=2",
                    "model=opt-13b", "workload.trace=sharegpt", "workload.rate=0.2",   "workload.requests=60"};
  const Output some = spillway(with(large, {"policy.slo=800ms", "--json"}));
  ASSERT_EQ(some.code, 0) << some.err;
  const json result = json::parse(some.out);
  const auto refused = static_cast<std::int64_t>(result["metrics"]["refused_requests"]["value"].get<double>());
  EXPECT_GT(refused, 10);
  EXPECT_EQ(result["conservation"]["all"]["rejected"], refused);
  EXPECT_THAT(result["warnings"].dump(),
              AllOf(HasSubstr(" of 60 requests were rejected because running requests would have missed their SLO"),
                    Not(HasSubstr("for their size"))));
  const Output none = spillway(with(large, {"policy.slo=500ms"}));
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err,
              AllOf(HasSubstr("the 2 instances that stream weights over \"pcie-bus in\""),
                    HasSubstr("they need 32.72 GB/s, and the link carries 24.00 GB/s"), HasSubstr("replicas=2")));
  EXPECT_EQ(spillway(with(large, {"policy.slo=500ms", "policy.coordinate=false"})).code, 0);
  write_text(file("kinds.json"), R"({"hardware": "a10-pcie-4", "policy": "select-n", "policy.slo": "500ms",
    "workload.requests": 20, "instances": [{"gpus": 0, "model": "opt-13b"}, {"gpus": 1, "model": "opt-13b"}]})");
  const Output kinds = spillway({"run", file("kinds.json")});
  EXPECT_EQ(kinds.code, 2);
  EXPECT_THAT(kinds.err, HasSubstr("they need 32.72 GB/s, and the link carries 24.00 GB/s"));
  // One GPU of the two has weights for both.
  EXPECT_EQ(spillway({"run", file("kinds.json"), "policy.slo=900ms"}).code, 0);
}

}  // namespace
}  // namespace spillway::test
