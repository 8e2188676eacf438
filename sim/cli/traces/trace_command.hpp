// `spillway trace info|convert|synth`.
#pragma once

#include <string>
#include <vector>

#include "sim/core/error.hpp"

namespace spillway::cli {

struct TraceOptions {
  std::string input;                   // input file; `info` also accepts a bundled workload
  std::vector<std::string> arguments;  // CONFIG.json and key=value
  std::string out;                     // -o
  std::string format;                  // empty: chosen by the suffix of `out`
  bool json = false;
  bool skip_bad_rows = false;
};

/// Prints the properties of a trace's rows. Throws UserError when the trace is unreadable or has no request.
[[nodiscard]] ExitCode trace_info(const TraceOptions& options);
/// Writes a trace file's rows in one of written_formats(). A first pass reads and checks everything; a second pass
/// writes. An existing file is replaced when the new file is complete. An error is reported here and leaves no file.
[[nodiscard]] ExitCode trace_convert(const TraceOptions& options);
/// Writes the requests of replication 0 of a run, like trace_convert.
[[nodiscard]] ExitCode trace_synth(const TraceOptions& options);

}  // namespace spillway::cli
