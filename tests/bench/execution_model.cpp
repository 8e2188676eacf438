// What one call of the execution model costs: the simulator makes one or more for every simulated iteration.
#include <benchmark/benchmark.h>

#include <array>
#include <memory>
#include <string>

#include "hwmodels/models/execution_models.hpp"

namespace {

using spillway::BatchShape;
using spillway::PrefillChunk;
using spillway::Tokens;
namespace hwmodels = spillway::hwmodels;

std::unique_ptr<spillway::ExecutionModel> model(const std::string& name) {
  return hwmodels::make_execution_model(hwmodels::load_gpu("h100-80gb-sxm"), hwmodels::load_llm("llama-3.1-8b"),
                                        hwmodels::load_engine("vllm-0.6.3"), {name, 1, 2});
}

BatchShape decodes(std::int64_t sequences) {
  return {.decode_sequences = sequences,
          .decode_context = Tokens(800 * sequences),
          .decode_longest = Tokens(2'000),
          .sampled_sequences = sequences};
}

void advance(BatchShape& shape) {
  shape.decode_context += Tokens(shape.decode_sequences);
  shape.decode_longest += Tokens(1);
  if (shape.decode_longest > Tokens(8'000)) shape = decodes(shape.decode_sequences);
}

void decode_only(benchmark::State& state, const std::string& name) {
  const auto execution = model(name);
  BatchShape shape = decodes(128);
  for (auto _ : state) {
    advance(shape);
    benchmark::DoNotOptimize(execution->iteration(shape));
  }
}
BENCHMARK_CAPTURE(decode_only, fitted, std::string("fitted"));
BENCHMARK_CAPTURE(decode_only, roofline, std::string("roofline"));

/// The number of decodes changes from call to call, within [1, 256].
void decode_only_any_batch(benchmark::State& state, const std::string& name) {
  const auto execution = model(name);
  std::array<BatchShape, 256> shapes;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    shapes[i] = decodes(static_cast<std::int64_t>(1 + i * 101 % shapes.size()));
  }
  std::size_t next = 0;
  for (auto _ : state) {
    BatchShape& shape = shapes[++next % shapes.size()];
    advance(shape);
    benchmark::DoNotOptimize(execution->iteration(shape));
  }
}
BENCHMARK_CAPTURE(decode_only_any_batch, fitted, std::string("fitted"));
BENCHMARK_CAPTURE(decode_only_any_batch, roofline, std::string("roofline"));

void decode_and_one_chunk(benchmark::State& state, const std::string& name) {
  const auto execution = model(name);
  std::array<PrefillChunk, 1> chunks{{{Tokens(512), Tokens(0)}}};
  BatchShape shape = decodes(128);
  shape.chunks = chunks;
  for (auto _ : state) {
    shape.decode_context += Tokens(128);
    chunks[0].context = Tokens((chunks[0].context.count() + 1) % 8'000);
    benchmark::DoNotOptimize(execution->iteration(shape));
  }
}
BENCHMARK_CAPTURE(decode_and_one_chunk, fitted, std::string("fitted"));
BENCHMARK_CAPTURE(decode_and_one_chunk, roofline, std::string("roofline"));

}  // namespace

BENCHMARK_MAIN();
