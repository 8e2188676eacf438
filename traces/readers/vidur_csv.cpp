#include "traces/readers/vidur_csv.hpp"

#include <array>

namespace spillway::traces {
namespace {

enum Column : std::size_t { kInput, kOutput, kArrival, kColumns };
constexpr std::array<CsvColumn, kColumns> kColumnNames{
    {{"num_prefill_tokens"}, {"num_decode_tokens"}, {"arrived_at", false}}};
constexpr const char* kFix = "the first row must name the columns num_prefill_tokens and num_decode_tokens";

}  // namespace

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
  row.input = Tokens(*input);
  row.output = Tokens(*output);
  row.max_new_tokens = row.output;
}

}  // namespace spillway::traces
