// The first pass over a trace file: what a workload must know of it before the first request.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/units.hpp"
#include "traces/readers/trace_reader.hpp"

namespace spillway::traces {

struct TraceSurvey {
  std::string format;  // name of one of trace_formats()
  std::int64_t rows = 0;
  SimTime first{};  // earliest and latest of the stated times
  SimTime last{};
  std::int64_t timed = 0;  // rows that state a time
  bool sorted = true;      // by time
  bool has_times = false;  // these three as TraceReader says them
  bool has_inputs = true;
  bool has_texts = false;
  bool prefix_ids = false;  // some row has them
  std::int64_t unnumbered_turns = 0;
  std::int64_t later_turns = 0;  // turns after the first of their conversation
  std::int64_t later_timed = 0;  // later turns with an arrival time
  std::int64_t later_think = 0;  // later turns with a think time
  std::int64_t torn_row = 0;     // row of the first later turn that does not follow the turn before it; 0: none
  std::int64_t zero_outputs = 0;
  std::int64_t skipped = 0;
  std::string first_skipped;
  std::vector<std::string> warnings;
  std::vector<std::string> files;

  /// Mean requests/s; empty unless rows state two different times.
  [[nodiscard]] std::optional<double> rate() const;
  /// Mean turns of a conversation; a request alone counts as a conversation of one turn.
  [[nodiscard]] double mean_turns() const;
};

/// Reads the whole file. Throws as open_trace and TraceReader do, and DataError when it has no request or more than
/// kMaxRequests. Memory: 32 bytes for each of the first million conversations; any further conversation counts as new.
[[nodiscard]] TraceSurvey survey_trace(const std::string& path, const std::string& format,
                                       const ReaderOptions& options);

}  // namespace spillway::traces
