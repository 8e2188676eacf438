#include "traces/readers/llmservingsim_jsonl.hpp"

#include <fmt/format.h>

#include <array>

#include "traces/length.hpp"

namespace spillway::traces {

bool LlmServingSimJsonlReader::recognises(std::string_view head) {
  constexpr std::array<std::string_view, 2> kTelling{"input_toks", "output_toks"};
  return head.starts_with('{') && first_object_has(head, kTelling, 1);
}

LlmServingSimJsonlReader::LlmServingSimJsonlReader(const std::string& path, const ReaderOptions& options)
    : JsonlReader(path, kFieldList, options) {}

void LlmServingSimJsonlReader::parse(JsonRow& values, TraceRow& row) {
  const std::int64_t ns = values.whole(kArrival);
  if (!order_.fits(ns)) {
    values.complain(kArrival, fmt::format("{} ns is {}", ns, kTooEarly), "sort the rows by arrival_time_ns");
  }
  const auto ids = values.ids(kInputIds);
  if (values.has(kInputIds) && static_cast<std::int64_t>(ids.size()) != values.whole(kInput)) {
    values.complain(kInputIds, fmt::format("{} token ids, but input_toks = {}", ids.size(), values.whole(kInput)),
                    kCorrectRow);
  }
  if (is_bad()) return;
  order_.note(ns);
  row.arrival = SimTime(ns);
  set_lengths(row, values.whole(kInput), values.whole(kOutput));
  row.prefix_ids.assign(ids.begin(), ids.end());
  row.prefix_id_tokens = 1;
}

}  // namespace spillway::traces
