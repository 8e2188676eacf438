// Result files of serving benchmarks: requests with their times as a client measured them. The layouts are known from
// memory of the tools' public code, not from files; what is not recognised is refused by name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "traces/readers/sorted_log.hpp"
#include "traces/readers/trace_reader.hpp"

namespace spillway::traces {

/// Rows that a constructor has read from a whole file.
class LoadedRows : public TraceReader {
 public:
  bool next(TraceRow& row) final {
    if (at_ == rows_.size()) return false;
    row = rows_[at_++].row;
    return true;
  }
  [[nodiscard]] bool has_times() const final { return timed_; }
  [[nodiscard]] std::int64_t row() const final {
    return at_ == 0 ? 0 : static_cast<std::int64_t>(rows_[at_ - 1].place);
  }
  [[nodiscard]] LogKey key() const { return {0, row(), rows_[at_ - 1].sent}; }
  [[nodiscard]] std::vector<std::string> warnings() const final { return warnings_; }

 protected:
  void add(const TraceRow& row, std::int64_t place, double sent) { rows_.push_back({row, place, sent}); }
  void set_timed(bool timed) { timed_ = timed; }
  /// Says that requests were left out because they failed. Throws DataError when nothing is left.
  void finish(const std::string& path, std::int64_t failed);

 private:
  struct Loaded {
    TraceRow row;
    std::int64_t place = 0;
    double sent = 0.0;
  };
  std::vector<Loaded> rows_;
  std::size_t at_ = 0;
  bool timed_ = true;
  std::vector<std::string> warnings_;
};

/// `vllm bench serve --save-result --save-detailed` (benchmarks/benchmark_serving.py before): an object with the lists
/// input_lens and output_lens (tokens), ttfts (s), itls (s, a list for each request) and errors (a text for each
/// request, empty if it was answered), and since 2025 start_times (s). Without start_times the requests have no
/// arrivals. Requests that failed are left out. The request took its TTFT and the sum of its inter-token latencies.
class VllmBenchRows final : public LoadedRows {
 public:
  /// Throws DataError for a file that cannot be read, lacks a list (it was saved without --save-detailed), or has lists
  /// of different lengths.
  VllmBenchRows(const std::string& path, const ReaderOptions& options);
  static bool recognises(std::string_view head);
};

/// GuideLLM's JSON: an object with `benchmarks`, of which it must have one; requests.successful is a list of objects
/// with prompt_tokens, output_tokens, start_time or request_start_time, first_token_time or time_to_first_token_ms, and
/// end_time or request_end_time (seconds). Errored and incomplete requests are left out and counted.
class GuideLlmRows final : public LoadedRows {
 public:
  GuideLlmRows(const std::string& path, const ReaderOptions& options);
  static bool recognises(std::string_view head);
};

/// AIPerf's profile_export.jsonl: one object per request with metadata (request_start_ns; benchmark_phase, of which
/// only "profiling" counts; was_cancelled) and metrics, each {"value": ..., "unit": ...}: input_sequence_length,
/// output_sequence_length, time_to_first_token, request_latency. Requests with an error are left out and counted.
class AiPerfRows final : public LoadedRows {
 public:
  AiPerfRows(const std::string& path, const ReaderOptions& options);
  static bool recognises(std::string_view head);
};

using VllmBenchReader = SortedLog<VllmBenchRows>;
using GuideLlmReader = SortedLog<GuideLlmRows>;
using AiPerfReader = SortedLog<AiPerfRows>;

}  // namespace spillway::traces
