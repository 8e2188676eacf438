// Fields of one line of CSV.
#pragma once

#include <string_view>

namespace spillway {

/// Without the blanks around it, and without the double quotes around what is then left.
[[nodiscard]] std::string_view bare_field(std::string_view field);

/// Takes the next field off `rest`, without its comma; a comma within double quotes does not end it. False once there
/// is none: `rest` is then null.
[[nodiscard]] bool next_field(std::string_view& rest, std::string_view& field);

}  // namespace spillway
