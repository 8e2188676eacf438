#include "traces/readers/sharegpt_json.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "sim/io/file_reader.hpp"
#include "traces/readers/json_text.hpp"

namespace spillway::traces {
namespace {

using Speaker = ConversationTexts::Speaker;

constexpr const char* kConversations = "conversations";
constexpr const char* kFrom = "from";
constexpr const char* kValue = "value";

std::optional<Speaker> speaker_of(std::string_view name) {
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
    : items_(path), bad_(path, options.skip_bad_rows), texts_(options.tokenizer) {}

bool ShareGptJsonReader::next(TraceRow& row) {
  row.clear();
  while (!texts_.next(row)) {
    if (read_item()) continue;
    bad_.raise();
    return false;
  }
  return true;
}

/// Takes items up to the next one that may be delivered; false at the end of the list or after too many bad ones.
bool ShareGptJsonReader::read_item() {
  std::string_view object;
  while (!ended_) {
    bad_.begin();
    if (!items_.next(object, bad_)) break;
    parse(object);
    if (bad_.accepts()) {
      texts_.accept();
      return true;
    }
    if (bad_.full()) break;
  }
  ended_ = true;
  return false;
}

void ShareGptJsonReader::parse(std::string_view object) {
  texts_.begin(static_cast<std::uint64_t>(items_.item()));
  bool seen = false;
  JsonCursor cursor(object);
  const std::string_view wanted = scan_object(cursor, [&](std::string_view key) -> std::string_view {
    if (key != kConversations) return cursor.skip_value() ? "" : "the rest of the value";
    message_ = 0;
    if (std::exchange(seen, true)) complain(kConversations, "the key appears twice");
    return scan_messages(cursor);
  });
  if (!wanted.empty()) {
    add_broken(bad_, items_.row(), fmt::format("item {}", items_.item()), cursor, wanted);
    return;
  }
  message_ = 0;
  if (!seen) complain(kConversations, "the key is missing");
  if (std::string what = texts_.end(); !what.empty()) complain(kConversations, std::move(what));
}

/// Reads the value of "conversations". Empty, or what should stand at the cursor.
std::string_view ShareGptJsonReader::scan_messages(JsonCursor& cursor) {
  if (cursor.peek() != '[') {
    complain(kConversations, "the value must be a list of messages");
    return cursor.skip_value() ? "" : "the rest of the value";
  }
  return scan_elements(cursor, [&] { return scan_message(cursor); });
}

std::string_view ShareGptJsonReader::scan_message(JsonCursor& cursor) {
  ++message_;
  if (cursor.peek() != '{') {
    complain(kConversations, "a message must be an object with the keys from and value");
    return cursor.skip_value() ? "" : "the rest of the value";
  }
  std::optional<std::string_view> from;
  std::optional<std::string_view> value;
  const std::string_view wanted = scan_members(cursor, [&](std::string_view key) -> std::string_view {
    const bool is_from = key == kFrom;
    if (!is_from && key != kValue) return cursor.skip_value() ? "" : "the rest of the value";
    auto& text = is_from ? from : value;
    if (text) complain(is_from ? kFrom : kValue, "the key appears twice");
    if (cursor.peek() == '"') {
      text = cursor.string();
      return text ? "" : "the text's closing quote";
    }
    complain(is_from ? kFrom : kValue, "the value must be a text");
    return cursor.skip_value() ? "" : "the rest of the value";
  });
  if (wanted.empty()) add_message(from, value);
  return wanted;
}

void ShareGptJsonReader::add_message(std::optional<std::string_view> from, std::optional<std::string_view> value) {
  if (!from) complain(kFrom, "the key is missing");
  if (!value) complain(kValue, "the key is missing");
  if (bad_.is_bad()) return;
  const auto speaker = speaker_of(*from);
  if (!speaker) {
    complain(kFrom, fmt::format("\"{}\" is none of human, user, gpt, assistant, system, chatgpt, bing and bard",
                                excerpt(*from)));
    return;
  }
  std::string what;
  const auto text = json_text(*value, buffer_, what);
  if (text) {
    texts_.add(*speaker, *text);
  } else {
    complain(kValue, std::move(what));
  }
}

/// Complains about the item at hand, once: what follows is often a consequence.
void ShareGptJsonReader::complain(const char* key, std::string what) {
  if (bad_.is_bad()) return;
  std::string part = fmt::format("item {}", items_.item());
  if (message_ > 0) part += fmt::format(", message {}", message_);
  bad_.add(items_.row(), fmt::format("{}, key \"{}\"", part, key), std::move(what), "correct or delete the item");
}

}  // namespace spillway::traces
