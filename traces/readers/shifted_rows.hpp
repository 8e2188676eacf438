// Rows of a file whose first row is not its earliest, with times from the earliest on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "traces/readers/trace_reader.hpp"

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
class ShiftedRows final : public TraceReader {
 public:
  ShiftedRows(std::unique_ptr<TraceReader> reader, Duration shift) : reader_(std::move(reader)), shift_(shift) {}

  bool next(TraceRow& row) override {
    if (!reader_->next(row)) return false;
    if (row.arrival != kNever) row.arrival = row.arrival + shift_;
    return true;
  }
  [[nodiscard]] bool has_times() const override { return reader_->has_times(); }
  [[nodiscard]] bool has_inputs() const override { return reader_->has_inputs(); }
  [[nodiscard]] bool has_texts() const override { return reader_->has_texts(); }
  [[nodiscard]] std::int64_t zero_outputs() const override { return reader_->zero_outputs(); }
  [[nodiscard]] std::int64_t row() const override { return reader_->row(); }
  [[nodiscard]] std::int64_t skipped() const override { return reader_->skipped(); }
  [[nodiscard]] std::string first_skipped() const override { return reader_->first_skipped(); }
  [[nodiscard]] std::vector<std::string> warnings() const override { return reader_->warnings(); }
  [[nodiscard]] std::vector<std::string> files() const override { return reader_->files(); }
  [[nodiscard]] std::vector<std::string> class_names() const override { return reader_->class_names(); }

 private:
  std::unique_ptr<TraceReader> reader_;
  Duration shift_;
};

}  // namespace spillway::traces
