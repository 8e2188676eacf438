#include "sim/core/text.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "sim/core/error.hpp"

namespace spillway {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};
constexpr std::array<Unit, 10> kByteUnits{{{"B", 1.0},
                                           {"kB", 1e3},
                                           {"KB", 1e3},
                                           {"MB", 1e6},
                                           {"GB", 1e9},
                                           {"TB", 1e12},
                                           {"KiB", 1024.0},
                                           {"MiB", 1048576.0},
                                           {"GiB", 1073741824.0},
                                           {"TiB", 1099511627776.0}}};
constexpr std::array<Unit, 7> kTimeUnits{
    {{"ns", 1.0}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"min", 60e9}, {"h", 3600e9}, {"d", 86400e9}}};

/// number + unit -> number * factor; the unit is required, the number finite and not negative.
std::optional<double> parse_quantity(std::string_view text, std::span<const Unit> units) {
  text = trimmed(text);
  double number = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number) || std::signbit(number)) return std::nullopt;
  const std::string_view name = trimmed(text.substr(static_cast<std::size_t>(end - text.data())));
  const auto unit = std::find_if(units.begin(), units.end(), [&](const Unit& u) { return u.name == name; });
  if (unit == units.end()) return std::nullopt;
  return number * unit->factor;
}

constexpr double kLargest = 4.611686018427388e18;  // 2^62: sums of two such values still fit int64

std::optional<std::int64_t> whole(std::optional<double> value) {
  if (!value || *value > kLargest) return std::nullopt;
  return static_cast<std::int64_t>(std::floor(*value + 0.5));
}

/// The largest of the preferred units that divides `count`.
std::string with_unit(std::int64_t count, std::span<const Unit> units, std::span<const std::string_view> preferred) {
  for (const std::string_view name : preferred) {
    const auto unit = std::find_if(units.begin(), units.end(), [&](const Unit& u) { return u.name == name; });
    const auto factor = static_cast<std::int64_t>(unit->factor);
    if (count != 0 && count % factor == 0) return std::to_string(count / factor) + std::string(name);
  }
  return std::to_string(count) + std::string(preferred.back());
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

std::optional<std::string_view> call_arguments(std::string_view name, std::string_view text) {
  if (!text.starts_with(name) || !text.ends_with(')')) return std::nullopt;
  text.remove_prefix(name.size());
  if (!text.starts_with('(')) return std::nullopt;
  return text.substr(1, text.size() - 2);
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j < row.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0U : 1U);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row.back();
}

std::string nearest_name(std::string_view word, std::span<const std::string> candidates) {
  std::size_t best = std::max<std::size_t>(2, word.size() / 3) + 1;
  std::string nearest;
  for (const std::string& candidate : candidates) {
    // The distance is at least the difference of the lengths. Without this check a word of megabytes, such as the first
    // line of a file that is no CSV, would cost minutes.
    const std::size_t longer = std::max(word.size(), candidate.size());
    if (longer - std::min(word.size(), candidate.size()) >= best) continue;
    const std::size_t distance = edit_distance(word, candidate);
    if (distance >= best) continue;
    best = distance;
    nearest = candidate;
  }
  return nearest;
}

std::optional<Bytes> parse_bytes(std::string_view text) {
  const auto value = whole(parse_quantity(text, kByteUnits));
  return value ? std::optional(Bytes(*value)) : std::nullopt;
}

std::optional<Duration> parse_duration(std::string_view text) {
  const auto value = whole(parse_quantity(text, kTimeUnits));
  return value ? std::optional(Duration(*value)) : std::nullopt;
}

std::optional<BytesPerSecond> parse_rate(std::string_view text) {
  text = trimmed(text);
  if (!text.ends_with("/s")) return std::nullopt;
  const auto value = parse_quantity(text.substr(0, text.size() - 2), kByteUnits);
  return value ? std::optional(BytesPerSecond(*value)) : std::nullopt;
}

std::optional<double> parse_number(std::string_view text) {
  double number = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(number)) return std::nullopt;
  return number;
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string format_bytes(Bytes bytes) {
  constexpr std::array<std::string_view, 9> kOrder{"TiB", "TB", "GiB", "GB", "MiB", "MB", "KiB", "kB", "B"};
  return with_unit(bytes.count(), kByteUnits, kOrder);
}

std::string format_duration(Duration duration) {
  constexpr std::array<std::string_view, 6> kOrder{"h", "min", "s", "ms", "us", "ns"};
  return with_unit(duration.count(), kTimeUnits, kOrder);
}

std::string sha256_hex(std::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  const int ok = EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr);
  SPILLWAY_CHECK(ok == 1, "SHA-256 is not available");
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) {
    hex += kDigits[digest[i] >> 4U];
    hex += kDigits[digest[i] & 15U];
  }
  return hex;
}

}  // namespace spillway
