#include "traces/readers/chat_reader.hpp"

#include <fmt/format.h>

#include <utility>

#include "traces/readers/json_text.hpp"

namespace spillway::traces {

ChatReader::ChatReader(const std::string& path, const char* list_key, const char* fix, const ReaderOptions& options)
    : list_key_(list_key), fix_(fix), bad_(path, options.skip_bad_rows), texts_(options.tokenizer) {}

bool ChatReader::next(TraceRow& row) {
  row.clear();
  while (!texts_.next(row)) {
    if (read_conversation()) continue;
    bad_.raise();
    return false;
  }
  return true;
}

/// Reads up to the next conversation that can be delivered; false at the end of the file or after too many bad ones.
bool ChatReader::read_conversation() {
  std::string_view object;
  while (!ended_) {
    bad_.begin();
    if (!next_conversation(object, bad_)) break;
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

void ChatReader::parse(std::string_view object) {
  texts_.begin(static_cast<std::uint64_t>(number()));
  bool seen = false;
  JsonCursor cursor(object);
  const std::string_view wanted = scan_object(cursor, [&](std::string_view key) -> std::string_view {
    if (key != list_key_) return cursor.pass_value();
    message_ = 0;
    if (std::exchange(seen, true)) complain(list_key_, "the key appears twice");
    return scan_list(cursor);
  });
  if (!wanted.empty()) {
    add_broken(bad_, row(), part(), cursor, wanted);
    return;
  }
  message_ = 0;
  if (!seen) complain(list_key_, "the key is missing");
  if (std::string what = texts_.end(); !what.empty()) complain(list_key_, std::move(what));
}

/// Reads the list of messages. Returns what should stand at the cursor when the text is broken, else nothing.
std::string_view ChatReader::scan_list(JsonCursor& cursor) {
  if (cursor.peek() != '[') {
    complain(list_key_, "the value must be a list of messages");
    return cursor.pass_value();
  }
  return scan_elements(cursor, [&] {
    ++message_;
    return scan_message(cursor);
  });
}

void ChatReader::add_text(ConversationTexts::Speaker speaker, const char* key, std::string_view written) {
  std::string what;
  if (const auto text = json_text(written, buffer_, what)) {
    texts_.add(speaker, *text);
  } else {
    complain(key, std::move(what));
  }
}

void ChatReader::complain(const char* key, std::string what) {
  if (bad_.is_bad()) return;
  std::string where = part();
  if (message_ > 0) where += fmt::format("{}message {}", where.empty() ? "" : ", ", message_);
  where += fmt::format("{}key \"{}\"", where.empty() ? "" : ", ", key);
  bad_.add(row(), where, std::move(what), fix_);
}

}  // namespace spillway::traces
