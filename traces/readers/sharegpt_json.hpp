// Chats in the layout of ShareGPT: the texts themselves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "traces/readers/conversation_texts.hpp"
#include "traces/readers/json_array.hpp"
#include "traces/readers/json_cursor.hpp"

namespace spillway::traces {

/// Reads
///   [{"id": "a_0", "conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}, ...]}, ...]
/// Source: lm-sys/FastChat, docs/commands/data_cleaning.md and fastchat/train/train.py; the published lists are
/// ShareGPT_V3_unfiltered_cleaned_split.json and its kin.
///
///   conversations  list of messages, which may be empty
///   from           human or user; gpt, chatgpt, bing, bard or assistant; system
///   value          the message's text
///
/// Every question with an answer is a row; what a prompt is, what is left out and what is counted: see
/// ConversationTexts. An item is a conversation, named by its number in the file, from 1: parts of one chat that was
/// split ("a_0", "a_1") are conversations of their own. No times. Other keys are ignored, "id" among them.
///
/// Rows are the lines on which items begin. A bad item is reported together with those after it, up to ten, each with
/// the first thing that is wrong with it; when bad ones are skipped, all turns of the item are. Memory: see JsonArray.
/// Measured: 500 MB/s with the estimate and 40 MB/s with the tokens of GPT-2 on one core of a 2.5 GHz Xeon.
class ShareGptJsonReader final : public TraceReader {
 public:
  /// Throws DataError when the file cannot be read, and what open_tokenizer throws.
  explicit ShareGptJsonReader(const std::string& path, const ReaderOptions& options = {});

  bool next(TraceRow& row) override;
  [[nodiscard]] bool has_times() const override { return false; }
  [[nodiscard]] bool has_texts() const override { return true; }
  [[nodiscard]] std::int64_t row() const override { return items_.row(); }
  [[nodiscard]] std::int64_t skipped() const override { return bad_.skipped(); }
  [[nodiscard]] std::string first_skipped() const override { return bad_.first_skipped(); }
  [[nodiscard]] std::vector<std::string> warnings() const override { return texts_.warnings(); }
  [[nodiscard]] std::vector<std::string> files() const override { return texts_.files(); }

  /// Is a file a list whose first object has conversations?
  static bool recognises(std::string_view head);

 private:
  bool read_item();
  void parse(std::string_view object);
  std::string_view scan_messages(JsonCursor& cursor);
  std::string_view scan_message(JsonCursor& cursor);
  void add_message(std::optional<std::string_view> from, std::optional<std::string_view> value);
  void complain(const char* key, std::string what);

  JsonArray items_;
  BadRows bad_;
  ConversationTexts texts_;
  std::string buffer_;
  std::int64_t message_ = 0;  // of the item at hand, from 1
  bool ended_ = false;
};

}  // namespace spillway::traces
