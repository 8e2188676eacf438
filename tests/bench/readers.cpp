// Speed of the readers of traces, alone: rows and bytes per second of one core. Real files are tiled into a temporary
// file, their times shifted with each copy, until it is large beside the caches; formats whose file is not there are
// skipped. Texts are counted with the estimate and, where it says so, with the tokens of GPT-2.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "sim/io/line_reader.hpp"
#include "tests/support/paths.hpp"
#include "traces/readers/native_binary.hpp"
#include "traces/readers/reader.hpp"

namespace {

namespace fs = std::filesystem;
namespace traces = spillway::traces;
using spillway::source_dir;
using spillway::Tokens;

constexpr std::uintmax_t kBytes = std::uintmax_t{64} << 20U;

/// A file that is removed at the end of the program.
class TiledFile {
 public:
  TiledFile(const std::string& name, const std::string& header, const std::function<std::string(int)>& copy)
      : path_((fs::temp_directory_path() / fmt::format("spillway_bench_{}_{}", getpid(), name)).string()) {
    std::ofstream file(path_, std::ios::binary);
    file << header;
    for (int i = 0; static_cast<std::uintmax_t>(file.tellp()) < kBytes; ++i) file << copy(i);
  }
  TiledFile(const std::string& name, const std::string& content)
      : path_((fs::temp_directory_path() / fmt::format("spillway_bench_{}_{}", getpid(), name)).string()) {
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~TiledFile() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  TiledFile(const TiledFile&) = delete;
  TiledFile& operator=(const TiledFile&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string shared_trace(const std::string& name) { return source_dir() + "/../shared/data/traces/" + name; }

std::vector<traces::TraceRow> requests_of(const std::string& path) {
  std::vector<traces::TraceRow> all;
  if (!fs::exists(path)) return all;
  const traces::OpenedTrace trace = traces::open_trace(path, "auto");
  traces::TraceRow request;
  while (trace.reader->next(request)) all.push_back(request);
  return all;
}

void read_all(benchmark::State& state, const std::string& path, const traces::ReaderOptions& options = {}) {
  std::int64_t rows = 0;
  for (auto _ : state) {
    const traces::OpenedTrace trace = traces::open_trace(path, "auto", options);
    traces::TraceRow request;
    while (trace.reader->next(request)) ++rows;
  }
  using benchmark::Counter;
  state.counters["rows/s"] = Counter(static_cast<double>(rows), Counter::kIsRate);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(fs::file_size(path)));
}

/// The requests of a real file in any layout: `row` writes one of them, at an arrival in seconds.
void tile(benchmark::State& state, const std::string& source, const std::string& header,
          const std::function<std::string(const traces::TraceRow&, double)>& row) {
  const auto requests = requests_of(shared_trace(source));
  if (requests.empty()) {
    state.SkipWithError(("../shared/data/traces/" + source + " is not there").c_str());
    return;
  }
  const double span = spillway::to_seconds(requests.back().arrival) + 1.0;
  const TiledFile file(source, header, [&](int copy) {
    std::string text;
    for (const auto& request : requests) text += row(request, copy * span + spillway::to_seconds(request.arrival));
    return text;
  });
  read_all(state, file.path());
}

constexpr const char* kAzure = "azure-2023-code.csv";

std::string azure_row(const traces::TraceRow& request, double arrival) {
  const auto second = static_cast<std::int64_t>(arrival);
  const auto part = static_cast<std::int64_t>((arrival - static_cast<double>(second)) * 1e7);
  return fmt::format("2023-{:02}-{:02} {:02}:{:02}:{:02}.{:07},{},{}\r\n", second / 2419200 % 12 + 1,
                     second / 86400 % 28 + 1, second / 3600 % 24, second / 60 % 60, second % 60, part,
                     request.input.count(), request.output.count());
}
void azure_csv(benchmark::State& state) {
  tile(state, kAzure, "TIMESTAMP,ContextTokens,GeneratedTokens\r\n", azure_row);
}
BENCHMARK(azure_csv)->Unit(benchmark::kMillisecond);

void burstgpt_csv(benchmark::State& state) {
  tile(state, kAzure, "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n",
       [](const auto& request, double arrival) {
         const std::int64_t input = request.input.count();
         const std::int64_t output = request.output.count();
         return fmt::format("{:.0f},ChatGPT,{},{},{},Conversation log\n", arrival, input, output, input + output);
       });
}
BENCHMARK(burstgpt_csv)->Unit(benchmark::kMillisecond);

void vidur_csv(benchmark::State& state) {
  tile(state, "arxiv-lengths-5000.csv", "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n",
       [](const auto& request, double) {
         const std::int64_t input = request.input.count();
         const std::int64_t output = request.output.count();
         return fmt::format("{},{},{},{}\n", input, output, input + output,
                            static_cast<double>(input) / static_cast<double>(output));
       });
}
BENCHMARK(vidur_csv)->Unit(benchmark::kMillisecond);

void native_csv(benchmark::State& state) {
  tile(state, kAzure, "arrival_s,input_tokens,output_tokens,client,max_new_tokens\n",
       [](const auto& request, double arrival) {
         return fmt::format("{:.7f},{},{},{},{}\n", arrival, request.input.count(), request.output.count(),
                            request.input.count() % 10, request.output.count());
       });
}
BENCHMARK(native_csv)->Unit(benchmark::kMillisecond);

void native_jsonl(benchmark::State& state) {
  tile(state, kAzure, "", [](const auto& request, double arrival) {
    return fmt::format("{{\"arrival_s\": {:.7f}, \"input_tokens\": {}, \"output_tokens\": {}}}\n", arrival,
                       request.input.count(), request.output.count());
  });
}
BENCHMARK(native_jsonl)->Unit(benchmark::kMillisecond);

/// A real file's requests in the binary format, tiled like the others.
void native_binary(benchmark::State& state) {
  const auto requests = requests_of(shared_trace(kAzure));
  if (requests.empty()) {
    state.SkipWithError((std::string("../shared/data/traces/") + kAzure + " is not there").c_str());
    return;
  }
  const spillway::Duration span =
      requests.back().arrival - requests.front().arrival + spillway::Duration(1'000'000'000);
  const auto copies = static_cast<std::int64_t>(kBytes / (requests.size() * 8));
  traces::TraceFacts facts;
  facts.has_times = true;
  facts.rows = copies * static_cast<std::int64_t>(requests.size());
  std::string bytes;
  traces::NativeBinaryWriter writer(facts, [&](std::string_view part) { bytes += part; });
  for (std::int64_t copy = 0; copy < copies; ++copy) {
    for (traces::TraceRow request : requests) {
      request.arrival = request.arrival + span * copy;
      writer.add(request);
    }
  }
  writer.finish();
  const TiledFile file("native.bin", bytes);
  read_all(state, file.path());
}
BENCHMARK(native_binary)->Unit(benchmark::kMillisecond);

/// The lines of a real file as they are, but for the time behind `key`, to which each copy adds the span of the file.
void tile_lines(benchmark::State& state, const std::string& source, const std::string& key, std::int64_t span) {
  const std::string path = shared_trace(source);
  if (!fs::exists(path)) {
    state.SkipWithError(("../shared/data/traces/" + source + " is not there").c_str());
    return;
  }
  struct Line {
    std::string before;
    std::int64_t time = 0;
    std::string after;
  };
  std::vector<Line> lines;
  spillway::LineReader reader(path);
  for (std::string_view line; reader.next(line);) {
    const std::size_t at = line.find(key) + key.size();
    const std::size_t end = line.find(',', at);
    lines.push_back({std::string(line.substr(0, at)), std::stoll(std::string(line.substr(at, end - at))),
                     std::string(line.substr(end)) + "\n"});
  }
  const TiledFile file(source, "", [&](int copy) {
    std::string text;
    for (const Line& line : lines) text += line.before + std::to_string(line.time + copy * span) + line.after;
    return text;
  });
  read_all(state, file.path());
}

void mooncake_jsonl(benchmark::State& state) {
  tile_lines(state, "mooncake-synthetic.jsonl", "\"timestamp\": ", 2'000'000);
}
BENCHMARK(mooncake_jsonl)->Unit(benchmark::kMillisecond);

void llmservingsim_jsonl(benchmark::State& state) {
  tile_lines(state, "sharegpt-llama31-8b-300.jsonl.gz", "\"arrival_time_ns\": ", 30'000'000'000);
}
BENCHMARK(llmservingsim_jsonl)->Unit(benchmark::kMillisecond);

void turns_csv(benchmark::State& state) {
  std::uint64_t conversation = 0;
  tile(state, "sharegpt-turns-1000.csv", "conv_id,turn,prompt_tokens_cumulative,new_input_tokens,output_tokens\n",
       [&](const traces::TraceRow& row, double) {
         conversation += row.turn == 1 ? 1 : 0;
         return fmt::format("{},{},{},{},{}\n", conversation, row.turn - 1, row.input.count(), row.input.count() / 2,
                            row.output.count());
       });
}
BENCHMARK(turns_csv)->Unit(benchmark::kMillisecond);

/// The items of a real JSON list, over and over.
void tile_items(benchmark::State& state, const std::string& source, const std::string& tokenizer) {
  std::ifstream file(shared_trace(source), std::ios::binary);
  std::string items(std::istreambuf_iterator<char>(file), {});
  const std::size_t end = items.rfind(']');
  if (end == std::string::npos) {
    state.SkipWithError(("../shared/data/traces/" + source + " is not there").c_str());
    return;
  }
  items.resize(end);
  items.erase(0, items.find('[') + 1);
  const TiledFile tiled(source, "[", [&](int copy) { return (copy == 0 ? "" : ",\n") + items; });
  std::ofstream(tiled.path(), std::ios::binary | std::ios::app) << "]";
  read_all(state, tiled.path(), {.tokenizer = tokenizer});
}

void lengths_json(benchmark::State& state) { tile_items(state, "alpaca-10k-output-lengths.json", "estimate"); }
BENCHMARK(lengths_json)->Unit(benchmark::kMillisecond);

std::string gpt2() { return std::string("gpt2:") + source_dir() + "/../shared/data/tokenizers"; }

void sharegpt_json(benchmark::State& state) { tile_items(state, "sharegpt-text-120.json", "estimate"); }
BENCHMARK(sharegpt_json)->Unit(benchmark::kMillisecond);
void sharegpt_json_gpt2(benchmark::State& state) { tile_items(state, "sharegpt-text-120.json", gpt2()); }
BENCHMARK(sharegpt_json_gpt2)->Unit(benchmark::kMillisecond);

void alpaca_json(benchmark::State& state) { tile_items(state, "alpaca-text-200.json", "estimate"); }
BENCHMARK(alpaca_json)->Unit(benchmark::kMillisecond);
void alpaca_json_gpt2(benchmark::State& state) { tile_items(state, "alpaca-text-200.json", gpt2()); }
BENCHMARK(alpaca_json_gpt2)->Unit(benchmark::kMillisecond);

/// The conversations of ShareGPT in the layout of UltraChat, an answer that none asks for left out.
void tile_chats(benchmark::State& state, const std::string& tokenizer) {
  std::ifstream file(shared_trace("sharegpt-text-120.json"));
  if (!file) {
    state.SkipWithError("../shared/data/traces/sharegpt-text-120.json is not there");
    return;
  }
  std::string lines;
  for (const auto& item : nlohmann::json::parse(file)) {
    nlohmann::json texts = nlohmann::json::array();
    for (const auto& message : item.at("conversations")) {
      if (texts.empty() && message.at("from") == "gpt") continue;
      texts.push_back(message.at("value"));
    }
    lines += nlohmann::json{{"id", item.at("id")}, {"data", texts}}.dump() + "\n";
  }
  const TiledFile tiled("ultrachat.jsonl", "", [&](int) { return lines; });
  read_all(state, tiled.path(), {.tokenizer = tokenizer});
}

void ultrachat_jsonl(benchmark::State& state) { tile_chats(state, "estimate"); }
BENCHMARK(ultrachat_jsonl)->Unit(benchmark::kMillisecond);
void ultrachat_jsonl_gpt2(benchmark::State& state) { tile_chats(state, gpt2()); }
BENCHMARK(ultrachat_jsonl_gpt2)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
