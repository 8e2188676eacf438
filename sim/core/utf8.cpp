#include "sim/core/utf8.hpp"

#include <algorithm>
#include <cstring>

namespace spillway {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// What a first byte requires: the number of bytes of its character, and the range of the second byte. Later bytes
/// are 80..BF.
struct Lead {
  std::size_t length = 0;  // 0: the byte cannot begin a character
  unsigned char second_low = 0x80;
  unsigned char second_high = 0xBF;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2) return {};
  if (byte < 0xE0) return {2};
  if (byte == 0xE0) return {3, 0xA0};        // shorter forms exist
  if (byte == 0xED) return {3, 0x80, 0x9F};  // surrogates
  if (byte < 0xF0) return {3};
  if (byte == 0xF0) return {4, 0x90};  // shorter forms exist
  if (byte < 0xF4) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};  // beyond U+10FFFF
  return {};
}

struct Character {
  std::size_t length = 1;  // bytes, at least 1
  bool valid = false;
};

/// The character at the start of `text`, or the part of it that is there; `text` is not empty.
Character first_unit(std::string_view text) {
  const Lead lead = lead_of(static_cast<unsigned char>(text[0]));
  if (lead.length == 0) return {};
  for (std::size_t i = 1; i < lead.length; ++i) {
    const unsigned char byte = i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
    const bool continues = i == 1 ? byte >= lead.second_low && byte <= lead.second_high : (byte & 0xC0U) == 0x80U;
    if (!continues) return {i, false};
  }
  return {lead.length, true};
}

}  // namespace

std::size_t valid_utf8(std::string_view text) {
  // Most text is ASCII: check eight bytes at a time.
  constexpr std::uint64_t kHighBits = 0x8080808080808080U;
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t word = kHighBits;
    if (at + sizeof word <= text.size()) std::memcpy(&word, text.data() + at, sizeof word);
    if ((word & kHighBits) == 0) {
      at += sizeof word;
      continue;
    }
    const Character unit = first_unit(text.substr(at));
    if (!unit.valid) break;
    at += unit.length;
  }
  return at;
}

std::string_view repaired_utf8(std::string_view text, std::string& buffer) {
  std::size_t valid = valid_utf8(text);
  if (valid == text.size()) return text;
  buffer.clear();
  while (true) {
    buffer += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty()) return buffer;
    buffer += kReplacement;
    text.remove_prefix(first_unit(text).length);
    valid = valid_utf8(text);
  }
}

std::int64_t code_points(std::string_view utf8) {
  return std::count_if(utf8.begin(), utf8.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

}  // namespace spillway
