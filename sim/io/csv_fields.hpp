// Fields of one line of CSV.
#pragma once

#include <string_view>

namespace spillway {

/// `field` without surrounding blanks, then without surrounding double quotes.
[[nodiscard]] std::string_view bare_field(std::string_view field);

/// Moves the next field from `rest` to `field` and skips its comma. A comma within double quotes does not end a field.
/// Returns false after the last field; `rest` is then null.
[[nodiscard]] bool next_field(std::string_view& rest, std::string_view& field);

}  // namespace spillway
