#include "traces/readers/turns_csv.hpp"

#include <fmt/format.h>

#include <array>
#include <limits>

#include "sim/core/text.hpp"
#include "sim/io/file_reader.hpp"
#include "traces/readers/row_checks.hpp"

namespace spillway::traces {

bool TurnsCsvReader::recognises(std::string_view head) {
  return names_columns(head, std::span(kColumnNames).first(kConversation), 1);
}

TurnsCsvReader::TurnsCsvReader(const std::string& path, const ReaderOptions& options)
    : CsvReader(path, {.columns = kColumnNames, .fix = kFix}, options) {}

void TurnsCsvReader::parse(TraceRow& row) {
  const auto conversation = whole(kConversation, 0, std::numeric_limits<std::int64_t>::max());
  const auto turn = whole(kTurn, 0, kMaxTurn);
  if (conversation && turn) check_turn(*conversation, *turn);
  const auto prompt = tokens(kPrompt, 1);
  const auto fresh = tokens(kNew, 0);
  if (prompt && fresh && *fresh > *prompt) {
    bad(kNew, fmt::format("{} new tokens in a prompt of {}", *fresh, *prompt), kCorrectRow);
  }
  const auto output = tokens(kOutput, 0);
  if (is_bad()) return;
  if (*output == 0) ++zero_outputs_;
  set_lengths(row, *prompt, *output);
  row.conversation = static_cast<std::uint64_t>(*conversation);
  row.turn = static_cast<std::int32_t>(*turn + 1);
}

/// Complains about a turn that does not follow the row before.
void TurnsCsvReader::check_turn(std::int64_t conversation, std::int64_t turn) {
  const std::int64_t expected = conversation == conversation_ ? turn_ + 1 : 0;
  if (turn != expected) {
    bad(kTurn, fmt::format("turn {} follows where turn {} of conversation {} should", turn, expected, conversation),
        "sort the rows by conv_id and turn, and count turns from 0");
  }
  conversation_ = conversation;
  turn_ = turn;
}

}  // namespace spillway::traces
