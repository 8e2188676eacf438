// Where the commands on traces get their rows from.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "sim/study/assemble.hpp"
#include "traces/readers/trace_reader.hpp"
#include "traces/trace_writer.hpp"

namespace spillway::cli {

/// Rows that can be read as often as needed, from the start each time.
struct TraceRows {
  std::string name;    // for the user: the file as it was named, or the bundled workload
  std::string format;  // name of trace_formats(), or "quantile-table"
  std::string sha256;
  std::function<std::unique_ptr<traces::TraceReader>()> open;
};

/// The rows of a file as it is. Of the settings only workload.format and workload.tokenizer bear on it: ConfigError for
/// any other that is given as an argument. DataError as open_trace.
[[nodiscard]] TraceRows rows_of_file(const std::string& path, const ResolvedConfig& config, bool skip_bad_rows);
/// The requests of replication 0 of a run with these settings. Throws as open_workload.
[[nodiscard]] TraceRows rows_of_workload(ResolvedConfig config);

/// Reads the rows; `on_row` gets each, and false from it ends the reading. Throws DataError when there is none, and as
/// the reader does.
[[nodiscard]] traces::TraceFacts survey(const TraceRows& rows,
                                        const std::function<bool(const traces::TraceRow&)>& on_row);

}  // namespace spillway::cli
