// Chats in the layout of ShareGPT: the texts themselves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "traces/readers/chat_reader.hpp"
#include "traces/readers/json_array.hpp"

namespace spillway::traces {

/// Reads
///   [{"id": "a_0", "conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}, ...]}, ...]
/// Source: lm-sys/FastChat, docs/commands/data_cleaning.md and fastchat/train/train.py. The published lists are
/// ShareGPT_V3_unfiltered_cleaned_split.json and similar files.
///
///   conversations  list of messages, which may be empty
///   from           human or user; gpt, chatgpt, bing, bard or assistant; system
///   value          the message's text
///
/// Each question with an answer becomes a row; ConversationTexts defines prompts, what is left out and what is counted.
/// An item is a conversation, named by its number in the file, from 1. Parts of a chat that was split ("a_0", "a_1")
/// are separate conversations. No times. Other keys, such as "id", are ignored.
///
/// Row numbers are the lines on which items begin. Errors: see ChatReader. Memory: see JsonArray.
/// Measured: 500 MB/s with the estimate and 40 MB/s with the tokens of GPT-2 on one core of a 2.5 GHz Xeon.
class ShareGptJsonReader final : public ChatReader {
 public:
  /// Throws DataError when the file cannot be read, and what open_tokenizer throws.
  explicit ShareGptJsonReader(const std::string& path, const ReaderOptions& options = {});

  [[nodiscard]] std::int64_t row() const override { return items_.row(); }

  /// True if the file is a list whose first object has conversations.
  static bool recognises(std::string_view head);

 private:
  bool next_conversation(std::string_view& object, BadRows& bad) override { return items_.next(object, bad); }
  [[nodiscard]] std::int64_t number() const override { return items_.item(); }
  [[nodiscard]] std::string part() const override;
  std::string_view scan_message(JsonCursor& cursor) override;
  void add_message(std::optional<std::string_view> from, std::optional<std::string_view> value);

  JsonArray items_;
};

}  // namespace spillway::traces
