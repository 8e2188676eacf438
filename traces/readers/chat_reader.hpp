// The shared part of the readers of chats in JSON: reads conversations and delivers their turns as rows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "sim/io/line_reader.hpp"
#include "traces/readers/conversation_texts.hpp"
#include "traces/readers/json_cursor.hpp"

namespace spillway::traces {

/// Each conversation is a JSON object that has its messages in one list. A bad conversation is reported with the later
/// bad ones, up to ten, each with its first error. Skipping a bad conversation drops all its turns.
class ChatReader : public TraceReader {
 public:
  bool next(TraceRow& row) final;
  [[nodiscard]] bool has_times() const final { return false; }
  [[nodiscard]] bool has_texts() const final { return true; }
  [[nodiscard]] std::int64_t skipped() const final { return bad_.skipped(); }
  [[nodiscard]] std::string first_skipped() const final { return bad_.first_skipped(); }
  [[nodiscard]] std::vector<std::string> warnings() const final { return texts_.warnings(); }
  [[nodiscard]] std::vector<std::string> files() const final { return texts_.files(); }

 protected:
  /// `list_key` names the list of messages; `fix` says what to do about a bad conversation. Both must outlive the
  /// reader. Throws what open_tokenizer throws.
  ChatReader(const std::string& path, const char* list_key, const char* fix, const ReaderOptions& options);

  /// Gets the JSON of the next conversation; false at the end of the file. May add to `bad`.
  virtual bool next_conversation(std::string_view& object, BadRows& bad) = 0;
  /// Name of the conversation: its number in the file, from 1.
  [[nodiscard]] virtual std::int64_t number() const = 0;
  /// Position of the conversation within row(), for messages; empty: it is the row.
  [[nodiscard]] virtual std::string part() const { return {}; }
  /// Reads one message at the cursor. Returns what should stand at the cursor when the text is broken, else nothing.
  virtual std::string_view scan_message(JsonCursor& cursor) = 0;

  /// Adds a message as written between its quotes; `key` is named in a complaint.
  void add_text(ConversationTexts::Speaker speaker, const char* key, std::string_view written);
  /// Complains about the current conversation, once: later errors are often consequences.
  void complain(const char* key, std::string what);
  [[nodiscard]] bool is_bad() const { return bad_.is_bad(); }
  /// Number of the current message in its conversation, from 1; 0: none.
  [[nodiscard]] std::int64_t message() const { return message_; }

 private:
  bool read_conversation();
  void parse(std::string_view object);
  std::string_view scan_list(JsonCursor& cursor);

  const char* list_key_;
  const char* fix_;
  BadRows bad_;
  ConversationTexts texts_;
  std::string buffer_;
  std::int64_t message_ = 0;
  bool ended_ = false;
};

}  // namespace spillway::traces
