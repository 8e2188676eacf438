// The shared part of the readers of CSV formats: rows, named columns and complaints.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/io/line_reader.hpp"
#include "traces/readers/trace_reader.hpp"

namespace spillway::traces {

struct CsvColumn {
  std::string_view name;
  bool required = true;
};

struct CsvFormat {
  std::span<const CsvColumn> columns;
  const char* fix;             // what the first row must be
  bool others_allowed = true;  // false: an unknown column is an error, so that no typing error is ignored
};

/// True if the first line of a text names at least `least` of these columns.
[[nodiscard]] bool names_columns(std::string_view text, std::span<const CsvColumn> columns, int least);

/// Reads CSV whose first row names the columns, in any order. Fields may be in double quotes; blanks around them are
/// ignored. Row numbers are lines of the file, the first row included; empty lines are skipped. A bad row is reported
/// with the later bad rows, up to ten.
class CsvReader : public TraceReader {
 public:
  /// The most columns of a file: far more than any format has.
  static constexpr std::size_t kMaxColumns = 1000;

  bool next(TraceRow& row) final;
  [[nodiscard]] std::int64_t row() const final { return lines_.row(); }
  [[nodiscard]] std::int64_t skipped() const final { return bad_.skipped(); }
  [[nodiscard]] std::string first_skipped() const final { return bad_.first_skipped(); }

 protected:
  /// Reads the first row. Throws DataError when the file cannot be read, a required column is missing, one appears
  /// twice, or there are more than kMaxColumns. `format.columns` must outlive the reader.
  CsvReader(const std::string& path, const CsvFormat& format, const ReaderOptions& options);

  /// Fills the cleared `row` from the current fields, or calls bad.
  virtual void parse(TraceRow& row) = 0;

  /// Columns are given by their index in the format's list.
  [[nodiscard]] bool has(std::size_t column) const { return present_[column] != 0; }
  [[nodiscard]] std::string_view field(std::size_t column) const { return fields_[column]; }
  /// The field as a number of tokens from `least` to kMaxTokens; nothing after a complaint.
  std::optional<std::int64_t> tokens(std::size_t column, std::int64_t least);
  /// The field as a whole number within these limits; nothing after a complaint.
  std::optional<std::int64_t> whole(std::size_t column, std::int64_t least, std::int64_t most);
  /// The field as seconds from 0 to kMaxTraceSeconds, in whole nanoseconds; nothing after a complaint.
  std::optional<std::int64_t> seconds(std::size_t column);
  void bad(std::size_t column, std::string what, std::string fix);
  /// Adds a complaint about a time that goes back.
  void bad_order(std::size_t column);
  /// True if the current row has a complaint.
  [[nodiscard]] bool is_bad() const { return bad_.is_bad(); }

 private:
  void read_header(const CsvFormat& format);
  void find(const CsvColumn& column, std::size_t index, const std::vector<std::string>& names, const char* fix,
            BadRows& bad);
  bool split(std::string_view line);

  LineReader lines_;
  BadRows bad_;
  std::span<const CsvColumn> columns_;
  std::vector<std::string_view> fields_;  // of the current row, by column
  std::vector<std::size_t> column_at_;    // by position in a row; columns_.size(): ignored
  std::vector<char> present_;             // by column
  bool ended_ = false;
};

}  // namespace spillway::traces
