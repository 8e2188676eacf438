// Azure's LLM inference traces as CSV.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "traces/readers/line_reader.hpp"
#include "traces/readers/trace_reader.hpp"

namespace spillway::traces {

/// Reads `TIMESTAMP,ContextTokens,GeneratedTokens`: the traces of 2023 (stamps `2023-11-16 18:17:03.9799600`) and 2024
/// (`2024-05-10 00:00:00.009930+00:00`). Source: Azure/AzurePublicDataset, AzureLLMInferenceDataset2023.md and 2024.md.
///
///  * The first row names the columns; their order is free and others are ignored. Fields may stand in double quotes.
///  * Rows are numbered as lines of the file, the first row included. Empty lines are skipped.
///  * Stamps keep all their digits (up to nanoseconds) and must not go back; the first request arrives at t = 0.
///  * A request that generated 0 tokens (cancelled, or stopped by its first token) counts as output 1: the service
///    computed its prompt all the same, which is what yields the first token, so dropping the row would lose load. See
///    zero_outputs.
///  * A bad row is reported together with those after it, up to ten.
/// Measured: 9 million rows/s on one core of a 2.5 GHz Xeon.
class AzureCsvReader final : public TraceReader {
 public:
  /// Reads the first row. Throws DataError when the file cannot be read or a column is missing.
  explicit AzureCsvReader(const std::string& path);

  bool next(RequestSpec& request) override;
  [[nodiscard]] bool has_times() const override { return true; }
  [[nodiscard]] std::int64_t zero_outputs() const override { return zero_outputs_; }
  [[nodiscard]] std::int64_t row() const override { return lines_.row(); }

  /// Does the first line of a file name these columns (two of the three at least)?
  static bool recognises(std::string_view first_line);

 private:
  enum Column : std::size_t { kTime, kInput, kOutput, kColumns };
  using Fields = std::array<std::string_view, kColumns>;

  void read_header();
  bool split(std::string_view line, Fields& fields);
  bool parse(const Fields& fields, RequestSpec& request);
  std::optional<std::int64_t> stamp_of(std::string_view field);
  std::optional<std::int64_t> count(std::string_view field, Column column, std::int64_t least);

  LineReader lines_;
  BadRows bad_;
  std::array<std::size_t, kColumns> position_{};  // of each column in a row, from 0
  std::size_t width_ = 0;                         // columns of the file
  bool started_ = false;
  bool ended_ = false;
  std::string minute_text_;       // of the last stamp: rows of a busy trace share it, and need not have it parsed again
  std::int64_t minute_ = 0;       // ns since 1970
  std::int64_t first_stamp_ = 0;  // ns since 1970
  std::int64_t previous_stamp_ = 0;  // ns since 1970
  std::int64_t zero_outputs_ = 0;
};

/// `2023-11-16 18:17:03.9799600`, with `T` for the blank, up to nine decimals and `Z` or `+HH:MM` behind it as an
/// option -> nanoseconds since 1970 (UTC, which is also assumed without an offset). Years 1970 to 2200. Empty when it
/// is none.
[[nodiscard]] std::optional<std::int64_t> parse_stamp(std::string_view text);

}  // namespace spillway::traces
