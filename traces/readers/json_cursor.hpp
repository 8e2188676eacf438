// A position in a piece of JSON, for the readers of JSON formats. It builds no tree and copies nothing.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/io/line_reader.hpp"

namespace spillway::traces {

class JsonCursor {
 public:
  explicit JsonCursor(std::string_view text) : text_(text) {}
  [[nodiscard]] std::size_t column() const { return at_ + 1; }
  [[nodiscard]] bool at_end() const { return at_ >= text_.size(); }

  /// Moves to the next character that is not white space and returns it; 0 at the end.
  char peek() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  /// The character at the cursor for a message.
  [[nodiscard]] std::string shown() const { return excerpt(text_.substr(at_, 1)); }
  bool take(char wanted) {
    if (peek() != wanted || at_end()) return false;
    ++at_;
    return true;
  }
  /// Takes a string without its quotes, with escapes as written; the cursor stands on its opening quote. Empty if it
  /// has no closing quote.
  std::optional<std::string_view> string() {
    const std::size_t start = ++at_;
    at_ = closing_quote(start);
    if (at_end()) return std::nullopt;
    return text_.substr(start, at_++ - start);
  }
  /// Takes a number, true, false or null, or any other text up to the next delimiter.
  std::string_view word() {
    (void)peek();
    const std::size_t start = at_;
    while (at_ < text_.size() && !ends_word(text_[at_])) ++at_;
    return text_.substr(start, at_ - start);
  }
  /// Skips any value; false when the text ends within it.
  bool skip_value();
  /// Skips any value. Returns what should stand at the cursor when the text ends within it, else nothing.
  std::string_view pass_value() { return skip_value() ? std::string_view() : "the rest of the value"; }
  /// Reads a list of whole numbers below 2^64; the cursor stands on its bracket. Returns what should stand at the
  /// cursor when the text is broken, else nothing; `complaint` gets the problem of the first element that is not a
  /// whole number.
  std::string_view ids(std::vector<std::uint64_t>& ids, std::string& complaint);

 private:
  /// Position of the quote that closes a string whose text begins at `start`; the text's size when there is none. Short
  /// keys are scanned byte by byte, which is faster; texts may be long, so backslashes are only counted before quotes:
  /// an odd number makes a quote part of the string.
  [[nodiscard]] std::size_t closing_quote(std::size_t start) const {
    constexpr std::size_t kKey = 16;
    const std::size_t near = std::min(text_.size(), start + kKey);
    std::size_t quote = start;
    while (quote < near && text_[quote] != '"') ++quote;
    if (quote == near) quote = text_.find('"', quote);
    while (quote != std::string_view::npos) {
      std::size_t slash = quote;
      while (slash > start && text_[slash - 1] == '\\') --slash;
      if ((quote - slash) % 2 == 0) return quote;
      quote = text_.find('"', quote + 1);
    }
    return text_.size();
  }
  static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
  static bool ends_word(char c) { return c == ',' || c == '}' || c == ']' || c == ':' || is_space(c); }
  bool plain_ids(std::vector<std::uint64_t>& ids);

  std::string_view text_;
  std::size_t at_ = 0;
};

/// A whole number in [least, most]; else nothing, with a `complaint`.
template <class T>
std::optional<T> whole_number(std::string_view word, T least, T most, std::string& complaint) {
  T value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error == std::errc() && end == word.data() + word.size() && value >= least && value <= most) return value;
  complaint = excerpt(word) + " is not a whole number from " + std::to_string(least) + " to " + std::to_string(most);
  return std::nullopt;
}

/// Scans the object at the cursor: `on_key(key)` is called with the cursor on the key's value and takes it; it returns
/// what should stand at the cursor when the value is broken, else nothing. So does scan_members itself.
template <class OnKey>
std::string_view scan_members(JsonCursor& cursor, OnKey on_key) {
  if (!cursor.take('{')) return "'{'";
  if (!cursor.take('}')) {
    do {
      if (cursor.peek() != '"') return "a key in double quotes";
      const auto key = cursor.string();
      if (!key) return "the key's closing quote";
      if (!cursor.take(':')) return "':'";
      if (const std::string_view wanted = on_key(*key); !wanted.empty()) return wanted;
    } while (cursor.take(','));
    if (!cursor.take('}')) return "',' or '}'";
  }
  return {};
}

/// Scans a list in the same way: `on_element()` is called with the cursor on each element.
template <class OnElement>
std::string_view scan_elements(JsonCursor& cursor, OnElement on_element) {
  if (!cursor.take('[')) return "'['";
  if (cursor.take(']')) return {};
  do {
    if (const std::string_view wanted = on_element(); !wanted.empty()) return wanted;
  } while (cursor.take(','));
  return cursor.take(']') ? "" : "',' or ']'";
}

/// Scans an object that is all of the text, as scan_members does.
template <class OnKey>
std::string_view scan_object(JsonCursor& cursor, OnKey on_key) {
  if (const std::string_view wanted = scan_members(cursor, on_key); !wanted.empty()) return wanted;
  return cursor.peek() == '\0' && cursor.at_end() ? "" : "the end of the line";
}

/// Adds the problem that `wanted` does not stand at the cursor; `part` is the location of the text in the row, or
/// empty.
void add_broken(BadRows& bad, std::int64_t row, const std::string& part, const JsonCursor& cursor,
                std::string_view wanted);

/// True if the first object of a text, alone or in a list, has at least `least` of these keys. The text may be cut off
/// anywhere.
[[nodiscard]] bool first_object_has(std::string_view text, std::span<const std::string_view> keys, int least);

}  // namespace spillway::traces
