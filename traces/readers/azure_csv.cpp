#include "traces/readers/azure_csv.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <utility>
#include <vector>

#include "sim/text.hpp"
#include "traces/length.hpp"

namespace spillway::traces {
namespace {

constexpr std::array<std::string_view, 3> kNames{"TIMESTAMP", "ContextTokens", "GeneratedTokens"};

std::string_view bare(std::string_view field) {
  while (!field.empty() && field.front() == ' ') field.remove_prefix(1);
  while (!field.empty() && field.back() == ' ') field.remove_suffix(1);
  if (field.size() >= 2 && field.front() == '"' && field.back() == '"') field = field.substr(1, field.size() - 2);
  return field;
}

/// Takes the next field off `rest`, without its comma; a comma within double quotes does not end it. False once there
/// is none: `rest` is then null.
bool next_field(std::string_view& rest, std::string_view& field) {
  if (rest.data() == nullptr) return false;
  std::size_t from = 0;
  if (!rest.empty() && rest.front() == '"') {
    const std::size_t close = rest.find('"', 1);
    from = close == std::string_view::npos ? rest.size() : close;
  }
  const void* comma = from < rest.size() ? std::memchr(rest.data() + from, ',', rest.size() - from) : nullptr;
  if (comma == nullptr) {
    field = std::exchange(rest, {});
    return true;
  }
  const auto length = static_cast<std::size_t>(static_cast<const char*>(comma) - rest.data());
  field = rest.substr(0, length);
  rest.remove_prefix(length + 1);
  return true;
}

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

bool AzureCsvReader::recognises(std::string_view first_line) {
  int found = 0;
  std::string_view field;
  while (next_field(first_line, field)) {
    for (const std::string_view name : kNames) found += bare(field) == name ? 1 : 0;
  }
  return found >= 2;
}

AzureCsvReader::AzureCsvReader(const std::string& path) : lines_(path), bad_(path) { read_header(); }

void AzureCsvReader::read_header() {
  constexpr const char* kFix = "the first row must name the columns TIMESTAMP, ContextTokens and GeneratedTokens";
  std::string_view line;
  if (!lines_.next(line)) throw DataError("the file holds no row", lines_.path(), kFix);
  std::vector<std::string> names;
  std::string_view field;
  while (next_field(line, field)) names.emplace_back(bare(field));
  width_ = names.size();
  for (std::size_t column = 0; column < kColumns; ++column) {
    const std::string wanted(kNames[column]);
    std::size_t found = 0;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i] != wanted) continue;
      position_[column] = i;
      ++found;
    }
    if (found == 1) continue;
    const std::string near = nearest_name(wanted, names);
    bad_.add(lines_.row(), "",
             found > 1      ? fmt::format("column {} appears {} times", wanted, found)
             : near.empty() ? fmt::format("column {} is missing", wanted)
                            : fmt::format("column {} is missing; there is a column \"{}\"", wanted, near),
             kFix);
  }
  bad_.raise();
}

bool AzureCsvReader::split(std::string_view line, Fields& fields) {
  std::size_t i = 0;
  std::string_view field;
  for (; next_field(line, field); ++i) {
    for (std::size_t column = 0; column < kColumns; ++column) {
      if (position_[column] == i) fields[column] = bare(field);
    }
  }
  if (i == width_) return true;
  bad_.add(lines_.row(), "", fmt::format("the row has {} columns where the first row has {}", i, width_),
           i < width_ ? "complete or delete the row; a file that was cut off while being copied ends like this"
                      : "put fields that hold a comma in double quotes");
  return false;
}

std::optional<std::int64_t> AzureCsvReader::count(std::string_view field, Column column, std::int64_t least) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  const bool number = error == std::errc() && end == field.data() + field.size();
  if (number && value >= least && value <= kMaxTokens) return value;
  const std::string part = fmt::format("column {}", kNames[column]);
  bad_.add(lines_.row(), part,
           field.empty() ? "the field is empty"
           : !number     ? fmt::format("\"{}\" is not a whole number of tokens", printable(field))
                         : fmt::format("{} tokens: from {} to {} are possible", value, least, kMaxTokens),
           "correct or delete the row");
  return std::nullopt;
}

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

bool AzureCsvReader::parse(const Fields& fields, RequestSpec& request) {
  const auto stamp = stamp_of(fields[kTime]);
  if (!stamp) {
    bad_.add(lines_.row(), fmt::format("column {}", kNames[kTime]),
             fmt::format("\"{}\" is not a time stamp", printable(fields[kTime])),
             "write it as 2023-11-16 18:17:03.9799600 or 2024-05-10 00:00:00.009930+00:00");
  }
  const auto input = count(fields[kInput], kInput, 1);
  const auto output = count(fields[kOutput], kOutput, 0);
  if (stamp && started_ && *stamp < previous_stamp_) {
    bad_.add(lines_.row(), fmt::format("column {}", kNames[kTime]),
             fmt::format("\"{}\" is earlier than the row before", printable(fields[kTime])),
             "sort the rows by TIMESTAMP");
  }
  if (stamp) {
    if (!started_) first_stamp_ = *stamp;
    started_ = true;
    previous_stamp_ = *stamp;
  }
  if (bad_.has(lines_.row())) return false;
  if (*output == 0) ++zero_outputs_;
  request.arrival = SimTime(*stamp - first_stamp_);
  request.input = Tokens(*input);
  request.output = Tokens(*output == 0 ? 1 : *output);
  request.max_new_tokens = request.output;
  request.client = 0;
  request.prefix_ids.clear();
  return true;
}

bool AzureCsvReader::next(RequestSpec& request) {
  std::string_view line;
  Fields fields;
  while (!ended_ && lines_.next(line)) {
    if (line.empty()) continue;
    const bool good = split(line, fields) && parse(fields, request);
    if (good && !bad_.any()) return true;
    if (bad_.full()) break;
  }
  ended_ = true;
  bad_.raise();
  return false;
}

}  // namespace spillway::traces
