// Text that users type and read: quantities with units, and misspelt names.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/units.hpp"

namespace spillway {

/// How many characters to insert, remove or replace to turn one into the other. O(a * b).
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);
/// The candidate with the smallest edit distance to `word`; empty if the distance exceeds a third of the word's length
/// (at least 2). The earlier candidate wins a tie. O(word * sum of the candidates of nearly that length).
[[nodiscard]] std::string nearest_name(std::string_view word, std::span<const std::string> candidates);

/// `text` without the blanks and tabs around it.
[[nodiscard]] std::string_view trimmed(std::string_view text);
/// The text between the brackets of "NAME(...)"; empty when the text has another form.
[[nodiscard]] std::optional<std::string_view> call_arguments(std::string_view name, std::string_view text);

/// "40GB", "16GiB", "512 MB", "4096B" -> bytes. GB = 1e9, GiB = 2^30. Empty for a bare number,
/// which has no unit, and for NaN, infinities, negative values and more than 2^62.
[[nodiscard]] std::optional<Bytes> parse_bytes(std::string_view text);
/// "100ms", "60s", "5min", "1h", "250us", "3ns" -> nanoseconds; refusals as for bytes.
[[nodiscard]] std::optional<Duration> parse_duration(std::string_view text);
/// "25GB/s" -> bytes per second; refusals as for bytes.
[[nodiscard]] std::optional<BytesPerSecond> parse_rate(std::string_view text);
/// A finite decimal number that is the whole of `text`; empty otherwise.
[[nodiscard]] std::optional<double> parse_number(std::string_view text);
[[nodiscard]] std::optional<std::int64_t> parse_integer(std::string_view text);

/// The shortest text with a unit that parses back to the same value: "40GB", "16GiB", "100ms", "1500B".
[[nodiscard]] std::string format_bytes(Bytes bytes);
[[nodiscard]] std::string format_duration(Duration duration);

/// Lower-case hexadecimal SHA-256 of `bytes`.
[[nodiscard]] std::string sha256_hex(std::string_view bytes);

}  // namespace spillway
