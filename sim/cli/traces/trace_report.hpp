// The output of `spillway trace info`.
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
  std::optional<traces::TraceFacts> converted_from{};  // source of a native-binary file
};

/// A table for people, at most 100 columns wide.
[[nodiscard]] std::string to_table(const TraceReport& report);
/// Every number of the table, unrounded; null for properties that the trace does not have.
[[nodiscard]] std::string to_json(const TraceReport& report);

}  // namespace spillway::cli
