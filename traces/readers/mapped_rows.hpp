// CSV and JSON lines whose columns the user has named.
#pragma once

#include <memory>
#include <string>

#include "traces/readers/trace_reader.hpp"

namespace spillway::traces {

/// The format of a file that workload.columns describes.
inline constexpr const char* kMappedFormat = "mapped";

/// Opens a file by options.columns (column_map.hpp). A file that starts with { is JSON lines, any other CSV whose first
/// row names the columns. Rows come in order of arrival_s, in the file's order without it. Other columns are ignored.
/// Memory: some 200 bytes per row. Throws ConfigError for a mapping that cannot be read, and DataError for a file that
/// cannot, or that has no column of a mapped name; bad rows are those of TraceReader.
[[nodiscard]] std::unique_ptr<TraceReader> open_mapped(const std::string& path, const ReaderOptions& options);

}  // namespace spillway::traces
