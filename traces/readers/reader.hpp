// Opening a trace file of any known format.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "traces/readers/trace_reader.hpp"

namespace spillway::traces {

struct TraceFormat {
  std::string name;  // as `workload.format` takes it
  std::string doc;   // one sentence: what its files look like
};

/// Every readable format, in the order in which detection tries them.
[[nodiscard]] const std::vector<TraceFormat>& trace_formats();
/// "auto" and the names of all formats: the choices of `workload.format`.
[[nodiscard]] std::vector<std::string> trace_format_choices();

struct OpenedTrace {
  std::string format;
  std::unique_ptr<TraceReader> reader;
};

/// Opens a file from its start. With options.columns it is CSV or JSON lines of that mapping, and `format` must be auto
/// or mapped. Else `format` is a name of trace_formats() or "auto", which detects the format by the first
/// line that is not blank or by the keys of the first JSON object. Any format may be compressed with gzip. With
/// options.prefix_sessions the rows are those of PrefixSessions. Throws ConfigError for an unknown format, and
/// DataError if the file is missing, empty, a folder or unreadable, or if its format cannot be detected.
[[nodiscard]] OpenedTrace open_trace(const std::string& path, const std::string& format,
                                     const ReaderOptions& options = {});

}  // namespace spillway::traces
