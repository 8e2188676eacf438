#include "traces/readers/turns_csv.hpp"

#include <fmt/format.h>

#include <array>
#include <limits>

#include "sim/core/text.hpp"
#include "sim/io/file_reader.hpp"

namespace spillway::traces {
namespace {

enum Column : std::size_t { kPrompt, kNew, kConversation, kTurn, kOutput, kColumns };
constexpr std::array<CsvColumn, kColumns> kColumnNames{
    {{"prompt_tokens_cumulative"}, {"new_input_tokens"}, {"conv_id"}, {"turn"}, {"output_tokens"}}};
constexpr const char* kFix =
    "the first row must name the columns conv_id, turn, prompt_tokens_cumulative, new_input_tokens and output_tokens";
constexpr std::int64_t kMaxTurn = std::numeric_limits<std::int32_t>::max() - 1;

}  // namespace

bool TurnsCsvReader::recognises(std::string_view head) {
  return names_columns(head, std::span(kColumnNames).first(kConversation), 1);
}

TurnsCsvReader::TurnsCsvReader(const std::string& path, const ReaderOptions& options)
    : CsvReader(path, {.columns = kColumnNames, .fix = kFix}, options) {}

void TurnsCsvReader::parse(TraceRow& row) {
  const auto conversation = whole(kConversation, std::numeric_limits<std::int64_t>::max());
  const auto turn = whole(kTurn, kMaxTurn);
  if (conversation && turn) check_turn(*conversation, *turn);
  const auto prompt = tokens(kPrompt, 1);
  const auto fresh = tokens(kNew, 0);
  if (prompt && fresh && *fresh > *prompt) {
    bad(kNew, fmt::format("{} new tokens in a prompt of {}", *fresh, *prompt), "correct or delete the row");
  }
  const auto output = tokens(kOutput, 0);
  if (is_bad()) return;
  if (*output == 0) ++zero_outputs_;
  row.input = Tokens(*prompt);
  row.output = Tokens(*output == 0 ? 1 : *output);
  row.max_new_tokens = row.output;
  row.conversation = static_cast<std::uint64_t>(*conversation);
  row.turn = static_cast<std::int32_t>(*turn + 1);
}

std::optional<std::int64_t> TurnsCsvReader::whole(std::size_t column, std::int64_t most) {
  const auto value = parse_integer(field(column));
  if (value && *value >= 0 && *value <= most) return value;
  bad(column, fmt::format("\"{}\" is not a whole number from 0 to {}", excerpt(field(column)), most),
      "correct or delete the row");
  return std::nullopt;
}

/// Complains about a turn that does not follow the row before.
void TurnsCsvReader::check_turn(std::int64_t conversation, std::int64_t turn) {
  const std::int64_t expected = conversation == conversation_ ? turn_ + 1 : 0;
  if (turn != expected) {
    bad(kTurn, fmt::format("turn {} stands where turn {} of conversation {} should be", turn, expected, conversation),
        "sort the rows by conv_id and turn, and count turns from 0");
  }
  conversation_ = conversation;
  turn_ = turn;
}

}  // namespace spillway::traces
