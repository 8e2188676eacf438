// Writers of Spillway's own trace formats.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "traces/readers/trace_reader.hpp"

namespace spillway::traces {

/// Facts that a writer needs before the first row; a native-binary file stores them at its start. Collect them in a
/// pass over the rows: `add` for each row, `finish` after the last.
struct TraceFacts {
  std::string source_name;    // file without its folders, or bundled workload
  std::string source_format;  // name of trace_formats(), or "quantile-table"
  std::string source_sha256;  // of its bytes
  std::int64_t rows = 0;
  bool has_times = false;  // from here to class_names: as TraceReader says after the last row
  bool has_inputs = true;
  std::int64_t zero_outputs = 0;
  std::int64_t skipped = 0;
  std::string first_skipped;
  std::vector<std::string> warnings;
  std::vector<std::string> class_names;
  /// Fields that some row states.
  struct Said {
    bool max_new_tokens = false;  // more than output_tokens
    bool client = false;
    bool conversation = false;
    bool turn = false;
    bool think = false;
    bool service_class = false;
    bool ttft = false;
    bool tpot = false;
    bool e2e = false;
    bool prefix = false;
    bool operator==(const Said&) const = default;
  } said;

  void add(const TraceRow& row);
  void finish(const TraceReader& reader);
  bool operator==(const TraceFacts&) const = default;
};

/// Writes the next bytes of a file; throws when it cannot.
using ByteSink = std::function<void(std::string_view)>;

/// Contract: call `add` with the rows of the facts, in order, then `finish` once. Reading the file gives equal rows,
/// with exceptions in the two text formats: named clients and conversations become numbers, and times beyond 52 days
/// are exact to 8 ns.
class TraceWriter {
 public:
  TraceWriter() = default;
  virtual ~TraceWriter() = default;
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  virtual void add(const TraceRow& row) = 0;
  virtual void finish() = 0;
};

/// Names of the formats that can be written: native-binary, native-csv, native-jsonl.
[[nodiscard]] const std::vector<std::string>& written_formats();
/// `format` is one of written_formats(). Throws DataError if the format cannot hold the rows: CSV has no lists of
/// prefix ids, and the text formats have no rows without an input length.
[[nodiscard]] std::unique_ptr<TraceWriter> open_writer(const std::string& format, const TraceFacts& facts,
                                                       ByteSink sink);

}  // namespace spillway::traces
