#include "traces/readers/mooncake_jsonl.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "traces/length.hpp"

namespace spillway::traces {

bool MooncakeJsonlReader::recognises(std::string_view head) {
  constexpr std::array<std::string_view, 3> kTelling{"input_length", "output_length", "hash_ids"};
  return head.starts_with('{') && first_object_has(head, kTelling, 2);
}

MooncakeJsonlReader::MooncakeJsonlReader(const std::string& path, const ReaderOptions& options)
    : JsonlReader(path, kFieldList, options) {}

void MooncakeJsonlReader::parse(JsonRow& values, TraceRow& row) {
  const auto ns = static_cast<std::int64_t>(std::floor(values.real(kTime) * 1e6 + 0.5));
  if (!order_.fits(ns)) {
    values.complain(kTime, fmt::format("{} ms is {}", values.real(kTime), kTooEarly), "sort the rows by timestamp");
  }
  const std::int64_t input = values.whole(kInput);
  const std::int64_t blocks = (input + kBlockTokens - 1) / kBlockTokens;
  const auto ids = static_cast<std::int64_t>(values.ids(kIds).size());
  if (ids > blocks) {
    values.complain(
        kIds, fmt::format("{} ids, but a prompt of {} tokens has {} blocks of {}", ids, input, blocks, kBlockTokens),
        "ids must be of 512-token blocks; convert other sizes to native-jsonl with prefix_block_tokens");
  }
  if (is_bad()) return;
  order_.note(ns);
  if (values.whole(kOutput) == 0) ++zero_outputs_;
  row.arrival = SimTime(ns);
  set_lengths(row, input, values.whole(kOutput));
  row.prefix_ids.assign(values.ids(kIds).begin(), values.ids(kIds).end());
  row.prefix_id_tokens = kBlockTokens;
}

}  // namespace spillway::traces
