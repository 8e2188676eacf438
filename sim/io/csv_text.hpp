// Text in CSV.
#pragma once

#include <string>

namespace spillway {

/// As RFC 4180 has it: in quotes when it holds a comma, a quote or a line's end.
[[nodiscard]] std::string csv_text(const std::string& text);

}  // namespace spillway
