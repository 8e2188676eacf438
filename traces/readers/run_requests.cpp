#include "traces/readers/run_requests.hpp"

namespace spillway::traces {
namespace {

using Field = RunRequest::Field;

constexpr std::array<std::string_view, 2> kTellingNames{"arrival_ns", "first_scheduled_ns"};
constexpr std::array<CsvColumn, 2> kTellingColumns{{{kTellingNames[0]}, {kTellingNames[1]}}};

constexpr auto kRunColumns = [] {
  std::array<CsvColumn, RunRequest::kFields> columns;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    columns[i] = {RunRequest::kFieldList[i].name, RunRequest::kFieldList[i].required};
  }
  return columns;
}();

}  // namespace

std::string RunRequest::complaint(const Values& values) {
  return values[kTurn] && !values[kConversation] ? "a turn needs a conversation" : "";
}

LogKey RunRequest::fill(const Values& values, TraceRow& row) {
  row.arrival = SimTime(*values[kArrival]);
  set_lengths(row, *values[kInput], *values[kOutput]);
  row.client = static_cast<std::uint32_t>(values[kClient].value_or(0));
  row.service_class = static_cast<std::uint32_t>(values[kClass].value_or(0));
  if (values[kConversation]) row.conversation = static_cast<std::uint64_t>(*values[kConversation]);
  row.turn = static_cast<std::int32_t>(values[kTurn].value_or(0));
  return {values[kReplication].value_or(0), *values[kIndex], 0.0};
}

bool RunJsonlRows::recognises(std::string_view head) {
  return head.starts_with('{') && first_object_has(head, kTellingNames, 1);
}

RunJsonlRows::RunJsonlRows(const std::string& path, const ReaderOptions& options)
    : JsonlReader(path, RunRequest::kFieldList, options) {}

void RunJsonlRows::parse(JsonRow& values, TraceRow& row) {
  RunRequest::Values found;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (values.has(i)) found[i] = values.whole(i);
  }
  if (std::string what = RunRequest::complaint(found); !what.empty()) {
    values.complain(Field::kTurn, std::move(what), kCorrectRow);
    return;
  }
  key_ = RunRequest::fill(found, row);
}

bool RunCsvRows::recognises(std::string_view head) { return names_columns(head, kTellingColumns, 1); }

RunCsvRows::RunCsvRows(const std::string& path, const ReaderOptions& options)
    : CsvReader(path,
                {.columns = kRunColumns,
                 .fix = "the first row must name the columns index, arrival_ns, input_tokens and output_tokens"},
                options) {}

void RunCsvRows::parse(TraceRow& row) {
  RunRequest::Values found;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const JsonField& wanted = RunRequest::kFieldList[i];
    if (has(i) && (wanted.required || !field(i).empty())) found[i] = whole(i, wanted.least, wanted.most);
  }
  if (is_bad()) return;
  if (std::string what = RunRequest::complaint(found); !what.empty()) {
    bad(Field::kTurn, std::move(what), kCorrectRow);
    return;
  }
  key_ = RunRequest::fill(found, row);
}

}  // namespace spillway::traces
