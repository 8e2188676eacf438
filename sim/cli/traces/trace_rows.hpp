// Sources of rows for the trace commands.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "sim/study/assemble.hpp"
#include "traces/readers/trace_reader.hpp"
#include "traces/trace_writer.hpp"

namespace spillway::cli {

/// Rows that can be read repeatedly, each time from the start.
struct TraceRows {
  std::string name;    // name for the user: the file as written, or the bundled workload
  std::string format;  // a name of trace_formats(), or "quantile-table"
  std::string sha256;
  std::function<std::unique_ptr<traces::TraceReader>()> open;
};

/// The rows of a file, unchanged. Only the settings workload.format and workload.tokenizer apply. Throws ConfigError
/// for any other setting given as an argument, and DataError like open_trace.
[[nodiscard]] TraceRows rows_of_file(const std::string& path, const ResolvedConfig& config, bool skip_bad_rows);
/// The requests of replication 0 of a run with these settings. Throws as open_workload.
[[nodiscard]] TraceRows rows_of_workload(ResolvedConfig config);

/// Reads the rows and passes each to `on_row`, which returns false to stop. Throws DataError when there is no row, and
/// all errors of the reader.
[[nodiscard]] traces::TraceFacts survey(const TraceRows& rows,
                                        const std::function<bool(const traces::TraceRow&)>& on_row);

}  // namespace spillway::cli
