// The files of an engine's log folder, each with its reader; read_engine_log puts them together.
#pragma once

#include <optional>
#include <string>

#include "sim/io/file_reader.hpp"
#include "traces/complaints.hpp"
#include "traces/engine_log.hpp"

namespace spillway::traces {

inline constexpr FileWords kLogWords{"log", "request"};

/// Reads meta.json into `log`. Returns its "started_at", empty when it has none. Throws DataError when the file cannot
/// be read or is no JSON object; other problems go to `complaints`.
std::string read_log_meta(EngineLog& log, const std::string& path, Complaints& complaints);

/// True if the first row of a requests file is one that `spillway run --requests-out` writes. False when the file
/// cannot be read.
[[nodiscard]] bool is_run_log(const std::string& path);

/// Reads log.requests_file into `log`: a line per request, of an engine or of a run. Returns the arrival of the first
/// request on the client's clock, if stated. Throws DataError with all problems of the file.
std::optional<double> read_log_requests(EngineLog& log, const EngineLogOptions& options);

/// Reads timeseries.csv into `log`. `started_at` is the time of its t = 0, as in meta.json; `first_arrival` is that of
/// the first request on the client's clock. Without one of them t = 0 is the arrival of the first request.
void read_log_load(EngineLog& log, const std::string& path, const std::string& started_at,
                   std::optional<double> first_arrival, Complaints& complaints);

}  // namespace spillway::traces
