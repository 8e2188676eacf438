// The requests of a run, as `spillway run --requests-out` writes them, as a trace.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "traces/length.hpp"
#include "traces/readers/csv_reader.hpp"
#include "traces/readers/json_row.hpp"
#include "traces/readers/native_fields.hpp"
#include "traces/readers/row_checks.hpp"
#include "traces/readers/sorted_log.hpp"

namespace spillway::traces {

/// What both formats of the file, JSON lines and CSV, say of a request. Source: sim/report/requests.cpp.
///
///   index          whole, from 0: position in the run's workload
///   arrival_ns     whole, 0 to 10^17, since the start of the run
///   input_tokens   whole, 1 to 16777216
///   output_tokens  whole, 1 to 16777216: what the workload asked for, also of requests that did not finish
///   replication    optional, whole, from 0
///   client         optional, whole < 2^32
///   conversation   optional, whole, from 0
///   turn           optional, whole, from 1; needs a conversation
///   class          optional, whole, 1 to 1000
///
/// A field that is null (CSV: empty) counts as absent. Other fields, such as the latencies, are ignored. The file holds
/// no prefix ids, think times or limits per request. A later turn of a conversation keeps its time, but does not arrive
/// before the answer to the turn before.
class RunRequest {
 public:
  enum Field : std::size_t {
    kIndex,
    kArrival,
    kInput,
    kOutput,
    kReplication,
    kClient,
    kConversation,
    kTurn,
    kClass,
    kFields
  };
  static constexpr std::int64_t kMaxIndex = INT64_MAX - 1;
  static constexpr std::array<JsonField, kFields> kFieldList{
      {{"index", JsonField::Kind::whole, 0, kMaxIndex},
       {"arrival_ns", JsonField::Kind::whole, 0, static_cast<std::int64_t>(kMaxTraceSeconds) * 1'000'000'000},
       {"input_tokens", JsonField::Kind::whole, 1, kMaxTokens},
       {"output_tokens", JsonField::Kind::whole, 1, kMaxTokens},
       {"replication", JsonField::Kind::whole, 0, kMaxIndex, false},
       {"client", JsonField::Kind::whole, 0, UINT32_MAX, false},
       {"conversation", JsonField::Kind::whole, 0, kMaxIndex, false},
       {"turn", JsonField::Kind::whole, 1, INT32_MAX, false},
       {"class", JsonField::Kind::whole, 1, kMaxClasses, false}}};
  using Values = std::array<std::optional<std::int64_t>, kFields>;

  /// What is wrong with the values together; empty when nothing is.
  [[nodiscard]] static std::string complaint(const Values& values);
  /// Sets a row that says nothing yet from values without a complaint, the required ones being there.
  static LogKey fill(const Values& values, TraceRow& row);
};

/// The rows of a JSON-lines file in its order. Rows and errors: see JsonlReader.
class RunJsonlRows final : public JsonlReader {
 public:
  /// Throws DataError when the file cannot be read.
  RunJsonlRows(const std::string& path, const ReaderOptions& options);
  [[nodiscard]] bool has_times() const override { return true; }
  [[nodiscard]] const LogKey& key() const { return key_; }

  /// True if the first object of the file has arrival_ns or first_scheduled_ns.
  static bool recognises(std::string_view head);

 private:
  void parse(JsonRow& values, TraceRow& row) override;
  LogKey key_;
};

/// The rows of a CSV file in its order. Rows, fields and errors: see CsvReader.
class RunCsvRows final : public CsvReader {
 public:
  /// Throws DataError as CsvReader does.
  RunCsvRows(const std::string& path, const ReaderOptions& options);
  [[nodiscard]] bool has_times() const override { return true; }
  [[nodiscard]] const LogKey& key() const { return key_; }

  /// True if the first line of the file names arrival_ns or first_scheduled_ns.
  static bool recognises(std::string_view head);

 private:
  void parse(TraceRow& row) override;
  LogKey key_;
};

using RunJsonlReader = SortedLog<RunJsonlRows>;
using RunCsvReader = SortedLog<RunCsvRows>;

}  // namespace spillway::traces
