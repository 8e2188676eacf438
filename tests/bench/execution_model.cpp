// What one call of the execution model costs: the simulator makes one or more for every simulated iteration.
#include <benchmark/benchmark.h>

#include <array>

#include "hwmodels/models/roofline.hpp"

namespace {

using spillway::BatchShape;
using spillway::PrefillChunk;
using spillway::Tokens;
namespace hwmodels = spillway::hwmodels;

std::unique_ptr<spillway::ExecutionModel> model() {
  return hwmodels::make_roofline(hwmodels::load_gpu("h100-80gb-sxm"), hwmodels::load_llm("llama-3.1-8b"),
                                 hwmodels::load_engine("vllm-0.6.3"), 1, 2);
}

void decode_only(benchmark::State& state) {
  const auto execution = model();
  BatchShape shape{.decode_sequences = 128, .decode_context = Tokens(100'000), .sampled_sequences = 128};
  for (auto _ : state) {
    shape.decode_context += Tokens(128);
    benchmark::DoNotOptimize(execution->iteration(shape));
  }
}
BENCHMARK(decode_only);

void decode_and_one_chunk(benchmark::State& state) {
  const auto execution = model();
  std::array<PrefillChunk, 1> chunks{{{Tokens(512), Tokens(0)}}};
  BatchShape shape{
      .decode_sequences = 128, .decode_context = Tokens(100'000), .chunks = chunks, .sampled_sequences = 128};
  for (auto _ : state) {
    shape.decode_context += Tokens(128);
    chunks[0].context += Tokens(1);
    benchmark::DoNotOptimize(execution->iteration(shape));
  }
}
BENCHMARK(decode_and_one_chunk);

}  // namespace

BENCHMARK_MAIN();
