#include "traces/readers/azure_csv.hpp"

#include <fmt/format.h>

#include <chrono>

namespace spillway::traces {
namespace {

/// The number in the `Count` characters from text[at] on; -1 if one is missing or not a digit.
template <std::size_t Count>
std::int64_t digits(std::string_view text, std::size_t at) {
  if (text.size() < at + Count) return -1;
  std::int64_t value = 0;
  for (std::size_t i = at; i < at + Count; ++i) {
    if (text[i] < '0' || text[i] > '9') return -1;
    value = value * 10 + (text[i] - '0');
  }
  return value;
}

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::size_t kMinutePart = 17;  // length of "2023-11-16 18:17:"

/// Nanoseconds since 1970 of "2023-11-16 18:17:".
std::optional<std::int64_t> parse_minute(std::string_view text) {
  if (text.size() < kMinutePart || text[4] != '-' || text[7] != '-' || (text[10] != ' ' && text[10] != 'T') ||
      text[13] != ':' || text[16] != ':') {
    return std::nullopt;
  }
  const std::int64_t year = digits<4>(text, 0);
  const std::int64_t month = digits<2>(text, 5);
  const std::int64_t day = digits<2>(text, 8);
  const std::int64_t hour = digits<2>(text, 11);
  const std::int64_t minute = digits<2>(text, 14);
  if (year < 1970 || year > 2200 || month < 1 || day < 1 || hour < 0 || hour > 23 || minute < 0 || minute > 59) {
    return std::nullopt;
  }
  const std::chrono::year_month_day date{std::chrono::year(static_cast<int>(year)),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok()) return std::nullopt;
  const std::int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  return (days * 86400 + hour * 3600 + minute * 60) * kSecond;
}

/// Nanoseconds that turn a time with the offset "Z", "+HH:MM" or none into UTC.
std::optional<std::int64_t> parse_zone(std::string_view text) {
  if (text.empty() || text == "Z") return 0;
  if (text.size() != 6 || (text[0] != '+' && text[0] != '-') || text[3] != ':') return std::nullopt;
  const std::int64_t hours = digits<2>(text, 1);
  const std::int64_t minutes = digits<2>(text, 4);
  if (hours < 0 || hours > 23 || minutes < 0 || minutes > 59) return std::nullopt;
  const std::int64_t east = (hours * 3600 + minutes * 60) * kSecond;
  return text[0] == '+' ? -east : east;
}

/// Nanoseconds of "03.9799600" and an offset.
std::optional<std::int64_t> parse_seconds(std::string_view text) {
  const std::int64_t whole = digits<2>(text, 0);
  if (whole < 0 || whole > 59) return std::nullopt;
  std::int64_t ns = whole * kSecond;
  std::size_t at = 2;
  if (at < text.size() && text[at] == '.') {
    std::int64_t unit = kSecond;
    for (++at; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
      unit /= 10;
      if (unit == 0) return std::nullopt;  // a tenth decimal
      ns += unit * (text[at] - '0');
    }
    if (unit == kSecond) return std::nullopt;
  }
  const auto zone = parse_zone(text.substr(at));
  return zone ? std::optional(ns + *zone) : std::nullopt;
}

}  // namespace

std::optional<std::int64_t> parse_stamp(std::string_view text) {
  const auto minute = parse_minute(text);
  const auto seconds = minute ? parse_seconds(text.substr(kMinutePart)) : std::nullopt;
  return seconds ? std::optional(*minute + *seconds) : std::nullopt;
}

bool AzureCsvReader::recognises(std::string_view head) { return names_columns(head, kColumnNames, 2); }

AzureCsvReader::AzureCsvReader(const std::string& path, const ReaderOptions& options)
    : CsvReader(path, {.columns = kColumnNames, .fix = kFix}, options) {}

std::optional<std::int64_t> AzureCsvReader::stamp_of(std::string_view field) {
  const bool same_minute = field.size() > kMinutePart && field.substr(0, kMinutePart) == minute_text_;
  if (!same_minute) {
    const auto minute = parse_minute(field);
    if (!minute) return std::nullopt;
    minute_text_.assign(field.substr(0, kMinutePart));
    minute_ = *minute;
  }
  const auto seconds = parse_seconds(field.substr(kMinutePart));
  return seconds ? std::optional(minute_ + *seconds) : std::nullopt;
}

void AzureCsvReader::parse(TraceRow& row) {
  const auto stamp = stamp_of(field(kTime));
  if (!stamp) {
    bad(kTime, fmt::format("\"{}\" is not a time stamp", excerpt(field(kTime))),
        "write it as 2023-11-16 18:17:03.9799600 or 2024-05-10 00:00:00.009930+00:00");
  }
  const auto input = tokens(kInput, 1);
  const auto output = tokens(kOutput, 0);
  if (stamp && !order_.fits(*stamp)) bad_order(kTime);
  if (is_bad()) return;
  order_.note(*stamp);
  if (*output == 0) ++zero_outputs_;
  row.arrival = SimTime(*stamp - order_.first());
  set_lengths(row, *input, *output);
}

}  // namespace spillway::traces
