#include "traces/readers/sharegpt_json.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "sim/io/file_reader.hpp"

namespace spillway::traces {
namespace {

constexpr const char* kConversations = "conversations";
constexpr const char* kFrom = "from";
constexpr const char* kValue = "value";

std::optional<ConversationTexts::Speaker> speaker_of(std::string_view name) {
  using Speaker = ConversationTexts::Speaker;
  constexpr std::array<std::pair<std::string_view, Speaker>, 8> kSpeakers{{{"human", Speaker::user},
                                                                           {"gpt", Speaker::model},
                                                                           {"user", Speaker::user},
                                                                           {"assistant", Speaker::model},
                                                                           {"system", Speaker::system},
                                                                           {"chatgpt", Speaker::model},
                                                                           {"bing", Speaker::model},
                                                                           {"bard", Speaker::model}}};
  for (const auto& [known, speaker] : kSpeakers) {
    if (name == known) return speaker;
  }
  return std::nullopt;
}

}  // namespace

bool ShareGptJsonReader::recognises(std::string_view head) {
  constexpr std::array<std::string_view, 1> kTelling{kConversations};
  return head.starts_with('[') && first_object_has(head, kTelling, 1);
}

ShareGptJsonReader::ShareGptJsonReader(const std::string& path, const ReaderOptions& options)
    : ChatReader(path, kConversations, "correct or delete the item", options), items_(path) {}

std::string ShareGptJsonReader::part() const { return fmt::format("item {}", items_.item()); }

std::string_view ShareGptJsonReader::scan_message(JsonCursor& cursor) {
  if (cursor.peek() != '{') {
    complain(kConversations, "a message must be an object with the keys from and value");
    return cursor.pass_value();
  }
  std::optional<std::string_view> from;
  std::optional<std::string_view> value;
  const std::string_view wanted = scan_members(cursor, [&](std::string_view key) -> std::string_view {
    const bool is_from = key == kFrom;
    if (!is_from && key != kValue) return cursor.pass_value();
    auto& text = is_from ? from : value;
    if (text) complain(is_from ? kFrom : kValue, "the key appears twice");
    if (cursor.peek() == '"') {
      text = cursor.string();
      return text ? "" : "the text's closing quote";
    }
    complain(is_from ? kFrom : kValue, "the value must be a text");
    return cursor.pass_value();
  });
  if (wanted.empty()) add_message(from, value);
  return wanted;
}

void ShareGptJsonReader::add_message(std::optional<std::string_view> from, std::optional<std::string_view> value) {
  if (!from) complain(kFrom, "the key is missing");
  if (!value) complain(kValue, "the key is missing");
  if (is_bad()) return;
  if (const auto speaker = speaker_of(*from)) {
    add_text(*speaker, kValue, *value);
  } else {
    complain(kFrom,
             fmt::format("\"{}\" is not human, user, gpt, assistant, system, chatgpt, bing or bard", excerpt(*from)));
  }
}

}  // namespace spillway::traces
