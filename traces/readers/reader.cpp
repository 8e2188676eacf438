#include "traces/readers/reader.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <string_view>
#include <utility>

#include "sim/core/error.hpp"
#include "sim/core/text.hpp"
#include "sim/io/file_reader.hpp"
#include "traces/readers/alpaca_json.hpp"
#include "traces/readers/azure_csv.hpp"
#include "traces/readers/bench_results.hpp"
#include "traces/readers/burstgpt_csv.hpp"
#include "traces/readers/engine_log_jsonl.hpp"
#include "traces/readers/lengths_json.hpp"
#include "traces/readers/llmservingsim_jsonl.hpp"
#include "traces/readers/mapped_rows.hpp"
#include "traces/readers/mooncake_jsonl.hpp"
#include "traces/readers/native_binary.hpp"
#include "traces/readers/native_csv.hpp"
#include "traces/readers/native_jsonl.hpp"
#include "traces/readers/prefix_sessions.hpp"
#include "traces/readers/run_requests.hpp"
#include "traces/readers/sharegpt_json.hpp"
#include "traces/readers/turns_csv.hpp"
#include "traces/readers/ultrachat_jsonl.hpp"
#include "traces/readers/vidur_csv.hpp"

namespace spillway::traces {
namespace {

struct Entry {
  TraceFormat format;
  bool (*recognises)(std::string_view head);
  std::unique_ptr<TraceReader> (*open)(const std::string& path, const ReaderOptions& options);
};

template <class Reader>
std::unique_ptr<TraceReader> open_reader(const std::string& path, const ReaderOptions& options) {
  return std::make_unique<Reader>(path, options);
}

template <class Reader>
Entry entry(const char* name, const char* doc) {
  return {{name, doc}, Reader::recognises, open_reader<Reader>};
}

const std::vector<Entry>& entries() {
  static const std::vector<Entry> kEntries{
      entry<AzureCsvReader>("azure-csv",
                            "CSV whose first row names TIMESTAMP, ContextTokens and GeneratedTokens (Azure's traces)"),
      entry<BurstGptCsvReader>("burstgpt-csv",
                               "CSV whose first row names Timestamp, Request tokens and Response tokens (BurstGPT)"),
      entry<VidurCsvReader>("vidur-csv", "CSV whose first row names num_prefill_tokens and num_decode_tokens (Vidur)"),
      entry<TurnsCsvReader>("turns-csv",
                            "CSV whose first row names conv_id, turn, prompt_tokens_cumulative, new_input_tokens and "
                            "output_tokens (lengths of chats, turn by turn)"),
      entry<RunCsvReader>("requests-csv",
                          "CSV whose first row names index, arrival_ns, input_tokens and output_tokens (spillway run "
                          "--requests-out FILE.csv)"),
      entry<NativeCsvReader>("native-csv", "CSV whose first row names input_tokens and output_tokens (Spillway's own)"),
      entry<MooncakeJsonlReader>(
          "mooncake-jsonl",
          "one JSON object per line with timestamp, input_length, output_length and hash_ids (Mooncake)"),
      entry<EngineLogReader>("engine-log",
                             "one JSON object per line with input_toks, output_toks and queued_ts (requests.jsonl of "
                             "an engine's log folder)"),
      entry<LlmServingSimJsonlReader>(
          "llmservingsim-jsonl",
          "one JSON object per line with input_toks, output_toks and arrival_time_ns (LLMServingSim)"),
      entry<VllmBenchReader>("vllm-bench-json",
                             "the JSON object that vllm bench serve --save-result --save-detailed writes: input_lens, "
                             "output_lens, start_times, ttfts and itls (layout recalled, not checked against a file)"),
      entry<GuideLlmReader>("guidellm-json",
                            "a JSON object with benchmarks, each with requests.successful (GuideLLM; layout recalled, "
                            "not checked against a file)"),
      entry<AiPerfReader>("aiperf-jsonl",
                          "one JSON object per line with metadata and metrics (AIPerf's profile_export.jsonl; layout "
                          "recalled, not checked against a file)"),
      entry<LengthsJsonReader>(
          "lengths-json", "a JSON list of objects with prompt and max_tokens, or with L_gt (output lengths alone)"),
      entry<ShareGptJsonReader>(
          "sharegpt-json", "a JSON list of objects with conversations, lists of from and value (texts of ShareGPT)"),
      entry<AlpacaJsonReader>("alpaca-json",
                              "a JSON list of objects with instruction, input and output (texts of Alpaca)"),
      entry<UltraChatJsonlReader>("ultrachat-jsonl", "one JSON object per line with data, a list of texts (UltraChat)"),
      entry<RunJsonlReader>("requests-jsonl",
                            "one JSON object per line with index, arrival_ns, input_tokens and output_tokens (spillway "
                            "run --requests-out)"),
      entry<NativeJsonlReader>("native-jsonl",
                               "one JSON object per line with input_tokens and output_tokens (Spillway's own)"),
      entry<NativeBinaryReader>("native-binary", "binary file of spillway trace convert, for fast reading")};
  return kEntries;
}

/// At most 64 KiB of text from the start of a file, without leading blanks.
std::string head_of(const std::string& path) {
  FileReader file(path);
  std::string head(std::size_t{64} << 10U, '\0');
  head.resize(file.read(head.data(), head.size()));
  head.erase(0, head.find_first_not_of(" \t\r\n"));
  return head;
}

const Entry& detect(const std::string& path) {
  const std::string head = head_of(path);
  for (const Entry& entry : entries()) {
    if (entry.recognises(head)) return entry;
  }
  const std::string_view line = std::string_view(head).substr(0, head.find_first_of("\r\n"));
  std::string known;
  for (const Entry& entry : entries()) {
    known += fmt::format("{}{}: {}", known.empty() ? "" : "; ", entry.format.name, entry.format.doc);
  }
  throw DataError(
      fmt::format("the format cannot be detected from the first line, \"{}\"", excerpt(line)), path,
      fmt::format("name its columns in workload.columns, set workload.format, or convert it into one of: {}", known));
}

}  // namespace

const std::vector<TraceFormat>& trace_formats() {
  static const std::vector<TraceFormat> kFormats = [] {
    std::vector<TraceFormat> formats;
    for (const Entry& entry : entries()) formats.push_back(entry.format);
    return formats;
  }();
  return kFormats;
}

std::vector<std::string> trace_format_choices() {
  std::vector<std::string> choices{"auto"};
  for (const TraceFormat& format : trace_formats()) choices.push_back(format.name);
  return choices;
}

namespace {

OpenedTrace open_rows(const std::string& path, const std::string& format, const ReaderOptions& options) {
  if (!options.columns.empty()) return {kMappedFormat, open_mapped(path, options)};
  if (format == "auto") {
    const Entry& entry = detect(path);
    return {entry.format.name, entry.open(path, options)};
  }
  for (const Entry& entry : entries()) {
    if (entry.format.name == format) return {format, entry.open(path, options)};
  }
  const std::vector<std::string> choices = trace_format_choices();
  const std::string near = nearest_name(format, choices);
  throw ConfigError(fmt::format("unknown trace format \"{}\"", format), "workload.format",
                    near.empty() ? fmt::format("known formats: {}", fmt::join(choices, ", "))
                                 : fmt::format("did you mean \"{}\"?", near));
}

}  // namespace

OpenedTrace open_trace(const std::string& path, const std::string& format, const ReaderOptions& options) {
  OpenedTrace trace = open_rows(path, format, options);
  if (options.prefix_sessions) trace.reader = std::make_unique<PrefixSessions>(path, std::move(trace.reader));
  return trace;
}

}  // namespace spillway::traces
