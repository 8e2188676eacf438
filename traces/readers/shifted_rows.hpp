// Rows of a file whose first row is not its earliest, with times from the earliest on.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "traces/readers/changed_rows.hpp"

namespace spillway::traces {

/// How far before time 0 the earliest row of a reader is, as the first row may have set time 0. At most kReorderWindow;
/// reads only the rows that can be earlier. Throws as the reader does.
[[nodiscard]] inline Duration time_before_start(TraceReader& reader) {
  SimTime earliest;
  for (TraceRow row; reader.next(row);) {
    if (row.arrival == kNever) continue;
    earliest = std::min(earliest, row.arrival);
    if (row.arrival > SimTime() + kReorderWindow) break;
  }
  return SimTime() - earliest;
}

/// Adds `shift` to the times of a reader's rows.
class ShiftedRows final : public ChangedRows {
 public:
  ShiftedRows(std::unique_ptr<TraceReader> reader, Duration shift) : ChangedRows(std::move(reader)), shift_(shift) {}

  bool next(TraceRow& row) override {
    if (!reader().next(row)) return false;
    if (row.arrival != kNever) row.arrival = row.arrival + shift_;
    return true;
  }

 private:
  Duration shift_;
};

}  // namespace spillway::traces
