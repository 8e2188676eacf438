#include "traces/readers/alpaca_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "traces/length.hpp"
#include "traces/readers/json_cursor.hpp"
#include "traces/readers/json_text.hpp"

namespace spillway::traces {
namespace {

constexpr const char* kNoText = "the value must be a text";

}  // namespace

bool AlpacaJsonReader::recognises(std::string_view head) {
  return head.starts_with('[') && first_object_has(head, std::span(kNames).first(kInput), 1);
}

AlpacaJsonReader::AlpacaJsonReader(const std::string& path, const ReaderOptions& options)
    : items_(path), bad_(path, options.skip_bad_rows), tokenizer_(open_tokenizer(options.tokenizer)) {}

bool AlpacaJsonReader::next(TraceRow& row) {
  std::string_view object;
  while (!ended_) {
    row.clear();
    bad_.begin();
    if (!items_.next(object, bad_)) break;
    parse(object);
    if (!bad_.is_bad()) count(row);
    if (bad_.accepts() && is_request(row)) return true;
    if (bad_.full()) break;
  }
  ended_ = true;
  bad_.raise();
  return false;
}

void AlpacaJsonReader::parse(std::string_view object) {
  for (Value& value : values_) value.seen = value.present = false;
  JsonCursor cursor(object);
  const std::string_view wanted = scan_object(cursor, [&](std::string_view key) -> std::string_view {
    const auto at = static_cast<std::size_t>(std::find(kNames.begin(), kNames.end(), key) - kNames.begin());
    if (at == kFields) return cursor.pass_value();
    const auto field = static_cast<Field>(at);
    Value& value = values_[field];
    if (std::exchange(value.seen, true)) complain(field, "the key appears twice");
    if (cursor.peek() == '"') {
      const auto written = cursor.string();
      if (!written) return "the text's closing quote";
      read_text(value, field, *written);
      return {};
    }
    if (cursor.peek() == '{' || cursor.peek() == '[') {
      complain(field, kNoText);
      return cursor.pass_value();
    }
    const std::string_view word = cursor.word();
    if (word.empty()) return "a value";
    if (word != "null" || field != kInput) complain(field, kNoText);
    return {};
  });
  if (!wanted.empty()) {
    add_broken(bad_, items_.row(), fmt::format("item {}", items_.item()), cursor, wanted);
    return;
  }
  for (const Field field : {kInstruction, kOutput}) {
    if (!values_[field].seen) complain(field, "the key is missing");
  }
}

void AlpacaJsonReader::read_text(Value& value, Field field, std::string_view written) {
  std::string what;
  const auto text = json_text(written, buffer_, what);
  if (!text) {
    complain(field, std::move(what));
    return;
  }
  value.text = *text;
  value.present = true;
}

/// Counts the tokens of the current item, which has no complaint yet.
void AlpacaJsonReader::count(TraceRow& row) {
  prompt_ = values_[kInstruction].text;
  if (values_[kInput].present && !values_[kInput].text.empty()) {
    prompt_ += '\n';
    prompt_ += values_[kInput].text;
  }
  row.input = tokenizer_->count(prompt_);
  row.output = tokenizer_->count(values_[kOutput].text);
  row.max_new_tokens = row.output;
  for (const auto& [field, length] : {std::pair(kInstruction, row.input), std::pair(kOutput, row.output)}) {
    if (length.count() <= kMaxTokens) continue;
    complain(field, fmt::format("{} tokens: up to {} are possible", length.count(), kMaxTokens));
  }
}

/// True if prompt and output have tokens; counts the other rows.
bool AlpacaJsonReader::is_request(const TraceRow& row) {
  if (row.input == Tokens(0)) {
    ++empty_prompts_;
  } else if (row.output == Tokens(0)) {
    ++empty_outputs_;
  }
  return row.input > Tokens(0) && row.output > Tokens(0);
}

void AlpacaJsonReader::complain(Field field, std::string what) {
  bad_.add(items_.row(), fmt::format("item {}, key \"{}\"", items_.item(), kNames[field]), std::move(what),
           "correct or delete the item");
}

std::vector<std::string> AlpacaJsonReader::warnings() const {
  std::vector<std::string> warnings;
  if (std::string warning = tokenizer_->warning(); !warning.empty()) warnings.push_back(std::move(warning));
  if (empty_prompts_ > 0) {
    warnings.push_back(fmt::format("items left out because their prompt is empty: {}", empty_prompts_));
  }
  if (empty_outputs_ > 0) {
    warnings.push_back(fmt::format("items left out because their output is empty: {}", empty_outputs_));
  }
  return warnings;
}

}  // namespace spillway::traces
