#include "traces/readers/ultrachat_jsonl.hpp"

#include <array>

#include "traces/readers/row_checks.hpp"

namespace spillway::traces {
namespace {

constexpr const char* kData = "data";

}  // namespace

bool UltraChatJsonlReader::recognises(std::string_view head) {
  constexpr std::array<std::string_view, 1> kTelling{kData};
  return head.starts_with('{') && first_object_has(head, kTelling, 1);
}

UltraChatJsonlReader::UltraChatJsonlReader(const std::string& path, const ReaderOptions& options)
    : ChatReader(path, kData, kCorrectRow, options), lines_(path) {}

bool UltraChatJsonlReader::next_conversation(std::string_view& object, BadRows& /*bad*/) {
  while (lines_.next(object)) {
    if (object.find_first_not_of(" \t") != std::string_view::npos) return true;
  }
  return false;
}

std::string_view UltraChatJsonlReader::scan_message(JsonCursor& cursor) {
  if (cursor.peek() != '"') {
    complain(kData, "the value must be a text");
    return cursor.pass_value();
  }
  const auto written = cursor.string();
  if (!written) return "the text's closing quote";
  using Speaker = ConversationTexts::Speaker;
  if (!is_bad()) add_text(message() % 2 == 1 ? Speaker::user : Speaker::model, kData, *written);
  return {};
}

}  // namespace spillway::traces
