#include "hwmodels/calibration/csv_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "sim/core/text.hpp"
#include "sim/io/csv_fields.hpp"

namespace spillway::hwmodels {
namespace {

struct Unit {
  std::string_view suffix;
  double seconds;
};
constexpr std::array<Unit, 3> kUnits{{{"_us", 1e-6}, {"_ms", CsvTable::kMillisecond}, {"_s", 1.0}}};

std::vector<const CsvFormat*> all_formats() {
  std::vector<const CsvFormat*> all;
  for (const auto formats : {ops_formats(), engine_formats(), vidur_formats()}) {
    for (const CsvFormat& format : formats) all.push_back(&format);
  }
  return all;
}

std::string columns_text(const CsvFormat& format) {
  std::string text = fmt::format("{}", fmt::join(format.columns, ", "));
  if (!format.time.empty()) text += fmt::format(", {}_us", format.time);
  return text;
}

/// Only the letters and digits, in lower case.
std::string plain(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return text;
}

/// The name in `names` that may stand for `wanted`. Short names resemble many others, so for them only case and signs
/// may differ.
std::string near_column(std::string_view wanted, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    // A far longer name is no misspelling. Without this test, a header of a megabyte would be copied for every column.
    if (name.size() <= 2 * wanted.size() + 2 && plain(name) == plain(wanted)) return name;
  }
  constexpr std::size_t kLong = 5;
  return wanted.size() >= kLong ? nearest_name(wanted, names) : std::string();
}

bool is_time(const CsvFormat& format, std::string_view name) {
  if (format.time.empty()) return false;
  if (!format.instead.empty() && name == format.instead) return true;
  return std::any_of(kUnits.begin(), kUnits.end(),
                     [&](const Unit& unit) { return name == fmt::format("{}{}", format.time, unit.suffix); });
}

bool knows(const CsvFormat& format, std::string_view name) {
  const auto in = [&](const std::vector<std::string_view>& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  return in(format.columns) || in(format.optional) || is_time(format, name);
}

/// How well a header fits a format.
struct Fit {
  int found = 0;
  int near = 0;
  int wanted = 0;
  [[nodiscard]] bool full() const { return found == wanted; }
  /// Whether the header is likely to have this format.
  [[nodiscard]] bool likely() const { return found + near >= 2 && 2 * found + near >= wanted; }
  [[nodiscard]] bool better_than(const Fit& other) const {
    if (full() != other.full()) return full();
    if (full()) return wanted > other.wanted;
    return (2 * found + near) * other.wanted > (2 * other.found + other.near) * wanted;
  }
};

Fit fit_of(const CsvFormat& format, const std::vector<std::string>& header) {
  std::vector<std::string> others;
  bool timed = format.time.empty();
  for (const std::string& name : header) {
    timed = timed || is_time(format, name);
    if (!knows(format, name)) others.push_back(name);
  }
  Fit fit{0, 0, static_cast<int>(format.columns.size()) + (format.time.empty() ? 0 : 1)};
  if (!format.time.empty() && timed) ++fit.found;
  for (const std::string_view column : format.columns) {
    const bool found = std::find(header.begin(), header.end(), column) != header.end();
    fit.found += found ? 1 : 0;
    fit.near += !found && !near_column(column, others).empty() ? 1 : 0;
  }
  return fit;
}

}  // namespace

CsvTable::CsvTable(LineReader& lines, std::int32_t file, Complaints& complaints)
    : lines_(lines), complaints_(complaints), file_(file) {
  read_header();
  choose_format();
  if (format_ == nullptr) return;
  check_columns();
  check_time();
  if (complaints_.any()) format_ = nullptr;
}

void CsvTable::read_header() {
  std::string_view line;
  do {
    if (!lines_.next(line)) throw DataError("the file holds no row", lines_.path(), "check that it was copied whole");
  } while (line.find_first_not_of(" \t") == std::string_view::npos);
  std::string_view field;
  while (next_field(line, field)) {
    if (header_.size() == kMostColumns) {
      throw DataError(fmt::format("the first line has more than {} columns", kMostColumns),
                      fmt::format("{} line {}", lines_.path(), lines_.row()),
                      "check that this is a file of measurements");
    }
    header_.emplace_back(bare_field(field));
    columns_.emplace(header_.back(), header_.size() - 1);
  }
  fields_.resize(header_.size());
}

void CsvTable::choose_format() {
  const CsvFormat* best = nullptr;
  Fit best_fit;
  for (const CsvFormat* format : all_formats()) {
    const Fit fit = fit_of(*format, header_);
    if (best != nullptr && !fit.better_than(best_fit)) continue;
    best = format;
    best_fit = fit;
  }
  if (best_fit.likely()) {
    format_ = best;
    return;
  }
  std::vector<std::string> known;
  for (const CsvFormat* format : all_formats()) {
    // Vidur's headers fill a screen each; the names of its files are enough.
    if (!format->name.starts_with("vidur-")) known.push_back(columns_text(*format));
  }
  complaints_.add(fmt::format(" line {}", lines_.row()),
                  fmt::format("the first line, \"{}\", is not the header of a known table of measurements",
                              excerpt(fmt::format("{}", fmt::join(header_, ",")))),
                  fmt::format("known: {}; Vidur's mlp, attention, all_reduce and cpu_overheads tables; JSON with "
                              "\"kind\": \"measurements\"",
                              fmt::join(known, "; ")));
}

std::vector<std::string> CsvTable::foreign() const {
  std::vector<std::string> names;
  for (const std::string& name : header_) {
    if (!knows(*format_, name)) names.push_back(name);
  }
  return names;
}

void CsvTable::missing(const std::string& what, std::string_view wanted) {
  const std::string near = near_column(wanted, foreign());
  complaints_.add(
      fmt::format(" line {}", lines_.row()),
      near.empty() ? what + " is missing" : fmt::format("{} is missing; there is a column \"{}\"", what, excerpt(near)),
      fmt::format("{} needs the columns {}", format_->name, columns_text(*format_)));
}

void CsvTable::check_columns() {
  const auto once = [&](std::string_view column) {
    const auto times = std::count(header_.begin(), header_.end(), column);
    if (times > 1) {
      complaints_.add(fmt::format(" line {}", lines_.row()), fmt::format("column {} appears {} times", column, times),
                      "keep one of them");
    }
    return times > 0;
  };
  for (const std::string_view column : format_->columns) {
    if (!once(column)) missing(fmt::format("column {}", column), column);
  }
  const std::vector<std::string> optional(format_->optional.begin(), format_->optional.end());
  for (const std::string& column : optional) (void)once(column);
  for (const std::string& name : foreign()) {
    const std::string meant = slip_of(name, optional);
    if (meant.empty()) continue;
    complaints_.add(fmt::format(" line {}", lines_.row()), fmt::format("unknown column \"{}\"", excerpt(name)),
                    fmt::format("did you mean \"{}\"?", meant));
  }
}

void CsvTable::check_time() {
  if (format_->time.empty()) return;
  std::vector<std::string> found;
  std::vector<std::string> names;
  for (const Unit& unit : kUnits) {
    const std::string& name = names.emplace_back(fmt::format("{}{}", format_->time, unit.suffix));
    for (auto times = std::count(header_.begin(), header_.end(), name); times > 0; --times) found.push_back(name);
    if (!has(name)) continue;
    time_column_ = name;
    time_unit_ = unit.seconds;
  }
  if (!format_->instead.empty()) {
    names.emplace_back(format_->instead);
    if (has(format_->instead)) found.emplace_back(format_->instead);
  }
  if (found.size() > 1) {
    complaints_.add(fmt::format(" line {}", lines_.row()),
                    fmt::format("columns {} all give the time of a row", fmt::join(found, " and ")),
                    "keep one of them");
  } else if (found.empty()) {
    missing(fmt::format("one of the columns {}", fmt::join(names, ", ")), names.front());
  }
}

bool CsvTable::next() {
  std::string_view line;
  while (lines_.next(line)) {
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    if (++rows_ > kMostRows) {
      throw DataError(
          fmt::format("the file has more than {} rows, the most that a table of measurements may have", kMostRows),
          lines_.path(), "check that it is the file that you mean");
    }
    std::size_t got = 0;
    std::string_view field;
    for (; next_field(line, field); ++got) {
      if (got < fields_.size()) fields_[got] = bare_field(field);
    }
    if (got == fields_.size()) return true;
    complaints_.add(fmt::format(" line {}", lines_.row()),
                    fmt::format("the row has {} columns where the header has {}", got, fields_.size()),
                    got < fields_.size()
                        ? "complete or delete the row; a file that was cut off while being copied ends like this"
                        : "put fields that hold a comma in double quotes");
  }
  return false;
}

std::string_view CsvTable::field(std::string_view name) const { return fields_[columns_.find(name)->second]; }

std::optional<std::string> CsvTable::word(std::string_view name) {
  const std::string_view text = field(name);
  if (!text.empty()) return std::string(text);
  bad(name, "the field is empty", kCorrectRow);
  return std::nullopt;
}

std::optional<bool> CsvTable::flag(std::string_view name) {
  const std::string_view text = field(name);
  for (const std::string_view yes : {"true", "True", "1"}) {
    if (text == yes) return true;
  }
  for (const std::string_view no : {"false", "False", "0"}) {
    if (text == no) return false;
  }
  bad(name, fmt::format("\"{}\" is neither true nor false", excerpt(text)), kCorrectRow);
  return std::nullopt;
}

std::optional<double> CsvTable::seconds() {
  const auto value = number(time_column_);
  return value ? duration(time_column_, *value * time_unit_) : std::nullopt;
}

std::optional<double> CsvTable::milliseconds(std::string_view name) {
  const auto value = number(name);
  if (!value) return std::nullopt;
  if (*value == 0.0) return value;
  return duration(name, *value * kMillisecond) ? value : std::nullopt;
}

void CsvTable::bad(std::string_view name, std::string what, std::string fix) {
  complaints_.add(fmt::format(" line {}, column {}", lines_.row(), name), std::move(what), std::move(fix));
}

std::optional<std::int64_t> CsvTable::integer(std::string_view name) {
  const std::string_view text = field(name);
  if (const auto value = parse_integer(text)) return value;
  bad(name, text.empty() ? "the field is empty" : fmt::format("\"{}\" is not a whole number", excerpt(text)),
      kCorrectRow);
  return std::nullopt;
}

std::optional<double> CsvTable::number(std::string_view name) {
  const std::string_view text = field(name);
  if (const auto value = parse_number(text)) return value;
  bad(name, text.empty() ? "the field is empty" : fmt::format("\"{}\" is not a number", excerpt(text)), kCorrectRow);
  return std::nullopt;
}

}  // namespace spillway::hwmodels
