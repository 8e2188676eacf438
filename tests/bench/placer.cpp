// Time and gap of AQUA's placer on clusters of 16 to 256 GPUs (claim AQUA-18: within 2% in 5 s at 128 GPUs).
#include <benchmark/benchmark.h>

#include "sim/study/placer/placement.hpp"
#include "tests/support/placer_sample.hpp"

namespace spillway::placer {
namespace {

void sample_cluster(benchmark::State& state) {
  const PlacementProblem problem = test::placer_sample(state.range(0), 4);
  Placement placement;
  for (auto _ : state) placement = place(problem);
  state.counters["gap_percent"] = 100.0 * placement.gap();
  state.counters["objective_gb"] = static_cast<double>(placement.value.count()) * 1e-9;
}
BENCHMARK(sample_cluster)->Arg(2)->Arg(4)->Arg(6)->Arg(8)->Arg(12)->Arg(16)->Arg(32)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace spillway::placer

BENCHMARK_MAIN();
