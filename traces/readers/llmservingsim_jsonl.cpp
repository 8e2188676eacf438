#include "traces/readers/llmservingsim_jsonl.hpp"

#include <fmt/format.h>

#include <array>

#include "traces/length.hpp"
#include "traces/readers/prefix_blocks.hpp"

namespace spillway::traces {
namespace {

enum Field : std::size_t { kInput, kOutput, kArrival, kInputIds, kFields };
constexpr std::array<JsonField, kFields> kFieldList{
    {{"input_toks", JsonField::Kind::whole, 1, kMaxTokens},
     {"output_toks", JsonField::Kind::whole, 1, kMaxTokens},
     {"arrival_time_ns", JsonField::Kind::whole, 0, static_cast<std::int64_t>(kMaxTraceSeconds) * 1'000'000'000},
     {"input_tok_ids", JsonField::Kind::ids, 0, 0, false}}};

}  // namespace

bool LlmServingSimJsonlReader::recognises(std::string_view head) {
  constexpr std::array<std::string_view, 2> kTelling{"input_toks", "output_toks"};
  return head.starts_with('{') && first_object_has(head, kTelling, 1);
}

LlmServingSimJsonlReader::LlmServingSimJsonlReader(const std::string& path, Tokens block_tokens)
    : JsonlReader(path, kFieldList), block_tokens_(block_tokens.count()) {}

void LlmServingSimJsonlReader::parse(JsonRow& row, RequestSpec& request) {
  const std::int64_t ns = row.whole(kArrival);
  if (!order_.accept(ns)) {
    row.complain(kArrival, fmt::format("{} ns is earlier than the row before", ns), "sort the rows by arrival_time_ns");
  }
  const auto ids = row.ids(kInputIds);
  if (row.has(kInputIds) && static_cast<std::int64_t>(ids.size()) != row.whole(kInput)) {
    row.complain(kInputIds, fmt::format("{} token ids where input_toks = {}", ids.size(), row.whole(kInput)),
                 "correct or delete the row");
  }
  if (is_bad()) return;
  request.arrival = SimTime(ns);
  request.input = Tokens(row.whole(kInput));
  request.output = Tokens(row.whole(kOutput));
  request.max_new_tokens = request.output;
  chain_ids(ids, static_cast<std::size_t>(block_tokens_), request.prefix_ids);
}

}  // namespace spillway::traces
