#include "traces/readers/engine_log_jsonl.hpp"

namespace spillway::traces {

bool EngineLogRows::recognises(std::string_view head) {
  constexpr std::array<std::string_view, 4> kTelling{"queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts"};
  return head.starts_with('{') && first_object_has(head, kTelling, 1);
}

EngineLogRows::EngineLogRows(const std::string& path, const ReaderOptions& options)
    : JsonlReader(path, kFieldList, options) {}

void EngineLogRows::parse(JsonRow& values, TraceRow& row) {
  if (values.whole(kOutput) == 0) ++zero_outputs_;
  set_lengths(row, values.whole(kInput), values.whole(kOutput));
  key_ = {0, this->row(), values.real(kQueued)};  // requests that were queued at once stay in the file's order
}

}  // namespace spillway::traces
