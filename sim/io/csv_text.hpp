// Text in CSV.
#pragma once

#include <string>

namespace spillway {

/// `text` as a CSV field (RFC 4180): in quotes when it holds a comma, a quote or a line break.
[[nodiscard]] std::string csv_text(const std::string& text);

}  // namespace spillway
