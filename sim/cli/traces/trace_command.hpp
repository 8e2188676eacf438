// `spillway trace info|convert|synth`.
#pragma once

#include <string>
#include <vector>

#include "sim/core/error.hpp"

namespace spillway::cli {

struct TraceOptions {
  std::string input;                   // file; info: or a bundled workload
  std::vector<std::string> arguments;  // CONFIG.json and key=value
  std::string out;                     // -o
  std::string format;                  // empty: out's suffix chooses
  bool json = false;
  bool skip_bad_rows = false;
};

/// Prints what a trace's rows are like. Throws UserError when it cannot be read or holds no request.
[[nodiscard]] ExitCode trace_info(const TraceOptions& options);
/// Writes a trace file's rows in one of written_formats(): first everything is read and checked, then it is read again
/// and written. A file of that name is replaced once the new one is complete; an error is reported here and leaves
/// nothing behind.
[[nodiscard]] ExitCode trace_convert(const TraceOptions& options);
/// Likewise the requests of replication 0 of a run.
[[nodiscard]] ExitCode trace_synth(const TraceOptions& options);

}  // namespace spillway::cli
