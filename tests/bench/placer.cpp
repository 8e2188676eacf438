// Time and gap of AQUA's placer on clusters of 16 to 256 GPUs (claim AQUA-18: within 2% in 5 s at 128 GPUs).
#include <benchmark/benchmark.h>

#include "sim/study/placer/placement.hpp"
#include "sim/study/placer/sample_cluster.hpp"

namespace spillway::placer {
namespace {

/// Servers, and hundredths by which the balances spread.
void clusters(benchmark::State& state) {
  const PlacementProblem problem = sample_cluster(state.range(0), 4, static_cast<double>(state.range(1)) / 100.0);
  Placement placement;
  for (auto _ : state) placement = place(problem);
  state.counters["gap_percent"] = 100.0 * placement.gap();
  state.counters["objective_gb"] = static_cast<double>(placement.value.count()) * 1e-9;
}
BENCHMARK(clusters)
    ->ArgsProduct({{2, 4, 6, 8, 12, 16, 32}, {0, 10}})
    ->ArgNames({"servers", "spread"})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace spillway::placer

BENCHMARK_MAIN();
