// Texts out of JSON.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace spillway::traces {

/// The text, in UTF-8, that a JSON string stands for whose characters between the quotes are `written`: `written`
/// itself when no backslash is in it, else `buffer`, which is overwritten. The \u escapes of a surrogate pair are one
/// character; half a pair stands for U+FFFD. Nothing when the text is not UTF-8, or when there is an escape
/// that JSON (RFC 8259, section 7) does not know: `complaint` then says so. Line feeds and other control characters,
/// which ought to be escaped, are taken as they stand. O(characters).
[[nodiscard]] std::optional<std::string_view> json_text(std::string_view written, std::string& buffer,
                                                        std::string& complaint);

}  // namespace spillway::traces
