// Compresses text as gzip does.
#pragma once

#include <string>
#include <string_view>

namespace spillway {

/// One gzip member (RFC 1952) without name and time, so equal texts give equal bytes.
[[nodiscard]] std::string gzipped(std::string_view text);

}  // namespace spillway
