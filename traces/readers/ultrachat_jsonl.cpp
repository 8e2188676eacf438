#include "traces/readers/ultrachat_jsonl.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "traces/readers/json_text.hpp"

namespace spillway::traces {
namespace {

constexpr const char* kData = "data";

}  // namespace

bool UltraChatJsonlReader::recognises(std::string_view head) {
  constexpr std::array<std::string_view, 1> kTelling{kData};
  return head.starts_with('{') && first_object_has(head, kTelling, 1);
}

UltraChatJsonlReader::UltraChatJsonlReader(const std::string& path, const ReaderOptions& options)
    : lines_(path), bad_(path, options.skip_bad_rows), texts_(options.tokenizer) {}

bool UltraChatJsonlReader::next(TraceRow& row) {
  row.clear();
  while (!texts_.next(row)) {
    if (read_line()) continue;
    bad_.raise();
    return false;
  }
  return true;
}

/// Takes lines up to the next one that may be delivered; false at the end of the file or after too many bad ones.
bool UltraChatJsonlReader::read_line() {
  std::string_view line;
  while (!ended_ && lines_.next(line)) {
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    bad_.begin();
    parse(line);
    if (bad_.accepts()) {
      texts_.accept();
      return true;
    }
    if (bad_.full()) break;
  }
  ended_ = true;
  return false;
}

void UltraChatJsonlReader::parse(std::string_view line) {
  texts_.begin(static_cast<std::uint64_t>(lines_.row()));
  bool seen = false;
  JsonCursor cursor(line);
  const std::string_view wanted = scan_object(cursor, [&](std::string_view key) -> std::string_view {
    if (key != kData) return cursor.skip_value() ? "" : "the rest of the value";
    message_ = 0;
    if (std::exchange(seen, true)) complain("the key appears twice");
    return scan_texts(cursor);
  });
  if (!wanted.empty()) {
    add_broken(bad_, lines_.row(), {}, cursor, wanted);
    return;
  }
  message_ = 0;
  if (!seen) complain("the key is missing");
  if (std::string what = texts_.end(); !what.empty()) complain(std::move(what));
}

/// Reads the value of "data". Empty, or what should stand at the cursor.
std::string_view UltraChatJsonlReader::scan_texts(JsonCursor& cursor) {
  if (cursor.peek() != '[') {
    complain("the value must be a list of texts");
    return cursor.skip_value() ? "" : "the rest of the value";
  }
  return scan_elements(cursor, [&]() -> std::string_view {
    ++message_;
    if (cursor.peek() != '"') {
      complain("the value must be a text");
      return cursor.skip_value() ? "" : "the rest of the value";
    }
    const auto written = cursor.string();
    if (!written) return "the text's closing quote";
    if (bad_.is_bad()) return {};
    std::string what;
    if (const auto text = json_text(*written, buffer_, what)) {
      const bool is_user = message_ % 2 == 1;
      texts_.add(is_user ? ConversationTexts::Speaker::user : ConversationTexts::Speaker::model, *text);
    } else {
      complain(std::move(what));
    }
    return {};
  });
}

/// Complains about the row at hand, once: what follows is often a consequence.
void UltraChatJsonlReader::complain(std::string what) {
  if (bad_.is_bad()) return;
  bad_.add(lines_.row(),
           message_ > 0 ? fmt::format("key \"{}\", message {}", kData, message_) : fmt::format("key \"{}\"", kData),
           std::move(what), "correct or delete the row");
}

}  // namespace spillway::traces
