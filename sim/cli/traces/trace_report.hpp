// What `spillway trace info` prints.
#pragma once

#include <optional>
#include <string>

#include "traces/trace_statistics.hpp"
#include "traces/trace_writer.hpp"

namespace spillway::cli {

struct TraceReport {
  std::string name;
  traces::TraceFacts facts;
  traces::TraceStatistics statistics;
  std::optional<traces::TraceFacts> converted_from{};  // of a native-binary file: its source
};

/// For people: at most 100 columns.
[[nodiscard]] std::string to_table(const TraceReport& report);
/// Every number of the table, unrounded; null for what the trace does not say.
[[nodiscard]] std::string to_json(const TraceReport& report);

}  // namespace spillway::cli
