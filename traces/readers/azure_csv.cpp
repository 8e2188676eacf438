#include "traces/readers/azure_csv.hpp"

#include <fmt/format.h>

#include <array>

namespace spillway::traces {
namespace {

enum Column : std::size_t { kTime, kInput, kOutput, kColumns };
constexpr std::array<CsvColumn, kColumns> kColumnNames{{{"TIMESTAMP"}, {"ContextTokens"}, {"GeneratedTokens"}}};
constexpr const char* kFix = "the first row must name the columns TIMESTAMP, ContextTokens and GeneratedTokens";

/// The `Count` decimal digits from text[at] on as a number; -1 when one is not a digit or the text ends before.
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

/// Days from 1970-01-01 to a date of the Gregorian calendar; years from 1970.
/// Source: H. Hinnant, "chrono-compatible low-level date algorithms", days_from_civil.
std::int64_t days_since_1970(std::int64_t year, std::int64_t month, std::int64_t day) {
  const std::int64_t y = month <= 2 ? year - 1 : year;
  const std::int64_t era = y / 400;
  const std::int64_t year_of_era = y - era * 400;
  const std::int64_t day_of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
  return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719468;
}

std::int64_t days_in_month(std::int64_t year, std::int64_t month) {
  if (month == 2) return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0 ? 29 : 28;
  return month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31;
}

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::size_t kMinutePart = 17;  // length of "2023-11-16 18:17:"

/// "2023-11-16 18:17:" -> nanoseconds since 1970.
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
  if (year < 1970 || year > 2200 || month < 1 || month > 12 || day < 1 || day > days_in_month(year, month) ||
      hour < 0 || hour > 23 || minute < 0 || minute > 59) {
    return std::nullopt;
  }
  return (days_since_1970(year, month, day) * 86400 + hour * 3600 + minute * 60) * kSecond;
}

/// "Z", "+HH:MM" or nothing -> nanoseconds to add to get UTC.
std::optional<std::int64_t> parse_zone(std::string_view text) {
  if (text.empty() || text == "Z") return 0;
  if (text.size() != 6 || (text[0] != '+' && text[0] != '-') || text[3] != ':') return std::nullopt;
  const std::int64_t hours = digits<2>(text, 1);
  const std::int64_t minutes = digits<2>(text, 4);
  if (hours < 0 || hours > 23 || minutes < 0 || minutes > 59) return std::nullopt;
  const std::int64_t east = (hours * 3600 + minutes * 60) * kSecond;
  return text[0] == '+' ? -east : east;
}

/// "03.9799600" and a time zone -> nanoseconds.
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
  row.input = Tokens(*input);
  row.output = Tokens(*output == 0 ? 1 : *output);
  row.max_new_tokens = row.output;
}

}  // namespace spillway::traces
