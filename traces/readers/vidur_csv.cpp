#include "traces/readers/vidur_csv.hpp"

#include <array>

namespace spillway::traces {

bool VidurCsvReader::recognises(std::string_view head) {
  return names_columns(head, std::span(kColumnNames).first(kArrival), 1);
}

VidurCsvReader::VidurCsvReader(const std::string& path, const ReaderOptions& options)
    : CsvReader(path, {.columns = kColumnNames, .fix = kFix}, options) {}

bool VidurCsvReader::has_times() const { return has(kArrival); }

void VidurCsvReader::parse(TraceRow& row) {
  const auto input = tokens(kInput, 1);
  const auto output = tokens(kOutput, 1);
  if (has(kArrival)) {
    const auto arrival = seconds(kArrival);
    if (arrival && !order_.fits(*arrival)) bad_order(kArrival);
    if (arrival) row.arrival = SimTime(*arrival);
  }
  if (is_bad()) return;
  if (has(kArrival)) order_.note(row.arrival.ns());
  set_lengths(row, *input, *output);
}

}  // namespace spillway::traces
