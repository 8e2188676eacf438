// Broken inputs made from good ones.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "sim/core/random.hpp"

namespace spillway::fuzz {

/// A mutated input never grows beyond this many bytes.
inline constexpr std::size_t kMaxInput = std::size_t{1} << 20U;

/// `text` after one to eight changes at random: flipped bits, bytes inserted or deleted, a part moved or taken from one
/// of `others`, the end cut off, lines doubled, deleted or swapped, numbers replaced by extremes, members of JSON given
/// another type, deep nesting, NUL, invalid UTF-8, tokens of up to 256 KiB. The same stream gives the same text.
[[nodiscard]] std::string mutated(std::string text, std::span<const std::string> others, RandomStream& stream);

/// `text` as one member of a gzip file (RFC 1952).
[[nodiscard]] std::string gzipped(std::string_view text);

/// A whole number from 0 to n - 1, n > 0; the bias of a 64-bit remainder does not matter here.
[[nodiscard]] inline std::size_t below(std::size_t n, RandomStream& stream) { return stream.next_u64() % n; }

}  // namespace spillway::fuzz
