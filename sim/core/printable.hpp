// Text from files, arguments and the environment, as messages show it.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace spillway {

/// `text` with control characters escaped, so that no file can move the cursor or rename the window: \x1b for escape,
/// \n for a new line, \u009b for the 8-bit forms of these commands.
[[nodiscard]] inline std::string printable(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0U;
    if (c == '\n') {
      shown += "\\n";
    } else if (c == '\t') {
      shown += "\\t";
    } else if (c < 0x20U || c == 0x7fU) {
      shown += fmt::format("\\x{:02x}", c);
    } else if (c == 0xc2U && next >= 0x80U && next < 0xa0U) {  // U+0080 to U+009F in UTF-8
      shown += fmt::format("\\u{:04x}", next);
      ++i;
    } else {
      shown += text[i];
    }
  }
  return shown;
}

/// Input as a message quotes it: the first `most` bytes, then "...". Never cuts a UTF-8 character in two.
[[nodiscard]] inline std::string brief(std::string_view input, std::size_t most = 120) {
  if (input.size() <= most) return std::string(input);
  std::size_t end = most;
  const auto continues = [&](std::size_t at) { return (static_cast<unsigned char>(input[at]) & 0xc0U) == 0x80U; };
  for (std::size_t back = 0; back < 3 && continues(end); ++back) --end;
  return std::string(input.substr(0, end)) + "...";
}

}  // namespace spillway
