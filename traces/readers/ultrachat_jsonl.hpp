// Chats in the layout of UltraChat: the texts themselves.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/io/line_reader.hpp"
#include "traces/readers/conversation_texts.hpp"
#include "traces/readers/json_cursor.hpp"

namespace spillway::traces {

/// Reads lines such as
///   {"id": "0", "data": ["a question", "its answer", "the next question", "its answer"]}
/// Source: thunlp/UltraChat, README ("Data"): user and assistant take turns, the user begins.
///
///   data  list of texts, which may be empty
///
/// Every question with an answer is a row; what a prompt is, what is left out and what is counted: see
/// ConversationTexts. A line is a conversation, named by its number in the file, from 1. No times. Other keys are
/// ignored, "id" among them.
///
/// Rows are lines of the file; empty lines are skipped. A bad row is reported together with those after it, up to ten,
/// each with the first thing that is wrong with it. Memory: see LineReader.
/// Measured: 610 MB/s with the estimate and 39 MB/s with the tokens of GPT-2 on one core of a 2.5 GHz Xeon.
class UltraChatJsonlReader final : public TraceReader {
 public:
  /// Throws DataError when the file cannot be read, and what open_tokenizer throws.
  explicit UltraChatJsonlReader(const std::string& path, const ReaderOptions& options = {});

  bool next(TraceRow& row) override;
  [[nodiscard]] bool has_times() const override { return false; }
  [[nodiscard]] bool has_texts() const override { return true; }
  [[nodiscard]] std::int64_t row() const override { return lines_.row(); }
  [[nodiscard]] std::int64_t skipped() const override { return bad_.skipped(); }
  [[nodiscard]] std::string first_skipped() const override { return bad_.first_skipped(); }
  [[nodiscard]] std::vector<std::string> warnings() const override { return texts_.warnings(); }
  [[nodiscard]] std::vector<std::string> files() const override { return texts_.files(); }

  /// Has the first object of a file the key "data"?
  static bool recognises(std::string_view head);

 private:
  bool read_line();
  void parse(std::string_view line);
  std::string_view scan_texts(JsonCursor& cursor);
  void complain(std::string what);

  LineReader lines_;
  BadRows bad_;
  ConversationTexts texts_;
  std::string buffer_;
  std::int64_t message_ = 0;  // of the row at hand, from 1
  bool ended_ = false;
};

}  // namespace spillway::traces
