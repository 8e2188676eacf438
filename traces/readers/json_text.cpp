#include "traces/readers/json_text.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>

#include "sim/core/utf8.hpp"
#include "sim/io/file_reader.hpp"

namespace spillway::traces {
namespace {

constexpr std::uint32_t kReplacement = 0xFFFD;
constexpr std::size_t kUnicode = 6;  // characters of \uXXXX

bool is_high(std::uint32_t unit) { return unit >= 0xD800 && unit < 0xDC00; }
bool is_low(std::uint32_t unit) { return unit >= 0xDC00 && unit < 0xE000; }

void append_utf8(std::string& text, std::uint32_t code) {
  const auto add = [&](std::uint32_t byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
  const auto add_rest = [&](std::uint32_t shift) { add(0x80U | ((code >> shift) & 0x3FU)); };
  if (code < 0x80) {
    add(code);
  } else if (code < 0x800) {
    add(0xC0U | (code >> 6U));
    add_rest(0);
  } else if (code < 0x10000) {
    add(0xE0U | (code >> 12U));
    add_rest(6);
    add_rest(0);
  } else {
    add(0xF0U | (code >> 18U));
    add_rest(12);
    add_rest(6);
    add_rest(0);
  }
}

/// The 16 bits of the \uXXXX at the start of `text`, if there is one.
std::optional<std::uint32_t> unicode_escape(std::string_view text) {
  if (text.size() < kUnicode || !text.starts_with("\\u")) return std::nullopt;
  std::uint32_t unit = 0;
  const char* last = text.data() + kUnicode;
  const auto [end, error] = std::from_chars(text.data() + 2, last, unit, 16);
  if (error != std::errc() || end != last) return std::nullopt;
  return unit;
}

/// The character for a backslash and `letter`; 0 if this is not an escape.
char short_escape(char letter) {
  switch (letter) {
    case '"':
    case '\\':
    case '/':
      return letter;
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    default:
      return '\0';
  }
}

/// Replaces the escape at the start of `rest` and removes it; false if there is none.
bool take_escape(std::string_view& rest, std::string& text) {
  if (const char plain = rest.size() > 1 ? short_escape(rest[1]) : '\0'; plain != '\0') {
    text += plain;
    rest.remove_prefix(2);
    return true;
  }
  const auto unit = unicode_escape(rest);
  if (!unit) return false;
  rest.remove_prefix(kUnicode);
  const auto low = is_high(*unit) ? unicode_escape(rest) : std::nullopt;
  if (low && is_low(*low)) {
    append_utf8(text, 0x10000U + ((*unit - 0xD800U) << 10U) + (*low - 0xDC00U));
    rest.remove_prefix(kUnicode);
  } else {
    append_utf8(text, is_high(*unit) || is_low(*unit) ? kReplacement : *unit);
  }
  return true;
}

}  // namespace

std::optional<std::string_view> json_text(std::string_view written, std::string& buffer, std::string& complaint) {
  if (const std::size_t valid = valid_utf8(written); valid < written.size()) {
    complaint = fmt::format("byte {} of the text, 0x{:02X}, is not UTF-8 (iconv -f LATIN1 -t UTF-8 converts Latin-1)",
                            valid + 1, static_cast<unsigned char>(written[valid]));
    return std::nullopt;
  }
  std::size_t slash = written.find('\\');
  if (slash == std::string_view::npos) return written;
  buffer.clear();
  while (slash != std::string_view::npos) {
    buffer += written.substr(0, slash);
    written.remove_prefix(slash);
    if (!take_escape(written, buffer)) {
      complaint = fmt::format("\"{}\" is not an escape of JSON",
                              excerpt(written.substr(0, written.starts_with("\\u") ? kUnicode : 2)));
      return std::nullopt;
    }
    slash = written.find('\\');
  }
  buffer += written;
  return buffer;
}

}  // namespace spillway::traces
