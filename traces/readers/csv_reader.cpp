#include "traces/readers/csv_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "sim/core/text.hpp"
#include "sim/io/csv_fields.hpp"
#include "traces/length.hpp"
#include "traces/readers/row_checks.hpp"

namespace spillway::traces {

bool names_columns(std::string_view text, std::span<const CsvColumn> columns, int least) {
  int found = 0;
  std::string_view first_line = text.substr(0, text.find_first_of("\r\n"));
  std::string_view field;
  while (next_field(first_line, field)) {
    for (const CsvColumn& column : columns) found += bare_field(field) == column.name ? 1 : 0;
  }
  return found >= least;
}

CsvReader::CsvReader(const std::string& path, const CsvFormat& format, const ReaderOptions& options)
    : lines_(path),
      bad_(path, options.skip_bad_rows),
      columns_(format.columns),
      fields_(columns_.size()),
      present_(columns_.size()) {
  read_header(format);
}

void CsvReader::read_header(const CsvFormat& format) {
  std::string_view line;
  do {
    if (!lines_.next(line)) throw DataError("the file has no rows", lines_.path(), format.fix);
  } while (line.find_first_not_of(" \t") == std::string_view::npos);
  std::vector<std::string> names;
  std::string_view field;
  while (next_field(line, field)) {
    if (names.size() == kMaxColumns) {
      throw DataError(fmt::format("the first row has more than {} columns", kMaxColumns),
                      fmt::format("{}, row {}", lines_.path(), lines_.row()), format.fix);
    }
    names.emplace_back(bare_field(field));
  }
  column_at_.assign(names.size(), columns_.size());
  BadRows bad(lines_.path());  // the first row cannot be skipped
  for (std::size_t i = 0; i < columns_.size(); ++i) find(columns_[i], i, names, format.fix, bad);
  for (std::size_t i = 0; i < names.size() && !format.others_allowed; ++i) {
    if (column_at_[i] != columns_.size()) continue;
    std::vector<std::string> known;
    for (const CsvColumn& column : columns_) known.emplace_back(column.name);
    const std::string near = nearest_name(names[i], known);
    bad.add(lines_.row(), "", fmt::format("unknown column \"{}\"", excerpt(names[i])),
            near.empty() ? std::string(format.fix) : fmt::format("did you mean \"{}\"?", near));
  }
  bad.raise();
}

void CsvReader::find(const CsvColumn& column, std::size_t index, const std::vector<std::string>& names, const char* fix,
                     BadRows& bad) {
  const auto times = std::count(names.begin(), names.end(), column.name);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == column.name) column_at_[i] = index;
  }
  present_[index] = times > 0 ? 1 : 0;
  if (times == 1 || (times == 0 && !column.required)) return;
  std::vector<std::string> others;  // a known column is not a misspelt other column
  for (const std::string& name : names) {
    if (!names_columns(name, columns_, 1)) others.push_back(name);
  }
  const std::string near = nearest_name(column.name, others);
  bad.add(lines_.row(), "",
          times > 1      ? fmt::format("column {} appears {} times", column.name, times)
          : near.empty() ? fmt::format("column {} is missing", column.name)
                         : fmt::format("column {} is missing; there is a column \"{}\"", column.name, near),
          fix);
}

bool CsvReader::split(std::string_view line) {
  std::size_t i = 0;
  std::string_view field;
  for (; next_field(line, field); ++i) {
    if (i < column_at_.size() && column_at_[i] < fields_.size()) fields_[column_at_[i]] = bare_field(field);
  }
  if (i == column_at_.size()) return true;
  bad_.add(lines_.row(), "", fmt::format("the row has {} columns where the first row has {}", i, column_at_.size()),
           i < column_at_.size()
               ? "complete or delete the row; a file that was cut off while being copied ends like this"
               : "put fields that hold a comma in double quotes");
  return false;
}

bool CsvReader::next(TraceRow& row) {
  std::string_view line;
  while (!ended_ && lines_.next(line)) {
    if (line.empty()) continue;
    row.clear();
    bad_.begin();
    if (split(line)) parse(row);
    if (bad_.accepts()) return true;
    if (bad_.full()) break;
  }
  ended_ = true;
  bad_.raise();
  return false;
}

std::optional<std::int64_t> CsvReader::tokens(std::size_t column, std::int64_t least) {
  const std::string_view text = field(column);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool number = error == std::errc() && end == text.data() + text.size();
  if (number && value >= least && value <= kMaxTokens) return value;
  bad(column,
      text.empty() ? "the field is empty"
      : !number    ? fmt::format("\"{}\" is not a whole number of tokens", excerpt(text))
                   : fmt::format("{} tokens: from {} to {} are possible", value, least, kMaxTokens),
      kCorrectRow);
  return std::nullopt;
}

std::optional<std::int64_t> CsvReader::whole(std::size_t column, std::int64_t least, std::int64_t most) {
  const auto value = parse_integer(field(column));
  if (value && *value >= least && *value <= most) return value;
  bad(column, fmt::format("\"{}\" is not a whole number from {} to {}", excerpt(field(column)), least, most),
      kCorrectRow);
  return std::nullopt;
}

std::optional<std::int64_t> CsvReader::seconds(std::size_t column) {
  const auto value = parse_number(field(column));
  if (value && *value >= 0.0 && *value <= kMaxTraceSeconds) return round_seconds(*value).count();
  bad(column,
      fmt::format("\"{}\" is not a number of seconds from 0 to {:.0f}", excerpt(field(column)), kMaxTraceSeconds),
      kCorrectRow);
  return std::nullopt;
}

void CsvReader::bad(std::size_t column, std::string what, std::string fix) {
  bad_.add(lines_.row(), fmt::format("column {}", columns_[column].name), std::move(what), std::move(fix));
}

void CsvReader::bad_order(std::size_t column) {
  bad(column, fmt::format("\"{}\" is {}", excerpt(field(column)), kTooEarly),
      fmt::format("sort the rows by {}", columns_[column].name));
}

}  // namespace spillway::traces
