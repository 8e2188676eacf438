// Instructions in the layout of Stanford Alpaca: the texts themselves.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "traces/readers/json_array.hpp"
#include "traces/readers/trace_reader.hpp"
#include "traces/tokenizers/tokenizer.hpp"

namespace spillway::traces {

/// Reads
///   [{"instruction": "...", "input": "...", "output": "..."}, ...]
/// Source: tatsu-lab/stanford_alpaca, alpaca_data.json.
///
///   instruction  text
///   input        optional text; null is none
///   output       text
///
/// The prompt is instruction, line feed, input, or the instruction alone when there is no input. The sentences that
/// Alpaca's own training puts around it (PROMPT_DICT of train.py there: "Below is an instruction that describes a task.
/// ...", some 35 tokens, or 50 with an input) belong to that model and are not added, so that lengths are those of the
/// published statistics (Kwon et al., "Efficient Memory Management for Large Language Model Serving with
/// PagedAttention", fig. 11: 19.31 in, 58.45 out on average). Every item is a request of its own. No times. Other keys
/// are ignored.
///
/// Items whose prompt or output has 0 tokens are left out and counted; see warnings. Rows are the lines on which items
/// begin. A bad item is reported together with those after it, up to ten. Memory: see JsonArray.
/// Measured: 580 MB/s with the estimate and 50 MB/s with the tokens of GPT-2 on one core of a 2.5 GHz Xeon.
class AlpacaJsonReader final : public TraceReader {
 public:
  /// Throws DataError when the file cannot be read, and what open_tokenizer throws.
  explicit AlpacaJsonReader(const std::string& path, const ReaderOptions& options = {});

  bool next(TraceRow& row) override;
  [[nodiscard]] bool has_times() const override { return false; }
  [[nodiscard]] bool has_texts() const override { return true; }
  [[nodiscard]] std::int64_t row() const override { return items_.row(); }
  [[nodiscard]] std::int64_t skipped() const override { return bad_.skipped(); }
  [[nodiscard]] std::string first_skipped() const override { return bad_.first_skipped(); }
  [[nodiscard]] std::vector<std::string> warnings() const override;
  [[nodiscard]] std::vector<std::string> files() const override { return tokenizer_->files(); }

  /// True if the file is a list whose first object has an instruction.
  static bool recognises(std::string_view head);

 private:
  enum Field : std::size_t { kInstruction, kInput, kOutput, kFields };
  static constexpr std::array<std::string_view, kFields> kNames{"instruction", "input", "output"};
  struct Value {
    std::string text;  // reused from item to item
    bool seen = false;
    bool present = false;
  };
  void parse(std::string_view object);
  void read_text(Value& value, Field field, std::string_view written);
  void count(TraceRow& row);
  bool is_request(const TraceRow& row);
  void complain(Field field, std::string what);

  JsonArray items_;
  BadRows bad_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::array<Value, kFields> values_;
  std::string prompt_;
  std::string buffer_;
  std::int64_t empty_prompts_ = 0;
  std::int64_t empty_outputs_ = 0;
  bool ended_ = false;
};

}  // namespace spillway::traces
