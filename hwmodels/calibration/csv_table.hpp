// CSV files of measurements: the format of a header, and rows by the names of their columns.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hwmodels/calibration/measurement_rows.hpp"
#include "sim/io/line_reader.hpp"

namespace spillway::hwmodels {

class CsvTable;

/// One layout of columns. Their order is free; columns of other names are ignored.
struct CsvFormat {
  std::string_view name;                  // MeasurementFile::format
  std::vector<std::string_view> columns;  // required in the header
  std::vector<std::string_view> optional;
  std::string_view time;     // "latency": one of latency_us, latency_ms and latency_s; empty: no time column
  std::string_view instead;  // a column that may replace the time; empty: none
  std::function<void(CsvTable& table, FilePart& part)> read;  // all rows
};

[[nodiscard]] std::span<const CsvFormat> ops_formats();
[[nodiscard]] std::span<const CsvFormat> vidur_formats();
[[nodiscard]] std::span<const CsvFormat> engine_formats();

/// The rows of a file after its header.
class CsvTable : public RowSource {
 public:
  /// Limits of a file, far above any table of measurements.
  static constexpr std::int64_t kMostRows = 5'000'000;
  static constexpr std::size_t kMostColumns = 1000;
  static constexpr double kMillisecond = 1e-3;  // s

  /// Reads the header, finds its format, and reports columns that are missing or occur twice.
  /// `lines` and `complaints` must outlive the table.
  CsvTable(LineReader& lines, std::int32_t file, Complaints& complaints);
  /// Null when the header has no known format, which is reported.
  [[nodiscard]] const CsvFormat* format() const { return format_; }
  /// Names of the columns as the header has them.
  [[nodiscard]] const std::vector<std::string>& header() const { return header_; }

  /// Advances to the next row with as many fields as the header. False at the end.
  bool next();
  /// The bare text of a field. The column must be there.
  [[nodiscard]] std::string_view field(std::string_view name) const;
  /// A time in milliseconds. It may be 0, because the clock may be coarse.
  std::optional<double> milliseconds(std::string_view name);

  [[nodiscard]] RowPlace place() const override { return {file_, lines_.row()}; }
  [[nodiscard]] bool has(std::string_view name) const override { return columns_.contains(name); }
  std::optional<std::string> word(std::string_view name) override;
  std::optional<bool> flag(std::string_view name) override;
  std::optional<double> seconds() override;
  void bad(std::string_view name, std::string what, std::string fix) override;

 protected:
  std::optional<std::int64_t> integer(std::string_view name) override;
  std::optional<double> number(std::string_view name) override;

 private:
  void read_header();
  void choose_format();
  void check_columns();
  void check_time();
  void missing(const std::string& what, std::string_view wanted);
  [[nodiscard]] std::vector<std::string> foreign() const;

  LineReader& lines_;
  Complaints& complaints_;
  std::int32_t file_;
  const CsvFormat* format_ = nullptr;
  std::vector<std::string> header_;
  std::map<std::string, std::size_t, std::less<>> columns_;  // index of a name in the header
  std::vector<std::string_view> fields_;                     // of the current row
  std::string time_column_;
  double time_unit_ = 0.0;  // seconds
  std::int64_t rows_ = 0;
};

}  // namespace spillway::hwmodels
