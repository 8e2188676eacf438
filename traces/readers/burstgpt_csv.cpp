#include "traces/readers/burstgpt_csv.hpp"

#include <array>
#include <string_view>

#include "traces/readers/native_fields.hpp"

namespace spillway::traces {

bool BurstGptCsvReader::recognises(std::string_view head) {
  return names_columns(head, std::span(kColumnNames).first(kTime), 1);
}

BurstGptCsvReader::BurstGptCsvReader(const std::string& path, const ReaderOptions& options)
    : CsvReader(path, {.columns = kColumnNames, .fix = kFix}, options) {}

void BurstGptCsvReader::parse(TraceRow& row) {
  const auto time = seconds(kTime);
  const auto input = tokens(kInput, 1);
  const auto output = tokens(kOutput, 0);
  if (time && !order_.fits(*time)) bad_order(kTime);
  if (is_bad()) return;
  order_.note(*time);
  if (const std::string_view session = has(kSession) ? field(kSession) : ""; !session.empty() && session != "-1") {
    row.conversation = name_id(session);
  }
  if (*output == 0) ++zero_outputs_;
  row.arrival = SimTime(*time - order_.first());
  set_lengths(row, *input, *output);
}

}  // namespace spillway::traces
