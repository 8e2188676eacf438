// Text that may be invalid UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace spillway {

/// `text` itself when it is valid UTF-8; else `buffer`, overwritten with the text in which U+FFFD replaces each maximal
/// subpart of a truncated character and each byte that cannot begin one. Source: The Unicode Standard, 3.9,
/// tables 3-7 and 3-8; Python's errors="replace" does the same. O(bytes).
[[nodiscard]] std::string_view repaired_utf8(std::string_view text, std::string& buffer);

/// Bytes of valid UTF-8 at the start of `text`: all of them when it is UTF-8. O(bytes).
[[nodiscard]] std::size_t valid_utf8(std::string_view text);

/// Number of code points in valid UTF-8.
[[nodiscard]] std::int64_t code_points(std::string_view utf8);

}  // namespace spillway
