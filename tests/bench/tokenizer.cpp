// Tokenizers over real text: the 120 shared ShareGPT conversations, tiled to 16 MB. Skips without them.
#include "traces/tokenizers/tokenizer.hpp"

#include <benchmark/benchmark.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/paths.hpp"

namespace spillway::traces {
namespace {

const std::filesystem::path kShared = std::filesystem::path(source_dir()) / "../shared/data";

/// Each turn's text; empty without the shared data.
const std::vector<std::string>& turns() {
  static const std::vector<std::string> kTurns = [] {
    std::vector<std::string> turns;
    std::ifstream file(kShared / "traces/sharegpt-text-120.json");
    if (!file) return turns;
    for (const auto& conversation : nlohmann::json::parse(file)) {
      for (const auto& turn : conversation.at("conversations")) turns.push_back(turn.at("value"));
    }
    return turns;
  }();
  return kTurns;
}

std::size_t bytes_of(const std::vector<std::string>& texts) {
  std::size_t bytes = 0;
  for (const std::string& text : texts) bytes += text.size();
  return bytes;
}

std::string spec_of(const std::string& name) {
  if (name == "gpt2") return "gpt2:" + (kShared / "tokenizers").string();
  return name == "mistral" ? (kShared / "tokenizers/mistral-v1.model").string() : name;
}

/// The trace many times over with one tokenizer, as a long trace is read.
void warm(benchmark::State& state, const std::string& name) {
  if (turns().empty()) return state.SkipWithError("../shared/data is not there");
  const auto tokenizer = open_tokenizer(spec_of(name));
  constexpr std::size_t kLeastBytes = 16'000'000;
  std::int64_t bytes = 0;
  std::int64_t tokens = 0;
  for (auto _ : state) {
    for (std::size_t done = 0; done < kLeastBytes; done += bytes_of(turns())) {
      for (const std::string& text : turns()) tokens += tokenizer->count(text).count();
      bytes += static_cast<std::int64_t>(bytes_of(turns()));
    }
  }
  state.SetBytesProcessed(bytes);
  state.counters["bytes/token"] = static_cast<double>(bytes) / static_cast<double>(tokens);
}
BENCHMARK_CAPTURE(warm, estimate, "estimate")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(warm, gpt2, "gpt2")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(warm, mistral, "mistral")->Unit(benchmark::kMillisecond);

/// The trace once with a tokenizer that has seen nothing yet: no piece is known from before.
void cold(benchmark::State& state, const std::string& name) {
  if (turns().empty()) return state.SkipWithError("../shared/data is not there");
  for (auto _ : state) {
    state.PauseTiming();
    auto tokenizer = open_tokenizer(spec_of(name));
    state.ResumeTiming();
    for (const std::string& text : turns()) benchmark::DoNotOptimize(tokenizer->count(text));
    state.PauseTiming();
    tokenizer.reset();
    state.ResumeTiming();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes_of(turns())));
}
BENCHMARK_CAPTURE(cold, gpt2, "gpt2")->Unit(benchmark::kMillisecond);

void open(benchmark::State& state, const std::string& name) {
  if (turns().empty()) return state.SkipWithError("../shared/data is not there");
  for (auto _ : state) benchmark::DoNotOptimize(open_tokenizer(spec_of(name)));
}
BENCHMARK_CAPTURE(open, gpt2, "gpt2")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(open, mistral, "mistral")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace spillway::traces

BENCHMARK_MAIN();
