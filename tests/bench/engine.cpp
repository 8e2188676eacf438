// Speed of a run, in process: configuration, policy, execution model, metrics and percentiles, as `spillway run` does
// it.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "policies/parts/layer_swap.hpp"
#include "policies/parts/retention_order.hpp"
#include "policies/parts/weight_stream.hpp"
#include "sim/cli/arguments.hpp"
#include "sim/core/random.hpp"
#include "sim/exec/executor.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/study/assemble.hpp"
#include "sim/study/replicated_run.hpp"
#include "tests/oracle/list_source.hpp"
#include "tests/oracle/route_by.hpp"

namespace spillway::cli {
namespace {

/// One replication of `arguments` from the text of its keys to the bottleneck sentence.
RunStatistics run_once(const std::vector<std::string>& arguments) {
  Assembly assembly = assemble(resolve_arguments(arguments, {}, {}));
  ReplicationResults results = run_replications(assembly, 1, 1, {}, {});
  benchmark::DoNotOptimize(find_bottleneck(results.statistics, 256));
  return std::move(results.statistics);
}

/// Times `run`, which returns a run's statistics.
template <class Run>
void measure(benchmark::State& state, Run run) {
  std::int64_t iterations = 0;
  std::int64_t requests = 0;
  RunStatistics last;
  for (auto _ : state) {
    last = run();
    iterations += last.engine.iterations;
    requests += last.all.finished;
  }
  using benchmark::Counter;
  state.counters["iterations/s"] = Counter(static_cast<double>(iterations), Counter::kIsRate);
  state.counters["requests/s"] = Counter(static_cast<double>(requests), Counter::kIsRate);
  state.counters["mean_batch"] = last.engine.batch_time / last.engine.busy_time;
  if (last.engine.prefix_asked > Tokens(0)) {
    state.counters["prefix_hits"] =
        static_cast<double>(last.engine.prefix_hit.count()) / static_cast<double>(last.engine.prefix_asked.count());
  }
  state.counters["preemptions"] = static_cast<double>(last.engine.preempted_recompute);
}

/// More traffic than the GPU can serve, ShareGPT-like lengths, at most `max_num_seqs` in the batch: the batch is full.
void saturated(benchmark::State& state, const std::string& policy) {
  const std::vector<std::string> arguments{"policy=" + policy, "workload.trace=sharegpt", "workload.requests=300000",
                                           "workload.rate=1000",
                                           "engine.max_num_seqs=" + std::to_string(state.range(0))};
  measure(state, [&] { return run_once(arguments); });
}

void vllm(benchmark::State& state) { saturated(state, "vllm"); }
BENCHMARK(vllm)->Arg(32)->Arg(256)->Arg(1024)->Unit(benchmark::kMillisecond);

/// Every policy at a batch of 128, the requests of 16 clients.
void policy(benchmark::State& state, const std::string& policy) {
  measure(state, [&] {
    std::vector<std::string> arguments{
        "policy=" + policy,    "workload.trace=sharegpt", "workload.requests=200000", "workload.rate=1000",
        "workload.clients=16", "engine.max_num_seqs=128", "engine.max_model_len=4096"};
    // A policy that streams layers needs a host.
    const PolicyInfo& info = *PolicyRegistry::instance().find(policy);
    if (info.layout) arguments.emplace_back("hardware=hgx-h100-8");
    if (info.places_experts) arguments.emplace_back("model=qwen3-30b-a3b");
    return run_once(arguments);
  });
}

/// Every policy at a batch of 128 with prefix caching, its host tier included: every block has a content, half of the
/// prompts begin with one of 64 prefixes, and the GPU's blocks are reused all the time.
void policy_prefixes(benchmark::State& state, const std::string& policy) {
  Assembly assembly =
      assemble(resolve_arguments({"policy=" + policy, "workload.trace=sharegpt", "workload.requests=100000",
                                  "workload.rate=1000", "workload.clients=16", "engine.max_num_seqs=128",
                                  "engine.max_model_len=4096", "memory.block_tokens=16", "memory.gpu_kv=20GB"},
                                 {}, {}));
  assembly.instance.kv.prefix_caching = true;
  assembly.instance.kv.host_cache_blocks = Blocks(20'000);
  std::vector<RequestSpec> requests;
  for (RequestSpec spec; assembly.workload.stream->next_arrival() != kNever;) {
    assembly.workload.stream->next(spec);
    const std::uint64_t prefix = requests.size() % 128;
    for (std::int64_t b = 0; prefix < 64 && b < spec.input.count() / 16; ++b) spec.prefix_ids.push_back(prefix);
    requests.push_back(spec);
  }
  measure(state, [&] {
    oracle::ListSource source(requests);
    const auto model = assembly.make_model({});
    return simulate(simulation_config(assembly, *model, source)).statistics;
  });
}

/// The same batches of a dense model, of a mixture of experts, and of one whose layers are of two kinds.
void models(benchmark::State& state, const std::string& model) {
  const std::vector<std::string> arguments{"model=" + model, "workload.trace=sharegpt", "workload.requests=100000",
                                           "workload.rate=1000", "engine.max_num_seqs=64"};
  measure(state, [&] { return run_once(arguments); });
}
BENCHMARK_CAPTURE(models, dense, "llama-3.1-8b")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(models, experts, "qwen3-30b-a3b")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(models, experts_and_windows, "gpt-oss-20b")->Unit(benchmark::kMillisecond);

/// Memory for a fraction of the batch: admission, preemption and recomputation all the time.
void vllm_short_of_memory(benchmark::State& state) {
  const std::vector<std::string> arguments{"policy=vllm", "workload.trace=sharegpt", "workload.requests=100000",
                                           "workload.rate=1000", "memory.gpu_kv=8GB"};
  measure(state, [&] { return run_once(arguments); });
}
BENCHMARK(vllm_short_of_memory)->Unit(benchmark::kMillisecond);

/// The workload, drawn beforehand.
std::vector<RequestSpec> requests_of(Assembly& assembly) {
  std::vector<RequestSpec> requests;
  for (RequestSpec spec; assembly.workload.stream->next_arrival() != kNever; requests.push_back(spec)) {
    assembly.workload.stream->next(spec);
  }
  return requests;
}

/// The engine alone: neither drawing requests nor reading configuration is in the time; metrics and percentiles are.
void engine_alone(benchmark::State& state) {
  Assembly assembly = assemble(resolve_arguments(
      {"policy=vllm", "workload.trace=sharegpt", "workload.requests=300000", "workload.rate=1000"}, {}, {}));
  const std::vector<RequestSpec> requests = requests_of(assembly);
  measure(state, [&] {
    oracle::ListSource source(requests);
    const auto model = assembly.make_model({});
    return simulate(simulation_config(assembly, *model, source)).statistics;
  });
}
BENCHMARK(engine_alone)->Unit(benchmark::kMillisecond);

/// Ten busy instances, alone or among idle ones.
void instances(benchmark::State& state) {
  Assembly assembly = assemble(resolve_arguments(
      {"policy=vllm", "workload.trace=sharegpt", "workload.requests=100000", "workload.rate=1000"}, {}, {}));
  const std::vector<RequestSpec> requests = requests_of(assembly);
  measure(state, [&] {
    oracle::ListSource source(requests);
    const auto model = assembly.make_model({});
    SimulationConfig config = simulation_config(assembly, *model, source);
    config.instances.resize(static_cast<std::size_t>(state.range(0)), config.instances.front());
    std::size_t turn = 0;
    config.router = oracle::route_by([&](const RequestSpec&) { return turn++ % 10; });
    return simulate(config).statistics;
  });
}
BENCHMARK(instances)->Arg(10)->Arg(1000)->Unit(benchmark::kMillisecond);

/// Replicas of which each has the same load, alone or on one server.
void replicas(benchmark::State& state, const std::vector<std::string>& settings) {
  const std::int64_t count = state.range(0);
  std::vector<std::string> arguments = settings;
  arguments.push_back("replicas=" + std::to_string(count));
  arguments.push_back("workload.rate=" + std::to_string(50 * count));
  arguments.push_back("workload.requests=" + std::to_string(20'000 * count));
  measure(state, [&] { return run_once(arguments); });
}
BENCHMARK_CAPTURE(replicas, of_their_own, {"policy=vllm", "workload.trace=sharegpt"})
    ->Arg(1)
    ->Arg(8)
    ->Unit(benchmark::kMillisecond);
/// Every iteration streams layers over the server's PCIe, which the replicas share.
BENCHMARK_CAPTURE(replicas, on_shared_links,
                  {"policy=select-n", "policy.interval=4", "hardware=hgx-h100-8", "workload.trace=sharegpt"})
    ->Arg(1)
    ->Arg(8)
    ->Unit(benchmark::kMillisecond);

/// 1,000 requests at a time, of which few are in the batch: the others wait, or are paged out.
void fair_slices(benchmark::State& state, const std::vector<std::string>& settings) {
  std::vector<std::string> arguments{
      "memory.gpu_kv=2GB",       "memory.host_kv=300GB",         "workload.trace=sharegpt",
      "workload.requests=20000", "workload.arrival=all-at-once", "workload.concurrency=1000"};
  arguments.insert(arguments.end(), settings.begin(), settings.end());
  measure(state, [&] { return run_once(arguments); });
}
BENCHMARK_CAPTURE(fair_slices, cfs, {"policy=cfs"})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(fair_slices, aqua, {"policy=aqua", "hardware=hgx-h100-8", "memory.peer=70GB"})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(fair_slices, public_code, {"policy=cfs", "policy.rules=code"})->Unit(benchmark::kMillisecond);

/// 264 requests at a time, of which about 64 have their KV on the GPU: the greedy step sees 200 on the host.
void neo(benchmark::State& state, const std::string& policy) {
  measure(state, [&] {
    return run_once({"policy=" + policy, "hardware=g5.16xlarge", "memory.gpu_kv=5GB", "engine.max_model_len=2000",
                     "workload.trace=uniform", "workload.input_tokens=400", "workload.output_tokens=200",
                     "workload.requests=10000", "workload.arrival=all-at-once", "workload.concurrency=264"});
  });
}
BENCHMARK_CAPTURE(neo, pipelined, "neo")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(neo, fastdecode, "fastdecode")->Unit(benchmark::kMillisecond);

/// 58 layers of 256 experts, one request after the other: iterations of one token that decodes, or of a prompt, whose
/// length is within 10% of 512 and 128, or anything from 6 to 1,018. A prompt of some 460 tokens uses all experts.
void experts(benchmark::State& state, const std::string& policy) {
  const bool decodes = state.range(0) == 1;
  const std::int64_t prompt = state.range(1);
  measure(state, [&] {
    return run_once({"policy=" + policy, "model=deepseek-v3", "hardware=hgx-b200-8", "workload.trace=uniform",
                     "workload.arrival=all-at-once", "workload.concurrency=1",
                     prompt < 0 ? std::string("workload.input_tokens=uniform(512,0.99)")
                                : fmt::format("workload.input_tokens={}", prompt),
                     fmt::format("workload.output_tokens={}", decodes ? 1000 : 1),
                     fmt::format("workload.requests={}", decodes ? 20 : 20'000)});
  });
}

/// Eight models on a server: each of four borrows memory of another one, whose bursts reclaim it again and again.
void lending(benchmark::State& state) {
  std::string elements;
  for (int pair = 0; pair < 4; ++pair) {
    elements += fmt::format(
        R"({}{{"name": "borrower{}", "gpus": {}, "model": "llama-3.1-8b", "policy": "aqua", "memory.gpu_kv": "1.5GB",
           "memory.lender": "lender{}", "workload": {{"trace": "sharegpt", "rate": 6, "requests": 6000}}}},
           {{"name": "lender{}", "gpus": {}, "model": "llama-3.1-8b", "policy": "vllm", "engine.max_num_seqs": 64,
            "memory.lend_reclaim_at": 3, "workload": {{"trace": "sharegpt", "arrival": "gamma", "cv": 5, "rate": 10,
                                                      "requests": 10000}}}})",
        pair == 0 ? "" : ", ", pair, 2 * pair, pair, pair, 2 * pair + 1);
  }
  const std::vector<std::string> arguments{"hardware=hgx-h100-8", "instances=[" + elements + "]"};
  std::int64_t reclaims = 0;
  measure(state, [&] {
    RunStatistics statistics = run_once(arguments);
    reclaims = 0;
    for (const LendingUse& use : statistics.lending) reclaims += use.figures.reclaims;
    return statistics;
  });
  state.counters["reclaims"] = static_cast<double>(reclaims);
}
BENCHMARK(lending)->Unit(benchmark::kMillisecond);

/// A large fleet: most replicas have a few requests.
void fleet(benchmark::State& state) {
  measure(state, [&] {
    return run_once({"policy=vllm", "replicas=1000", "workload.rate=4000", "workload.requests=1000000"});
  });
}
BENCHMARK(fleet)->Unit(benchmark::kMillisecond);

/// Pensieve with 10,000 conversations at a time: 0.54 of them begin per second, with 5.56 turns each and 4,000 s
/// between two turns. Their KV comes to some 5 TB, and to nearly 8 TB at most. The host holds 200 GB of it, so nearly
/// all is evicted between two turns, or 8 TB, so that nothing is.
void pensieve(benchmark::State& state, const std::string& eviction, const std::string& host) {
  const std::vector<std::string> arguments{"policy=pensieve",
                                           "policy.eviction=" + eviction,
                                           "model=llama-2-13b-kv10",
                                           "hardware=a100-80gb-pcie",
                                           "memory.gpu_kv=40GB",
                                           "memory.host_cache=" + host,
                                           "workload.trace=sharegpt-chat",
                                           "workload.rate=3",
                                           "workload.requests=100000",
                                           "workload.think_time=exponential(4000s)"};
  std::int64_t turns = 0;
  measure(state, [&] {
    RunStatistics statistics = run_once(arguments);
    turns += statistics.all.finished;
    return statistics;
  });
  state.SetItemsProcessed(turns);
}
BENCHMARK_CAPTURE(pensieve, retention_all_evicted, "retention", "200GB")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(pensieve, lru_all_evicted, "lru", "200GB")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(pensieve, retention_host_large_enough, "retention", "8TB")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(pensieve, lru_host_large_enough, "lru", "8TB")->Unit(benchmark::kMillisecond);

/// The order of eviction alone: 10,000 resting conversations of 64 chunks. In a turn one of them, drawn at random, ends
/// its rest and begins the next one, and the 12 least valuable chunks of all leave, each for the next of its
/// conversation.
void retention_order(benchmark::State& state) {
  constexpr std::size_t kConversations = 10'000;
  constexpr std::int64_t kChunks = 64;
  RandomStream random(1, 0, "bench.retention");
  RetentionOrder order;
  SimTime now{};
  std::vector<RetentionCandidate> first(kConversations);
  const auto cost = [](std::int64_t chunk) { return 1e-3 + 6e-6 * static_cast<double>(chunk); };
  const auto rests = [&](std::size_t slot) {
    first[slot] = {.cost = cost(0), .since = now, .position = 0, .owner = static_cast<std::int64_t>(slot)};
    order.put(slot, first[slot]);
  };
  const auto pass = [&] { now = now + Duration(1 + static_cast<std::int64_t>(random.uniform() * 200e6)); };
  for (std::size_t slot = 0; slot < kConversations; ++slot) {
    pass();
    rests(slot);
  }
  for (auto _ : state) {
    pass();
    rests(static_cast<std::size_t>(random.uniform() * kConversations));
    for (int chunk = 0; chunk < 12; ++chunk) {
      const std::optional<std::size_t> least = order.least(now);
      if (!least) break;
      RetentionCandidate& next = first[*least];
      next.cost = cost(++next.position);
      next.position < kChunks ? order.put(*least, next) : order.remove(*least);
    }
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(retention_order);

/// Layers that swap all the time, on a link that is never idle: Pie, OPT-30B on a GH200 with 7 GB for KV.
void pie_opt_30b(benchmark::State& state) {
  std::vector<std::string> arguments{"policy=pie",        "model=opt-30b",         "hardware=gh200-96gb",
                                     "memory.gpu_kv=7GB", "workload.rate=8",       "workload.trace=sharegpt",
                                     "engine=vllm-0.2.0", "workload.requests=5000"};
  if (state.range(0) > 0)
    arguments.push_back(fmt::format("policy.expansion={}", 0.01 * static_cast<double>(state.range(0))));
  measure(state, [&] { return run_once(arguments); });
}
BENCHMARK(pie_opt_30b)->ArgName("percent")->Arg(0)->Arg(166)->Arg(200)->Unit(benchmark::kMillisecond);

/// One iteration of 80 layers in the executor, `swap` times a layer's compute for a swap.
void pie_iteration_of_80_layers(benchmark::State& state) {
  constexpr std::int32_t kLayers = 80;
  const auto copy = [&](Stream stream) {
    return Copy{.stream = stream, .bytes = Bytes(1), .transfer = Duration(1000 * state.range(0))};
  };
  const std::int32_t on_host = kLayers / static_cast<std::int32_t>(state.range(0)) / 2;
  Executor executor;
  LayerSwap rule(kLayers, on_host, true, {copy(Stream::h2d), copy(Stream::d2h)});
  const SubBatchTimes times{.gpu = LayerTimes(Duration(1000))};
  const IterationPlan plan{kLayers, {&times, 1}, &rule};
  for (auto _ : state) {
    executor.begin(plan, executor.now());
    benchmark::DoNotOptimize(executor.run(plan, kNever));
  }
}
BENCHMARK(pie_iteration_of_80_layers)->ArgName("swap")->Arg(2)->Arg(4)->Arg(8);

/// The same with every eighth layer's weights streamed from the host.
void select_n_iteration_of_80_layers(benchmark::State& state) {
  constexpr std::int32_t kLayers = 80;
  Executor executor;
  WeightStream rule(kLayers);
  rule.stream({.interval = 8, .weights = {.stream = Stream::h2d, .bytes = Bytes(1), .transfer = Duration(6000)}});
  const SubBatchTimes times{.gpu = LayerTimes(Duration(1000))};
  const IterationPlan plan{kLayers, {&times, 1}, &rule};
  for (auto _ : state) {
    executor.begin(plan, executor.now());
    benchmark::DoNotOptimize(executor.run(plan, kNever));
  }
}
BENCHMARK(select_n_iteration_of_80_layers);

}  // namespace
}  // namespace spillway::cli

int main(int argc, char** argv) {
  for (const spillway::PolicyInfo* info : spillway::PolicyRegistry::instance().all()) {
    benchmark::RegisterBenchmark(("policy/" + info->name).c_str(), spillway::cli::policy, info->name)
        ->Unit(benchmark::kMillisecond);
    if (info->places_experts) {
      benchmark::RegisterBenchmark(("experts/" + info->name).c_str(), spillway::cli::experts, info->name)
          ->ArgNames({"decode", "prompt"})
          ->Args({1, 16})
          ->Args({0, 512})
          ->Args({0, 128})
          ->Args({0, -1})
          ->Unit(benchmark::kMillisecond);
    }
    if (info->layout) continue;  // its KV is not the cache's alone
    benchmark::RegisterBenchmark(("policy_prefixes/" + info->name).c_str(), spillway::cli::policy_prefixes, info->name)
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
