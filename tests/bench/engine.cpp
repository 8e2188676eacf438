// Speed of a run, in process: configuration, policy, execution model, metrics and percentiles, as `spillway run` does
// it.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "sim/cli/assemble.hpp"
#include "sim/cli/replications.hpp"
#include "sim/metrics.hpp"
#include "tests/oracle/list_source.hpp"

namespace spillway::cli {
namespace {

/// One replication of `arguments` from the text of its keys to the bottleneck sentence.
RunStatistics run_once(const std::vector<std::string>& arguments) {
  Assembly assembly = assemble(resolve_arguments(arguments, {}, {}));
  ReplicationResults results = run_replications(assembly, 1, 1, {}, {});
  benchmark::DoNotOptimize(find_bottleneck(results.statistics));
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
  state.counters["preemptions"] = static_cast<double>(last.engine.preempted_recompute);
}

/// More traffic than the GPU can serve, ShareGPT-like lengths, at most `max_num_seqs` in the batch: the batch is full.
void saturated(benchmark::State& state, const std::string& policy) {
  const std::vector<std::string> arguments{"policy=" + policy, "workload.trace=sharegpt", "workload.requests=300000",
                                           "workload.rate=1000",
                                           "engine.max_num_seqs=" + std::to_string(state.range(0))};
  measure(state, [&] { return run_once(arguments); });
}

void BM_Vllm(benchmark::State& state) { saturated(state, "vllm"); }
void BM_VllmV0(benchmark::State& state) { saturated(state, "vllm-v0"); }
BENCHMARK(BM_Vllm)->Arg(32)->Arg(128)->Arg(256)->Arg(1024)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_VllmV0)->Arg(128)->Arg(256)->Unit(benchmark::kMillisecond);

/// The same with memory for a fraction of the batch: admission, preemption and recomputation all the time.
void BM_VllmShortOfMemory(benchmark::State& state) {
  const std::vector<std::string> arguments{"policy=vllm", "workload.trace=sharegpt", "workload.requests=100000",
                                           "workload.rate=1000", "memory.gpu_kv=8GB"};
  measure(state, [&] { return run_once(arguments); });
}
BENCHMARK(BM_VllmShortOfMemory)->Unit(benchmark::kMillisecond);

/// The engine alone: neither drawing requests nor reading configuration is in the time; metrics and percentiles are.
void BM_EngineAlone(benchmark::State& state) {
  Assembly assembly = assemble(resolve_arguments(
      {"policy=vllm", "workload.trace=sharegpt", "workload.requests=300000", "workload.rate=1000"}, {}, {}));
  std::vector<RequestSpec> requests;
  for (RequestSpec spec; assembly.workload.stream->next(spec);) requests.push_back(spec);
  measure(state, [&] {
    oracle::ListSource source(requests);
    return simulate(simulation_config(assembly, source)).statistics;
  });
}
BENCHMARK(BM_EngineAlone)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace spillway::cli

BENCHMARK_MAIN();
